"""FSDP2 for real, on CPU processes: what each rank holds after one step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def _work(rank: int, ranks: int, port: int, reshard: bool, out: str) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from course_lib.nanogpt import GPT, GPTConfig, loss_fn

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=256, block_size=64, n_layer=4, n_head=4, n_embd=128)
    model = GPT(config)
    n_params = sum(parameter.numel() for parameter in model.parameters())
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)  # one gather a block
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(256, (2, 64), generator=torch.Generator().manual_seed(rank))
    loss_fn(model(tokens), tokens).backward()
    optimizer.step()

    def local_bytes(tensors: Any) -> int:
        return sum(t.to_local().nbytes if hasattr(t, "to_local") else t.nbytes for t in tensors)

    state = [t for entry in optimizer.state.values() for t in entry.values() if torch.is_tensor(t) and t.dim()]
    parameters = list(model.parameters())
    row = {
        "rank": rank,
        "n_params": n_params,
        "parameters": local_bytes(parameters),
        "gradients": local_bytes([p.grad for p in parameters if p.grad is not None]),
        "optimizer state": local_bytes(state),
    }
    Path(out, f"{rank}.json").write_text(json.dumps(row), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def fsdp_bytes(ranks: int = 2, *, reshard: bool = True, timeout_s: float = 120.0) -> list[dict[str, int]]:
    """One AdamW step of a small GPT under `fully_shard`, in `ranks` processes over gloo; bytes on each rank.

    Returns:
        A dict a rank: `rank`, `n_params` (of the whole model), and bytes of its own `parameters`, `gradients` and
        `optimizer state`, all fp32.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        code = "import sys; from course_lib.toolbox.fsdp_demo import _work; a = sys.argv; "
        code += "_work(int(a[1]), int(a[2]), int(a[3]), a[4] == 'True', a[5])"
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(rank), str(ranks), str(port), str(reshard), folder],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            ends = [worker.communicate(timeout=timeout_s) for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
        for worker, (_, errors) in zip(workers, ends, strict=True):
            if worker.returncode:
                raise RuntimeError(f"a rank of the FSDP demonstration ended with {worker.returncode}: {errors[-2000:]}")
        return [json.loads(Path(folder, f"{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]

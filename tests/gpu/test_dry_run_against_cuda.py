"""The dry run beside `torch.cuda.max_memory_allocated()`: run it where a GPU is; elsewhere it skips with the reason.

    python -m pytest tests/gpu -rA        # prints the ratio of each configuration

Aim: within 5 % on every row, the target of the course. What the dry run does not count (cuBLAS's and the attention
kernels' workspaces) is in CUDA's number; reserved memory and the context are printed apart.
"""

from __future__ import annotations

import gc
import itertools

import pytest
import torch
import torch.nn.functional as F

from course_lib.memory import Gpu, dry_run
from course_lib.memory.decoder import Decoder
from course_lib.memory.models import MODELS, ModelConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: compares with max_memory_allocated()"),
]

NANO = ModelConfig("nano", "gpt2", 6, 384, 6, 6, 64, 1536, 256, 256, tied=True)
SMALL_LLAMA = ModelConfig("small-llama", "llama", 4, 1024, 16, 4, 64, 2816, 32000, 2048, tied=False, qk_norm=True)

# (model, batch, tokens): big enough that weights and activations outweigh what is rounded
SIZES = {
    "nano": (NANO, 64, 256),
    "gpt2": (MODELS["gpt2"], 4, 512),
    "gpt2-medium": (MODELS["gpt2-medium"], 2, 512),
    "small-llama": (SMALL_LLAMA, 2, 1024),
}
PRECISIONS = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}
FULL = list(itertools.product(["nano", "gpt2"], PRECISIONS, ["naive", "sdpa"], [False, True], ["adamw"]))
MORE = [
    ("nano", "fp32", "sdpa", False, "sgd"),
    ("gpt2", "fp16", "sdpa", True, "sgd"),
    ("gpt2-medium", "fp32", "sdpa", True, "adamw"),
    ("gpt2-medium", "fp16", "naive", False, "adamw"),
    ("gpt2-medium", "bf16", "sdpa", True, "adamw"),
    ("small-llama", "bf16", "sdpa", False, "adamw"),
    ("small-llama", "fp16", "sdpa", True, "sgd"),
]


def this_gpu() -> Gpu:
    """The GPU at hand, with its own rules."""
    properties = torch.cuda.get_device_properties(0)
    capability = (properties.major, properties.minor)
    return Gpu(properties.name, properties.total_memory, 0.0, 0.0, 0.0, 0.0, 0.0, capability, 0, "this machine")


def make(size: str, precision: str, attention: str, is_checkpointed: bool, optimizer_name: str):
    config, batch, seq = SIZES[size]
    low = PRECISIONS[precision]

    def build():
        torch.manual_seed(0)
        with torch.device("cuda"):
            model = Decoder(config, attention=attention, is_checkpointed=is_checkpointed)
            tokens = torch.randint(config.vocab, (batch, seq + 1))
        kind = torch.optim.AdamW if optimizer_name == "adamw" else torch.optim.SGD
        return (
            model,
            kind(model.parameters(), lr=1e-4),
            torch.amp.GradScaler("cuda", enabled=low is torch.float16),
            tokens,
        )

    def step(model, optimizer, scaler, tokens):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", low or torch.float16, enabled=low is not None):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return build, step


def measure_on_cuda(build, step) -> dict[str, int]:
    """Bytes allocated and reserved at the peak of the third step, less what lived before."""
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    built = build()
    for _ in range(2):
        step(*built)
    torch.cuda.synchronize()
    built[1].zero_grad(set_to_none=True)
    torch.cuda.reset_peak_memory_stats()
    step(*built)
    torch.cuda.synchronize()
    return {"allocated": torch.cuda.max_memory_allocated() - before, "reserved": torch.cuda.max_memory_reserved()}


@pytest.mark.parametrize("configuration", FULL + MORE, ids=lambda c: "-".join(map(str, c)))
def test_the_peak_is_within_five_percent_of_cuda(configuration):
    if configuration[1] == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        pytest.skip("this GPU has no bf16 (compute capability below 8.0)")
    build, step = make(*configuration)
    report = dry_run(build, step, gpu=this_gpu())
    measured = measure_on_cuda(build, step)
    ratio = report.peak_bytes / measured["allocated"]
    print(
        f"{'-'.join(map(str, configuration)):<40} predicted {report.peak_bytes / 2**20:9.1f} MiB, "
        f"allocated {measured['allocated'] / 2**20:9.1f} MiB, ratio {ratio:.3f}, "
        f"reserved {measured['reserved'] / 2**20:9.1f} MiB"
    )
    assert ratio == pytest.approx(1, abs=0.05)


def test_a_real_out_of_memory_error_is_caught_by_the_same_words():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2 * torch.cuda.get_device_properties(0).total_memory, dtype=torch.uint8, device="cuda")


def test_the_ledger_counts_cuda_tensors_as_the_allocator_does():
    from course_lib.memory import MemoryLedger

    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    with MemoryLedger() as ledger:
        kept = [torch.empty(size, device="cuda") for size in (1, 129, 100_000)]
        assert ledger.live_bytes == torch.cuda.memory_allocated() - before
        del kept
        assert ledger.live_bytes == 0

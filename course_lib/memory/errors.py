"""What a dry run says when a step does not fit, or when it asks for something that only values can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from course_lib.memory.report import MemoryReport

GIB = 2**30


def describe_bytes(num_bytes: float) -> str:
    """Bytes as CUDA's own message writes them: GiB from 2**30 on, else MiB, else bytes."""
    if abs(num_bytes) >= GIB:
        return f"{num_bytes / GIB:.2f} GiB"
    if abs(num_bytes) >= 2**20:
        return f"{num_bytes / 2**20:.2f} MiB"
    return f"{num_bytes:,.0f} bytes"


class SimulatedOutOfMemoryError(torch.OutOfMemoryError):
    """A dry run reached an operation whose result would not fit on the GPU.

    A subclass of `torch.OutOfMemoryError`, so that code which catches the real one catches this one too.

    Attributes:
        requested_bytes: what the operation asked for, rounded up to the allocator's 512 bytes.
        free_bytes: what was left of `capacity_bytes` (bytes of tensor storage; never negative).
        capacity_bytes: usable bytes of the GPU.
        live_by_category: bytes alive before the operation, by category.
        operation: for example "aten._softmax.default".
        phase: "build", "forward", "backward" or "step".
        module: path of the module at work in the forward pass, such as "blocks.3.attn"; "" where there is none.
        report: the `MemoryReport` up to this operation; set by `dry_run`, None from a bare ledger.
    """

    def __init__(
        self,
        *,
        requested_bytes: int,
        capacity_bytes: int,
        live_by_category: dict[str, int],
        operation: str,
        phase: str,
        module: str = "",
        gpu_name: str = "GPU 0",
    ) -> None:
        live = sum(live_by_category.values())
        self.requested_bytes = requested_bytes
        self.capacity_bytes = capacity_bytes
        self.free_bytes = max(0, capacity_bytes - live)
        self.live_by_category = dict(live_by_category)
        self.operation = operation
        self.phase = phase
        self.module = module
        self.report: MemoryReport | None = None
        held = ", ".join(f"{name} {describe_bytes(size)}" for name, size in live_by_category.items() if size)
        where = f" in {module}" if module else ""
        super().__init__(
            f"CUDA out of memory (simulated). Tried to allocate {describe_bytes(requested_bytes)}. "
            f"{gpu_name} has a total capacity of {describe_bytes(capacity_bytes)} "
            f"of which {describe_bytes(self.free_bytes)} is free. "
            f"Of the allocated memory {describe_bytes(live)} is allocated by tensors: {held or 'nothing'}. "
            f"It happened in the {phase} phase, at {operation}{where}."
        )


class DryRunError(RuntimeError):
    """The step needs something that tensors without values cannot give; the message says what to write instead."""

"""MemoryReport: what a dry run saw."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from course_lib.memory.errors import describe_bytes
from course_lib.memory.ledger import MemoryLedger
from course_lib.memory.timeline import CATEGORIES, Mark, TimelinePoint


@dataclass(frozen=True)
class MemoryReport:
    """Bytes of tensor storage over one training step, rounded up to the allocator's 512 bytes.

    Not in it: workspaces inside kernels, the CUDA context (some hundred MiB), fragmentation.

    Attributes:
        peak_bytes: the most that was alive after any operation.
        peak_by_category: `peak_bytes`, split over `CATEGORIES`.
        peak_operation, peak_phase, peak_module, peak_index: the operation that made the peak.
        live_bytes: alive after the step, with the model, the optimizer and the batch still held.
        live_by_category: `live_bytes`, split.
        start_bytes: alive before the step: weights, optimizer state, batch.
        timeline: one `TimelinePoint` an operation.
        marks: what was alive at the end of each phase, in order ("forward", "backward", "step", ...).
        offloaded_bytes: the most that `save_on_cpu` held in the host's memory; not part of the GPU's bytes.
        gpu: name of the GPU, or None.
        capacity_bytes: what the GPU offers, or None.
    """

    peak_bytes: int
    peak_by_category: dict[str, int]
    peak_operation: str
    peak_phase: str
    peak_module: str
    peak_index: int
    live_bytes: int
    live_by_category: dict[str, int]
    start_bytes: int
    timeline: list[TimelinePoint] = field(repr=False)
    marks: list[Mark] = field(repr=False)
    offloaded_bytes: int = 0
    gpu: str | None = None
    capacity_bytes: int | None = None

    @classmethod
    def of(cls, ledger: MemoryLedger, start_bytes: int, **more: Any) -> MemoryReport:
        """The report of a ledger, now."""
        last = Mark(ledger.phase, len(ledger.timeline) - 1, ledger.live_bytes, tuple(ledger.live_by_category.values()))
        return cls(
            peak_bytes=ledger.peak_bytes,
            peak_by_category=ledger.peak_by_category,
            peak_operation=ledger.peak_operation,
            peak_phase=ledger.peak_phase,
            peak_module=ledger.peak_module,
            peak_index=ledger.peak_index,
            live_bytes=ledger.live_bytes,
            live_by_category=ledger.live_by_category,
            start_bytes=start_bytes,
            timeline=list(ledger.timeline),
            marks=[*ledger.marks, last],
            offloaded_bytes=ledger.offloaded_peak_bytes,
            **more,
        )

    @property
    def fits(self) -> bool:
        """Whether the peak fits the GPU; True without one."""
        return self.capacity_bytes is None or self.peak_bytes <= self.capacity_bytes

    def mark(self, phase: str) -> Mark | None:
        """What was alive at the end of the last phase of this name ("forward": what autograd keeps for backward)."""
        return next((mark for mark in reversed(self.marks) if mark.phase == phase), None)

    def peak_in(self, phase: str) -> TimelinePoint | None:
        """The point of the timeline with the most bytes alive in the phases of this name."""
        points = [point for point in self.timeline if point.phase == phase]
        return max(points, key=lambda point: point.live_bytes, default=None)

    def __str__(self) -> str:
        where = f" in {self.peak_module}" if self.peak_module else ""
        lines = [
            f"peak {describe_bytes(self.peak_bytes)} at {self.peak_operation}{where} ({self.peak_phase})",
            *(
                f"  {name:<16}{describe_bytes(self.peak_by_category[name]):>12}"
                for name in CATEGORIES
                if self.peak_by_category[name]
            ),
        ]
        if self.capacity_bytes is not None:
            verdict = "fits" if self.fits else "does not fit"
            lines.append(f"{verdict} {self.gpu}: {describe_bytes(self.capacity_bytes)} usable")
        return "\n".join(lines)

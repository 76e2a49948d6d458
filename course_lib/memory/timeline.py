"""The words and the records of the ledger: categories, points of a timeline, marks between phases."""

from __future__ import annotations

from typing import NamedTuple

CATEGORIES = ("parameter", "gradient", "optimizer state", "buffer", "input", "activation", "temporary")
PARAMETER, GRADIENT, OPTIMIZER_STATE, BUFFER, INPUT, ACTIVATION, TEMPORARY = range(7)


class TimelinePoint(NamedTuple):
    """What was alive right after one operation.

    Attributes:
        index: number of the operation, from 0.
        operation: for example "aten.mm.default".
        phase: "forward", "backward" (recomputation too) or "step"; "build" in a dry run's preparation.
        module: path of the module at work, such as "blocks.3.attn"; "" when unknown.
        live_bytes: sum of `category_bytes`.
        category_bytes: in the order of `CATEGORIES`.
    """

    index: int
    operation: str
    phase: str
    module: str
    live_bytes: int
    category_bytes: tuple[int, ...]

    @property
    def by_category(self) -> dict[str, int]:
        """Bytes by category."""
        return dict(zip(CATEGORIES, self.category_bytes, strict=True))


class Mark(NamedTuple):
    """What was alive when a phase ended, before the first operation of the next one.

    Attributes:
        phase: the phase that ended.
        index: number of its last operation.
        live_bytes, category_bytes: as in `TimelinePoint`.
    """

    phase: str
    index: int
    live_bytes: int
    category_bytes: tuple[int, ...]

    @property
    def by_category(self) -> dict[str, int]:
        """Bytes by category."""
        return dict(zip(CATEGORIES, self.category_bytes, strict=True))

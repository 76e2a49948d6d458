"""Seeing bytes: a ledger of live tensor storage, and a dry run of a training step on any GPU, without one."""

from course_lib.memory.dry_run import dry_run
from course_lib.memory.errors import DryRunError, SimulatedOutOfMemoryError
from course_lib.memory.gpus import GPUS, Gpu, find_gpu
from course_lib.memory.ledger import MemoryLedger
from course_lib.memory.report import MemoryReport
from course_lib.memory.timeline import CATEGORIES, Mark, TimelinePoint

__all__ = [
    "CATEGORIES",
    "DryRunError",
    "GPUS",
    "Gpu",
    "Mark",
    "MemoryLedger",
    "MemoryReport",
    "SimulatedOutOfMemoryError",
    "TimelinePoint",
    "dry_run",
    "find_gpu",
]

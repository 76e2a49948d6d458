"""What CUDA would do where the CPU does otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from course_lib.memory.gpus import Gpu


@contextmanager
def cuda_rules(gpu: Gpu | None = None) -> Iterator[None]:
    """Inside, fake CPU tensors follow CUDA's rules: autocast's lists, dropout's mask, attention's backend."""
    yield

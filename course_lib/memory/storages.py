"""Every living tensor storage, once, at the size that CUDA's caching allocator hands out."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from course_lib.memory.timeline import ACTIVATION, CATEGORIES, TEMPORARY

# c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize: "all sizes are rounded to at least 512 bytes"
BLOCK_BYTES = 512
HOST = len(CATEGORIES)  # the host's memory: followed, but no part of the GPU's bytes


class Record(weakref.ref):
    """A weak reference to a storage, with what is known about it."""

    __slots__ = ("category", "key", "nbytes", "phase")

    key: int  # address of the StorageImpl
    nbytes: int
    category: int
    phase: str  # in which it was born


class LiveStorages:
    """Bytes alive by category. Weak references are to storages, not tensors: those would break `module.to()`.

    Args:
        block_bytes: sizes are rounded up to a multiple of this.
    """

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        self.block_bytes = block_bytes
        self.records: dict[int, Record] = {}
        self.live = [0] * len(CATEGORIES)
        self.host = [0, 0]  # live, peak

        live, host, records = self.live, self.host, self.records

        def forget(record: weakref.ref) -> None:
            assert isinstance(record, Record)
            if record.category == HOST:
                host[0] -= record.nbytes
            else:
                live[record.category] -= record.nbytes
            # The address may belong to a new storage already; then its record stays.
            if records.get(record.key) is record:
                del records[record.key]

        self._forget = forget

    def rounded_bytes(self, storage: torch.UntypedStorage) -> int:
        """What the allocator hands out for a storage."""
        return (storage.nbytes() + self.block_bytes - 1) // self.block_bytes * self.block_bytes

    def find(self, storage: torch.UntypedStorage) -> Record | None:
        """The record of a storage that is followed."""
        return self.records.get(storage._cdata)

    def add(self, storage: torch.UntypedStorage, nbytes: int, category: int, phase: str) -> None:
        """Follow a storage until it dies."""
        record = Record(storage, self._forget)
        record.key, record.nbytes, record.category, record.phase = storage._cdata, nbytes, category, phase
        self.records[record.key] = record
        if category == HOST:
            self.host[0] += nbytes
            self.host[1] = max(self.host)
        else:
            self.live[category] += nbytes

    def move(self, record: Record, category: int) -> None:
        """Give a storage another category; what is on the host stays there."""
        if record.category != HOST:
            self.live[record.category] -= record.nbytes
            self.live[category] += record.nbytes
            record.category = category

    def resize(self, record: Record, nbytes: int) -> None:
        """A storage on the GPU changed its size."""
        self.live[record.category] += nbytes - record.nbytes
        record.nbytes = nbytes

    def keep_what_forward_left(self) -> None:
        """Backward starts: what a custom Function made without gradients in the forward pass and kept is an activation."""
        for record in list(self.records.values()):
            if record.category == TEMPORARY and record.phase == "forward":
                self.move(record, ACTIVATION)


def plain_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that own storage: a wrapper's or a sparse tensor's inner ones, or the tensor itself."""
    if not isinstance(tensor, FakeTensor) and hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [part for name in names for part in plain_tensors(getattr(tensor, name))]
    if tensor.layout == torch.strided:
        return [tensor]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []  # other layouts do not occur in training


def storage_keys(things: Any) -> set[int]:
    """The keys of all storages in any nesting of lists, tuples and dicts."""
    leaves = (leaf for leaf in tree_leaves(things) if isinstance(leaf, torch.Tensor))
    return {part.untyped_storage()._cdata for leaf in leaves for part in plain_tensors(leaf)}

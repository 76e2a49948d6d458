"""A GPU's on-chip memory as Python can show it: small, counted, and empty again after `free`.

A GPU's arithmetic units read from a small fast memory (SRAM); everything else lives in a large slow one (HBM). Here the
slow memory is ordinary tensors, and the fast one is an `OnChipMemory`: nothing that it does not hold may be computed with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


class OnChipMemoryError(RuntimeError):
    """A tile does not fit. `asked_bytes`, `held_bytes` and `capacity_bytes` are the three numbers of the message."""

    def __init__(self, asked_bytes: int, held_bytes: int, capacity_bytes: int, shape: tuple[int, ...], tiles: int):
        self.asked_bytes, self.held_bytes, self.capacity_bytes, self.shape = (
            asked_bytes,
            held_bytes,
            capacity_bytes,
            shape,
        )
        super().__init__(
            f"a tile must fit in on-chip memory; asked for {asked_bytes:,} bytes (shape {list(shape)}) while "
            f"{held_bytes:,} of {capacity_bytes:,} bytes are held by {tiles} tile{'s' * (tiles != 1)}. "
            "Free a tile that you no longer need, or load a smaller one."
        )


class FreedTileError(RuntimeError):
    """A tile was read after it was freed: on a GPU its bytes belong to another tile by now."""


class Tile(torch.Tensor):
    """A tensor that lives on chip. Computing with it gives ordinary tensors; after `free` it cannot be read.

    The object itself is empty: its values are in `_contents`, and every operation is redirected there.
    """

    _contents: Tensor | None = None  # None once freed

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tiles: dict[int, Tile] = {}  # so that `tile += x` stays a tile

        def unwrap(value: Any) -> Any:
            if isinstance(value, Tile):
                if value._contents is None:
                    raise FreedTileError("a tile must not be read after it is freed. Load it again, or free it later.")
                tiles[id(value._contents)] = value
                return value._contents
            if type(value) in (list, tuple):
                return type(value)(unwrap(item) for item in value)
            return value

        args = unwrap(tuple(args))
        kwargs = {name: unwrap(value) for name, value in (kwargs or {}).items()}
        result = func(*args, **kwargs)
        return tiles.get(id(result), result)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return "Tile(freed)" if self._contents is None else f"Tile({self._contents!r})"


class OnChipMemory:
    """On-chip memory of a fixed size that counts the traffic between itself and HBM.

    Args:
        capacity_bytes: how much the tiles held at one time may take; None for no limit (traffic is counted all the same).

    Attributes:
        held_bytes, peak_bytes: bytes of the tiles held now, and the most that were ever held.
        loaded_bytes, stored_bytes: traffic from HBM and to HBM, ever; `traffic_bytes` is their sum.
        tallest_rows: most rows (second dimension from the end) of a tile that was asked for, refused or not.
    """

    def __init__(self, capacity_bytes: int | None = None):
        if capacity_bytes is not None and capacity_bytes < 1:
            raise ValueError(f"capacity_bytes must be at least 1; got {capacity_bytes}. Use None for no limit.")
        self.capacity_bytes = capacity_bytes
        self.held_bytes = self.peak_bytes = self.loaded_bytes = self.stored_bytes = 0
        self.tallest_rows = 0
        self._tiles: dict[int, Tile] = {}
        self._scopes: list[list[Tile]] = []
        self._device: torch.device | None = None  # of what was loaded last: tiles that are allocated go there

    @property
    def traffic_bytes(self) -> int:
        """Bytes moved either way."""
        return self.loaded_bytes + self.stored_bytes

    def load(self, tensor_slice: Tensor) -> Tile:
        """Copy a slice of a tensor in HBM on chip.

        Args:
            tensor_slice: for example `k[:, :, 64:128]`.
        Returns:
            A tile of the same shape and dtype.
        Raises:
            OnChipMemoryError: it does not fit beside the tiles that are held.
        """
        if isinstance(tensor_slice, Tile):
            raise ValueError("load must get a tensor in HBM; got a tile, which is on chip already. Use it as it is.")
        self._reserve(tuple(tensor_slice.shape), tensor_slice.dtype)
        self._device = tensor_slice.device
        self.loaded_bytes += tensor_slice.numel() * tensor_slice.element_size()
        return self._hold(tensor_slice.detach().clone(memory_format=torch.contiguous_format))

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tile:
        """Make room for a tile of zeros on chip. It costs no traffic.

        Raises:
            OnChipMemoryError: it does not fit beside the tiles that are held.
        """
        self._reserve(tuple(shape), dtype)
        return self._hold(torch.zeros(tuple(shape), dtype=dtype, device=self._device))

    def store(self, tile: Tensor, destination: Tensor) -> None:
        """Write a tile, or something computed from tiles, to a slice of a tensor in HBM, in the destination's dtype.

        Args:
            tile: same shape as the destination.
            destination: a slice (a view) of a tensor in HBM, for example `out[:, :, 64:128]`.
        """
        if tuple(tile.shape) != tuple(destination.shape):
            raise ValueError(
                f"a tile must have the shape of its destination; got {list(tile.shape)} for {list(destination.shape)}. "
                "Slice the destination like the tile."
            )
        with torch.no_grad():
            destination.copy_(tile)
        self.stored_bytes += destination.numel() * destination.element_size()

    def free(self, *tiles: Tensor) -> None:
        """Give the room of these tiles back. They, and views of them, cannot be used any more."""
        for tile in tiles:
            if not isinstance(tile, Tile):
                raise ValueError(
                    f"free must get what load or allocate returned; got {type(tile).__name__}. "
                    "What you compute from tiles takes no room here and needs no free."
                )
            values = tile._contents
            if values is None:
                raise FreedTileError("a tile must be freed once; this one was freed before. Drop the second free.")
            if id(tile) not in self._tiles:
                raise ValueError(
                    "free must get a tile of this memory; got one of another. Free it where it was loaded."
                )
            del self._tiles[id(tile)]
            self.held_bytes -= values.numel() * values.element_size()
            # A view that somebody kept must not go on reading what is gone.
            values.fill_(float("nan") if values.is_floating_point() else 0)
            tile._contents = None

    @contextmanager
    def scope(self) -> Iterator[OnChipMemory]:
        """Free at the end of the block whatever was loaded or allocated in it and not freed by then."""
        self._scopes.append([])
        try:
            yield self
        finally:
            self.free(*(tile for tile in self._scopes.pop() if tile._contents is not None))

    def _reserve(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        asked = dtype.itemsize
        for size in shape:
            asked *= size
        if len(shape) >= 2:
            self.tallest_rows = max(self.tallest_rows, shape[-2])
        if self.capacity_bytes is not None and self.held_bytes + asked > self.capacity_bytes:
            raise OnChipMemoryError(asked, self.held_bytes, self.capacity_bytes, shape, len(self._tiles))
        self.held_bytes += asked
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    def _hold(self, values: Tensor) -> Tile:
        tile = torch.empty(0, dtype=values.dtype).as_subclass(Tile)
        tile._contents = values
        self._tiles[id(tile)] = tile
        if self._scopes:
            self._scopes[-1].append(tile)
        return tile

"""A small caching allocator, after CUDA's in PyTorch: why 2 GiB free can still be out of memory.

Source: pytorch/c10/cuda/CUDACachingAllocator.cpp (kMinBlockSize, kSmallSize, kSmallBuffer, kLargeBuffer,
kMinLargeAlloc, kRoundLarge) and the notes on `expandable_segments` in PyTorch's CUDA semantics. Left out: streams,
`garbage_collection_threshold`, `max_split_size_mb`, graphs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 2**20
MIN_BLOCK_BYTES = 512  # every request is rounded up to a multiple of this
SMALL_BYTES = 1 * MIB  # requests up to this come from the small pool
SMALL_SEGMENT_BYTES = 2 * MIB  # ... in segments of this size
LARGE_SEGMENT_BYTES = 20 * MIB  # larger requests share segments of this size
MIN_OWN_SEGMENT_BYTES = 10 * MIB  # ... unless they are at least this large: then a segment of their own
ROUND_LARGE_BYTES = 2 * MIB  # ... rounded up to a multiple of this


class OutOfMemory(RuntimeError):
    """The simulated GPU has no room for another segment."""


def rounded(n_bytes: int, multiple: int = MIN_BLOCK_BYTES) -> int:
    """`n_bytes` rounded up to a multiple, and at least one."""
    return max(1, -(-n_bytes // multiple)) * multiple


def segment_bytes(n_bytes: int) -> int:
    """The size of the segment that a request of `n_bytes` makes when no free block serves it."""
    if n_bytes <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if n_bytes < MIN_OWN_SEGMENT_BYTES:
        return LARGE_SEGMENT_BYTES
    return rounded(n_bytes, ROUND_LARGE_BYTES)


@dataclass
class Block:
    """A piece of a segment: where it starts, how long it is, and who has it (None: free)."""

    start: int
    size: int
    owner: int | None = None


@dataclass
class Segment:
    """What one `cudaMalloc` gave: its blocks lie side by side and cover it."""

    is_small: bool
    blocks: list[Block] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    @property
    def is_free(self) -> bool:
        return all(block.owner is None for block in self.blocks)


class CachingAllocator:
    """Hands out blocks of cached segments, as PyTorch's CUDA allocator does.

    Args:
        capacity_bytes: of the simulated GPU.
        expandable_segments: one segment a pool, which grows and shrinks by pages instead of being cut anew.
    """

    def __init__(self, capacity_bytes: int, *, expandable_segments: bool = False) -> None:
        self.capacity_bytes, self.expandable_segments = capacity_bytes, expandable_segments
        self.segments: list[Segment] = []
        self._requested: dict[int, int] = {}  # bytes that the program asked for, by ticket
        self._next_ticket = 0

    @property
    def used_bytes(self) -> int:
        """What the program asked for."""
        return sum(self._requested.values())

    @property
    def allocated_bytes(self) -> int:
        """Blocks in use: requests rounded up to 512 bytes, more where a block was not worth splitting."""
        return sum(block.size for segment in self.segments for block in segment.blocks if block.owner is not None)

    @property
    def reserved_bytes(self) -> int:
        """All segments: what `nvidia-smi` counts, beside the CUDA context."""
        return sum(segment.size for segment in self.segments)

    @property
    def largest_free_bytes(self) -> int:
        """The longest free block inside the reserved memory."""
        return max((b.size for s in self.segments for b in s.blocks if b.owner is None), default=0)

    def malloc(self, n_bytes: int) -> int:
        """A ticket for a block of at least `n_bytes`.

        Raises:
            OutOfMemory: no free block is long enough and no segment can be added, even after emptying the cache.
        """
        size = rounded(n_bytes)
        found = self._best_free_block(size)
        if found is None:
            self._add_memory(size, n_bytes)
            found = self._best_free_block(size)
            assert found is not None
        segment, block = found
        self._split(segment, block, size)
        block.owner = self._next_ticket
        self._requested[self._next_ticket] = n_bytes
        self._next_ticket += 1
        return block.owner

    def free(self, ticket: int) -> None:
        """Gives a block back to the cache, joined with free neighbours; the segment stays reserved."""
        del self._requested[ticket]
        for segment in self.segments:
            for block in segment.blocks:
                if block.owner == ticket:
                    block.owner = None
                    self._join_free_neighbours(segment)
                    return

    def empty_cache(self) -> None:
        """Returns to the GPU what no block uses: whole segments, or free pages of an expandable one."""
        if self.expandable_segments:
            for segment in self.segments:
                self._unmap_free_pages(segment)
        self.segments = [segment for segment in self.segments if not segment.is_free]

    def _best_free_block(self, size: int) -> tuple[Segment, Block] | None:
        is_small = size <= SMALL_BYTES
        candidates = [
            (block.size, position, block.start, segment, block)
            for position, segment in enumerate(self.segments)
            if segment.is_small == is_small
            for block in segment.blocks
            if block.owner is None and block.size >= size
        ]
        return min(candidates, key=lambda c: c[:3])[3:] if candidates else None

    def _split(self, segment: Segment, block: Block, size: int) -> None:
        rest = block.size - size
        # a large block keeps a remainder of up to 1 MiB to itself, unless the segment is expandable
        smallest_rest = MIN_BLOCK_BYTES if segment.is_small or self.expandable_segments else SMALL_BYTES + 1
        if rest >= smallest_rest:
            segment.blocks.insert(segment.blocks.index(block) + 1, Block(block.start + size, rest))
            block.size = size

    def _join_free_neighbours(self, segment: Segment) -> None:
        joined: list[Block] = []
        for block in segment.blocks:
            last = joined[-1] if joined else None
            if last and last.owner is None and block.owner is None and last.start + last.size == block.start:
                last.size += block.size
            else:
                joined.append(block)
        segment.blocks = joined

    def _add_memory(self, size: int, n_bytes: int) -> None:
        grow = self._grow if self.expandable_segments else self._add_segment
        if grow(size):
            return
        self.empty_cache()  # PyTorch, too, tries again with its cache emptied before it gives up
        if grow(size):
            return
        free = self.reserved_bytes - self.allocated_bytes
        raise OutOfMemory(
            f"Tried to allocate {n_bytes / MIB:.2f} MiB. The GPU has {self.capacity_bytes / MIB:.2f} MiB, of which "
            f"{(self.capacity_bytes - self.reserved_bytes) / MIB:.2f} MiB are not reserved. {self.allocated_bytes / MIB:.2f} MiB "
            f"are allocated; {free / MIB:.2f} MiB are reserved but unallocated, in pieces of at most "
            f"{self.largest_free_bytes / MIB:.2f} MiB."
        )

    def _add_segment(self, size: int) -> bool:
        length = segment_bytes(size)
        if self.reserved_bytes + length > self.capacity_bytes:
            return False
        self.segments.append(Segment(size <= SMALL_BYTES, [Block(0, length)]))
        return True

    def _grow(self, size: int) -> bool:
        """Maps enough pages behind the end of the pool's one segment; a free block there is made longer."""
        is_small = size <= SMALL_BYTES
        page = SMALL_SEGMENT_BYTES if is_small else LARGE_SEGMENT_BYTES
        segment = next((s for s in self.segments if s.is_small == is_small), Segment(is_small))
        last = segment.blocks[-1] if segment.blocks else None
        tail = last.size if last and last.owner is None else 0
        length = rounded(size - tail, page)
        if self.reserved_bytes + length > self.capacity_bytes:
            return False
        if segment not in self.segments:
            self.segments.append(segment)
        segment.blocks.append(Block(last.start + last.size if last else 0, length))
        self._join_free_neighbours(segment)
        return True

    def _unmap_free_pages(self, segment: Segment) -> None:
        """Cuts whole free pages out of an expandable segment: addresses stay, memory goes back."""
        page = SMALL_SEGMENT_BYTES if segment.is_small else LARGE_SEGMENT_BYTES
        kept: list[Block] = []
        for block in segment.blocks:
            first, end = rounded(block.start, page) if block.start else 0, (block.start + block.size) // page * page
            if block.owner is not None or first >= end:
                kept.append(block)
                continue
            pieces = [Block(block.start, first - block.start), Block(end, block.start + block.size - end)]
            kept.extend(piece for piece in pieces if piece.size)
        segment.blocks = kept

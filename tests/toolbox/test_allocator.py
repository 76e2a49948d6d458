"""The simulated allocator: its constants against torch's header, its invariants on random programs."""

import random
import re
from pathlib import Path

import pytest
import torch

from course_lib.toolbox.allocator import MIB, CachingAllocator, OutOfMemory, segment_bytes


def test_constants_are_torchs():
    header = Path(torch.__file__).parent / "include" / "c10" / "core" / "AllocatorConfig.h"
    if not header.exists():
        pytest.skip("this torch ships no such header")
    found = dict(re.findall(r"constexpr size_t (k\w+) = (\d+)", header.read_text(encoding="utf-8")))
    wanted = {"kSmallSize": MIB, "kSmallBuffer": 2 * MIB, "kMinLargeAlloc": 10 * MIB, "kRoundLarge": 2 * MIB}
    assert {name: int(found[name]) for name in wanted if name in found} == {
        name: size for name, size in wanted.items() if name in found
    }
    assert "kSmallBuffer" in found


@pytest.mark.parametrize(
    ("request_bytes", "segment"),
    [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
    ],
)
def test_segments_have_cudas_sizes(request_bytes: int, segment: int):
    assert segment_bytes(request_bytes) == segment
    gpu = CachingAllocator(64 * MIB)
    gpu.malloc(request_bytes)
    assert gpu.reserved_bytes == segment


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_random_programs_keep_the_books(seed: int, expandable: bool):
    draw, gpu, held = random.Random(seed), CachingAllocator(400 * MIB, expandable_segments=expandable), []
    for _ in range(300):
        if held and draw.random() < 0.5:
            gpu.free(held.pop(draw.randrange(len(held))))
        else:
            try:
                held.append(gpu.malloc(draw.choice([draw.randrange(1, MIB), draw.randrange(MIB, 40 * MIB)])))
            except OutOfMemory:
                assert gpu.reserved_bytes <= gpu.capacity_bytes
        assert gpu.used_bytes <= gpu.allocated_bytes <= gpu.reserved_bytes <= gpu.capacity_bytes
        for segment in gpu.segments:
            for left, right in zip(segment.blocks, segment.blocks[1:], strict=False):
                assert left.start + left.size <= right.start
                touches = left.start + left.size == right.start
                assert not (touches and left.owner is None and right.owner is None), "free neighbours are joined"
    for ticket in held:
        gpu.free(ticket)
    gpu.empty_cache()
    assert gpu.reserved_bytes == gpu.used_bytes == 0


def test_fragments_in_several_segments_do_not_make_one_block():
    def program(expandable: bool) -> CachingAllocator:
        gpu = CachingAllocator(64 * MIB, expandable_segments=expandable)
        tickets = [gpu.malloc(9 * MIB) for _ in range(6)]
        for ticket in tickets[1::2]:
            gpu.free(ticket)
        gpu.malloc(12 * MIB)
        return gpu

    with pytest.raises(OutOfMemory, match=r"Tried to allocate 12\.00 MiB.*33\.00 MiB are reserved but unallocated"):
        program(False)
    assert program(True).allocated_bytes == 39 * MIB


def test_the_cache_is_emptied_before_giving_up():
    gpu = CachingAllocator(30 * MIB)
    gpu.free(gpu.malloc(20 * MIB))
    gpu.malloc(24 * MIB)
    assert gpu.reserved_bytes == 24 * MIB

"""Exercise: how many rows of Q and of K fit on chip together."""

import math
import random

from course_lib.attention import block_sizes
from course_lib.grading.compare import as_int, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch


def cases(seed: int) -> list[Case]:
    rng = random.Random(seed)
    sizes = [
        (1024, 8, 4),
        (1000, 8, 4),
        (1026, 8, 4),
        (1001, 64, 2),
        (163 * 1024, 64, 2),
        (163 * 1024, 128, 2),
        (64 * 1024, 256, 4),
    ]
    sizes += [(rng.randrange(2000, 250_000), rng.choice((16, 32, 48, 80, 128)), rng.choice((2, 4))) for _ in range(5)]
    return [Case(f"block_sizes({m}, {d}, {b})", (m, d, b)) for m, d, b in sizes]


def grade(case, observation, expected):
    is_pair = isinstance(observation, list | tuple) and len(observation) == 2
    got = tuple(as_int(item) for item in observation) if is_pair else None
    if got == tuple(expected):
        return None
    note = "" if is_pair else "Two whole numbers are due: (B_r, B_c)."
    return Mismatch(f"(B_r, B_c) = {tuple(expected)}", describe(observation), note)


def _whole_memory(sram_bytes, head_dim, size):
    block_c = math.ceil(sram_bytes // size / head_dim)
    return min(block_c, head_dim), block_c


def _bytes_for_elements(sram_bytes, head_dim, size):
    block_c = math.ceil(sram_bytes / (4 * head_dim))
    return min(block_c, head_dim), block_c


def _floor(sram_bytes, head_dim, size):
    block_c = sram_bytes // size // (4 * head_dim)
    return min(block_c, head_dim), block_c


def _swapped(sram_bytes, head_dim, size):
    return block_sizes(sram_bytes, head_dim, size)[::-1]


def _no_cap(sram_bytes, head_dim, size):
    block_c = math.ceil(sram_bytes // size / (4 * head_dim))
    return block_c, block_c


def _three_tiles(sram_bytes, head_dim, size):
    block_c = math.ceil(sram_bytes // size / (3 * head_dim))
    return min(block_c, head_dim), block_c


EXERCISE = Exercise(
    name="block_sizes",
    points=2,
    minutes=8,
    difficulty=1,
    checks="rows of the tiles that a memory of a given size allows",
    reference=block_sizes,
    cases=cases,
    grade=grade,
    hints=(
        "Start from how many elements the memory holds, not how many bytes.",
        "Four tiles share it, and a row of each has d elements.",
        "B_c = ⌈M / 4d⌉ with M in elements, rounded down; B_r is B_c, but never more than d. Return B_r first.",
    ),
    explanation="Algorithm 1 of FlashAttention gives a quarter of the memory to each of Q, K, V and the output. B_r is "
    "capped at d so that the B_r × B_c tile of scores is no larger than a tile of K. The ceiling can overshoot "
    "the memory "
    "by less than 4d elements; real kernels round down to a power of two instead.",
    next_step="Work one case by hand: elements in the memory, tiles that share them, elements in a row.",
    misconceptions=(
        Misconception(
            "gives_one_tile_the_whole_memory",
            "a K tile of this size fills the memory alone. How many tiles have to be there at the same time?",
            _whole_memory,
        ),
        Misconception(
            "leaves_out_one_tile", "three tiles are counted; the output's tile needs room as well.", _three_tiles
        ),
        Misconception("takes_bytes_for_elements", "the formula's M counts elements, not bytes.", _bytes_for_elements),
        Misconception("rounds_down", "Algorithm 1 rounds M / 4d up, not down.", _floor),
        Misconception("swaps_the_pair", "the order is (B_r, B_c): rows of Q first.", _swapped),
        Misconception(
            "forgets_the_cap", "B_r has a limit of its own: look at the second argument of its min.", _no_cap
        ),
    ),
)

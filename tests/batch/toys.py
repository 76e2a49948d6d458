"""A small syllabus for the tests of batch grading: one exercise of each kind, graded within milliseconds."""

import random
from typing import Any

import torch

from course_lib.grading.compare import exact_mismatch, float_mismatch, tensor_mismatch
from course_lib.grading.exercise import Case, Exercise, Lesson, Misconception


def halve(x: float) -> float:
    """Half of x."""
    return x / 2


def scale_rows(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Each row of x times its factor."""
    return x * factors[:, None]


def describe_sizes(shape: tuple) -> dict:
    """Number of dimensions and of elements."""
    count = 1
    for size in shape:
        count *= size
    return {"dimensions": len(shape), "elements": count}


class Counter:
    """Counts up from a start."""

    def __init__(self, start: int) -> None:
        self.value = start

    def up(self, by: int) -> int:
        self.value += by
        return self.value


def pack(x: int) -> list:
    """x as a list of its decimal digits."""
    return [int(digit) for digit in str(x)]


def unpack(digits: list) -> int:
    """The number of the digits."""
    return int("".join(str(digit) for digit in digits))


def _halve_cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    return [Case(f"halve({x})", (x,)) for x in (1.0, 0.0, draw.uniform(-9, 9), draw.uniform(1e3, 1e6))]


def _rows_cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((1, 2), (3, 4), (5, 1))
    return [
        Case(f"{n} rows of {m}", (torch.randn(n, m, generator=generator), torch.randn(n, generator=generator)))
        for n, m in sizes
    ]


def _rows_grade(case: Case, got: Any, expected: Any) -> Any:
    x, factors = case.args
    return tensor_mismatch(got, expected, x.double() * factors.double()[:, None])


def _sizes_cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    shapes = [(2, 3), (), tuple(draw.randrange(1, 9) for _ in range(3)), (draw.randrange(1, 9), 0)]
    return [Case(f"shape {shape}", (shape,)) for shape in shapes]


def _counter_observe(solution: Any, case: Case) -> Any:
    counter = solution(case.args[0])
    return [counter.up(by) for by in case.args[1]]


def _counter_cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    return [Case(f"from {n}", (n, [draw.randrange(9) for _ in range(3)])) for n in (0, draw.randrange(99))]


def _pack_observe(solution: Any, case: Case) -> Any:
    first, second = solution
    return [first(case.args[0]), second(first(case.args[0]))]


def _pack_cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    return [Case(f"{n}", (n,)) for n in (7, draw.randrange(10, 10**9))]


def _exact(case: Case, got: Any, expected: Any) -> Any:
    return exact_mismatch(got, expected)


def _float(case: Case, got: Any, expected: Any) -> Any:
    return float_mismatch(got, expected)


_HINTS = ("Think.", "Think again.", "Nearly there.")


def _exercise(name: str, points: int, reference: Any, cases: Any, grade: Any, **more: Any) -> Exercise:
    base = {"minutes": 5, "difficulty": 1, "checks": f"what {name} gives", "hints": _HINTS, "explanation": "It is so."}
    return Exercise(
        name=name, points=points, reference=reference, cases=cases, grade=grade,
        **{**base, "next_step": "read the docstring again.", "time_limit_s": 1.0, **more},
    )  # fmt: skip


LESSON = Lesson(
    number="90",
    slug="90_toys",
    title="Toys",
    exercises=(
        _exercise("halve", 2, halve, _halve_cases, _float,
                  misconceptions=(Misconception("doubles", "Half is less.", solution=lambda x: x * 2),)),
        _exercise("scale_rows", 3, scale_rows, _rows_cases, _rows_grade),
        _exercise("describe_sizes", 2, describe_sizes, _sizes_cases, _exact, partial=True),
        _exercise("Counter", 2, Counter, _counter_cases, _exact, observe=_counter_observe),
        _exercise("pack_digits", 2, (pack, unpack), _pack_cases, _exact, observe=_pack_observe,
                  functions=("pack", "unpack"), bonus=True),
    ),
)  # fmt: skip
SYLLABUS = (LESSON,)

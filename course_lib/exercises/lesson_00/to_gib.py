"""Bytes to GiB: small enough that the learner looks at the grader instead."""

import random
from typing import Any

from course_lib.grading.compare import as_float, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.units import to_gib

ROUNDING = 2.0**-50  # a few roundings of float64: dividing by 1024 three times is as right as once


def cases(seed: int) -> list[Case]:
    rng = random.Random(seed)
    sizes = [2**30, 0, 2**29, 16 * 10**9, 15_843_721_216, 16 * 8_030_261_248, 1]
    sizes += [rng.randrange(1, 2 ** rng.randint(10, 45)) for _ in range(8)]
    return [Case(f"to_gib({size})", (size,)) for size in sizes]


def grade(case: Case, observation: Any, expected: float) -> Mismatch | None:
    number = as_float(observation)
    if number is None:
        note = "Did you forget `return`?" if observation is None else "A plain number is due."
        return Mismatch(repr(expected), describe(observation), note)
    if abs(number - expected) <= ROUNDING * expected:
        return None
    note = "Do not round the result." if abs(number - expected) < 0.01 * expected else ""
    due, got = f"{expected:.6g}", f"{number:.6g}"
    return Mismatch(due, got, note) if due != got else Mismatch(repr(expected), repr(number), note)


EXERCISE = Exercise(
    name="to_gib",
    points=1,
    minutes=3,
    difficulty=1,
    checks="bytes as a number of GiB, from 0 to many terabytes",
    reference=to_gib,
    cases=cases,
    grade=grade,
    hints=(
        "How many bytes are one GiB? The `i` says that it is a power of two.",
        "K, M and G are 10, 20 and 30 as powers of two: 1 KiB = 2**10 bytes, 1 MiB = 2**20 bytes.",
        "Divide by 2**30 with `/`, and return the result without rounding it.",
    ),
    explanation="A GiB is 2**30 = 1,073,741,824 bytes, 7.4 % more than a GB of 10**9. Bytes stay an integer as long as "
    "possible; only the number that a person reads is divided.",
    next_step="Work out by hand how many bytes 1 GiB has, and compare.",
    misconceptions=(
        Misconception(
            "divides_by_1e9",
            "That is GB, a thousand million bytes. GiB counts in powers of two, as PyTorch's own messages do.",
            lambda num_bytes: num_bytes / 1e9,
        ),
        Misconception(
            "floor_division",
            "`//` throws the fraction away, so half a GiB becomes zero. Which operator keeps it?",
            lambda num_bytes: num_bytes // 2**30,
        ),
        Misconception(
            "gives_mib",
            "That is MiB: one factor of 1024 is missing.",
            lambda num_bytes: num_bytes / 2**20,
        ),
        Misconception(
            "counts_bits",
            "You divide by eight, as if you had been given bits. The argument is bytes already.",
            lambda num_bytes: num_bytes / 8 / 2**30,
        ),
        Misconception(
            "multiplies",
            "From bytes to GiB the number gets smaller, not larger.",
            lambda num_bytes: num_bytes * 2**30,
        ),
    ),
)

"""Where counting stops: one number a format."""

from typing import Any

import torch

from course_lib.exercises.lesson_01 import many
from course_lib.formats import BF16, E4M3, E5M2, FP16, FP32, counting_ceiling, format_limits
from course_lib.grading.compare import as_int, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch


def cases(seed: int) -> list[Case]:
    return [Case(f"counting_ceiling({fmt.name})", (fmt.name,)) for fmt in (E5M2, E4M3, BF16, FP16, FP32, many.TF32)]


def observe(solution: Any, case: Case) -> Any:
    return solution(many.ASKED[case.args[0]])


def grade(case: Case, observation: Any, expected: int) -> Mismatch | None:
    number = as_int(observation)
    if number == expected:
        return None
    if number is None:
        return Mismatch(
            f"{expected:,}", describe(observation), "" if observation is not None else "Did you forget `return`?"
        )
    note = f"At {number:,} another + 1 still counts." if 0 <= number < expected else ""
    if number > expected:
        note = f"Counting never gets to {number:,}: look at the spacing there."
    return Mismatch(f"{expected:,}", f"{number:,}", note)


EXERCISE = Exercise(
    name="counting_ceiling",
    points=1,
    minutes=8,
    difficulty=2,
    checks="where counting by ones stops, in the five formats and in TF32",
    reference=counting_ceiling,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "Adding 1 is lost when the result rounds back. How long must a step be for that?",
        "Where the steps are 2 long, x + 1 lies exactly in the middle, and the tie goes to the even neighbour.",
        "The steps become 2 long at 2**(F + 1), where F is the number of fraction bits. Is x itself the even one there?",
    ),
    explanation="With F fraction bits every integer up to 2**(F+1) is exact. There the step becomes 2, so 2**(F+1) + 1 is a "
    "tie, and the even neighbour is 2**(F+1) itself: the count stands still. FP16 stops at 2,048, BF16 at 256.",
    next_step="Use your `ulp`: find the first x at which `ulp(x, fmt)` is 2, and round x + 1.",
    misconceptions=(
        Misconception(
            "asks_torch_about_the_dtype",
            "You ask torch about `fmt.dtype`. TF32 has none of its own: its numbers are kept as float32. What a format is "
            "stands in its fields.",
            lambda fmt: round(2 / torch.finfo(fmt.dtype).eps),
        ),
        Misconception(
            "maximum_of_format",
            "Long before the largest value the steps are longer than 1, and adding 1 changes nothing. Precision, not range, "
            "stops the count.",
            lambda fmt: int(format_limits(fmt)["max"]),
        ),
        Misconception(
            "one_bit_short",
            "There the steps become 1 long, and + 1 still counts. It is lost only where 1 is half a step: mind the leading bit.",
            lambda fmt: 2**fmt.fraction_bits,
        ),
        Misconception(
            "one_too_few",
            "One more works: 2**k itself is a value of the format, so the count reaches it.",
            lambda fmt: 2 ** (fmt.fraction_bits + 1) - 1,
        ),
        Misconception(
            "step_of_four",
            "You wait until 1 is less than half a step. At exactly half the tie goes to the even value, and the count is "
            "stuck already.",
            lambda fmt: 2 ** (fmt.fraction_bits + 2),
        ),
        Misconception(
            "counts_patterns",
            "That is the number of bit patterns. Half of them are negative and most lie between the integers.",
            lambda fmt: 2 ** (1 + fmt.exponent_bits + fmt.fraction_bits),
        ),
    ),
)

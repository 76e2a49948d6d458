"""The four numbers of a format: of the five, and of one that torch has no dtype for."""

import math
from dataclasses import replace
from typing import Any

import torch

from course_lib.exercises.lesson_01 import many
from course_lib.formats import BF16, E4M3, E5M2, FP16, FP32, FloatFormat, format_limits
from course_lib.grading.compare import as_float, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch, clone

NAMES = ("max", "smallest_normal", "smallest_subnormal", "epsilon")


def cases(seed: int) -> list[Case]:
    return [Case(f"format_limits({fmt.name})", (fmt.name,)) for fmt in (FP16, BF16, FP32, E5M2, E4M3, many.TF32)]


def observe(solution: Any, case: Case) -> Any:
    return clone(solution(many.ASKED[case.args[0]]))


def _text(x: float) -> str:
    """A number as a learner would check it: powers of two are shown as such."""
    significand, exponent = math.frexp(x)
    return f"{x:.9g} (2**{exponent - 1})" if abs(significand) == 0.5 else f"{x:.9g}"


def grade(case: Case, observation: Any, expected: dict) -> Mismatch | None:
    if not isinstance(observation, dict):
        note = "Did you forget `return`?" if observation is None else ""
        return Mismatch(f"a dict with {', '.join(NAMES)}", describe(observation), note)
    missing = [name for name in NAMES if name not in observation]
    if missing:
        keys = ", ".join(str(key)[:30] for key in list(observation)[:6]) or "no keys"
        return Mismatch(f"the keys {', '.join(NAMES)}", keys, f"Missing: {', '.join(missing)}.")
    for name in NAMES:
        number, right = as_float(observation[name]), expected[name]
        if number != right:
            got = describe(observation[name]) if number is None else _text(number)
            return Mismatch(f"{_text(right)} for `{name}`", got, NOTES[name])
    return None


NOTES = {
    "max": "",
    "smallest_normal": "Its exponent field is 1 and its fraction is 0.",
    "smallest_subnormal": "Its bits are all 0 but the last.",
    "epsilon": "It is the distance from 1 to the next larger value.",
}


def _changed(**changes: Any) -> Any:
    """The reference with some entries computed wrongly."""

    def wrong(fmt: FloatFormat) -> dict[str, float]:
        right = format_limits(fmt)
        return {**right, **{name: change(fmt, right) for name, change in changes.items()}}

    return wrong


def _finfo(fmt: FloatFormat) -> dict[str, float]:
    info = torch.finfo(fmt.dtype)
    smallest = info.smallest_normal
    return {
        "max": info.max,
        "smallest_normal": smallest,
        "smallest_subnormal": smallest * info.eps,
        "epsilon": info.eps,
    }


EXERCISE = Exercise(
    name="format_limits",
    points=2,
    minutes=10,
    difficulty=1,
    checks="largest, smallest normal and smallest subnormal value and epsilon of the five formats and of TF32",
    reference=format_limits,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "Each of the four has a bit pattern that you can write down. Which exponent field and which fraction?",
        "smallest normal: exponent field 1, fraction 0. smallest subnormal: exponent field 0, fraction 1. epsilon: the last "
        "fraction bit of 1.0. max: the pattern right below infinity, or in E4M3 right below NaN.",
        "2.0**(1 - bias), 2.0**(1 - bias - F), 2.0**-F; max is `decode_bits` of the largest finite code, which is "
        "2**(E + F) - 2**F - 1 with infinity and 2**(E + F) - 2 without.",
    ),
    explanation="Three of the four are powers of two that follow from bias and fraction bits alone. The largest value needs "
    "one look at the format: below infinity where there is one; in E4M3 only the last pattern is NaN, so 448 = 1.75 * 2**8 "
    "is left.",
    next_step="Write down the bit pattern of this number and decode it.",
    misconceptions=(
        Misconception(
            "asks_torch_about_the_dtype",
            "You ask torch about `fmt.dtype`. TF32 has none of its own: its numbers are kept as float32. What a format is "
            "stands in its fields.",
            _finfo,
        ),
        Misconception(
            "smallest_normal_as_smallest",
            "The smallest normal number is not the smallest: below it the subnormals go on, with fewer and fewer bits. "
            "Which value has only its last bit set?",
            _changed(smallest_subnormal=lambda fmt, right: right["smallest_normal"]),
        ),
        Misconception(
            "epsilon_halved",
            "That is the largest rounding error near 1, half a step. Epsilon is the step itself, as in `torch.finfo`.",
            _changed(epsilon=lambda fmt, right: right["epsilon"] / 2),
        ),
        Misconception(
            "max_of_reserved_exponent",
            "The largest exponent field belongs to infinity and NaN there, so the largest value has the one below it.",
            _changed(max=lambda fmt, right: right["max"] * 2 if fmt.has_infinity else right["max"]),
        ),
        Misconception(
            "max_without_fraction",
            "You have the largest exponent right. The largest value also has every fraction bit set that it may.",
            _changed(max=lambda fmt, right: 2.0 ** (math.frexp(right["max"])[1] - 1)),
        ),
        Misconception(
            "e4m3_treated_as_ieee",
            "E4M3 has no infinity: its largest exponent holds ordinary numbers, and only the last fraction there is NaN.",
            lambda fmt: format_limits(replace(fmt, has_infinity=True)),
        ),
        Misconception(
            "e4m3_counts_nan",
            "In E4M3 the code of all ones is NaN, so the largest value is one step lower.",
            _changed(max=lambda fmt, right: right["max"] if fmt.has_infinity else 480.0),
        ),
        Misconception(
            "subnormal_exponent_minus_bias",
            "Subnormals use the exponent of the smallest normal number, 1 - bias, not 0 - bias.",
            _changed(smallest_subnormal=lambda fmt, right: right["smallest_subnormal"] / 2),
        ),
        Misconception(
            "normal_exponent_minus_bias",
            "Exponent field 0 belongs to the subnormals. The smallest normal number has exponent field 1.",
            _changed(smallest_normal=lambda fmt, right: right["smallest_normal"] / 2),
        ),
        Misconception(
            "epsilon_is_smallest_value",
            "Epsilon is no limit of the range but of the precision: the distance from 1 to the next value.",
            _changed(epsilon=lambda fmt, right: right["smallest_subnormal"]),
        ),
    ),
)

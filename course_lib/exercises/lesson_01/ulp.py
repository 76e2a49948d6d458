"""The spacing at every kind of value: powers of two from below and above, subnormals, zero, the largest."""

import math
import random
from typing import Any

import torch

from course_lib.exercises.lesson_01 import many
from course_lib.formats import BF16, E4M3, E5M2, FORMATS, FP16, FP32, FloatFormat, decode_bits, format_limits, ulp
from course_lib.grading.compare import describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch

FIRST = (
    (
        FP16,
        (1.0, 1.5, 2.0, 3.0, -3.0, 0.25, 1024.0, 2048.0, 65504.0, -65504.0, 2.0**-14, 2.0**-15, 2.0**-24, 0.0, -0.0),
    ),
    (BF16, (1.0, 256.0, 0.0, 2.0**-126)),
    (E4M3, (1.0, 448.0, 0.0)),
    (E5M2, (1.0, 57344.0, 2.0**-16)),
    (FP32, (1.0, 2.0**24, 2.0**24 - 1, 1 - 2.0**-24, 0.0, 2.0**-149)),
)


def cases(seed: int) -> list[Case]:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    listed = [many.case(f"ulp({x!r}, {fmt.name})", fmt, [x]) for fmt, xs in FIRST for x in xs]
    for fmt in (E4M3, E5M2, FP16, BF16):
        values = many.positive_values(fmt)
        if len(values) > 1000:
            values = values[torch.rand(values.shape, generator=generator) < 0.125]
        values = values * (1 - 2 * torch.randint(0, 2, values.shape, generator=generator))
        listed.append(many.case(f"ulp at {len(values):,} values of {fmt.name}", fmt, values))
    codes = [rng.getrandbits(32) for _ in range(2000)]
    values = [value for code in codes if math.isfinite(value := decode_bits(code, FP32))]
    return [*listed, many.case(f"ulp at {len(values):,} values of FP32", FP32, values)]


def _text(x: float) -> str:
    exponent = math.log2(x) if x > 0 and math.isfinite(x) else 0.5
    return f"{x:.9g} (2**{int(exponent)})" if exponent == int(exponent) else f"{x:.9g}"


def grade(case: Case, observation: Any, expected: torch.Tensor) -> Mismatch | None:
    fmt, inputs = FORMATS[case.args[0]], case.args[1].tolist()
    if not many.is_whole(observation, expected):
        at, value = many.junk(observation, case)
        note = "Did you forget `return`?" if value is None else f"A number is due for x = {inputs[at]!r}."
        return Mismatch(_text(many.as_floats(expected)[at]), describe(value), note)
    wrong = many.wrong_at(case, observation, expected)
    if not wrong:
        return None
    at = wrong[0]
    got, right = many.as_floats(observation)[at], many.as_floats(expected)[at]
    note = f"At x = {inputs[at]!r}." if len(inputs) > 1 else _where(abs(inputs[at]), right, fmt)
    return Mismatch(_text(right), _text(got), note + many.share_text(wrong, case))


def _where(x: float, step: float, fmt: FloatFormat) -> str:
    limits = format_limits(fmt)
    if x == limits["max"]:
        return f"The value below the largest is {x - step:.9g}."
    return f"The next larger value is {x + step:.9g}."


def _rule(rule: Any) -> Any:
    return many.by_rule(rule, floats=True)


def _epsilon_times(x: float, fmt: FloatFormat) -> float:
    return 2.0**-fmt.fraction_bits * abs(x)


def _no_floor(x: float, fmt: FloatFormat) -> float:
    return ulp(x, fmt) if x == 0 else 2.0 ** (math.frexp(x)[1] - 1 - fmt.fraction_bits)


def _below(x: float, fmt: FloatFormat) -> float:
    is_power = math.frexp(x)[0] in (0.5, -0.5) and abs(x) > 2.0 ** (1 - fmt.bias)
    return ulp(x, fmt) / (2 if is_power else 1)


EXERCISE = Exercise(
    name="ulp",
    points=2,
    minutes=15,
    difficulty=2,
    checks="the spacing of numbers, at thousands of values of five formats",
    reference=ulp,
    cases=cases,
    grade=grade,
    observe=many.observe_floats,
    hints=(
        "Between one power of two and the next all steps are equally long. How many steps are there?",
        "Find the exponent e with 2**e <= |x| < 2**(e + 1); `math.frexp` finds it without rounding. That binade has 2**F "
        "steps. And at the bottom the steps stop shrinking: from which exponent on?",
        "2.0**(max(e, 1 - bias) - F), with e = math.frexp(abs(x))[1] - 1. Zero has no e: it belongs to the lowest binade.",
    ),
    explanation="Each binade from 2**e to 2**(e+1) is cut into 2**F equal steps of 2**(e - F). The subnormals and zero use "
    "the step of the lowest normal binade. So the spacing is a staircase that doubles at each power of two.",
    next_step="Decode the code of x and the code after it, and subtract.",
    misconceptions=(
        Misconception(
            "epsilon_times_x",
            "Epsilon times |x| grows smoothly; the true spacing is a staircase, equal all the way from one power of two to "
            "the next. Compare 1.0 and 1.5.",
            _epsilon_times,
        ),
        Misconception(
            "epsilon_everywhere",
            "Epsilon is the spacing at 1 only. At 1024 the steps are much longer.",
            lambda x, fmt: 2.0**-fmt.fraction_bits,
        ),
        Misconception(
            "half_a_step",
            "That is half the distance, the largest rounding error. The whole distance to the next value is due.",
            lambda x, fmt: ulp(x, fmt) / 2,
        ),
        Misconception(
            "distance_below",
            "At a power of two the spacing changes, and you give that of the smaller side. The next larger magnitude counts.",
            _below,
        ),
        Misconception(
            "shrinks_below_normal",
            "Below the smallest normal number the steps no longer shrink: the subnormals are evenly spaced.",
            _no_floor,
        ),
        Misconception(
            "infinite_at_maximum",
            "After the largest value comes no other (or infinity). There the spacing below it is due.",
            matches=_rule(lambda x, got, right, fmt: abs(x) == format_limits(fmt)["max"]),
        ),
        Misconception(
            "zero_at_zero",
            "From zero to the next value it is one smallest subnormal.",
            matches=_rule(lambda x, got, right, fmt: x == 0),
        ),
        Misconception(
            "negative_step",
            "A distance is never negative: use the magnitude of x.",
            matches=_rule(lambda x, got, right, fmt: x < 0 and got <= 0),
        ),
    ),
)

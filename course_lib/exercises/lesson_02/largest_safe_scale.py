"""The largest power of two that a tensor of gradients survives."""

import math
import random

import torch

from course_lib.grading.compare import as_float, call_keeping_inputs, describe, inputs_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.loss_scaling import largest_safe_scale

FP16 = torch.float16


def _case(values: list, label: str = "") -> Case:
    return Case(f"largest_safe_scale({label or values}, FP16)", (torch.tensor(values), FP16))


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    fixed = [
        _case([1.0]),
        _case([0.5, 0.0, -3.0]),
        _case([65504.0]),
        _case([65519.0]),
        _case([65520.0]),
        _case([65520.0 - 2.0**-8]),  # the last float32 below the edge
        _case([0.99975]),
        _case([1e30, 1.0]),
        _case([[1e-6, -2e-7], [0.0, 3e-9]]),
        _case([[1e-3, 0.0], [2.0, -700.0]]),
    ]
    drawn = []
    for _ in range(8):
        size, center = draw.randint(2, 60), draw.uniform(-30, 8)
        values = [draw.choice([-1, 1]) * 2.0 ** (center + draw.gauss(0, 3)) for _ in range(size)]
        drawn.append(_case(values, f"{size} random values"))
    return fixed + drawn


def grade(case: Case, got: object, expected: float) -> Mismatch | None:
    number = as_float(got)
    if number == expected:
        return None
    changed = inputs_mismatch(got)
    if changed:
        return changed
    due = f"2**{round(math.log2(expected))}"
    if number is None or not 0 < number < math.inf or math.frexp(number)[0] != 0.5:
        return Mismatch(due, describe(got), "The answer must be a power of two.")
    largest = case.args[0].abs().max().double().item() * number
    fate = "which becomes infinite" if number > expected else "and twice that is still finite after rounding"
    return Mismatch(due, f"2**{round(math.log2(number))}", f"Yours makes the largest value {largest:g}, {fate}.")


def one_power_too_far(gradients, dtype):
    return 2.0 ** math.ceil(math.log2(65520 / gradients.abs().max().item()))


def one_power_short(gradients, dtype):
    return largest_safe_scale(gradients, dtype) / 2


def uses_the_mean(gradients, dtype):
    return 2.0 ** math.floor(math.log2(65504 / gradients.abs().mean().item()))


def forgets_signs(gradients, dtype):
    largest = gradients.max().item()
    return 2.0 ** math.floor(math.log2(65504 / largest)) if largest > 0 else math.inf


def compares_with_the_maximum(gradients, dtype):
    return 2.0 ** math.floor(math.log2(torch.finfo(dtype).max / gradients.abs().max().item()))


def never_below_one(gradients, dtype):
    return max(largest_safe_scale(gradients, dtype), 1.0)


def not_a_power(case: Case, got: object, expected: float) -> bool:
    number = as_float(got)
    return number is not None and 0 < number < math.inf and math.frexp(number)[0] != 0.5


EXERCISE = Exercise(
    name="largest_safe_scale",
    points=2,
    minutes=15,
    difficulty=2,
    checks="the largest power of two that makes no gradient infinite in FP16",
    reference=largest_safe_scale,
    cases=cases,
    grade=grade,
    observe=call_keeping_inputs,
    hints=(
        "Only one value of the tensor matters. Which one, and what becomes of its sign?",
        "The largest finite FP16 value is 65,504, but 65,519 still rounds down to it. Rounding decides, so let the "
        "cast decide.",
        "Start from a power of two that is surely too small, for example from `math.frexp` or `math.log2` of the "
        "largest magnitude, and double it while "
        "the product, cast to the dtype, stays finite.",
    ),
    explanation=(
        "Rounding to nearest sends everything below 65,504 + 16 = 65,520 down to 65,504, so the test is `largest · S "
        "< 65,520`. `frexp` gives "
        "significand and exponent exactly, where `log2` can be off by one just at a power of two. Micikevicius et al. "
        "(§3.2) choose a constant S "
        "in this way; the dynamic scaler finds it by trial."
    ),
    next_step="Multiply the largest magnitude by your answer and by twice your answer, cast both to FP16, and look.",
    misconceptions=(
        Misconception(
            "ignores_rounding",
            "You compare with 65,504 before rounding. Values a little above it round down to it: up to where?",
            solution=compares_with_the_maximum,
        ),
        Misconception(
            "one_power_too_far",
            "Your scale is the first that overflows. Which power of two comes just before it?",
            solution=one_power_too_far,
        ),
        Misconception(
            "one_power_short",
            "Your scale is safe, but so is twice your scale. Check what the cast says at the next power.",
            solution=one_power_short,
        ),
        Misconception(
            "uses_the_mean",
            "You scale so that the average gradient fits. One infinite entry is enough to spoil the step: which entry "
            "is the first to overflow?",
            solution=uses_the_mean,
        ),
        Misconception(
            "forgets_negative_gradients",
            "You look at the largest gradient, not at the largest magnitude. −8 overflows as early as 8.",
            solution=forgets_signs,
        ),
        Misconception(
            "never_below_one",
            "Your scale never goes below 1. When the gradients themselves are too large for the format, a safe scale "
            "makes them smaller.",
            solution=never_below_one,
        ),
        Misconception(
            "not_a_power_of_two",
            "Your answer is no power of two. Why would one want a power of two: what does multiplying by 3 do to a "
            "significand?",
            matches=not_a_power,
        ),
    ),
)

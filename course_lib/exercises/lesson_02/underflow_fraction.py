"""Which share of the gradients a cast turns into zero."""

import random

import torch

from course_lib.grading.compare import call_keeping_inputs, float_mismatch, inputs_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.loss_scaling import underflow_fraction

FP16, BF16 = torch.float16, torch.bfloat16
NAMES = {FP16: "FP16", BF16: "BF16"}


def _case(values: list, dtype: torch.dtype, scale: float | None = None, label: str = "") -> Case:
    text = label or f"[{', '.join(f'{v:g}' for v in values)}]"
    args = (torch.tensor(values), dtype) if scale is None else (torch.tensor(values), dtype, scale)
    return Case(f"underflow_fraction({text}, {NAMES[dtype]}{'' if scale is None else f', scale={scale:g}'})", args)


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    fixed = [
        _case([1e-8, 1.0], FP16),
        _case([2.0**-25], FP16, label="[2**-25]"),
        _case([2.0**-25 * 1.001, 2.0**-24 * 0.9, -(2.0**-25)], FP16, label="[1.001 * 2**-25, 0.9 * 2**-24, -2**-25]"),
        _case([3e-5, -6e-8, 1e-6], FP16),
        _case([0.0, 0.0], FP16),
        _case([0.0, 1e-9, 0.5, 0.0], FP16),
        _case([1e-8, -1e-12, 0.0, 0.25], FP16, 2.0**16),
        _case([1e-8, 1.0], BF16),
        _case([1e-44, 1.0], BF16),
        _case([[1e-9, 1.0, 0.0], [0.5, -1e-9, 1e-10]], FP16, label="a matrix of 6"),
    ]
    drawn = []
    for k in range(6):
        size = draw.randint(40, 200)
        values = [draw.choice([-1, 1]) * 2.0 ** draw.uniform(-45, -2) * (draw.random() > 0.2) for _ in range(size)]
        scale = 2.0 ** draw.randint(-4, 20)
        drawn.append(_case(values, BF16 if k == 5 else FP16, scale, f"{size} random values"))
    return fixed + drawn


def grade(case: Case, got: object, expected: float) -> Mismatch | None:
    # a mean of a mask in float32 is right to 6e-8
    return inputs_mismatch(got) or float_mismatch(got, expected, rel=1e-6)


def counts_subnormals(gradients, dtype, scale=1.0):
    scaled, is_nonzero = gradients * scale, gradients != 0
    small = is_nonzero & (scaled.abs() < torch.finfo(dtype).tiny)
    return small.sum().item() / max(is_nonzero.sum().item(), 1)


def counts_zeros(gradients, dtype, scale=1.0):
    return ((gradients * scale).to(dtype) == 0).float().mean().item()


def divides_by_all(gradients, dtype, scale=1.0):
    return ((gradients != 0) & ((gradients * scale).to(dtype) == 0)).float().mean().item()


def casts_first(gradients, dtype, scale=1.0):
    is_nonzero = gradients != 0
    lost = is_nonzero & (gradients.to(dtype).float() * scale == 0)
    return lost.sum().item() / max(is_nonzero.sum().item(), 1)


def below_smallest_subnormal(gradients, dtype, scale=1.0):
    info, is_nonzero = torch.finfo(dtype), gradients != 0
    lost = is_nonzero & ((gradients * scale).abs().double() < info.tiny * info.eps)
    return lost.sum().item() / max(is_nonzero.sum().item(), 1)


EXERCISE = Exercise(
    name="underflow_fraction",
    points=2,
    minutes=10,
    difficulty=1,
    checks="the share of the non-zero gradients that become zero in a cast",
    reference=underflow_fraction,
    cases=cases,
    grade=grade,
    observe=call_keeping_inputs,
    hints=(
        "Do not reason about limits: multiply, cast, and ask the result whether it is zero.",
        "Two masks: which values were non-zero before, and which of those are zero after `(gradients * "
        "scale).to(dtype)`.",
        "Count both masks with `.sum().item()`, divide, and think of a tensor in which no value is non-zero.",
    ),
    explanation=(
        "The cast itself is the oracle, so subnormals and ties are right without a constant in the code: FP16 keeps "
        "values down to 2⁻²⁴ "
        "and rounds to zero what is 2⁻²⁵ or less. Zeros that were zero before are no loss of the format: ReLU and "
        "unused embeddings make many of them."
    ),
    next_step="Print `(gradients * scale).to(dtype)` for this case and count by eye.",
    misconceptions=(
        Misconception(
            "counts_below_smallest_normal",
            "You count everything below the smallest normal number. Below it the format still has subnormals: "
            "coarser, but not zero. What does the cast say?",
            solution=counts_subnormals,
        ),
        Misconception(
            "counts_zeros_from_before",
            "Values that were zero before the cast are counted as lost. The format can only lose what was there.",
            solution=counts_zeros,
        ),
        Misconception(
            "divides_by_all_values",
            "You count the right values but divide by all of them. The share asked for is of the non-zero values.",
            solution=divides_by_all,
        ),
        Misconception(
            "casts_before_scaling",
            "Your scale rescues nothing: it comes after the cast, or not at all. What is zero already stays zero, so "
            "the "
            "scale has to act while the value still exists.",
            solution=casts_first,
        ),
        Misconception(
            "forgets_rounding_up",
            "You count everything below the smallest subnormal. Some of those values are nearer to it than to zero: "
            "where do they go?",
            solution=below_smallest_subnormal,
        ),
    ),
)

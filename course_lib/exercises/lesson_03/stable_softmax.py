"""Softmax for float16 logits, right to half an ulp."""

import torch

from course_lib.grading.compare import as_tensor_problem, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.mixed_precision import stable_softmax

FP16 = torch.float16
ALLOWED_ULP = 0.51  # rounding once costs 0.5; float32 arithmetic before it adds less than 0.001


def cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, size: float) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * size).to(FP16)

    fixed = [
        ("[0, 0]", torch.zeros(2, dtype=FP16)),
        ("[1, 2, 3]", torch.tensor([1.0, 2.0, 3.0], dtype=FP16)),
        ("[12, 11]", torch.tensor([12.0, 11.0], dtype=FP16)),
        ("[60000, 60000, 60000]", torch.full((3,), 60000.0, dtype=FP16)),
        ("[60000, 60032]", torch.tensor([60000.0, 60032.0], dtype=FP16)),
        ("[65504, -65504]", torch.tensor([65504.0, -65504.0], dtype=FP16)),
        ("[-60000, -60032, -60064]", torch.tensor([-60000.0, -60032.0, -60064.0], dtype=FP16)),
        ("two rows far apart", torch.tensor([[60000.0, 59968.0], [-60000.0, -60032.0]], dtype=FP16)),
    ]
    drawn = [
        ("(4, 7) random", draw(4, 7, size=2.0)),
        ("(2, 3, 50) random, wide", draw(2, 3, 50, size=30.0)),
        ("(3, 2000) random", draw(3, 2000, size=3.0)),
        ("(2, 4096) random, thousands", draw(2, 4096, size=4000.0)),
        ("70,000 zeros", torch.zeros(70_000, dtype=FP16)),
        ("(1, 66000) random", draw(1, 66_000, size=1.0)),
    ]
    return [Case(f"stable_softmax({label})", (x,)) for label, x in fixed + drawn]


def error_in_ulp(got: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Distance in steps of float16 at the true value; a step is 2**-24 below the smallest normal."""
    exponent = torch.frexp(truth.clamp_min(2.0**-14))[1] - 1
    return (got.double() - truth).abs() / torch.exp2(exponent.double() - 10)


def grade(case: Case, got: object, expected: torch.Tensor) -> Mismatch | None:
    truth = torch.softmax(case.args[0].double(), dim=-1)
    problem = as_tensor_problem(got, truth.shape, FP16)
    if problem:
        return Mismatch(describe(expected), describe(got), problem)
    error = error_in_ulp(got, truth).nan_to_num(nan=torch.inf)
    if error.max() <= ALLOWED_ULP:
        return None
    here = tuple(int(i) for i in torch.unravel_index(error.argmax(), error.shape))
    note = f"At {list(here)}, {error[here]:.3g} ulp off." if error[here].isfinite() else f"At {list(here)}."
    return Mismatch(f"{expected[here].item():.6g}", f"{got[here].item():.6g}", note)


def _softmax(dtype, *, maximum="row", sum_dtype=None, out=FP16, dim=-1):
    def solution(x):
        wide = x.to(dtype)
        if maximum == "row":
            wide = wide - wide.amax(dim=dim, keepdim=True)
        elif maximum == "all":
            wide = wide - wide.max()
        weights = wide.exp()
        total = weights.to(sum_dtype or dtype).sum(dim=dim, keepdim=True)
        return (weights / total).to(out)

    return solution


def clamps(x):
    return torch.softmax(x.float().clamp(-80, 80), dim=-1).half()


EXERCISE = Exercise(
    name="stable_softmax",
    points=2,
    minutes=15,
    difficulty=2,
    checks="softmax of float16 logits, to 0.51 ulp",
    reference=stable_softmax,
    cases=cases,
    grade=grade,
    hints=(
        "exp(12) is infinite in float16, exp(89) in float32. Softmax does not change when you subtract the same "
        "number from all logits of a row: which one?",
        "70,000 ones cannot be summed in float16, whose largest value is 65,504, and every rounding on the way costs "
        "up to half an ulp.",
        "Convert to float32 first, then subtract the row's maximum, `exp`, sum with `keepdim=True`, divide, and round "
        "once with `.half()`.",
    ),
    explanation=(
        "One rounding costs at most 0.5 ulp, so 0.51 leaves room for one only: everything before it must be wider. "
        "This is what CUDA's autocast does by "
        "putting softmax on its float32 list, and what torch's own half-precision kernel does inside."
    ),
    next_step="Print every intermediate tensor for this case, with its dtype.",
    misconceptions=(
        Misconception(
            "no_maximum_subtracted",
            "Large logits overflow in your `exp`. What can you subtract from a whole row without changing its softmax?",
            solution=_softmax(torch.float32, maximum="none"),
        ),
        Misconception(
            "no_maximum_subtracted",
            "Large logits overflow in your `exp`, in float16 already from 12 on. What can you subtract from a row "
            "without changing its softmax?",
            solution=_softmax(FP16, maximum="none"),
        ),
        Misconception(
            "no_maximum_subtracted",
            "Large logits overflow in your `exp`, in float16 already from 12 on. What can you subtract from a row "
            "without changing its softmax?",
            solution=_softmax(FP16, maximum="none", sum_dtype=torch.float32),
        ),
        Misconception(
            "reduced_in_fp16",
            "You subtract the maximum, but exponentials and sum are float16: each rounding costs half an ulp, and a "
            "sum above 65,504 is infinite.",
            solution=_softmax(FP16),
        ),
        Misconception(
            "exponentials_in_fp16",
            "Your sum is wide, but the exponentials under it are rounded to float16 already. Where should the one "
            "rounding be?",
            solution=_softmax(FP16, sum_dtype=torch.float32),
        ),
        Misconception(
            "subtracts_the_overall_maximum",
            "You subtract the maximum of the whole tensor. In a row that lies far below it every exponential becomes "
            "zero.",
            solution=_softmax(torch.float32, maximum="all"),
        ),
        Misconception(
            "clamps_the_logits",
            "You cut the logits off at a limit, so that different large logits become equal.",
            solution=clamps,
        ),
        Misconception(
            "returns_float32",
            "Your values are right, but the result must be float16, like the input.",
            solution=_softmax(torch.float32, out=torch.float32),
        ),
        Misconception(
            "wrong_dimension",
            "You normalise over the first dimension. The probabilities of each row, over the last dimension, must sum "
            "to 1.",
            solution=_softmax(torch.float32, dim=0),
        ),
    ),
)

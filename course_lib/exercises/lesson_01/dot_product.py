"""A dot product whose every step is rounded, against ways that round less often."""

from typing import Any

import torch

from course_lib.formats import dot_product
from course_lib.grading.compare import as_tensor_problem, call_keeping_inputs, describe, inputs_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)

    def randn(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(n, generator=generator).to(dtype)

    listed = [
        Case(
            "dot_product([1, 2], [3, 4], torch.float32)",
            (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), DTYPES[2]),
        )
    ]
    for dtype in DTYPES[:2]:
        listed.append(Case(f"300 ones with 300 ones, {dtype}", (torch.ones(300), torch.ones(300), dtype)))
    for dtype in DTYPES:
        tiny = torch.full((200,), {torch.float32: 2.0**-24}.get(dtype, 2.0**-12))
        tiny[0] = 1.0
        listed.append(Case(f"1 and then 199 small terms, {dtype}", (tiny, torch.ones(200), dtype)))
        listed.append(Case(f"the same, small terms first, {dtype}", (tiny.flip(0), torch.ones(200), dtype)))
        for n in (8, 257):
            listed.append(Case(f"{n} random terms, {dtype}", (randn(n), randn(n), dtype)))
    listed.append(Case("64 bfloat16 inputs, torch.float16", (randn(64, DTYPES[0]), randn(64, DTYPES[0]), DTYPES[1])))
    listed.append(Case("64 float64 inputs, torch.float32", (randn(64).double() / 3, randn(64).double() / 7, DTYPES[2])))
    listed.append(Case("1,500 random terms, torch.bfloat16", (randn(1500), randn(1500), DTYPES[0])))
    return listed


def observe(solution: Any, case: Case) -> Any:
    result = call_keeping_inputs(solution, case)
    exact = float(result).hex() if isinstance(result, torch.Tensor) and result.numel() == 1 else ""
    return {"result": result, "exact": exact}  # the text tells apart what differs in the last bit only


def grade(case: Case, observation: Any, expected: dict) -> Mismatch | None:
    got = observation.get("result") if isinstance(observation, dict) else observation
    right = expected["result"]
    changed = inputs_mismatch(got)
    if changed:
        return changed
    problem = as_tensor_problem(got, (), right.dtype)
    if problem:
        return Mismatch(describe(right), describe(got), problem)
    if torch.equal(got, right):  # +0 and -0 are both accepted
        return None
    note = f"In float64 it is {torch.dot(case.args[0].double(), case.args[1].double()).item():.6g}."
    return Mismatch(f"{right.item()!r}", f"{got.item()!r}", note)


# Wrong solutions: each rounds less often, or in another order.


def _torch_dot(x: torch.Tensor, y: torch.Tensor, accumulate_dtype: torch.dtype) -> torch.Tensor:
    return torch.dot(x.to(accumulate_dtype), y.to(accumulate_dtype))


def _torch_sum(x: torch.Tensor, y: torch.Tensor, accumulate_dtype: torch.dtype) -> torch.Tensor:
    return (x.to(accumulate_dtype) * y.to(accumulate_dtype)).sum()


def _rounds_once(x: torch.Tensor, y: torch.Tensor, accumulate_dtype: torch.dtype) -> torch.Tensor:
    total = torch.zeros(())
    for a, b in zip(x.to(accumulate_dtype).float(), y.to(accumulate_dtype).float(), strict=True):
        total = total + a * b
    return total.to(accumulate_dtype)


def _casts_at_the_end(x: torch.Tensor, y: torch.Tensor, accumulate_dtype: torch.dtype) -> torch.Tensor:
    return torch.dot(x, y).to(accumulate_dtype)


def _exact_products(x: torch.Tensor, y: torch.Tensor, accumulate_dtype: torch.dtype) -> torch.Tensor:
    x, y = x.to(accumulate_dtype).double(), y.to(accumulate_dtype).double()
    total = torch.zeros((), dtype=accumulate_dtype)
    for product in x * y:
        total = (total.double() + product).to(accumulate_dtype)
    return total


def _late_cast(x: torch.Tensor, y: torch.Tensor, accumulate_dtype: torch.dtype) -> torch.Tensor:
    total = torch.zeros((), dtype=accumulate_dtype)
    for product in (x * y).to(accumulate_dtype):
        total = total + product
    return total


def _backwards(x: torch.Tensor, y: torch.Tensor, accumulate_dtype: torch.dtype) -> torch.Tensor:
    return dot_product(x.flip(0), y.flip(0), accumulate_dtype)


EXERCISE = Exercise(
    name="dot_product",
    points=3,
    minutes=15,
    difficulty=2,
    checks="a dot product with every product and every partial sum rounded, in three dtypes",
    reference=dot_product,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "torch rounds after each operation on tensors of a dtype. So what must you do one element at a time?",
        "Cast both inputs first. `x * y` then rounds every product. For the sum, a loop with a 0-d total of the same dtype.",
        "total = torch.zeros((), dtype=accumulate_dtype), then total = total + product for each product in order.",
    ),
    explanation="An operation on two bfloat16 tensors gives a bfloat16, rounded. torch's own `sum`, `dot` and `matmul` keep a "
    "float32 total inside and round once at the end, so they hide what a 16-bit accumulator does; the loop shows it. "
    "Tensor Cores multiply 16-bit inputs and accumulate in float32 for this reason.",
    next_step="Go through the first terms by hand: after which addition should the total be rounded, and to which dtype?",
    misconceptions=(
        Misconception(
            "rounds_once",
            "Your total stays in float32 until the end. With a 16-bit accumulator each partial sum is rounded: make the total "
            "that dtype from the start.",
            _rounds_once,
        ),
        Misconception(
            "uses_torch_dot",
            "`torch.dot` (and `@`) keeps its running total in float32, or sums in another order, and rounds once at the end. "
            "Here every partial sum must be rounded.",
            _torch_dot,
        ),
        Misconception(
            "uses_torch_sum",
            "`.sum()` keeps its running total in float32, or sums in another order, and rounds once at the end. Here every "
            "partial sum must be rounded.",
            _torch_sum,
        ),
        Misconception(
            "casts_at_the_end",
            "You compute in the inputs' precision and cast the result. Cast the inputs first, then round each step.",
            _casts_at_the_end,
        ),
        Misconception(
            "exact_products",
            "Your products are not rounded before they are added. (Some hardware works so; here each product is rounded.)",
            _exact_products,
        ),
        Misconception(
            "casts_products_only",
            "You multiply in the inputs' precision and cast the products. The inputs are to be cast first.",
            _late_cast,
        ),
        Misconception(
            "other_order",
            "The same terms, but in another order: floating-point addition is not associative. Add from the first to the last.",
            _backwards,
        ),
    ),
)

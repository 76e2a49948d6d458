"""Comparisons for graders: none can be fooled by NaN, and none uses a tolerance by feel.

Each `*_mismatch` returns None when the value is right, else a `Mismatch` that a learner can read. All accept
any decoded junk.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from course_lib.grading.exercise import Case, Mismatch, clone
from course_lib.grading.observation import ExceptionRecord, Opaque

_SHORT = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip
_ARTICLES = {type(None): "None", dict: "a dict", list: "a list", tuple: "a tuple", str: "a string"}


def describe(value: Any) -> str:
    """A short text for feedback: ``f32[2,3]``, ``0.5``, ``a list of 3``."""
    if isinstance(value, torch.Tensor):
        dtype = _SHORT.get(value.dtype, str(value.dtype).removeprefix("torch."))
        head = f"{dtype}[{','.join(map(str, value.shape))}]"
        if value.numel() == 1 and not value.is_complex():
            return f"{head} {value.double().item():.9g}" if value.is_floating_point() else f"{head} {value.item()}"
        return f"{head} {value.tolist()}" if value.dim() == 1 and value.numel() <= 4 else head
    if isinstance(value, list | tuple):
        text = repr(value)
        is_short = len(text) <= 60 and not any(isinstance(item, torch.Tensor | Opaque) for item in value)
        return text if is_short else f"{_ARTICLES[type(value)]} of {len(value)}"
    if isinstance(value, dict):
        return repr(value) if len(repr(value)) <= 90 else f"a dict of {len(value)}"
    if isinstance(value, Opaque | ExceptionRecord):
        return str(value)
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def as_float(value: Any) -> float | None:
    """A Python float from an int, a float or a tensor of one element; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf  # an int beyond float64
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_complex() and value.dtype != torch.bool:
        return float(value.double().item())
    return None


def as_int(value: Any) -> int | None:
    """A Python int from an int, an integral float or a tensor of one element; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = as_float(value)
    return int(number) if number is not None and math.isfinite(number) and number == int(number) else None


def as_tensor_problem(got: Any, shape: Any = None, dtype: torch.dtype | None = None) -> str | None:
    """Why `got` is not the tensor that is due, as a sentence; None when it is."""
    if not isinstance(got, torch.Tensor):
        kind = _ARTICLES.get(type(got), describe(got))
        return f"The result must be a tensor; it is {kind}." + (" Did you forget `return`?" if got is None else "")
    if shape is not None and tuple(got.shape) != tuple(shape):
        return f"The shape must be {list(shape)}; it is {list(got.shape)}."
    if dtype is not None and got.dtype != dtype:
        return f"The dtype must be {dtype}; it is {got.dtype}."
    return None


def float_mismatch(got: Any, expected: float, *, rel: float = 0.0, bits: Any = None) -> Mismatch | None:
    """Compares one number. NaN equals NaN; with `rel` 0 the comparison is exact and −0 differs from 0.

    Args:
        rel: relative error that is allowed; say in the exercise where it comes from.
        bits: optional function from a float to a text with its bits, added to both sides.
    """
    number = as_float(got)

    def show(x: float) -> str:
        return f"{x!r} ({bits(x)})" if bits is not None else repr(x)

    if number is None:
        note = "Did you forget `return`?" if got is None else "A number is due here."
        return Mismatch(show(expected), describe(got), note)
    if math.isnan(expected) or math.isnan(number):
        is_right = math.isnan(expected) and math.isnan(number)
    elif rel == 0.0 or math.isinf(expected) or math.isinf(number):
        is_right = number == expected and math.copysign(1.0, number) == math.copysign(1.0, expected)
    else:
        is_right = abs(number - expected) <= rel * abs(expected)
    return None if is_right else Mismatch(show(expected), show(number))


def _locate(bad: torch.Tensor) -> list[int]:
    return [int(i) for i in bad.nonzero()[0]] if bad.dim() else []


def tensor_mismatch(
    got: Any,
    expected: torch.Tensor,
    truth: torch.Tensor,
    *,
    factor: float = 2.0,
    name: str = "the result",
    floor: float | None = None,
) -> Mismatch | None:
    """Compares a tensor with float64 truth under an error budget.

    The budget is `factor` times the largest error of `expected`, which is the plain computation in the same
    precision, plus one ulp of the dtype at the largest true magnitude (or `floor`, when larger).

    Args:
        got: what the learner returned.
        expected: the reference's result; its shape and dtype are due.
        truth: the same in float64.
    """
    problem = as_tensor_problem(got, expected.shape, expected.dtype)
    if problem:
        return Mismatch(f"{name} {describe(expected)}", describe(got), problem)
    if expected.numel() == 0:
        return None
    exact = truth.double()
    wide = got.double() if not got.is_complex() else got
    odd = ~torch.isfinite(wide) & torch.isfinite(exact)
    if odd.any():
        at = _locate(odd)
        return Mismatch(f"{exact[tuple(at)].item():.6g}", f"{wide[tuple(at)].item()}", f"{name} at {at} is not finite.")
    special = ~torch.isfinite(exact)
    wrong = special & ~((wide == exact) | (wide.isnan() & exact.isnan()))
    if wrong.any():
        at = _locate(wrong)
        return Mismatch(f"{exact[tuple(at)].item()}", f"{wide[tuple(at)].item()}", f"In {name} at {at}.")
    usual = ~special
    if not usual.any():
        return None
    budget = _budget(expected, exact, usual, factor, floor)
    error = torch.where(usual, (wide - exact).abs(), 0.0)
    if error.max() <= budget:
        return None
    at = [int(i) for i in torch.unravel_index(error.argmax(), error.shape)]
    here = tuple(at)
    note = f"Largest error in {name} at {at}: {error[here].item():.3g}, where {budget:.3g} is allowed."
    return Mismatch(f"{exact[here].item():.6g}", f"{wide[here].item():.6g}", note)


def _budget(expected: torch.Tensor, exact: torch.Tensor, usual: torch.Tensor, factor: float, floor: float | None):
    size = exact[usual].abs().max().item()
    epsilon = torch.finfo(expected.dtype).eps if expected.is_floating_point() else 0.0
    own = (expected.double() - exact)[usual].abs().max().item()
    own = own if math.isfinite(own) else 0.0
    return factor * own + max(epsilon * size, floor or 0.0)


def exact_mismatch(got: Any, expected: Any) -> Mismatch | None:
    """Compares plain data exactly: bits of tensors, types of numbers aside, NaN equal to NaN."""
    if alike(got, expected, rel=0.0):
        return None
    note = "Did you forget `return`?" if got is None else ""
    return Mismatch(describe(expected), describe(got), note)


INPUTS_CHANGED = {"inputs changed in place": True}


def call_keeping_inputs(solution: Callable, case: Case) -> Any:
    """An observation for functions of tensors: the result, or `INPUTS_CHANGED` where the solution wrote to its inputs."""
    args, kwargs = clone(case.args), clone(case.kwargs)
    result = solution(*args, **kwargs)
    is_kept = alike(args, case.args, rel=0.0) and alike(kwargs, case.kwargs, rel=0.0)
    return result if is_kept else INPUTS_CHANGED


def inputs_mismatch(observation: Any) -> Mismatch | None:
    """What `call_keeping_inputs` saw of the inputs."""
    if not isinstance(observation, dict) or observation.keys() != INPUTS_CHANGED.keys():
        return None
    next_step = "Look for `+=`, `-=` and `*=` on an argument, and for methods whose names end in `_`."
    return Mismatch("the inputs as they were", "inputs changed in place", "The caller still needs them.", next_step)


def alike(a: Any, b: Any, rel: float = 1e-4) -> bool:
    """Whether two observations say the same, numbers within `rel` of the larger magnitude."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dim() + b.dim() > 0:
        return _tensors_alike(a, b, rel)
    number_a, number_b = as_float(a), as_float(b)
    if number_a is not None and number_b is not None:
        if math.isnan(number_a) or math.isnan(number_b):
            return math.isnan(number_a) and math.isnan(number_b)
        if number_a == number_b:
            return rel > 0 or math.copysign(1, number_a) == math.copysign(1, number_b)
        if math.isinf(number_a) or math.isinf(number_b):
            return False
        return abs(number_a - number_b) <= rel * max(abs(number_a), abs(number_b))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(alike(x, y, rel) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key], rel) for key in a)
    if isinstance(a, ExceptionRecord) and isinstance(b, ExceptionRecord):
        return a.class_name == b.class_name
    return type(a) is type(b) and not isinstance(a, torch.Tensor) and a == b


def _tensors_alike(a: torch.Tensor, b: torch.Tensor, rel: float) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.numel() == 0:
        return True
    if rel == 0.0:
        same_nan = a.isnan() & b.isnan() if a.is_floating_point() else torch.zeros_like(a, dtype=torch.bool)
        signs = torch.signbit(a) == torch.signbit(b) if a.is_floating_point() else torch.ones_like(same_nan)
        return bool((((a == b) & signs) | same_nan).all())
    if not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    wide = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(wide), b.to(wide)
    finite = b[torch.isfinite(b)]
    size = finite.abs().max().item() if finite.numel() else 0.0
    return torch.allclose(a, b, rtol=rel, atol=rel * size * 0.1, equal_nan=True)

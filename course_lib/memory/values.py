"""Fake tensors for a dry run: shapes without values, and an answer where an ordinary step reads a value.

A read is first asked of FakeTensor, which keeps true constants (AdamW's step count, `torch.tensor(0.5)`). The rest is
answered so that an ordinary step goes on: no overflow is found, `all` is true, `any` is false, a count of true entries
is a count of all entries, a loss is 1.0. Everything else is refused in words that say what to write instead.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from course_lib.memory.errors import DryRunError
from course_lib.memory.ledger import MemoryLedger

aten = torch.ops.aten
INFINITY = float("inf")

NO_VALUES = "A dry run knows shapes, not values"


class ShapesOnly(FakeTensorMode):
    """FakeTensorMode with the answers above. One instance serves one dry run."""

    def __init__(self, ledger: MemoryLedger) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._ledger = ledger
        self._is_inside = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default and type(args[0]) is FakeTensor:
            return args[0].fake_device
        return self.dispatch(func, types, args, kwargs or {})

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._is_inside:  # what an operation is made of
            return super().dispatch(func, types, args, kwargs)
        # The ledger is fed from here: as a mode of its own it would cost another pass through the dispatcher.
        self._ledger.before(func, args)
        self._is_inside = True
        try:
            out = self._run(func, types, args, kwargs)
        finally:
            self._is_inside = False
        if out is not NotImplemented:
            self._ledger.after(func, args, kwargs, out)
        return out

    def _run(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if _is_foreach_in_place(func) and all(type(x) is FakeTensor and x.constant is None for x in args[0]):
            return None  # writes values and nothing else; hashing hundreds of shapes for it takes longer than the rest
        try:
            out = super().dispatch(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException) as error:
            return _answer_or_refuse(func, args, error)
        known = KNOWN_RESULTS.get(func)
        if known is not None:
            known(self, args, out)
        return out

    def __deepcopy__(self, memo: Any) -> ShapesOnly:
        return self  # a copied model, such as an average of the weights, belongs to the same dry run

    def know(self, tensor: Any, value: bool | int | float) -> None:
        """From here on, FakeTensor knows this one-element tensor's value, until somebody writes to it."""
        if isinstance(tensor, FakeTensor) and tensor.constant is None and tensor.numel() == 1:
            with torch._C._DisableTorchDispatch():
                constant = torch.full(tuple(tensor.shape), value, dtype=tensor.dtype)
            tensor.constant = constant
            self.fake_tensor_converter.add_constant_storage_mapping(tensor)


@cache
def _is_foreach_in_place(func: Any) -> bool:
    schema = getattr(func, "_schema", None)
    return schema is not None and schema.name.startswith("aten::_foreach_") and not schema.returns


def _compared_with(expected_equal: bool) -> Any:
    """`x == x` holds, and no x is infinite: what `isfinite`, `isinf` and `isnan` are made of."""

    def rule(mode: ShapesOnly, args: Any, out: Any) -> None:
        left, right = args[0], args[1]
        if left is right:
            mode.know(out, expected_equal)
        elif isinstance(right, float) and right in (INFINITY, -INFINITY):
            mode.know(out, not expected_equal)

    return rule


def _below_infinity(mode: ShapesOnly, args: Any, out: Any) -> None:
    if args[1] == INFINITY:
        mode.know(out, True)


def _count(mode: ShapesOnly, args: Any, out: Any) -> None:
    if args[0].dtype == torch.bool:
        mode.know(out, args[0].numel())


def _no_overflow(mode: ShapesOnly, args: Any, out: Any) -> None:
    mode.know(args[1], 0.0)


def _filled(mode: ShapesOnly, args: Any, out: Any) -> None:
    mode.know(out, args[1])


KNOWN_RESULTS: dict[Any, Any] = {
    aten.full.default: _filled,  # so a GradScaler's scale and its growth are computed truly
    aten.zeros.default: lambda mode, args, out: mode.know(out, 0),
    aten.ones.default: lambda mode, args, out: mode.know(out, 1),
    aten.all.default: lambda mode, args, out: mode.know(out, True),
    aten.any.default: lambda mode, args, out: mode.know(out, False),
    aten._is_all_true.default: lambda mode, args, out: mode.know(out, True),
    aten._is_any_true.default: lambda mode, args, out: mode.know(out, False),
    aten.isfinite.default: lambda mode, args, out: mode.know(out, True),
    aten.isnan.default: lambda mode, args, out: mode.know(out, False),
    aten.isinf.default: lambda mode, args, out: mode.know(out, False),
    aten.eq.Tensor: _compared_with(True),
    aten.ne.Tensor: _compared_with(False),
    aten.eq.Scalar: _compared_with(True),
    aten.ne.Scalar: _compared_with(False),
    aten.lt.Scalar: _below_infinity,
    aten.sum.default: _count,
    aten.count_nonzero.default: _count,
    aten._amp_foreach_non_finite_check_and_unscale_.default: _no_overflow,
}


def _answer_or_refuse(func: Any, args: Any, error: Exception) -> Any:
    if func in (aten._local_scalar_dense.default, aten.item.default):
        dtype = args[0].dtype
        if dtype.is_floating_point:
            return 1.0
        if dtype == torch.bool:
            raise DryRunError(
                f"{NO_VALUES}: `if` and `while` cannot depend on what a tensor holds. "
                "Decide with Python numbers, or with torch.where; `.all()`, `.any()` and torch.isfinite are answered."
            ) from error
        raise DryRunError(
            f"{NO_VALUES}: it cannot read a whole number from a tensor. Keep it as a tensor, or take it from a shape."
        ) from error
    if func in (aten.equal.default, aten.allclose.default):
        return True
    if isinstance(error, DynamicOutputShapeException):
        raise DryRunError(
            f"{NO_VALUES}: the shape that {func} returns depends on values. "
            "Use torch.where or masked_fill instead of boolean indexing, nonzero, unique or masked_select."
        ) from error
    raise DryRunError(
        f"{NO_VALUES}: {func} cannot run without values. Leave it out of the step, or use a mask."
    ) from error

"""Bytes that autograd saves for backward, each storage once, weights left out."""

import functools
import random
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.checkpointing import saved_activation_bytes
from course_lib.grading.compare import as_float, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch


def _tensor(*shape: int, grad: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
    numbers = torch.linspace(0.1, 0.9, torch.Size(shape).numel()).reshape(shape)
    return numbers.to(dtype, copy=True).requires_grad_(grad)  # a copy: no view of anything


def _build(program: str, rows: int, columns: int) -> Callable[[], Tensor]:
    """A computation by name; its tensors are (rows, columns) where nothing else is said."""
    x, weight = _tensor(rows, columns), _tensor(2 * columns, columns, grad=True)
    match program:
        case "(x @ weight.t()).exp()":
            return lambda: (x @ weight.t()).exp()
        case "square of a product":
            return lambda: (x @ weight.t()).square()
        case "h * h":
            return lambda: (lambda h: h * h)(x @ weight.t())
        case "square of a leaf that requires gradients":
            leaf = _tensor(rows, columns, grad=True)
            return lambda: leaf.square()
        case "square of a slice":
            return lambda: (x @ weight.t())[:, :columns].square()
        case "x @ weight[:columns], a slice of a weight":
            return lambda: x @ weight[:columns]
        case "two halves of one tensor, multiplied":
            return lambda: torch.mul(*(x @ weight.t()).chunk(2, dim=1))
        case "a chain of exp and sin":
            leaf = _tensor(rows, columns, grad=True)
            return lambda: functools.reduce(lambda y, name: getattr(y, name)(), ["exp", "sin"] * 50, leaf)
        case "embedding":
            tokens = torch.arange(rows) % columns
            return lambda: F.embedding(tokens, weight).exp()
        case "scores times a boolean mask":
            mask = torch.ones(rows, 2 * columns).tril().bool()
            return lambda: (x @ weight.t()) * mask
        case "a bfloat16 MLP":
            down, bias = _tensor(columns, 2 * columns, grad=True, dtype=torch.bfloat16), _tensor(2 * columns, grad=True)
            up, start = weight.detach().bfloat16().requires_grad_(), x.bfloat16()
            return lambda: F.linear(F.gelu(F.linear(start, up, bias.bfloat16())), down)
        case "layer_norm, then a product":
            gain = _tensor(columns, grad=True)
            return lambda: F.layer_norm(x, (columns,), gain) @ weight.t()
    raise ValueError(f"unknown program {program!r}")


PROGRAMS = (
    "(x @ weight.t()).exp()",
    "h * h",
    "square of a product",
    "square of a leaf that requires gradients",
    "square of a slice",
    "two halves of one tensor, multiplied",
    "x @ weight[:columns], a slice of a weight",
    "a chain of exp and sin",
    "embedding",
    "scores times a boolean mask",
    "a bfloat16 MLP",
    "layer_norm, then a product",
)
SLICES = ("square of a slice", "two halves of one tensor, multiplied")


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    programs = [(name, 2, 3) for name in PROGRAMS]
    programs += [(name, draw.randint(3, 40), draw.randint(3, 40)) for name in PROGRAMS]
    # Large enough for the C library to give a freed address to the next tensor.
    programs += [("a chain of exp and sin", size + draw.randint(0, 9), size) for size in (30, 70, 100)]
    return [Case(f"{name}, {rows}×{columns}", (name, rows, columns)) for name, rows, columns in programs]


def observe(solution: Callable, case: Case) -> object:
    return solution(_build(*case.args))


def grade(case: Case, got: object, expected: int) -> Mismatch | None:
    number = as_float(got)
    if number == expected:
        return None
    note = "" if number is None else f"The difference is {number - expected:+.0f} bytes."
    return Mismatch(f"{expected} bytes", describe(got), note)


def _counter(count_parameters: bool = False, whole_storage: bool = True, once: bool = True) -> Callable:
    def solution(forward: Callable[[], Tensor]) -> int:
        kept: dict[int, tuple[Tensor, int]] = {}

        def pack(tensor: Tensor) -> Tensor:
            owner = tensor if tensor._base is None else tensor._base
            if count_parameters or not (owner.is_leaf and owner.requires_grad):
                key = tensor.untyped_storage().data_ptr() if once else len(kept)
                size = tensor.untyped_storage().nbytes() if whole_storage else tensor.nbytes
                kept.setdefault(key, (tensor, size))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = forward()  # noqa: F841 - the graph lives until the count is done
        return sum(size for _, size in kept.values())

    return solution


def counts_floats_only(forward: Callable[[], Tensor]) -> int:
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        owner = tensor if tensor._base is None else tensor._base
        if tensor.is_floating_point() and not (owner.is_leaf and owner.requires_grad):
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()  # noqa: F841
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def counts_only_weights(forward: Callable[[], Tensor]) -> int:
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad or not tensor.is_leaf:  # weight.t() is no leaf
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()  # noqa: F841
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def _address_was_reused(case: Case, got: object, expected: int) -> bool:
    number = as_float(got)
    return case.args[0] not in SLICES and number is not None and number < expected


EXERCISE = Exercise(
    name="saved_activation_bytes",
    points=3,
    minutes=20,
    difficulty=2,
    checks="the bytes that autograd saves in small computations",
    reference=saved_activation_bytes,
    cases=cases,
    observe=observe,
    grade=grade,
    hints=(
        "`torch.autograd.graph.saved_tensors_hooks(pack, unpack)` calls `pack(tensor)` for each tensor that "
        "autograd saves.",
        "Two saved tensors may share one storage: use `tensor.untyped_storage().data_ptr()` as a key and add up "
        "`untyped_storage().nbytes()`. `pack` must give the tensor back, or its memory is free for the next one.",
        "Look at `owner = tensor if tensor._base is None else tensor._base`, and leave the tensor out when "
        "`owner.is_leaf and owner.requires_grad`. Hold the storages in a dictionary until you have added them up.",
    ),
    explanation=(
        "A storage is the block of memory; tensors are views into it. Autograd saves tensors, memory is spent on "
        "storages, so the storage is what you count: once, and whole. Weights are saved as views (`weight.t()`), "
        "which is why the view's base decides. Holding the storages keeps their addresses from being given to the "
        "next tensor."
    ),
    next_step=(
        "Print shape, dtype and `untyped_storage().data_ptr()` of each tensor that `pack` sees in this case, and "
        "compare."
    ),
    misconceptions=(
        Misconception(
            "counts_views_twice",
            "One storage is counted more than once: autograd saved two tensors that look into the same memory. What "
            "do two views of one tensor have in common?",
            solution=_counter(once=False),
        ),
        Misconception(
            "counts_views_twice",
            "Tensors are counted, each with its own bytes: two views of one memory count twice, and a slice counts "
            "less than the storage that it keeps alive. What do views of one tensor have in common?",
            solution=_counter(once=False, whole_storage=False),
        ),
        Misconception(
            "counts_parameters",
            "Weights are in your count. They are in memory anyway, saved or not: how do you recognise a leaf that "
            "requires gradients?",
            solution=_counter(count_parameters=True),
        ),
        Misconception(
            "counts_views_of_parameters",
            "Some weights are still in your count: a linear layer saves `weight.t()`, a view, and a view is no "
            "leaf. What is it a view of?",
            solution=counts_only_weights,
        ),
        Misconception(
            "counts_the_view_not_the_storage",
            "A slice counts with its own bytes here. The slice keeps the whole storage alive: how large is that?",
            solution=_counter(whole_storage=False),
        ),
        Misconception(
            "counts_floats_only",
            "Token numbers or boolean masks are missing. Autograd saves them like everything else, and a storage "
            "takes memory whatever its dtype is.",
            solution=counts_floats_only,
        ),
        Misconception(
            "lets_addresses_be_reused",
            "Bytes are missing where a chain of operations drops its values. If nothing holds a saved tensor while "
            "you count, its address goes to the next tensor, and two storages look like one. What does your `pack` "
            "return, and who keeps the storage alive?",
            matches=_address_was_reused,
        ),
    ),
)

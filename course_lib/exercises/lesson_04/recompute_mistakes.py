"""Wrong checkpoints, for `recompute`: each holds one idea that deserves its own sentence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _build(
    *,
    detach: bool = True,
    tensors_only: bool = False,
    inputs_only: bool = False,
    save_all: bool = False,
    accumulate: bool = True,
) -> Callable:
    class Checkpoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, function: Callable, anchor: Tensor, *inputs: Any) -> Tensor:
            if save_all:
                ctx.save_for_backward(*inputs)
            ctx.function, ctx.inputs = function, inputs
            ctx.random_state = torch.get_rng_state()
            kind = "cpu"
            ctx.autocast = torch.autocast(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
            return function(*inputs)

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> tuple:
            inputs = ctx.inputs
            if detach:
                inputs = tuple(
                    value.detach().requires_grad_(value.requires_grad)
                    if tensors_only or isinstance(value, Tensor)
                    else value
                    for value in inputs
                )
            with torch.random.fork_rng(devices=[]), torch.enable_grad(), ctx.autocast:
                torch.set_rng_state(ctx.random_state)
                output = ctx.function(*inputs)
            tensors = [value for value in inputs if isinstance(value, Tensor)]
            if inputs_only:
                gradients = iter(torch.autograd.grad(output, tensors, grad_output, allow_unused=True))
            elif not accumulate:
                leaves = _leaves(output.grad_fn, tensors)
                found = torch.autograd.grad(output, leaves + tensors, grad_output, allow_unused=True)
                for leaf, gradient in zip(leaves, found, strict=False):
                    leaf.grad = gradient
                gradients = iter(found[len(leaves) :])
            else:
                torch.autograd.backward(output, grad_output)
                gradients = (tensor.grad for tensor in tensors)
            return None, None, *(next(gradients) if isinstance(value, Tensor) else None for value in inputs)

    return lambda function, *inputs: Checkpoint.apply(function, torch.empty(0, requires_grad=True), *inputs)


def _leaves(node: Any, without: list[Tensor]) -> list[Tensor]:
    """The leaves below a node of the graph, but for some."""
    found: dict[int, Tensor] = {}
    waiting, seen = [node], set()
    while waiting:
        here = waiting.pop()
        if here is None or here in seen:
            continue
        seen.add(here)
        leaf = getattr(here, "variable", None)
        if leaf is not None and all(leaf is not tensor for tensor in without):
            found[id(leaf)] = leaf
        waiting += [below for below, _ in here.next_functions]
    return list(found.values())


gradient_to_inputs_only = _build(inputs_only=True)
saves_all_inputs = _build(save_all=True)
detaches_all_inputs = _build(tensors_only=True)
replaces_gradients = _build(accumulate=False)
does_not_detach = _build(detach=False)

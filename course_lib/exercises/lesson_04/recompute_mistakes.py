"""Wrong checkpoints, for `recompute`: each holds one idea that deserves its own sentence."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _build(
    *,
    tensors_only: bool = False,
    inputs_only: bool = False,
    save_all: bool = False,
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
            inputs = tuple(
                value.detach().requires_grad_(value.requires_grad)
                if tensors_only or isinstance(value, Tensor)
                else value
                for value in ctx.inputs
            )
            with torch.random.fork_rng(devices=[]), torch.enable_grad(), ctx.autocast:
                torch.set_rng_state(ctx.random_state)
                output = ctx.function(*inputs)
            tensors = [value for value in inputs if isinstance(value, Tensor)]
            if inputs_only:
                gradients = iter(torch.autograd.grad(output, tensors, grad_output, allow_unused=True))
            else:
                torch.autograd.backward(output, grad_output)
                gradients = (tensor.grad for tensor in tensors)
            return None, None, *(next(gradients) if isinstance(value, Tensor) else None for value in inputs)

    return lambda function, *inputs: Checkpoint.apply(function, torch.empty(0, requires_grad=True), *inputs)


gradient_to_inputs_only = _build(inputs_only=True)
saves_all_inputs = _build(save_all=True)
detaches_all_inputs = _build(tensors_only=True)

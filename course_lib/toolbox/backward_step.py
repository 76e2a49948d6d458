"""An optimizer that steps inside backward, so that no two gradients need to live together."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


def step_in_backward(
    model: nn.Module, make_optimizer: Callable[[list[Tensor]], torch.optim.Optimizer]
) -> list[RemovableHandle]:
    """Update each parameter as soon as its gradient is complete, then release the gradient.

    `loss.backward()` is then the whole step. Not for gradient accumulation, nor for clipping by the global norm, nor for
    a loss scaler: each of the three has to see all gradients before the first update.

    Args:
        make_optimizer: called once for each parameter that requires a gradient, with a list of that one.
    Returns:
        The hooks' handles: `remove()` each to have ordinary gradients again.
    """
    optimizers: dict[Tensor, torch.optim.Optimizer] = {
        parameter: make_optimizer([parameter]) for parameter in model.parameters() if parameter.requires_grad
    }

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()
        parameter.grad = None

    # tied weights accumulate their gradient once, after the last contribution; so the hook runs once too
    return [parameter.register_post_accumulate_grad_hook(update) for parameter in optimizers]

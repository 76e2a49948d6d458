"""Three everyday programs that leak when written carelessly; here as they should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def collect_failures(model: nn.Module, batches: Iterable[Tensor]) -> list[str]:
    """The messages of the batches on which `model` raises a RuntimeError, in order.

    A kept exception holds its traceback, the traceback its frames, the frames their tensors: the text holds nothing.
    """
    messages = []
    for inputs in batches:
        try:
            model(inputs)
        except RuntimeError as error:
            messages.append(str(error))
    return messages


def train_and_release(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[Tensor, Tensor]],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
) -> list[float]:
    """One step a batch; the losses as numbers. No gradient is alive between steps, nor afterwards."""
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        optimizer.zero_grad(set_to_none=True)  # released, not filled with zeros: the next forward pass has the room
    return losses


def activation_norms(model: nn.Module, inputs: Tensor) -> dict[str, float]:
    """The norm of each `nn.Linear`'s output by the module's name; hooks removed, no activation kept."""
    norms: dict[str, float] = {}

    def watch(name: str) -> Callable:
        def hook(module: nn.Module, args: tuple, output: Tensor) -> None:
            norms[name] = output.detach().norm().item()

        return hook

    handles = [
        module.register_forward_hook(watch(name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return norms

"""Gradients and losses over several batches, without holding more than one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IGNORE_INDEX = -100  # PyTorch's own marker for a target that is not to be learnt


def accumulate_gradients(
    model: nn.Module, micro_batches: Sequence[tuple[Tensor, Tensor]], loss_fn: Callable[[Tensor, Tensor], Tensor]
) -> float:
    """The gradient of the full batch, with the memory of one micro-batch.

    Args:
        model: called on `inputs`; its gradients are cleared first.
        micro_batches: `(inputs, targets)`; they may hold different numbers of valid targets, some of them none.
        loss_fn: `loss_fn(logits, targets)`, cross-entropy averaged over the targets that are not -100.
    Returns:
        The full batch's mean loss: the sum over all valid targets, divided by their number.
    """
    model.zero_grad(set_to_none=True)
    valid = [int((targets != IGNORE_INDEX).sum()) for _, targets in micro_batches]
    total = sum(valid)
    mean = 0.0
    for (inputs, targets), count in zip(micro_batches, valid, strict=True):
        if count == 0:  # a mean over nothing is NaN, and NaN times 0 is still NaN
            continue
        loss = loss_fn(model(inputs), targets) * (count / total)
        loss.backward()  # here, not after the loop: this frees the micro-batch's graph
        mean += loss.item()
    return mean


def mean_loss(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Mean cross-entropy over all examples, evaluated and then let go.

    Args:
        model: gives logits (n, classes); evaluated in eval mode, and left in the mode it was in.
        batches: `(inputs, targets)` with targets (n,); n may differ; perhaps a generator, read once.
    Returns:
        A Python number.
    """
    was_training = model.training
    model.eval()
    total, examples = 0.0, 0
    try:
        with torch.no_grad():
            for inputs, targets in batches:
                total += F.cross_entropy(model(inputs), targets, reduction="sum").item()
                examples += targets.numel()
    finally:
        model.train(was_training)
    return total / examples

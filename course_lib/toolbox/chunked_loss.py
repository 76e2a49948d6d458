"""Cross-entropy over a large vocabulary, a few tokens at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .accumulation import IGNORE_INDEX


def _chunk_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = F.linear(hidden, weight)  # (chunk, V): the only tensor with a side of V that grows with tokens
    return F.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")


def chunked_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, chunk_size: int) -> Tensor:
    """Mean cross-entropy of `hidden @ weight.T`, never holding the (N, V) logits.

    Args:
        hidden: (N, h) floating. weight: (V, h). Either may require gradients.
        targets: (N,) class indices; -100 is ignored.
        chunk_size: tokens whose logits exist at the same time; need not divide N.
    Returns:
        0-d float32: the mean over valid targets; 0 with zero gradients where all are ignored.
    """
    valid = (targets != IGNORE_INDEX).sum().clamp(min=1)
    total = torch.zeros((), device=hidden.device)
    # `split`, not slices: the backward of N/chunk slices would allocate a zero-filled (N, h) tensor for each.
    for rows, labels in zip(hidden.split(chunk_size), targets.split(chunk_size), strict=True):
        # checkpoint: the chunk's logits are made again in backward instead of waiting for it.
        total = total + checkpoint(_chunk_loss, rows, weight, labels, use_reentrant=False, preserve_rng_state=False)
    return total / valid

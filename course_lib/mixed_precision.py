"""The mixed-precision step in plain view: which tensor is in which precision, and what each parameter costs.

Source: Micikevicius et al. 2018, §3.1 (float32 master weights), §3.3 (float32 accumulation); Rajbhandari et al. 2020
(ZeRO), §3.1 (2 + 2 + 12 = 16 bytes a parameter).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from course_lib.memory.autocast_policy import autocast_output_dtype

# Bytes a parameter with AdamW, whose two moments have the dtype of the parameters it updates.
RECIPES: dict[str, dict[str, int]] = {
    "fp32": {"weights": 4, "master": 0, "gradients": 4, "optimizer": 8},
    "autocast": {"weights": 4, "master": 0, "gradients": 4, "optimizer": 8},
    "master_weights": {"weights": 2, "master": 4, "gradients": 2, "optimizer": 8},
    "fp32_gradients": {"weights": 2, "master": 4, "gradients": 4, "optimizer": 8},
    "pure_bf16": {"weights": 2, "master": 0, "gradients": 2, "optimizer": 4},
}


def model_state_bytes(n_params: int, recipe: str) -> dict:
    """Bytes of model state during training with AdamW, its step counters ignored.

    Args:
        recipe: a key of `RECIPES`.
    Returns:
        {"weights", "master", "gradients", "optimizer"}, each an int.
    """
    return {part: n_params * size for part, size in RECIPES[recipe].items()}


def mixed_precision_step(
    master: list[Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    batch: tuple[Tensor, Tensor],
) -> float:
    """One training step with bfloat16 compute and a float32 master copy of the weights.

    Args:
        master: float32 leaf tensors, in the order of `model.parameters()`.
        model: bfloat16; on entry equal to the rounded master, on return again.
        optimizer: built on `master`.
        batch: (inputs, targets); floating inputs are bfloat16.
    Returns:
        The loss.
    """
    inputs, targets = batch
    model.zero_grad()
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    for parameter, copy in zip(model.parameters(), master, strict=True):
        copy.grad = None if parameter.grad is None else parameter.grad.float()
    optimizer.step()  # in float32: small updates add up here that bfloat16 would round away one by one
    with torch.no_grad():
        for parameter, copy in zip(model.parameters(), master, strict=True):
            parameter.copy_(copy)  # the only rounding of the weights, and it is never fed back
    return loss.item()


def unmoved_fraction(before: list, after: list) -> float:
    """The share of all elements that an update left exactly as they were.

    Args:
        before, after: lists of tensors, equal in length and shapes.
    """
    total = sum(tensor.numel() for tensor in before)
    unmoved = sum((old == new).sum().item() for old, new in zip(before, after, strict=True))
    return unmoved / total


def cuda_autocast_dtype(op: str) -> torch.dtype:
    """The dtype of an operation's result under CUDA's float16 autocast.

    Args:
        op: "linear", "matmul", "scaled_dot_product_attention", "gelu", "softmax", "layer_norm", "exp", "sum",
            "cross_entropy" or "embedding". Floating activations are float16, weights float32.
    """
    return autocast_output_dtype(op, "cuda", torch.float16)


def stable_softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension for float16 logits, right to half an ulp of the result.

    Args:
        x: (..., n) float16, finite, n up to 70,000.
    Returns:
        (..., n) float16.
    """
    wide = x.float()  # first of all: a float16 sum of more than 65,504 ones is infinite
    wide = wide - wide.amax(dim=-1, keepdim=True)  # exp overflows float32 above 88.7; now its argument is <= 0
    weights = wide.exp()
    return (weights / weights.sum(dim=-1, keepdim=True)).half()  # rounded once, at the end


def amp_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    batch: tuple[Tensor, Tensor],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    dtype: torch.dtype,
    device_type: str,
) -> float:
    """One training step under autocast, right for float16 and for bfloat16.

    Args:
        model: float32 parameters; their gradients may hold something from before.
        scaler: used (and updated) for float16; for bfloat16 left as it was, even if enabled.
        batch: (inputs, targets).
        dtype: torch.float16 or torch.bfloat16.
        device_type: "cuda" or "cpu".
    Returns:
        The loss, unscaled.
    """
    inputs, targets = batch
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):  # forward and loss; backward follows the dtypes of the forward
        loss = loss_fn(model(inputs), targets)
    if dtype is torch.float16:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    return loss.item()

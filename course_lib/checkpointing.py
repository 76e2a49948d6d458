"""Gradient checkpointing: what autograd keeps, and how to keep less by computing twice.

Paper letters used below: s = `seq`, b = `batch`, h = `hidden`, a = `heads`; r = a·s/h.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint

__all__ = [
    "best_segment_count",
    "block_activation_bytes",
    "cheapest_plan",
    "forward_checkpointed",
    "recompute",
    "saved_activation_bytes",
    "segment_peak_bytes",
    "selective_policy",
]


def saved_activation_bytes(forward: Callable[[], Tensor]) -> int:
    """Bytes that autograd saves for backward while `forward` runs.

    Each storage counts once, at its whole size, however many views of it are saved. A tensor is left out when it, or
    the tensor that it is a view of, is a leaf that requires gradients: weights are there anyway.

    Args:
        forward: runs a computation on plain CPU tensors and returns its result.
    Returns:
        Bytes of the saved storages.
    """
    saved: dict[int, torch.UntypedStorage] = {}  # holding the storages keeps their addresses from being used again

    def pack(tensor: Tensor) -> Tensor:
        # a weight is often saved as `weight.t()`, a view whose `_base` is the weight
        is_weight = any(t is not None and t.is_leaf and t.requires_grad for t in (tensor, tensor._base))
        if not is_weight:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(storage.nbytes() for storage in saved.values())


def block_activation_bytes(batch: int, seq: int, hidden: int, heads: int, *, attention: str, dropout: bool) -> int:
    """Bytes that one GPT block keeps for backward, in bfloat16; LayerNorm's statistics are left out.

    Args:
        attention: "naive" (all in bfloat16), "fp32_softmax" (the softmax in float32, then cast), or "flash".
        dropout: whether the block has its three dropouts, each with a mask of one byte an element.
    Raises:
        ValueError: `attention` is none of the three.
    Source: Korthikanti et al. 2022, arXiv:2205.05198, §4.1, Equation 1: sbh(34 + 5as/h).
    """
    vector = batch * seq * hidden  # sbh: one number for each token and channel
    scores = batch * heads * seq * seq  # abs²: one number for each pair of tokens and head
    linear = 34 if dropout else 32  # two masks of sbh bytes, after the attention and after the MLP
    if attention == "naive":  # softmax output 2; with dropout a mask 1 and its output 2
        return linear * vector + (5 if dropout else 2) * scores
    if attention == "fp32_softmax":  # softmax output 4, its cast 2; with dropout a mask 1
        return linear * vector + (7 if dropout else 6) * scores
    if attention == "flash":  # one float32 log-sum-exp for each token and head
        return linear * vector + 4 * batch * heads * seq
    raise ValueError(f'attention must be "naive", "fp32_softmax" or "flash"; got {attention!r}.')


class _Recompute(torch.autograd.Function):
    """Runs a function without a graph; builds the graph in backward, uses it and lets it go."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], _anchor: Tensor, *inputs: Any) -> Tensor:
        ctx.function = function
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        ctx.device_types = {"cpu"} | {tensor.device.type for tensor in tensors}
        ctx.autocast = {
            kind: (torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind), torch.is_autocast_cache_enabled())
            for kind in ctx.device_types
        }
        ctx.random_state = torch.get_rng_state()
        ctx.cuda_random_states = torch.cuda.get_rng_state_all() if "cuda" in ctx.device_types else []
        # save_for_backward also notices when an input is changed in place before backward
        ctx.others = [None if isinstance(value, Tensor) else value for value in inputs]
        ctx.is_tensor = [isinstance(value, Tensor) for value in inputs]
        ctx.save_for_backward(*tensors)
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple:
        tensors = iter(ctx.saved_tensors)
        inputs = [
            next(tensors) if is_tensor else other for is_tensor, other in zip(ctx.is_tensor, ctx.others, strict=True)
        ]
        inputs = [
            value.detach().requires_grad_(needs_grad) if isinstance(value, Tensor) else value
            for value, needs_grad in zip(inputs, ctx.needs_input_grad[2:], strict=True)
        ]
        devices = list(range(len(ctx.cuda_random_states)))
        with torch.random.fork_rng(devices=devices), torch.enable_grad(), ExitStack() as stack:
            torch.set_rng_state(ctx.random_state)
            for device, state in zip(devices, ctx.cuda_random_states, strict=True):
                torch.cuda.set_rng_state(state, device)
            for kind, (dtype, enabled, cache) in ctx.autocast.items():
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=cache))
            output = ctx.function(*inputs)
        if output.requires_grad:
            torch.autograd.backward(output, grad_output)  # fills .grad of parameters and of the detached inputs
        return None, None, *(value.grad if isinstance(value, Tensor) else None for value in inputs)


def recompute(function: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """`function(*inputs)`, keeping nothing but the inputs: backward runs the function a second time.

    Args:
        function: returns one tensor; it may use parameters, draw random numbers and stand under autocast.
        inputs: tensors, with or without gradients, or anything else.
    Returns:
        The output. `.backward()` gives each parameter and input the gradient that the plain call would, and leaves the
        random state as it found it. At least one input or parameter must require gradients. No double backward.
    """
    # Without the anchor, a function whose inputs need no gradients would return a tensor without a graph.
    anchor = torch.empty(0, requires_grad=True)
    return _Recompute.apply(function, anchor, *inputs)


def forward_checkpointed(model: torch.nn.Module, tokens: Tensor) -> Tensor:
    """nanoGPT's forward pass with each block checkpointed.

    Args:
        model: a `course_lib.nanogpt.GPT`.
        tokens: (B, T) of token numbers.
    Returns:
        (B, T, V) logits.
    """
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    x = model.drop(model.wte(tokens) + model.wpe(positions))  # (B, T, C)
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return model.lm_head(model.ln_f(x))


def segment_peak_bytes(n_layers: int, segments: int, boundary_bytes: int, layer_bytes: int) -> int:
    """Bytes at the peak: one boundary a segment, and the inside of the largest segment while it runs backward.

    Source: Chen et al. 2016, arXiv:1604.06174, §4.1, Equation 1.
    """
    return segments * boundary_bytes + -(-n_layers // segments) * layer_bytes


def best_segment_count(n_layers: int, boundary_bytes: int, layer_bytes: int) -> int:
    """The number of segments k, from 1 to n, that minimises k·boundary + ⌈n/k⌉·layer; the smallest on ties."""
    return min(range(1, n_layers + 1), key=lambda k: segment_peak_bytes(n_layers, k, boundary_bytes, layer_bytes))


def selective_policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Keep what the weight matrices produce; compute all else again, the attention's products included.

    Args:
        ctx: whether this call is the first or the recomputation; not needed.
        op: the operation, such as `torch.ops.aten.mm.default`.
    For `torch.utils.checkpoint.create_selective_checkpoint_contexts`.
    """
    if op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def cheapest_plan(layer_bytes: Sequence[int], layer_flops: Sequence[float], budget: int) -> set[int]:
    """Which layers to recompute so that what the others keep fits, at the least recomputed work.

    Args:
        layer_bytes: what each layer keeps when it is not recomputed; at most 16 layers.
        layer_flops: what recomputing each layer costs.
        budget: bytes that the layers which are not recomputed may keep together; 0 or more.
    Returns:
        The layers' positions.
    """
    # Kept bytes and spared work of every set of layers: doubling the lists adds one layer to all sets so far.
    kept_bytes, spared_flops = [0], [0.0]
    for num_bytes, flops in zip(layer_bytes, layer_flops, strict=True):
        kept_bytes += [total + num_bytes for total in kept_bytes]
        spared_flops += [total + flops for total in spared_flops]
    fitting = (keep for keep, total in enumerate(kept_bytes) if total <= budget)
    best = max(fitting, key=lambda keep: spared_flops[keep])
    return {layer for layer in range(len(layer_bytes)) if not best >> layer & 1}

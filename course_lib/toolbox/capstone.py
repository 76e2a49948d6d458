"""The capstone: one training step that puts the tools together, and the 1.2-billion-parameter GPT that needs them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from course_lib.nanogpt import GPT, GPTConfig, loss_fn

from .accumulation import IGNORE_INDEX
from .chunked_loss import chunked_cross_entropy

if TYPE_CHECKING:
    from .plans import Plan

CAPSTONE_CONFIG = GPTConfig(vocab_size=50257, block_size=2048, n_layer=22, n_head=16, n_embd=2048, attention="sdpa")
CAPSTONE_GLOBAL_BATCH = 32
CAPSTONE_GPU = "T4"


def hidden_states(model: GPT, tokens: Tensor, checkpoint_blocks: int = 0) -> Tensor:
    """nanoGPT up to its last LayerNorm, the first `checkpoint_blocks` blocks recomputed in backward: (B, T, C)."""
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1], device=tokens.device)))  # (B, T, C)
    for index, block in enumerate(model.blocks):
        x = checkpoint(block, x, use_reentrant=False) if index < checkpoint_blocks else block(x)
    return model.ln_f(x)


def micro_batch_loss(model: GPT, tokens: Tensor, targets: Tensor, plan: Plan) -> Tensor:
    """Mean loss of one micro-batch, with the plan's checkpointing and chunking."""
    hidden = hidden_states(model, tokens, plan.checkpoint_blocks)
    if plan.chunk_tokens:
        return chunked_cross_entropy(hidden.flatten(0, 1), model.lm_head.weight, targets.flatten(), plan.chunk_tokens)
    # .float(): under CUDA autocast cross_entropy would take the logarithms in 16 bits
    return loss_fn(model.lm_head(hidden).float(), targets)


def _contexts(plan: Plan, device_type: str) -> tuple[AbstractContextManager, AbstractContextManager]:
    dtype = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[plan.precision]
    autocast = torch.autocast(
        device_type, dtype=dtype or torch.bfloat16, enabled=dtype is not None, cache_enabled=plan.weight_cast_cache
    )
    return autocast, torch.autograd.graph.save_on_cpu() if plan.offload == "activations" else nullcontext()


def capstone_step(
    model: GPT,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    tokens: Tensor,
    targets: Tensor,
    plan: Plan,
) -> float:
    """One training step of the global batch, under a plan.

    Args:
        scaler: enabled for fp16; when not, it passes everything through.
        tokens, targets: (plan.micro_batch * plan.accumulation, T); targets of -100 do not count.
    Returns:
        The mean loss over all valid targets.
    """
    optimizer.zero_grad(set_to_none=True)
    valid = (targets != IGNORE_INDEX).sum()
    mean = 0.0
    for inputs, labels in zip(tokens.split(plan.micro_batch), targets.split(plan.micro_batch), strict=True):
        count = (labels != IGNORE_INDEX).sum()
        autocast, offload = _contexts(plan, tokens.device.type)
        with autocast, offload:
            loss = micro_batch_loss(model, inputs, labels, plan)
            # a micro-batch without a valid target has loss NaN or 0 and weight 0
            loss = torch.where(count > 0, loss * count / valid, 0.0)
        scaler.scale(loss).backward()
        mean += loss.item()
    scaler.step(optimizer)
    scaler.update()
    return mean


def capstone_plan() -> Plan:
    """A plan for the capstone: 1.21 billion parameters, 32 sequences of 2,048 tokens, one T4."""
    from .plans import Plan  # plans.py judges with the step above

    return Plan(
        precision="fp16",
        attention="sdpa",
        micro_batch=1,
        accumulation=CAPSTONE_GLOBAL_BATCH,
        checkpoint_blocks=CAPSTONE_CONFIG.n_layer,
        chunk_tokens=512,
        optimizer="adamw8bit",
    )

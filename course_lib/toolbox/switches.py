"""Which switch it is: each tool in plain PyTorch, in Hugging Face's TrainingArguments, in DeepSpeed's configuration.

`hugging_face` names are fields of `transformers.TrainingArguments` (checked against the installed library by a test and
by the lesson); `deepspeed` names are keys of https://www.deepspeed.ai/docs/config-json/, read on 2026-11.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


class Switch(NamedTuple):
    """One row of the table. Several names are alternatives or belong together; none: there is no such switch."""

    tool: str
    pytorch: str
    hugging_face: tuple[str, ...] = ()
    deepspeed: tuple[str, ...] = ()


SWITCHES = (
    Switch(
        "mixed precision", "torch.autocast, torch.amp.GradScaler", ("fp16", "bf16"), ("fp16.enabled", "bf16.enabled")
    ),
    Switch("FlashAttention", "F.scaled_dot_product_attention"),  # in transformers an argument of from_pretrained
    Switch(
        "smaller micro-batches",
        "loss * share, backward, several times",
        ("per_device_train_batch_size", "gradient_accumulation_steps", "average_tokens_across_devices"),
        ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    ),
    Switch(
        "checkpointing",
        "torch.utils.checkpoint.checkpoint",
        ("activation_checkpointing", "gradient_checkpointing"),
        ("activation_checkpointing",),
    ),
    Switch("chunked loss", "write it, or a fused kernel", ("use_liger_kernel",)),
    Switch("optimizer in backward", "register_post_accumulate_grad_hook"),
    Switch("8-bit optimizer", "torchao or bitsandbytes", ("optim",), ("optimizer",)),
    Switch("ZeRO, FSDP", "torch.distributed.fsdp.fully_shard", ("fsdp", "deepspeed"), ("zero_optimization.stage",)),
    Switch(
        "offload",
        "torch.autograd.graph.save_on_cpu",
        (),
        ("zero_optimization.offload_optimizer", "zero_optimization.offload_param"),
    ),
    Switch("fragmentation", "PYTORCH_ALLOC_CONF=expandable_segments:True", ("torch_empty_cache_steps",)),
)


def unknown_fields() -> list[str] | None:
    """Names of the table that the installed transformers' TrainingArguments does not have; None without transformers."""
    try:
        from transformers import TrainingArguments
    except ImportError:
        return None
    known = {entry.name for entry in dataclasses.fields(TrainingArguments)}
    return sorted({name for switch in SWITCHES for name in switch.hugging_face} - known)

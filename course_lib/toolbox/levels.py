"""The three levels of `fit_on_gpu`."""

from __future__ import annotations

from course_lib.nanogpt import GPTConfig

from .plans import Level, Plan

LEVELS: dict[str, Level] = {
    level.name: level
    for level in (
        Level(
            name="the batch",
            title="GPT-2 (124 M), 32 sequences of 1,024 tokens, one T4",
            lesson="micro-batches with accumulation: the global batch stays, and only a part of it is in memory",
            config=GPTConfig(vocab_size=50257, block_size=1024, n_layer=12, n_head=12, n_embd=768),
            gpu="T4",
            global_batch=32,
            choices={
                "precision": ("fp32", "fp16", "bf16"),
                "attention": ("naive", "sdpa"),
                "micro_batch": (1, 2, 4, 8, 16, 32),
            },
            without_tool={"accumulation": 1},
            par=1.0546,
        ),
        Level(
            name="the context",
            title="209 M parameters, 8 sequences of 16,384 tokens, one T4",
            lesson="checkpointing: a single sequence does not fit, so there is no smaller micro-batch to go to",
            config=GPTConfig(vocab_size=40000, block_size=16384, n_layer=12, n_head=16, n_embd=1024),
            gpu="T4",
            global_batch=8,
            choices={
                "precision": ("fp32", "fp16", "bf16"),
                "attention": ("naive", "sdpa"),
                "micro_batch": (1, 2, 4),
                "checkpoint_blocks": (0, 4, 8, 12),
            },
            without_tool={"checkpoint_blocks": 0},
            par=1.2169,
        ),
        Level(
            name="the state",
            title="1.05 B parameters, 16 sequences of 1,024 tokens, one T4",
            lesson="8-bit moments: sixteen bytes a parameter are more than the card has, whatever the activations do",
            config=GPTConfig(vocab_size=40000, block_size=1024, n_layer=12, n_head=20, n_embd=2560),
            gpu="T4",
            global_batch=16,
            choices={
                "precision": ("fp16", "bf16"),
                "attention": ("sdpa",),
                "micro_batch": (1, 2, 4),
                "checkpoint_blocks": (0, 12),
                "chunk_tokens": (0, 512),
                "optimizer": ("adamw", "adamw8bit"),
                "offload": ("none", "activations"),
            },
            without_tool={"optimizer": "adamw"},
            par=1.2637,
        ),
    )
}


def fit_on_gpu(level: Level) -> Plan:
    """The fastest plan that fits, level by level."""
    return {
        "the batch": Plan("fp16", "sdpa", micro_batch=8, accumulation=4),
        "the context": Plan("fp16", "sdpa", micro_batch=1, accumulation=8, checkpoint_blocks=8),
        "the state": Plan("fp16", "sdpa", micro_batch=2, accumulation=8, chunk_tokens=512, optimizer="adamw8bit"),
    }[level.name]

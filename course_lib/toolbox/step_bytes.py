"""A training step's bytes from its configuration: rules that the dry run confirms."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.nanogpt import GPTConfig


@dataclass(frozen=True)
class StepConfig(GPTConfig):
    """A nanoGPT and the batch that it is trained on: `batch_size` sequences of `block_size` tokens."""

    batch_size: int = 1

    @property
    def n_params(self) -> int:
        """Parameters, the tied head counted once: 12 L h^2 + 13 L h + 2 h, and the two embeddings."""
        h = self.n_embd
        blocks = 12 * self.n_layer * h**2 + (13 if self.bias else 2) * self.n_layer * h
        return blocks + (2 if self.bias else 1) * h + (self.vocab_size + self.block_size) * h


def predict_step_bytes(config: StepConfig, gpu: str) -> dict[str, int]:
    """Bytes of tensor storage over one step of nanoGPT: autocast to 16 bits, AdamW with `foreach`, SDPA, no dropout.

    L layers, h width, a heads, s tokens a sequence, b sequences, V vocabulary, n parameters.

    Args:
        config: the model and its batch; the loss is taken in float32, `loss_fn(model(tokens).float(), targets)`.
        gpu: a name of `GPUS`: fp16 on a T4 and bf16 on later ones are two bytes alike, so the bytes do not change.
    Returns:
        `at_loss` (backward enters the loss), `end_of_backward`, `at_step` (inside AdamW's step), `peak`: the largest.
    """
    b, s, h = config.batch_size, config.block_size, config.n_embd
    n = config.n_params
    state = 4 * n + 8 * n  # fp32 weights and AdamW's moments; the gradients were released before forward
    casts = 2 * n  # autocast's 16-bit copies live until backward has used them
    blocks = config.n_layer * (36 * s * b * h + 4 * config.n_head * b * s + 16 * b * s)
    head = 12 * b * s * config.vocab_size  # log-probabilities, their gradient, the logits' gradient, each in fp32
    at_loss = state + casts + blocks + head
    end_of_backward = state + 4 * n
    at_step = end_of_backward + 4 * n  # foreach makes one fp32 tensor a parameter for the denominators
    return {
        "at_loss": at_loss,
        "end_of_backward": end_of_backward,
        "at_step": at_step,
        "peak": max(at_loss, end_of_backward, at_step),
    }

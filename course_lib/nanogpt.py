"""A GPT small enough to read in one sitting, with GPT-2's shapes and parameter counts.

Letters in the shape comments: B sequences in a batch, T tokens in a sequence, C channels (`n_embd`),
nh heads (`n_head`), hs channels in a head (C / nh), V vocabulary entries. Source: Radford et al. 2019 (GPT-2);
the shapes are those of its released weights, so a count of parameters can be compared with the published one.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.data_files import data_path


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT. The defaults make the course's own model: bytes in, bytes out, small enough for a CPU."""

    vocab_size: int = 256
    block_size: int = 64
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 64
    dropout: float = 0.0
    bias: bool = True
    attention: str = "sdpa"

    def __post_init__(self):
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd must be a multiple of n_head; got {self.n_embd} and {self.n_head}.")
        if self.attention not in ("naive", "sdpa"):
            raise ValueError(f'attention must be "naive" or "sdpa"; got {self.attention!r}.')


GPT2_CONFIGS = {
    "gpt2": GPTConfig(vocab_size=50257, block_size=1024, n_layer=12, n_head=12, n_embd=768),
    "gpt2-medium": GPTConfig(vocab_size=50257, block_size=1024, n_layer=24, n_head=16, n_embd=1024),
    "gpt2-large": GPTConfig(vocab_size=50257, block_size=1024, n_layer=36, n_head=20, n_embd=1280),
    "gpt2-xl": GPTConfig(vocab_size=50257, block_size=1024, n_layer=48, n_head=25, n_embd=1600),
}


def naive_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """Causal attention that stores the T×T scores, as the formula is written.

    Args:
        q, k, v: (B, nh, T, hs), one floating dtype.
        dropout: share of the attention weights to drop.
    Returns:
        (B, nh, T, hs).
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, nh, T, T)
    # Adding minus infinity keeps nothing for backward; masked_fill would keep a mask in each layer.
    future = torch.full(scores.shape[-2:], -math.inf, dtype=scores.dtype, device=scores.device).triu(1)
    weights = F.softmax(scores + future, dim=-1)
    if dropout:
        weights = F.dropout(weights, dropout)
    return weights @ v  # (B, nh, T, T) @ (B, nh, T, hs) -> (B, nh, T, hs)


def sdpa_attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """The same attention by PyTorch's fused operator, which never stores the scores where a fused kernel exists."""
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)


class CausalSelfAttention(nn.Module):
    def __init__(self, config: GPTConfig, **factory):
        super().__init__()
        self.config = config
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias, **factory)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias, **factory)
        self.resid_dropout = nn.Dropout(config.dropout)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(B, nh, T, hs) three times -> (B, nh, T, hs). Assign your own function to an instance to replace it."""
        attention = naive_attention if self.config.attention == "naive" else sdpa_attention
        return attention(q, k, v, self.config.dropout if self.training else 0.0)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        heads = self.c_attn(x).view(B, T, 3, self.config.n_head, -1)  # (B, T, 3, nh, hs)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # three times (B, nh, T, hs)
        out = self.attend(q, k, v)  # (B, nh, T, hs)
        out = out.transpose(1, 2).reshape(B, T, C)  # heads side by side again
        return self.resid_dropout(self.c_proj(out))


class MLP(nn.Module):
    def __init__(self, config: GPTConfig, **factory):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias, **factory)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias, **factory)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.c_fc(x), approximate="tanh")  # (B, T, 4C)
        return self.dropout(self.c_proj(hidden))  # (B, T, C)


class Block(nn.Module):
    def __init__(self, config: GPTConfig, **factory):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, bias=config.bias, **factory)
        self.attn = CausalSelfAttention(config, **factory)
        self.ln_2 = nn.LayerNorm(config.n_embd, bias=config.bias, **factory)
        self.mlp = MLP(config, **factory)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))  # (B, T, C)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Tokens in, logits out; the head shares its weight with the token embedding.

    Args:
        config: sizes.
        device, dtype: where and in which precision the parameters are made.
    """

    def __init__(self, config: GPTConfig, *, device=None, dtype=None):
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd, **factory)
        self.wpe = nn.Embedding(config.block_size, config.n_embd, **factory)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, **factory) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, bias=config.bias, **factory)
        # Made on the meta device: the next line throws this weight away, and at 8 billion parameters that counts.
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False, device="meta", dtype=dtype)
        self.lm_head.weight = self.wte.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """GPT-2's initial values: normal with 0.02, less for what is added to the residual stream 2·n_layer times."""
        residual_std = 0.02 / math.sqrt(2 * self.config.n_layer)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=residual_std)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.config.block_size:
            raise ValueError(f"tokens must be at most block_size long; got {length} > {self.config.block_size}.")
        positions = torch.arange(length, device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(positions))  # (B, T, C) + (T, C) -> (B, T, C)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))  # (B, T, V)


def loss_fn(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats. logits: (B, T, V); targets: (B, T), integers."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


@cache
def corpus() -> Tensor:
    """The course's text as bytes: (N,) uint8, shared: do not write in it. Its source is in `data/README.md`."""
    data = data_path("corpus.txt").read_bytes()
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def batch(corpus: Tensor, batch_size: int, block_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random windows of the text: (inputs, targets), both (batch_size, block_size) int64; a target is the next byte."""
    starts = torch.randint(len(corpus) - block_size, (batch_size, 1), generator=generator)
    windows = corpus[starts + torch.arange(block_size + 1)].long()  # (B, T + 1)
    return windows[:, :-1], windows[:, 1:]

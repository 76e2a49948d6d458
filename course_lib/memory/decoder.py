"""One decoder for every row of data/models.csv, for dry runs: what it keeps is what the real models keep.

gpt2 kind: fused QKV, LayerNorm, GELU (nanoGPT). llama kind: as in `transformers`, with RMSNorm in float32 (the norm's
input is kept in float32 and again in the weight's dtype), SwiGLU, rotary positions, grouped heads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course_lib.memory.models import ModelConfig


class RMSNorm(nn.Module):
    """RMSNorm in float32, as transformers' LlamaRMSNorm and Qwen3RMSNorm compute it."""

    def __init__(self, size: int, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions on (B, heads, T, d)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Shared(NamedTuple):
    """What all blocks use: cos and sin (T, d) of a llama kind; the mask (T, T) of naive attention, True = hidden."""

    rotary: tuple[torch.Tensor, torch.Tensor] | None
    future: torch.Tensor | None


class Attention(nn.Module):
    """Causal self-attention: SDPA, or with every score stored where the mask is given."""

    def __init__(self, config: ModelConfig, dropout: float, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.config, self.dropout = config, dropout
        h, q, kv = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
        bias = config.kind == "gpt2"
        if bias:
            self.c_attn = nn.Linear(h, q + 2 * kv, dtype=dtype)
        else:
            self.q_proj = nn.Linear(h, q, bias=config.qkv_bias, dtype=dtype)
            self.k_proj = nn.Linear(h, kv, bias=config.qkv_bias, dtype=dtype)
            self.v_proj = nn.Linear(h, kv, bias=config.qkv_bias, dtype=dtype)
        if config.qk_norm:
            self.q_norm, self.k_norm = RMSNorm(config.head_dim, dtype), RMSNorm(config.head_dim, dtype)
        self.o_proj = nn.Linear(q, h, bias=bias, dtype=dtype)

    def forward(self, x: torch.Tensor, shared: Shared) -> torch.Tensor:
        batch, seq, _ = x.shape
        config = self.config
        sizes = [config.heads * config.head_dim] + [config.kv_heads * config.head_dim] * 2
        if config.kind == "gpt2":
            parts = self.c_attn(x).split(sizes, dim=-1)
        else:
            parts = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = (part.view(batch, seq, -1, config.head_dim) for part in parts)  # (B, T, heads, d)
        if config.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))  # (B, heads, T, d)
        if shared.rotary is not None:
            q, k = rotate(q, *shared.rotary), rotate(k, *shared.rotary)
        out = self.attend(q, k, v, shared.future).transpose(1, 2).reshape(batch, seq, -1)
        return self.o_proj(out)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, future: torch.Tensor | None) -> torch.Tensor:
        dropout = self.dropout if self.training else 0.0
        groups = q.shape[1] // k.shape[1]
        if future is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout, enable_gqa=groups > 1)
        if groups > 1:
            k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
        scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]))  # (B, heads, T, T)
        scores = scores.masked_fill(future, -math.inf)
        if self.config.kind == "gpt2":
            weights = F.softmax(scores, dim=-1)
        else:
            weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return F.dropout(weights, dropout, self.training) @ v


class MLP(nn.Module):
    """GELU or SwiGLU."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.is_gated = config.kind == "llama"
        h, f = config.hidden, config.mlp_hidden
        if self.is_gated:
            self.gate_proj = nn.Linear(h, f, bias=False, dtype=dtype)
        self.up_proj = nn.Linear(h, f, bias=not self.is_gated, dtype=dtype)
        self.down_proj = nn.Linear(f, h, bias=not self.is_gated, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_gated:
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return self.down_proj(F.gelu(self.up_proj(x)))


class Block(nn.Module):
    """Norm, attention, norm, MLP, with residual sums and dropout (gpt2 kind)."""

    def __init__(self, config: ModelConfig, dropout: float, dtype: torch.dtype | None) -> None:
        super().__init__()
        norm = nn.LayerNorm if config.kind == "gpt2" else RMSNorm
        self.dropout = dropout
        self.norm_1, self.norm_2 = norm(config.hidden, dtype=dtype), norm(config.hidden, dtype=dtype)
        self.attn = Attention(config, dropout, dtype)
        self.mlp = MLP(config, dtype)

    def forward(self, x: torch.Tensor, shared: Shared) -> torch.Tensor:
        x = x + F.dropout(self.attn(self.norm_1(x), shared), self.dropout, self.training)
        return x + F.dropout(self.mlp(self.norm_2(x)), self.dropout, self.training)


class Decoder(nn.Module):
    """tokens (B, T) -> logits (B, T, vocab).

    Args:
        config: a row of `MODELS`, or `read_config(path)`.
        attention: "sdpa" or "naive".
        is_checkpointed: recompute each block in the backward pass.
        dropout: probability, after attention's softmax and on both residual branches.
        dtype: of the weights.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        attention: str = "sdpa",
        is_checkpointed: bool = False,
        dropout: float = 0.0,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if attention not in ("sdpa", "naive"):
            raise ValueError(f"attention must be 'sdpa' or 'naive'; got {attention!r}.")
        self.config, self.attention, self.is_checkpointed = config, attention, is_checkpointed
        self.wte = nn.Embedding(config.vocab, config.hidden, dtype=dtype)
        if config.kind == "gpt2":
            self.wpe = nn.Embedding(config.positions, config.hidden, dtype=dtype)
        self.blocks = nn.ModuleList(Block(config, dropout, dtype) for _ in range(config.layers))
        self.norm = (nn.LayerNorm if config.kind == "gpt2" else RMSNorm)(config.hidden, dtype=dtype)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False, dtype=dtype)
        if config.tied:
            self.lm_head.weight = self.wte.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seq = tokens.shape[1]
        x, rotary, future = self.wte(tokens), None, None
        positions = torch.arange(seq, device=tokens.device)
        if self.config.kind == "gpt2":
            x = x + self.wpe(positions)
        else:
            angles = torch.outer(positions, 1e6 ** -torch.linspace(0, 1, self.config.head_dim // 2, device=x.device))
            angles = torch.cat((angles, angles), dim=-1)  # (T, d); the base changes values, not bytes
            rotary = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if self.attention == "naive":
            future = torch.ones(seq, seq, dtype=torch.bool, device=x.device).triu(1)
        shared = Shared(rotary, future)
        for block in self.blocks:
            x = checkpoint(block, x, shared, use_reentrant=False) if self.is_checkpointed else block(x, shared)
        return self.lm_head(self.norm(x))

"""Attention block by block: the scores of all pairs are computed, and never stored.

Letters in the shape comments: B batch, nh heads, Tq queries and Tk keys (Tq <= Tk), hs channels of a head; bq and bk
rows of a tile. Papers: FA1 is Dao et al. 2022 (arXiv:2205.14135), FA2 is Dao 2023 (arXiv:2307.08691); their O, l, m, L
and D are `out`, `row_sum`, `row_max`, `logsumexp` and `row_term` here.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course_lib.on_chip_memory import OnChipMemory


def attention_traffic_bytes(seq: int, head_dim: int, bytes_per_element: int) -> int:
    """Bytes that standard attention moves to and from HBM: forward, one head of one sequence.

    Four matrices of seq × head_dim (read Q, K and V, write out) and four passes over seq × seq (write the scores, read
    them, write the weights, read them). Source: FA1 §2.2, Algorithm 0.
    """
    vectors = 4 * seq * head_dim
    passes_over_scores = 4 * seq * seq
    return (vectors + passes_over_scores) * bytes_per_element


def decode_mask(q_len: int, k_len: int) -> Tensor:
    """Which key each query may attend to when the queries are the last of the keys: (q_len, k_len), True = attend."""
    positions = torch.arange(q_len)[:, None] + (k_len - q_len)  # of the queries among the keys
    return torch.arange(k_len)[None, :] <= positions


def merge_partial(a: tuple[Tensor, Tensor, Tensor], b: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Joins what two sets of keys say about the same queries, as if softmax had seen them together.

    Args:
        a, b: (row_max, row_sum, out) of shapes (..., rows), (..., rows), (..., rows, dim): sum and unnormalised output
            relative to the part's own maximum. A part that has seen nothing is (-inf, 0, 0).
    Returns:
        The same triple for both together.
    """
    row_max = torch.maximum(a[0], b[0])
    # Where neither part has seen a key the maximum is -inf, and -inf - -inf would be NaN.
    shift = torch.where(row_max == -math.inf, 0.0, row_max)
    scale_a, scale_b = torch.exp(a[0] - shift), torch.exp(b[0] - shift)  # at most 1: nothing overflows
    row_sum = scale_a * a[1] + scale_b * b[1]
    out = scale_a[..., None] * a[2] + scale_b[..., None] * b[2]
    return row_max, row_sum, out


def block_sizes(sram_bytes: int, head_dim: int, bytes_per_element: int) -> tuple[int, int]:
    """(B_r, B_c), the rows of a Q tile and of a K tile, as FA1's Algorithm 1 sets them for a memory of that size."""
    sram_elements = sram_bytes // bytes_per_element
    block_c = math.ceil(sram_elements / (4 * head_dim))  # four tiles share the memory: Q, K, V and out
    return min(block_c, head_dim), block_c


def tiled_attention(
    q: Tensor, k: Tensor, v: Tensor, *, block_q: int, block_k: int, causal: bool, memory: OnChipMemory
) -> tuple[Tensor, Tensor]:
    """Attention computed block by block, never storing a Tq×Tk tensor.

    Args:
        q: (B, nh, Tq, hs); k, v: (B, nh, Tk, hs) with Tq <= Tk, all in one floating dtype.
        block_q, block_k: rows of a tile; need not divide the lengths.
        causal: query i attends to keys up to i + Tk - Tq: the last query sees the last key.
        memory: where the tiles live.
    Returns:
        (out, logsumexp): (B, nh, Tq, hs) in q's dtype, and (B, nh, Tq) in float32 (float64 for float64).
    Source: FA2, Algorithm 1.
    """
    q_len, k_len = q.shape[-2], k.shape[-2]
    wide = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    logsumexp = torch.empty(q.shape[:-1], dtype=wide, device=q.device)
    for i in range(0, q_len, block_q):
        q_tile = memory.load(q[:, :, i : i + block_q])  # (B, nh, bq, hs)
        acc = memory.allocate(q_tile.shape, wide)  # (B, nh, bq, hs), unnormalised
        row_max = torch.full(q_tile.shape[:-1], -math.inf, dtype=wide, device=q.device)  # (B, nh, bq)
        row_sum = torch.zeros_like(row_max)
        for j in range(0, k_len, block_k):
            if causal and j > min(i + block_q, q_len) - 1 + k_len - q_len:
                break  # all later keys lie in the future of this tile's last query
            k_tile, v_tile = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            scores = _scores(q_tile, k_tile, i, j, k_len - q_len, causal, wide)  # (B, nh, bq, bk)
            new_max = torch.maximum(row_max, scores.amax(-1))
            correction = torch.exp(row_max - new_max)  # 0 at the first tile, where row_max is -inf
            weights = torch.exp(scores - new_max[..., None])
            row_sum = row_sum * correction + weights.sum(-1)
            acc.mul_(correction[..., None]).add_(weights @ v_tile.to(wide))
            row_max = new_max
            memory.free(k_tile, v_tile)
        memory.store(acc / row_sum[..., None], out[:, :, i : i + block_q])
        logsumexp[:, :, i : i + block_q] = row_max + torch.log(row_sum)
        memory.free(q_tile, acc)
    return out, logsumexp


def _scores(q_tile: Tensor, k_tile: Tensor, i: int, j: int, offset: int, causal: bool, dtype: torch.dtype) -> Tensor:
    """Scaled scores of one tile whose first query is i and first key is j; -inf where the key is in the future."""
    scores = q_tile.to(dtype) @ k_tile.to(dtype).transpose(-2, -1) / math.sqrt(q_tile.shape[-1])
    rows, columns = scores.shape[-2:]
    if causal and j + columns - 1 > i + offset:  # the tile touches the diagonal
        query = torch.arange(i, i + rows, device=scores.device)[:, None] + offset
        key = torch.arange(j, j + columns, device=scores.device)[None, :]
        scores = scores.masked_fill(key > query, -math.inf)
    return scores


def tiled_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, logsumexp: Tensor, grad_out: Tensor,
    *, block_q: int, block_k: int, causal: bool, memory: OnChipMemory | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of attention from (q, k, v, out, logsumexp): the weights are computed again, tile by tile.

    Args:
        q, k, v, block_q, block_k, causal: as in the forward pass; out, logsumexp: its results.
        grad_out: (B, nh, Tq, hs).
        memory: counts the traffic, if given.
    Returns:
        (dq, dk, dv) in the shapes and dtype of q, k and v.
    Source: FA2, Algorithm 2.
    """
    memory = OnChipMemory() if memory is None else memory
    q_len, k_len = q.shape[-2], k.shape[-2]
    wide = torch.promote_types(q.dtype, torch.float32)
    scale = 1 / math.sqrt(q.shape[-1])
    dq = torch.zeros(q.shape, dtype=wide, device=q.device)  # every K tile adds to it
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    row_term = (grad_out.to(wide) * out.to(wide)).sum(-1)  # (B, nh, Tq): sum over keys of weight × its gradient
    for j in range(0, k_len, block_k):
        keys = slice(j, j + block_k)
        k_tile, v_tile = memory.load(k[:, :, keys]), memory.load(v[:, :, keys])  # (B, nh, bk, hs)
        dk_tile, dv_tile = memory.allocate(k_tile.shape, wide), memory.allocate(v_tile.shape, wide)
        for i in range(0, q_len, block_q):
            if causal and j > min(i + block_q, q_len) - 1 + k_len - q_len:
                continue
            queries = slice(i, i + block_q)
            q_tile, grad_tile = memory.load(q[:, :, queries]), memory.load(grad_out[:, :, queries])  # (B, nh, bq, hs)
            dq_tile = memory.load(dq[:, :, queries])
            scores = _scores(q_tile, k_tile, i, j, k_len - q_len, causal, wide)
            weights = torch.exp(scores - logsumexp[:, :, queries, None].to(wide))  # (B, nh, bq, bk), normalised already
            dv_tile.add_(weights.transpose(-2, -1) @ grad_tile.to(wide))
            grad_weights = grad_tile.to(wide) @ v_tile.to(wide).transpose(-2, -1)
            grad_scores = weights * (grad_weights - row_term[:, :, queries, None]) * scale
            dq_tile.add_(grad_scores @ k_tile.to(wide))
            dk_tile.add_(grad_scores.transpose(-2, -1) @ q_tile.to(wide))
            memory.store(dq_tile, dq[:, :, queries])
            memory.free(q_tile, grad_tile, dq_tile)
        memory.store(dk_tile, dk[:, :, keys])
        memory.store(dv_tile, dv[:, :, keys])
        memory.free(k_tile, v_tile, dk_tile, dv_tile)
    return dq.to(q.dtype), dk, dv


class FlashAttention(torch.autograd.Function):
    """Attention that keeps its inputs, its output and one number a query for backward, and no scores.

    `FlashAttention.apply(q, k, v, causal, block_q, block_k) -> out`.
    """

    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        out, logsumexp = tiled_attention(
            q, k, v, block_q=block_q, block_k=block_k, causal=causal, memory=OnChipMemory()
        )
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.settings = {"block_q": block_q, "block_k": block_k, "causal": causal}
        return out

    @staticmethod
    def backward(ctx, grad_out):
        gradients = tiled_attention_backward(*ctx.saved_tensors, grad_out, **ctx.settings)
        return *gradients, None, None, None


def naive_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """Attention as the formula is written, with its Tq×Tk scores. Arguments as in `tiled_attention`."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, nh, Tq, Tk)
    if causal:
        mask = decode_mask(q.shape[-2], k.shape[-2]).to(q.device)
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, dim=-1) @ v

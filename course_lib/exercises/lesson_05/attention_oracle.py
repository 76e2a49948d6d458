"""What attention should give, in float64 and independently of `course_lib.attention`, and what known faults give."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from course_lib.grading.compare import tensor_mismatch
from course_lib.grading.exercise import Case, Mismatch


def inputs(generator: torch.Generator, batch: int, heads: int, q_len: int, k_len: int, dim: int, dtype: torch.dtype):
    """Random q, k and v, rounded to the dtype."""

    def normal(length: int) -> Tensor:
        return torch.randn(batch, heads, length, dim, generator=generator).to(dtype)

    return normal(q_len), normal(k_len), normal(k_len)


@lru_cache(maxsize=32)
def hidden(q_len: int, k_len: int) -> Tensor:
    """True where a key lies in a query's future, the last query at the last key: built by loops, to be independent."""
    rows = [[key > query + k_len - q_len for key in range(k_len)] for query in range(q_len)]
    return torch.tensor(rows, dtype=torch.bool).reshape(q_len, k_len)


def scores(q: Tensor, k: Tensor, causal: bool, dtype: torch.dtype) -> Tensor:
    """(B, nh, Tq, Tk) scaled scores in `dtype`, -inf where the mask hides a key."""
    found = (q.to(dtype) @ k.to(dtype).transpose(-2, -1)) / math.sqrt(q.shape[-1])
    return found.masked_fill(hidden(q.shape[-2], k.shape[-2]), -math.inf) if causal else found


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(out, logsumexp) by the plain formula, every operation in `dtype`."""
    found = scores(q, k, causal, dtype)
    return torch.softmax(found, -1) @ v.to(dtype), torch.logsumexp(found, -1)


def gradients(q: Tensor, k: Tensor, v: Tensor, grad_out: Tensor, causal: bool, dtype: torch.dtype) -> tuple:
    """(dq, dk, dv) by autograd through the plain formula in `dtype`."""
    leaves = [tensor.detach().to(dtype).requires_grad_() for tensor in (q, k, v)]
    out, _ = attend(leaves[0], leaves[1], leaves[2], causal, dtype)
    return torch.autograd.grad(out, leaves, grad_out.to(dtype))


def _largest_score(q: Tensor, k: Tensor, causal: bool) -> float:
    """Size of the largest score, at least 1: a score is only known to eps times this, and its exponential no better."""
    found = scores(q, k, causal, torch.float64)
    return max(1.0, found[found.isfinite()].abs().max().item())


def out_problem(got: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, name: str = "out") -> Mismatch | None:
    """Error budget of the output: twice the plain computation's in the same dtype, with a floor.

    The floor is eps · max|v|, times the largest score where that is above 1.
    """
    truth, _ = attend(q, k, v, causal, torch.float64)
    plain, _ = attend(q, k, v, causal, q.dtype)
    floor = torch.finfo(q.dtype).eps * v.abs().max().item() * _largest_score(q, k, causal)
    return tensor_mismatch(got, plain, truth, name=name, floor=floor)


def logsumexp_problem(got: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Mismatch | None:
    """The same for the log-sum-exp, which is due in float32 whatever the dtype of the inputs."""
    _, truth = attend(q, k, v, causal, torch.float64)
    _, plain = attend(q, k, v, causal, q.dtype)
    floor = 4 * torch.finfo(q.dtype).eps * max(1.0, truth.abs().max().item())  # a few merges, each rounded
    return tensor_mismatch(got, plain.float(), truth, name="logsumexp", floor=floor)


def gradient_problem(got: Any, args: tuple, causal: bool) -> Mismatch | None:
    """Error budget of (dq, dk, dv): twice the plain backward's, with a floor.

    The floor is eps times what the gradients would be if nothing cancelled, times the size of the largest score: weights
    that are computed again as exp(score - logsumexp) carry the rounding of both.
    """
    q, k, v, grad_out = args
    if not isinstance(got, list | tuple) or len(got) != 3:
        return Mismatch(
            "three gradients (dq, dk, dv)", f"{type(got).__name__}", "Three tensors are due, in this order."
        )
    truth = gradients(q, k, v, grad_out, causal, torch.float64)
    plain = gradients(q, k, v, grad_out, causal, q.dtype)
    eps = torch.finfo(q.dtype).eps * (1 + _largest_score(q, k, causal))
    for name, own, exact, due, floor in zip(
        ("dq", "dk", "dv"), got, truth, plain, _magnitudes(args, causal), strict=True
    ):
        problem = tensor_mismatch(own, due, exact, name=name, floor=eps * floor)
        if problem:
            return problem
    return None


def _magnitudes(args: tuple, causal: bool) -> tuple[float, float, float]:
    """What dq, dk and dv would be if nothing cancelled: rounding errors are relative to these, not to the results."""
    q, k, v, grad_out = (tensor.double() for tensor in args)
    weights = torch.softmax(scores(q, k, causal, torch.float64), -1)
    size = (grad_out.abs() @ v.abs().transpose(-2, -1)) * weights
    size = (size + weights * size.sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
    dq, dk = size @ k.abs(), size.transpose(-2, -1) @ q.abs()
    dv = weights.transpose(-2, -1) @ grad_out.abs()
    return dq.max().item(), dk.max().item(), dv.max().item()


def row_maximum(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """The largest score of each query, in float64."""
    return scores(q, k, causal, torch.float64).amax(-1)


def _future(fault: str, q_len: int, k_len: int, block_q: int, block_k: int) -> Tensor:
    """The mask that a fault makes of `hidden`."""
    query, key = torch.arange(q_len)[:, None], torch.arange(k_len)[None, :]
    offset = 0 if fault == "aligns_mask_to_start" else k_len - q_len
    if fault == "inverts_mask":
        return key <= query + offset
    if fault == "hides_own_position":
        return key >= query + offset
    future = key > query + offset
    if fault == "skips_tiles_as_if_square":  # range(0, i + block_q, block_k) in place of the aligned end
        end = (query // block_q + 1) * block_q
        future = future | (key >= (end + block_k - 1) // block_k * block_k)
    return future


def faulty(
    fault: str, q: Tensor, k: Tensor, v: Tensor, block_q: int, block_k: int, causal: bool, guards_infinity: bool = True
) -> Tensor:
    """What tiled attention gives with one fault, in float64.

    Args:
        guards_infinity: a tile that is hidden from a query altogether, when none came before, changes nothing; else it
            gives NaN. That matters for wrong masks alone.
    """
    q, k, v = q.double(), k.double(), v.double()
    k_len, dim = k.shape[-2:]
    scale = {"forgets_scale": 1.0, "scales_by_head_dim": 1 / dim}.get(fault, 1 / math.sqrt(dim))
    future = _future(fault, q.shape[-2], k_len, block_q, block_k)
    row_max = torch.full(q.shape[:-1], 0.0 if fault == "starts_maximum_at_zero" else -math.inf, dtype=torch.float64)
    row_sum, acc = torch.zeros_like(row_max), torch.zeros_like(q)
    end = k_len // block_k * block_k if fault == "drops_last_tile" else k_len
    for j in range(0, end, block_k):
        tile = q @ k[:, :, j : j + block_k].transpose(-2, -1) * scale
        if causal and fault != "ignores_causal":
            tile = tile.masked_fill(future[:, j : j + block_k], -math.inf)
        new_max = torch.maximum(row_max, tile.amax(-1))
        shift = torch.where(new_max == -math.inf, 0.0, new_max) if guards_infinity else new_max
        old, weights = torch.exp(row_max - shift), torch.exp(tile - shift[..., None])
        acc_scale = 1.0 if fault in ("keeps_accumulator_unscaled", "keeps_both_unscaled") else old[..., None]
        row_sum = row_sum * (1.0 if fault in ("keeps_sum_unscaled", "keeps_both_unscaled") else old) + weights.sum(-1)
        if fault == "normalises_twice":  # in each tile, and again at the end
            weights = weights / row_sum[..., None]
        acc = acc * acc_scale + weights @ v[:, :, j : j + block_k]
        row_max = new_max
    if fault == "merges_heads_without_transposing":
        return (acc / row_sum[..., None]).transpose(1, 2).reshape(q.shape)
    return acc if fault == "never_normalises" else acc / row_sum[..., None]


def looks_like(got: Any, wrong: Tensor, truth: Tensor, dtype: torch.dtype) -> bool:
    """Whether `got` is `wrong`, up to the rounding of the dtype, rather than the truth."""
    if not isinstance(got, Tensor) or got.shape != wrong.shape or got.is_complex():
        return False
    finite, got, truth = wrong.to(dtype).isfinite(), got.double(), truth.double()
    if not torch.equal(got.isfinite(), finite):
        return False
    got, wrong, truth = (torch.where(finite, x, 0.0) for x in (got, wrong, truth))
    noise = 8 * torch.finfo(dtype).eps * wrong.abs().max().item()
    effect = (wrong - truth).abs().max().item()  # of the fault on this case; where there is none, nothing looks like it
    has_gone = not bool(finite.all())
    if effect <= noise and not has_gone:
        return False
    near = 0.02 * effect + noise
    return (got - wrong).abs().max().item() <= (near if has_gone else min(near, 0.5 * effect))


def is_close(got: Any, truth: Tensor, dtype: torch.dtype, factor: float = 8) -> bool:
    """Whether `got` is the truth up to the rounding of the dtype."""
    noise = factor * torch.finfo(dtype).eps * truth.abs().max().item()
    return bool(((got.double() - truth).abs() <= noise).all())


def has_fault(
    fault: str, get_out: Callable[[Any], Any], also_fails: Callable[[Case, Any], bool] = lambda case, observation: False
) -> Callable[[Case, Any, Any], bool]:
    """A `matches` predicate: the observed output is what this fault gives for the case.

    Args:
        also_fails: whether something else than the output is wrong. Where the fault happens to leave the output right,
            that is what it shows itself by.
    """

    def matches(case: Case, observation: Any, _: Any) -> bool:
        q, k, v = case.args[:3]
        causal, got = case.kwargs["causal"], get_out(observation)
        truth, _ = attend(q, k, v, causal, torch.float64)
        if not isinstance(got, Tensor) or got.shape != truth.shape:
            return False
        for guards_infinity in (True, False):
            blocks = case.kwargs["block_q"], case.kwargs["block_k"]
            wrong = faulty(fault, q, k, v, *blocks, causal, guards_infinity)
            if not is_close(wrong, truth, q.dtype):
                if looks_like(got, wrong, truth, q.dtype):
                    return True
            elif is_close(got, truth, q.dtype):
                return also_fails(case, observation) or out_problem(got, q, k, v, causal) is not None
        return False

    return matches

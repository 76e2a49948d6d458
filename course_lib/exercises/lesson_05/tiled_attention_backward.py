"""Exercise: the backward pass, with the weights computed again tile by tile."""

import math
import random
from collections.abc import Callable
from typing import Any

import torch

from course_lib.attention import tiled_attention_backward
from course_lib.exercises.lesson_05 import attention_oracle as oracle
from course_lib.exercises.lesson_05.tile_budget import LONG, peak_problem
from course_lib.grading.compare import INPUTS_CHANGED, alike, describe, inputs_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch, clone


def cases(seed: int) -> list[Case]:
    generator, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16

    def make(batch, heads, q_len, k_len, dim, block_q, block_k, causal, dtype=f32, size=1.0):
        q, k, v = oracle.inputs(generator, batch, heads, q_len, k_len, dim, dtype)
        q = q * size
        grad_out = torch.randn(q.shape, generator=generator).to(dtype)
        out, logsumexp = oracle.attend(q, k, v, causal, torch.float64)
        name = str(dtype).removeprefix("torch.") + (", causal" if causal else "")
        label = f"(B, nh, Tq, Tk, hs) = {(batch, heads, q_len, k_len, dim)}, tiles {block_q}×{block_k}, {name}"
        label += ", large logits" if size > 1 else ""
        args = (q, k, v, out.to(dtype), logsumexp.float(), grad_out)
        return Case(label, args, {"block_q": block_q, "block_k": block_k, "causal": causal})

    found = [
        make(1, 1, 2, 3, 4, 2, 3, False),
        make(1, 1, 4, 4, 4, 2, 2, True),
        make(2, 3, 7, 11, 4, 3, 4, False),
        make(2, 3, 5, 11, 8, 2, 4, True),
        make(3, 2, 9, 9, 5, 4, 2, True),
        make(1, 2, 1, 9, 8, 4, 2, True),
        make(1, 2, 6, 7, 8, 64, 32, True),
        make(2, 1, 3, 5, 8, 1, 1, False),
        make(2, 3, 7, 11, 4, 3, 4, True, size=400),
        make(2, 3, 13, 29, 16, 4, 8, True, f16),
        make(2, 3, 13, 29, 16, 5, 7, False, bf16),
    ]
    for _ in range(3):
        q_len = rng.randrange(2, 20)
        sizes = (
            rng.randrange(1, 4),
            rng.randrange(1, 4),
            q_len,
            q_len + rng.randrange(1, 20),
            rng.choice((3, 8, 16, 24)),
        )
        block_q = rng.randrange(1, 9)
        blocks = block_q, block_q + rng.randrange(1, 5), rng.random() < 0.5
        found.append(make(*sizes, *blocks, rng.choice((f32, f32, f16, bf16))))
    return [*found, make(1, 1, LONG, LONG, 8, 64, 80, True)]


def observe(solution: Any, case: Case) -> dict:
    from course_lib.memory import MemoryLedger

    args = clone(case.args)
    if case.args[1].shape[-2] < LONG:
        result, peak = solution(*args, **case.kwargs), None
    else:
        with MemoryLedger(block_bytes=1) as ledger:
            result = solution(*args, **case.kwargs)
        peak = ledger.peak_bytes
    return {"result": result, "peak": peak} if alike(args, case.args, rel=0.0) else INPUTS_CHANGED


def _result(observation: Any) -> Any:
    return observation.get("result") if isinstance(observation, dict) else observation


def grade(case, observation, expected):
    changed = inputs_mismatch(observation)
    if changed:
        return changed
    q, k, v, _, _, grad_out = case.args
    problem = oracle.gradient_problem(_result(observation), (q, k, v, grad_out), case.kwargs["causal"])
    if problem or not isinstance(observation, dict):
        return problem or Mismatch("(dq, dk, dv)", describe(observation))
    return peak_problem(case, observation.get("peak"))


def _with(fault: str) -> Callable:
    """The backward pass by its formulas, tile by tile in float32, with one fault."""

    def backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
        q_len, k_len, root = q.shape[-2], k.shape[-2], math.sqrt(q.shape[-1])
        dq, dk, dv = (torch.zeros(tensor.shape) for tensor in (q, k, v))
        offset = 0 if fault == "mask_from_start" else k_len - q_len
        for j in range(0, k_len // block_k * block_k if fault == "drops_last_tile" else k_len, block_k):
            for i in range(0, q_len, block_q):
                rows, keys = slice(i, i + block_q), slice(j, j + block_k)
                qt, gt, ot = (tensor[:, :, rows].float() for tensor in (q, grad_out, out))
                kt, vt = k[:, :, keys].float(), v[:, :, keys].float()
                raw = qt @ kt.mT / (1.0 if fault == "scores" else root)
                if causal and fault not in ("mask", "mask_after_exp"):
                    raw = raw.masked_fill(torch.ones(raw.shape[-2:]).triu(i + offset - j + 1) > 0, -math.inf)
                weights = torch.exp(raw - (0 if fault == "logsumexp" else logsumexp[:, :, rows, None]))
                if causal and fault == "mask_after_exp":
                    weights = weights * torch.ones(raw.shape[-2:]).tril(i + offset - j)
                grad_weights = gt @ vt.mT
                row_term = (gt * ot).sum(-1, keepdim=True)
                if fault in ("row_term", "row_sum"):
                    row_term = 0.0 if fault == "row_term" else (gt @ v.float().mT).sum(-1, keepdim=True)
                grads = weights * (grad_weights - row_term) / (root if fault == "scale_twice" else 1.0)
                left = 1.0 if fault in ("scale_dq", "scale_both") else root
                right = 1.0 if fault in ("scale_dk", "scale_both") else root
                dq[:, :, rows] += (grads.mT if fault == "dq_transposed" else grads) @ kt / left
                dk[:, :, keys] += (grads if fault == "dk_transposed" else grads.mT) @ qt / right
                dv[:, :, keys] += (weights if fault == "dv_transposed" else weights.mT) @ gt
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)

    return backward


def _gives(wrong: Callable):
    """Recognises the gradients that a fault gives, where it changes them, whatever the code looks like."""

    def matches(case: Case, observation: Any, _: Any) -> bool:
        got = _result(observation)
        if not isinstance(got, list | tuple) or len(got) != 3:
            return False
        q, k, v, _, _, grad_out = case.args
        truth = oracle.gradients(q, k, v, grad_out, case.kwargs["causal"], torch.float64)
        made = wrong(*case.args, **case.kwargs)
        hits = 0
        for mine, theirs, exact in zip(got, made, truth, strict=True):
            if not isinstance(mine, torch.Tensor) or mine.shape != exact.shape:
                return False
            if not theirs.isfinite().all():
                if mine.isfinite().all():
                    return False
                hits += 1
                continue
            if oracle.looks_like(mine, theirs.double(), exact, q.dtype):
                hits += 1
            elif not oracle.is_close(mine, exact, q.dtype) or not oracle.is_close(theirs, exact, q.dtype):
                return False
        return hits > 0

    return matches


def _peaks(case, observation, _):
    q, k, v, _, _, grad_out = case.args
    is_right = oracle.gradient_problem(_result(observation), (q, k, v, grad_out), case.kwargs["causal"]) is None
    return is_right and isinstance(observation, dict) and peak_problem(case, observation.get("peak")) is not None


_FAULTS = {
    "masks_after_the_exponential": (
        "mask_after_exp",
        "A hidden score can be far above logsumexp: its exponential overflows, and infinity times 0 is NaN. "
        "Hide scores with -inf before the exponential.",
    ),
    "forgets_row_term": (
        "row_term",
        "The gradient of softmax subtracts one number in each row, D = sum(grad_out * out).",
    ),
    "row_term_without_weights": (
        "row_sum",
        "D is the sum of the weights' gradients *times the weights*; grad_out times out, summed, gives it.",
    ),
    "forgets_scale_in_dq": ("scale_dq", "The scores were q·k times a scale, so dq carries that scale too."),
    "forgets_scale_in_dk": ("scale_dk", "The scores were q·k times a scale, so dk carries that scale too."),
    "forgets_scale_in_both": ("scale_both", "The scores were q·k times a scale, so dq and dk carry that scale too."),
    "scales_twice": ("scale_twice", "dq and dk carry the scale twice."),
    "forgets_scale_in_scores": ("scores", "The recomputed scores lack the scale that the forward pass had."),
    "forgets_logsumexp": ("logsumexp", "exp(score) alone is no weight: subtract logsumexp in the exponent."),
    "ignores_causal": ("mask", "With causal=True later keys still get weights."),
    "aligns_mask_to_start": (
        "mask_from_start",
        "The mask takes the first query for the first token. The *last* query sees the last key.",
    ),
    "drops_last_tile": ("drops_last_tile", "The last keys are missing when block_k does not divide their number."),
}
_TRANSPOSED = {
    "dv_product_not_transposed": (
        "dv_transposed",
        "dv has a row for each key: sum over queries, with the weights transposed.",
    ),
    "dk_product_not_transposed": ("dk_transposed", "dk has a row for each key: sum over queries, with dS transposed."),
    "dq_product_transposed": ("dq_transposed", "dq has a row for each query: sum over keys, with dS as it is."),
}

EXERCISE = Exercise(
    name="tiled_attention_backward",
    points=6,
    minutes=45,
    difficulty=3,
    checks="dq, dk and dv against float64, and that nothing of size queries × keys is allocated",
    reference=tiled_attention_backward,
    cases=cases,
    grade=grade,
    observe=observe,
    measured_in_process=True,
    time_limit_s=30.0,
    hints=(
        "For one pair of tiles the weights are exp(scores - logsumexp): normalised at once, no maximum and no sum "
        "needed. "
        "Scale and mask as in the forward pass.",
        "dV += Pᵀ dO. dP = dO Vᵀ. dS = P ∘ (dP - D), where D = sum(dO ∘ O) in each row. dQ += dS K · scale. dK += "
        "dSᵀ Q · scale.",
        "Loop over K tiles outside and Q tiles inside. Start dq, dk and dv as float32 zeros of the inputs' "
        "shapes, add to "
        "slices of them, and cast at the end. Where a key is hidden the weight is exp(-inf) = 0.",
    ),
    explanation="Softmax's gradient needs, in each row, the sum of weight times gradient over *all* keys, which no tile "
    "sees. But that sum equals dO · O, which is known before the loop. So each tile stands alone, and the scores "
    "need not be stored: two products are done again (five in all instead of four).",
    next_step="Compare dq, dk and dv one by one with autograd through naive attention on a single tile, then on two.",
    misconceptions=(
        *(Misconception(name, text, matches=_gives(_with(fault))) for name, (fault, text) in _FAULTS.items()),
        *(Misconception(name, text, _with(fault))
          for name, (fault, text) in _TRANSPOSED.items()),
        Misconception(
            "stores_all_scores",
            "The gradients are right, but something of size queries × keys exists on the way. Recompute one tile "
            "at a time.",
            matches=_peaks,
        ),
    ),
)  # fmt: skip

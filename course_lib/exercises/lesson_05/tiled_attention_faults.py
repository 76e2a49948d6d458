"""Wrong ideas about tiled attention, recognised by what they make of a case whatever the code looks like."""

import math
from typing import Any

import torch

from course_lib.exercises.lesson_05 import attention_oracle as oracle
from course_lib.exercises.lesson_05.tile_budget import FORWARD_BYTES, peak_problem, traffic_problem
from course_lib.grading.exercise import Case, Misconception


def parts(observation: Any) -> dict:
    """The observation with `out` and `logsumexp` in it, whatever it was."""
    seen = observation if isinstance(observation, dict) else {}
    result = seen.get("result")
    if isinstance(result, list | tuple) and len(result) == 2:
        return {**seen, "out": result[0], "logsumexp": result[1], "pair": True}
    return {**seen, "out": None, "logsumexp": None, "pair": False}


def _out_is_right(case: Case, seen: dict) -> bool:
    q, k, v = case.args
    return oracle.out_problem(seen["out"], q, k, v, case.kwargs["causal"]) is None


def _shows_elsewhere(case: Case, observation: Any) -> bool:
    """Whether something else than the output is wrong."""
    seen, (q, k, v) = parts(observation), case.args
    lse_problem = oracle.logsumexp_problem(seen["logsumexp"], q, k, v, case.kwargs["causal"])
    return lse_problem is not None or traffic_problem(case, seen.get("loaded"), seen.get("stored")) is not None


def _logsumexp_is(wrong):
    def matches(case, observation, _):
        q, k, v = case.args
        truth = oracle.attend(q, k, v, case.kwargs["causal"], torch.float64)[1]
        seen, row_max = parts(observation), oracle.row_maximum(q, k, case.kwargs["causal"])
        return _out_is_right(case, seen) and oracle.looks_like(seen["logsumexp"], wrong(truth, row_max), truth, q.dtype)

    return matches


def _traffic_is(word: str):
    def matches(case, observation, _):
        seen = parts(observation)
        problem = traffic_problem(case, seen.get("loaded"), seen.get("stored"))
        return _out_is_right(case, seen) and problem is not None and problem.note.startswith(word)

    return matches


def _loads_whole(case, observation, _):
    rows = observation.get("tallest") if isinstance(observation, dict) else None
    if isinstance(rows, int):
        k_len, block_q, block_k = case.args[1].shape[-2], case.kwargs["block_q"], case.kwargs["block_k"]
        return rows > max(block_q, block_k) or rows == k_len > block_k
    return _traffic_is("Less")(case, observation, _)  # where all of K and V happens to fit


def _peaks(case, observation, _):
    seen = parts(observation)
    return _out_is_right(case, seen) and peak_problem(case, seen.get("peak"), FORWARD_BYTES) is not None


def _drops_queries(case, observation, _):
    out, q = parts(observation)["out"], case.args[0]
    full = q.shape[-2] // case.kwargs["block_q"] * case.kwargs["block_q"]
    if full == q.shape[-2] or not isinstance(out, torch.Tensor) or out.shape != q.shape or out.dtype != q.dtype:
        return False
    truth, _ = oracle.attend(*case.args, case.kwargs["causal"], torch.float64)
    if full and not oracle.is_close(out[:, :, :full], truth[:, :, :full], q.dtype):
        return False
    return not oracle.is_close(out[:, :, full:], truth[:, :, full:], q.dtype)


_FAULTS = {
    "keeps_accumulator_unscaled": (
        "when a tile brings a larger maximum, the output gathered so far is still relative to the old one."
    ),
    "keeps_sum_unscaled": (
        "when a tile brings a larger maximum, the sum gathered so far is still relative to the old one."
    ),
    "keeps_both_unscaled": (
        "when a tile brings a larger maximum, the sum and the output so far are still relative to the old one."
    ),
    "starts_maximum_at_zero": (
        "the running maximum starts at 0, so rows whose scores are all very negative underflow. Start below every "
        "score."
    ),
    "forgets_scale": "the scores are not divided by the square root of the head dimension.",
    "scales_by_head_dim": "the scores are divided by the head dimension itself; its square root is due.",
    "inverts_mask": "the mask is the wrong way round: the past is hidden and the future is seen.",
    "aligns_mask_to_start": (
        "the mask takes the first query for the first token. With fewer queries than keys the *last* query sees the "
        "last key."
    ),
    "skips_tiles_as_if_square": (
        "tiles are skipped as if query i stood at key i. With fewer queries than keys it stands further right."
    ),
    "hides_own_position": "a query may see the key at its own position too.",
    "ignores_causal": "with causal=True later keys still count.",
    "drops_last_tile": "the last keys are missing when block_k does not divide the number of keys.",
    "normalises_twice": (
        "each tile is divided by the running sum, and the result again. Divide once, after the last tile."
    ),
    "never_normalises": "the output is never divided by the sum of its weights.",
    "merges_heads_without_transposing": (
        "the numbers are right but in the wrong places: a reshape moved heads and positions. Only a transpose may "
        "swap them."
    ),
}


MISCONCEPTIONS = (
    Misconception(
        "reads_around_memory",
        "the output is right, but the memory saw too little traffic. Everything from q, k and v comes through "
        "memory.load, "
        "and the output leaves through memory.store.",
        matches=_traffic_is("Less"),
    ),
    Misconception(
        "loads_all_of_k_and_v",
        "a whole K or V does not fit: the memory holds one tile of each. Load a slice of block_k rows inside the loop.",
        matches=_loads_whole,
    ),
    Misconception(
        "never_frees_tiles",
        "the memory fills up: free the K and V tiles before the next ones come, and the Q tile when its output is "
        "stored.",
        matches=lambda case, observation, _: isinstance(observation, dict) and "refused" in observation,
    ),
    Misconception(
        "reads_freed_tiles",
        "a tile is used after it was freed. Finish with it first, or keep a result rather than the tile.",
        matches=lambda case, observation, _: isinstance(observation, dict) and "freed" in observation,
    ),
    *(
        Misconception(name, text, matches=oracle.has_fault(name, lambda seen: parts(seen)["out"], _shows_elsewhere))
        for name, text in _FAULTS.items()
    ),
    Misconception(
        "drops_last_query_tile",
        "the last queries are missing when block_q does not divide the number of queries.",
        matches=_drops_queries,
    ),
    Misconception(
        "logsumexp_without_maximum",
        "the log of the sum is relative to the row's maximum: the maximum has to come back in.",
        matches=_logsumexp_is(lambda truth, row_max: truth - row_max),
    ),
    Misconception(
        "returns_sum_for_logsumexp",
        "the second result is the sum itself; its logarithm plus the maximum is due.",
        matches=_logsumexp_is(lambda truth, row_max: torch.exp(truth - row_max)),
    ),
    Misconception(
        "logsumexp_in_base_two",
        "the log-sum-exp is in base 2; the natural logarithm is due.",
        matches=_logsumexp_is(lambda truth, row_max: truth / math.log(2)),
    ),
    Misconception(
        "loads_tiles_again",
        "the output is right, but tiles are loaded more often than needed. What stays the same in the inner loop "
        "can stay on chip.",
        matches=_traffic_is("More"),
    ),
    Misconception(
        "stores_all_scores",
        "The output is right, but more than tiles exists on the way: scores, weights or a mask for all pairs, or "
        "whole rows "
        "of scores. Make it one tile at a time; that is what the running maximum and sum are for.",
        matches=_peaks,
    ),
)

"""How much room and how much traffic tiled attention may take, for either order of its loops."""

from typing import Any

from course_lib.grading.compare import describe
from course_lib.grading.exercise import Case, Mismatch

LONG = 1024  # from this many keys on, the bytes of everything that is allocated are measured too
# At that length, with tiles of 64 × 80: the output (32 KiB) and tiles of scores, in float64 and several times over, but
# not whole rows of scores for a tile of queries (256 KiB, and as much again for their softmax).
FORWARD_BYTES = 350_000


def capacity_bytes(case: Case) -> int:
    """Room for a tile each of Q, K and V, a float32 tile of out and a few statistics, over all batches and heads."""
    q, k, _ = case.args[:3]
    heads, dim, size = q.shape[0] * q.shape[1], q.shape[-1], q.element_size()
    rows_q, rows_k = min(case.kwargs["block_q"], q.shape[-2]), min(case.kwargs["block_k"], k.shape[-2])
    return heads * (rows_q * dim * (size + 4) + 2 * rows_k * dim * size + rows_q * 16)


def _tiles(case: Case, skip_future: bool) -> list[tuple[int, int]]:
    """(rows of Q, rows of K) of each pair of tiles that is visited."""
    q_len, k_len = case.args[0].shape[-2], case.args[1].shape[-2]
    block_q, block_k = case.kwargs["block_q"], case.kwargs["block_k"]
    return [
        (min(block_q, q_len - i), min(block_k, k_len - j))
        for i in range(0, q_len, block_q)
        for j in range(0, k_len, block_k)
        if not skip_future or j <= min(i + block_q, q_len) - 1 + k_len - q_len
    ]


def load_bounds(case: Case, keeps_q: bool) -> tuple[int, int]:
    """Least and most bytes to load: with tiles of the future skipped, and without.

    Args:
        keeps_q: a Q tile stays while the K tiles pass (the output is written once), or the other way round (the
            unfinished output travels, in the inputs' dtype or in float32, with its statistics or without).
    """
    q, k, _ = case.args[:3]
    heads = q.shape[0] * q.shape[1]
    row, wide_row, statistics = heads * q.shape[-1] * q.element_size(), heads * q.shape[-1] * 4, heads * 8
    visited, every = _tiles(case, case.kwargs["causal"]), _tiles(case, False)
    if keeps_q:
        once = q.shape[-2] * row
        return once + 2 * row * sum(rows for _, rows in visited), once + 2 * row * sum(rows for _, rows in every)
    once = 2 * k.shape[-2] * row
    least = once + 2 * row * sum(rows for rows, _ in visited) - q.shape[-2] * row
    passes = sum(rows for rows, _ in every)
    return least, once + passes * (row + wide_row + statistics) + q.shape[-2] * (wide_row + statistics)


def traffic_problem(case: Case, loaded: Any, stored: Any) -> Mismatch | None:
    """Traffic within 10 % of what the tiles need; `note` begins with "Less" or "More"."""
    q = case.args[0]
    if not isinstance(loaded, int) or not isinstance(stored, int):
        return Mismatch("bytes loaded and stored", f"{describe(loaded)} and {describe(stored)}")
    out_bytes = q.numel() * q.element_size()
    if stored < out_bytes:
        note = "Less than the output: write it with memory.store, which counts it."
        return Mismatch(f"{out_bytes:,} bytes stored", f"{stored:,}", note)
    statistics = 8 * q.shape[0] * q.shape[1] * q.shape[-2]
    least, most = load_bounds(case, keeps_q=stored <= 1.1 * out_bytes + statistics)
    if loaded < 0.9 * least:
        note = "Less than the tiles hold: something was read around memory.load, or kept on chip."
        return Mismatch(f"at least {least:,} bytes loaded", f"{loaded:,}", note)
    if loaded > 1.1 * most:
        return Mismatch(
            f"at most {most:,} bytes loaded", f"{loaded:,}", "More than each tile once for each that needs it."
        )
    return None


def peak_problem(case: Case, peak_bytes: Any, limit_bytes: int | None = None) -> Mismatch | None:
    """On long sequences: everything that exists at one time stays below one byte for each pair of query and key."""
    q_len, k_len = case.args[0].shape[-2], case.args[1].shape[-2]
    limit = limit_bytes or q_len * k_len
    if k_len < LONG or (isinstance(peak_bytes, int) and peak_bytes < limit):
        return None
    got = f"{peak_bytes:,}" if isinstance(peak_bytes, int) else describe(peak_bytes)
    return Mismatch(f"a peak below {limit:,} bytes beside q, k and v", got, "More than tiles exists at one time.")

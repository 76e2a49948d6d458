"""Exercise: the forward pass, tile by tile, in a memory too small for anything else."""

import random
from typing import Any

import torch

from course_lib.attention import tiled_attention
from course_lib.exercises.lesson_05 import attention_oracle as oracle
from course_lib.exercises.lesson_05.tile_budget import (
    FORWARD_BYTES,
    LONG,
    capacity_bytes,
    peak_problem,
    traffic_problem,
)
from course_lib.exercises.lesson_05.tiled_attention_faults import MISCONCEPTIONS, parts
from course_lib.grading.compare import INPUTS_CHANGED, alike, describe, inputs_mismatch
from course_lib.grading.exercise import Case, Exercise, Mismatch, clone
from course_lib.on_chip_memory import FreedTileError, OnChipMemory, OnChipMemoryError


def _far_apart(generator: torch.Generator, dtype: torch.dtype, negative: bool = False) -> tuple:
    """Logits that are exact in every dtype and thousands apart, so that their size alone is the difficulty.

    Before the scale a product is at most 4 · 128 · 96 = 49,152, which float16 holds.
    """
    q = 64 * torch.randint(1, 3, (1, 2, 6, 4), generator=generator)
    k = -64 * torch.randint(1, 3, (1, 2, 9, 4), generator=generator)
    k = k if negative else 32 * torch.randint(-3, 4, (1, 2, 9, 4), generator=generator)
    return q.to(dtype), k.to(dtype), torch.randn(1, 2, 9, 4, generator=generator).to(dtype)


def cases(seed: int) -> list[Case]:
    generator, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16

    def case(label: str, qkv: tuple, block_q: int, block_k: int, causal: bool) -> Case:
        return Case(label, qkv, {"block_q": block_q, "block_k": block_k, "causal": causal})

    def make(batch, heads, q_len, k_len, dim, block_q, block_k, causal, dtype=f32):
        name = str(dtype).removeprefix("torch.") + (", causal" if causal else "")
        label = f"(B, nh, Tq, Tk, hs) = {(batch, heads, q_len, k_len, dim)}, tiles {block_q}×{block_k}, {name}"
        qkv = oracle.inputs(generator, batch, heads, q_len, k_len, dim, dtype)
        return case(label, qkv, block_q, block_k, causal)

    found = [
        make(1, 1, 2, 4, 4, 2, 2, False),
        make(1, 1, 4, 4, 4, 2, 2, True),
        make(2, 3, 7, 11, 4, 3, 4, False),
        make(2, 3, 5, 11, 8, 2, 4, True),
        make(3, 2, 9, 9, 5, 4, 2, True),
        make(1, 2, 1, 9, 8, 4, 4, True),
        make(1, 2, 6, 7, 8, 64, 64, True),
        make(2, 1, 3, 5, 8, 1, 1, False),
        make(2, 3, 13, 29, 16, 4, 8, True, f16),
        make(2, 3, 13, 29, 16, 5, 7, False, bf16),
    ]
    q, k, v = oracle.inputs(generator, 1, 2, 6, 12, 4, f32)
    found.append(case("the maximum rises in every tile", (q.abs(), k.abs().cumsum(-2), v), 3, 2, False))
    for dtype in (f32, f16, bf16):
        found.append(case(f"logits up to ±24,576, {dtype}", _far_apart(generator, dtype), 4, 2, True))
    found.append(case("all logits at most -8,192", _far_apart(generator, f32, negative=True), 4, 2, False))
    for _ in range(3):
        q_len = rng.randrange(2, 20)
        sizes = (
            rng.randrange(1, 4),
            rng.randrange(1, 4),
            q_len,
            q_len + rng.randrange(0, 20),
            rng.choice((3, 8, 16, 24)),
        )
        blocks = rng.randrange(1, 9), rng.randrange(1, 9), rng.random() < 0.5
        found.append(make(*sizes, *blocks, rng.choice((f32, f32, f16, bf16))))
    return [*found, make(1, 1, LONG, LONG, 8, 64, 80, True)]


def observe(solution: Any, case: Case) -> dict:
    from course_lib.memory import MemoryLedger

    memory = OnChipMemory(capacity_bytes(case))
    q, k, v = clone(case.args)
    seen: dict = {"peak": None}
    try:
        if k.shape[-2] >= LONG:
            with MemoryLedger(block_bytes=1) as ledger:
                seen["result"] = solution(q, k, v, **case.kwargs, memory=memory)
            seen["peak"] = ledger.peak_bytes
        else:
            seen["result"] = solution(q, k, v, **case.kwargs, memory=memory)
    except OnChipMemoryError as error:
        return {"refused": str(error), "tallest": memory.tallest_rows}
    except FreedTileError as error:
        return {"freed": str(error)}
    if not alike([q, k, v], list(case.args), rel=0.0):
        return INPUTS_CHANGED
    return {**seen, "loaded": memory.loaded_bytes, "stored": memory.stored_bytes}


def grade(case, observation, expected):
    changed = inputs_mismatch(observation)
    if changed:
        return changed
    seen, causal = parts(observation), case.kwargs["causal"]
    for refusal in ("refused", "freed"):
        if refusal in seen:
            return Mismatch("tiles that fit", "the memory's refusal", f"It said: {seen[refusal]}")
    if not seen["pair"]:
        return Mismatch("(out, logsumexp)", describe(seen.get("result", observation)), "Two tensors are due.")
    return (
        oracle.out_problem(seen["out"], *case.args, causal)
        or oracle.logsumexp_problem(seen["logsumexp"], *case.args, causal)
        or traffic_problem(case, seen.get("loaded"), seen.get("stored"))
        or peak_problem(case, seen.get("peak"), FORWARD_BYTES)
    )


EXERCISE = Exercise(
    name="tiled_attention",
    points=6,
    minutes=45,
    difficulty=3,
    checks="attention tile by tile against float64, its log-sum-exp, its traffic and its peak memory",
    reference=tiled_attention,
    cases=cases,
    grade=grade,
    observe=observe,
    measured_in_process=True,
    time_limit_s=30.0,
    hints=(
        "Two loops: a Q tile stays while the K and V tiles pass. For each Q tile keep a running maximum, a "
        "running sum and an "
        "unnormalised output: the triple of `merge_partial`.",
        "For each K tile: scores, new maximum, correction exp(old - new) for sum and output, weights exp(scores - "
        "new). "
        "Divide and store after the last K tile. Free K and V before the next pair. Keep the running values in "
        "float32.",
        "Query i stands at key position i + k_len - q_len. A mask for one tile comes from two `torch.arange`s, "
        "and `-inf` "
        "hides a score. Start the maximum at -inf; the first tile (key 0) is visible to every query, so no NaN arises. "
        "logsumexp = maximum + log(sum).",
    ),
    explanation="The state of a row is (maximum, sum, unnormalised output). A new tile can only raise the maximum, and one "
    "factor exp(old - new) brings the state along. Slices that run over the end are shorter by themselves, so "
    "ragged tiles "
    "need no special case. Tiles wholly in the future are skipped.",
    next_step="Run the first failing case by hand with naive attention beside it, and print both after each tile.",
    misconceptions=MISCONCEPTIONS,
)

"""Bonus exercise: the forward pass as a Triton kernel, interpreted on a CPU, compiled on a GPU from capability 8.0."""

import inspect
import random
from typing import Any

import torch
import torch.nn.functional as F

from course_lib.exercises.lesson_05 import attention_oracle as oracle
from course_lib.grading.compare import describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.triton_attention import attention_kernel, can_compile, missing_reason, triton_attention


def cases(seed: int) -> list[Case]:
    generator, rng = torch.Generator().manual_seed(seed), random.Random(seed)

    def make(batch, heads, q_len, k_len, dim, causal, dtype=torch.float32, size=1.0):
        q, k, v = oracle.inputs(generator, batch, heads, q_len, k_len, dim, dtype)
        name = str(dtype).removeprefix("torch.") + (", causal" if causal else "")
        label = f"(B, nh, Tq, Tk, hs) = {(batch, heads, q_len, k_len, dim)}, {name}"
        return Case(label, (q * size, k, v), {"causal": causal, "block_q": 16, "block_k": 16})

    q_len = rng.randrange(2, 20)
    q, k, v = oracle.inputs(generator, 1, 1, 4, 20, 16, torch.float32)
    negative = ("all logits far below zero", (1000 * q.abs(), -k.abs(), v))
    return [
        make(1, 1, 16, 16, 16, False),
        make(1, 1, 16, 32, 16, False),
        make(1, 1, 16, 16, 16, True),
        make(1, 1, 5, 21, 16, False),
        make(1, 2, 7, 23, 32, True),
        make(2, 1, 20, 20, 16, True, torch.float16),
        make(1, 1, 3, 37, 16, False, size=30.0),
        Case(*negative, {"causal": False, "block_q": 16, "block_k": 16}),
        make(1, 2, q_len, q_len + rng.randrange(1, 30), 16, rng.random() < 0.5),
    ]


def _interpreter_works() -> bool:
    """A tiny case by the course's own kernel: after an error the interpreter can go on and give zeros in silence."""
    q, k, v = oracle.inputs(torch.Generator().manual_seed(1), 1, 1, 3, 5, 16, torch.float32)
    return oracle.out_problem(triton_attention(q, k, v, False, 16, 16), q, k, v, False) is None


def _guarded(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with NaN behind its end, so that a load without a mask shows, and reads nobody else's memory."""
    buffer = torch.full((tensor.numel() + 8192,), float("nan"), dtype=tensor.dtype)
    buffer[: tensor.numel()] = tensor.flatten()
    return buffer[: tensor.numel()].view(tensor.shape)


def observe(solution: Any, case: Case) -> dict:
    args = [_guarded(tensor) for tensor in case.args]
    if can_compile():
        return {"out": solution(*(tensor.cuda() for tensor in args), *case.kwargs.values()), "launches": None}
    if not _interpreter_works():
        return {"broken": True}
    from triton.runtime.interpreter import GridExecutor

    launches, run = 0, GridExecutor.__call__

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal launches
        launches += 1
        return run(self, *args, **kwargs)

    GridExecutor.__call__ = counted
    try:
        return {"out": solution(*args, *case.kwargs.values()), "launches": launches}
    finally:
        GridExecutor.__call__ = run


def grade(case, observation, expected):
    if not isinstance(observation, dict) or "out" not in observation:
        if isinstance(observation, dict) and "broken" in observation:
            raise RuntimeError("Triton's interpreter gives wrong results in this process; restart the kernel")
        return Mismatch("a tensor", describe(observation))
    out = observation["out"]
    problem = oracle.out_problem(out, *case.args, case.kwargs["causal"])
    if problem and isinstance(out, torch.Tensor) and out.numel() and not out.is_complex() and not out.double().any():
        return Mismatch(problem.expected, "zeros only", "No value arrived: is every row of out stored?")
    if problem is None and observation.get("launches") == 0:
        return Mismatch("a launch of a Triton kernel", "none", "No kernel ran.")
    return problem


def _out(observation: Any) -> Any:
    return observation.get("out") if isinstance(observation, dict) else None


def _without_kernel(case, observation, _):
    return isinstance(observation, dict) and observation.get("launches") == 0


def _counts_padding(case, observation, _):
    q, k, v = case.args
    block_k, missing = case.kwargs["block_k"], -k.shape[-2] % case.kwargs["block_k"]
    if case.kwargs["causal"] or not missing:
        return False
    padded = (F.pad(tensor, (0, 0, 0, missing)) for tensor in (k, v))
    wrong = oracle.faulty("", q, *padded, case.kwargs["block_q"], block_k, False)
    truth = oracle.attend(q, k, v, False, torch.float64)[0]
    return oracle.looks_like(_out(observation), wrong, truth, q.dtype)


_FAULTS = {
    "keeps_accumulator_unscaled": "acc is relative to the old maximum: multiply it by the correction, as row_sum.",
    "keeps_sum_unscaled": "row_sum is relative to the old maximum: multiply it by the correction, as acc.",
    "keeps_both_unscaled": "row_sum and acc are relative to the old maximum when a larger one comes.",
    "starts_maximum_at_zero": "The running maximum must start below every score.",
    "forgets_scale": "The scores are not multiplied by scale.",
    "ignores_causal": "With CAUSAL later keys still count.",
    "inverts_mask": "The mask is the wrong way round: the past is hidden and the future is seen.",
    "aligns_mask_to_start": "With fewer queries than keys the *last* query sees the last key: rows + k_len - q_len.",
    "hides_own_position": "A query may see the key at its own position too.",
    "never_normalises": "acc is never divided by row_sum.",
    "drops_last_tile": "The last keys are missing when BLOCK_K does not divide k_len.",
}

EXERCISE = Exercise(
    name="triton_attention",
    points=5,
    minutes=40,
    difficulty=3,
    checks="the kernel's output against float64, ragged tiles and masks included",
    reference=triton_attention,
    cases=cases,
    grade=grade,
    observe=observe,
    bonus=True,
    time_limit_s=60.0,
    unavailable=missing_reason,
    hints=(
        "Fill the holes in order. `tl.where(condition, scores, -float('inf'))` hides scores: keys beyond k_len, "
        "and with "
        "CAUSAL those later than rows + k_len - q_len.",
        "`tl.max(scores, 1)` and `tl.sum(weights, 1)` reduce over keys. Corrections have shape (BLOCK_Q,); for "
        "acc write "
        "`correction[:, None]`.",
        "new_max = tl.maximum(row_max, tl.max(scores, 1)); correction = tl.exp(row_max - new_max); "
        "weights = tl.exp(scores - new_max[:, None]). At the end store acc / row_sum[:, None] where rows < q_len.",
    ),
    explanation="One program owns one tile of queries of one head; its K loop is the inner loop of `tiled_attention`. "
    "What was `memory.load` is `tl.load` with a mask for ragged ends. The kernel:\n\n```python\n"
    + inspect.getsource(attention_kernel)
    + "```",
    next_step="Print tile by tile: in the interpreter, print works inside the kernel.",
    misconceptions=(
        Misconception(
            "computes_without_a_kernel",
            "No kernel was launched: whatever came back, PyTorch made it. Call `attention_kernel[grid](...)`.",
            matches=_without_kernel,
        ),
        Misconception(
            "counts_padding",
            "Keys beyond k_len are loaded as zeros; their score is 0, not -inf, and so they get weight.",
            matches=_counts_padding,
        ),
        *(Misconception(name, text, matches=oracle.has_fault(name, _out)) for name, text in _FAULTS.items()),
    ),
)

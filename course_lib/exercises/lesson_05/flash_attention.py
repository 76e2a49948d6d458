"""Exercise: join the two passes into one differentiable operation that keeps no scores."""

import random
from typing import Any

import torch

from course_lib.attention import FlashAttention
from course_lib.exercises.lesson_05 import attention_oracle as oracle
from course_lib.exercises.lesson_05.tile_budget import LONG, peak_problem
from course_lib.grading.compare import describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch, clone


def cases(seed: int) -> list[Case]:
    generator, rng = torch.Generator().manual_seed(seed), random.Random(seed)

    def make(batch, heads, q_len, k_len, dim, block_q, block_k, causal, dtype=torch.float32, **how):
        q, k, v = oracle.inputs(generator, batch, heads, q_len, k_len, dim, dtype)
        grad_out = torch.randn(q.shape, generator=generator).to(dtype)
        name = str(dtype).removeprefix("torch.") + (", causal" if causal else "") + "".join(f", {word}" for word in how)
        label = f"(B, nh, Tq, Tk, hs) = {(batch, heads, q_len, k_len, dim)}, tiles {block_q}×{block_k}, {name}"
        settings = {"block_q": block_q, "block_k": block_k, "causal": causal, **how}
        return Case(label.replace("_", " "), (q, k, v, grad_out), settings)

    q_len = rng.randrange(2, 9)
    return [
        make(1, 1, 3, 3, 4, 2, 2, False),
        make(2, 3, 5, 5, 4, 2, 2, True),
        make(2, 3, 5, 11, 8, 3, 4, True),
        make(2, 3, 7, 7, 8, 4, 2, True, transposed_views=True),
        make(2, 1, 4, 6, 8, 2, 4, False, frozen_keys=True),
        make(2, 3, 13, 17, 16, 4, 8, True, torch.bfloat16),
        make(
            rng.randrange(1, 4),
            2,
            q_len,
            q_len + rng.randrange(1, 9),
            8,
            rng.randrange(1, 6),
            rng.randrange(1, 6),
            True,
        ),
        make(1, 1, LONG, LONG, 8, 64, 80, True),
    ]


def observe(solution: Any, case: Case) -> dict:
    from course_lib.memory import MemoryLedger

    leaves = [tensor.requires_grad_() for tensor in clone(case.args[:3])]
    views = leaves
    if case.kwargs.get("transposed_views"):  # as nanoGPT hands them over: not contiguous
        leaves = [leaf.detach().transpose(1, 2).contiguous().requires_grad_() for leaf in leaves]
        views = [leaf.transpose(1, 2) for leaf in leaves]
    if case.kwargs.get("frozen_keys"):
        leaves[1].requires_grad_(False)
    settings = [case.kwargs[name] for name in ("causal", "block_q", "block_k")]
    grad_out = clone(case.args[3])
    ledger = MemoryLedger(block_bytes=1)
    try:
        with ledger:
            out = solution.apply(*views, *settings)
            kept = ledger.live_bytes
            if case.args[1].shape[-2] < LONG:  # the next layer runs before this one's backward
                solution.apply(*(2.0 * view.detach() for view in views), *settings)
            out_copy = out.detach().clone() if isinstance(out, torch.Tensor) else out
            if not isinstance(out, torch.Tensor) or not out.requires_grad:
                return {"out": out_copy, "gradients": None, "kept": kept, "peak": ledger.peak_bytes}
            torch.autograd.backward(out, grad_out)
    except RuntimeError as error:
        if "returned an incorrect number of gradients" in str(error):
            return {"wrong_count": str(error)}
        raise
    gradients = [leaf.grad for leaf in leaves]
    if case.kwargs.get("transposed_views"):
        gradients = [None if grad is None else grad.transpose(1, 2) for grad in gradients]
    return {"out": out_copy, "gradients": gradients, "kept": kept, "peak": ledger.peak_bytes}


def _kept_limit(case: Case) -> int:
    """Twice what q, k, v, out and one float32 a query take: room for copies, none for scores on a long sequence."""
    q, k, v, _ = case.args
    numbers = 2 * q.numel() + k.numel() + v.numel()
    return 2 * (numbers * q.element_size() + 4 * q.numel() // q.shape[-1])


def _kept_problem(case: Case, observation: dict) -> Mismatch | None:
    kept = observation.get("kept")
    if case.args[1].shape[-2] < LONG or (isinstance(kept, int) and kept <= _kept_limit(case)):
        return None
    got = f"{kept:,}" if isinstance(kept, int) else describe(kept)
    return Mismatch(f"at most {_kept_limit(case):,} bytes kept for backward", got, "More than O(Tq + Tk) is kept.")


def grade(case, observation, expected):
    q, k, v, grad_out = case.args
    causal = case.kwargs["causal"]
    if not isinstance(observation, dict):
        return Mismatch("out and gradients", describe(observation))
    if "wrong_count" in observation:
        return Mismatch(
            "a gradient, or None, for each of the six inputs", "another number", f"{observation['wrong_count']}."
        )
    problem = oracle.out_problem(observation.get("out"), q, k, v, causal)
    if problem:
        return problem
    gradients = observation.get("gradients")
    if not isinstance(gradients, list | tuple) or len(gradients) != 3:
        return Mismatch(
            "an output that has gradients", "none", "The output must be the result of `apply`, not detached."
        )
    gradients = list(gradients)
    if case.kwargs.get("frozen_keys") and gradients[1] is None:
        gradients[1] = oracle.gradients(q, k, v, grad_out, causal, torch.float64)[1].to(q.dtype)
    problem = oracle.gradient_problem(gradients, (q, k, v, grad_out), causal)
    return problem or _kept_problem(case, observation) or peak_problem(case, observation.get("peak"))


def _get_out(observation: Any) -> Any:
    return observation.get("out") if isinstance(observation, dict) else None


def _kept(case, observation, _):
    return isinstance(observation, dict) and "out" in observation and _kept_problem(case, observation) is not None


def _peaked(case, observation, _):
    is_kept = isinstance(observation, dict) and _kept_problem(case, observation) is None
    return is_kept and "out" in observation and peak_problem(case, observation.get("peak")) is not None


def _gradient_order(case, observation, _):
    q = case.args[0]
    gradients = observation.get("gradients") if isinstance(observation, dict) else None
    if not isinstance(gradients, list | tuple) or len(gradients) != 3 or any(g is None for g in gradients):
        return bool(case.kwargs.get("frozen_keys"))
    dq, dk, dv = (
        gradient.to(q.dtype) for gradient in oracle.gradients(*case.args, case.kwargs["causal"], torch.float64)
    )
    return any(
        all(
            g.shape == w.shape and oracle.is_close(g, w.double(), q.dtype, factor=100)
            for g, w in zip(gradients, order, strict=True)
        )
        for order in ((dq, dv, dk), (dk, dq, dv), (dv, dk, dq), (dk, dv, dq), (dv, dq, dk))
        if all(a.shape == b.shape for a, b in zip(order, (dq, dk, dv), strict=True))
    )


EXERCISE = Exercise(
    name="FlashAttention",
    points=2,
    minutes=15,
    difficulty=2,
    checks="output, gradients, and what is kept from forward to backward",
    reference=FlashAttention,
    cases=cases,
    grade=grade,
    observe=observe,
    measured_in_process=True,
    time_limit_s=30.0,
    hints=(
        "What does `tiled_attention_backward` take? That is what forward has to leave behind.",
        "Tensors go through `ctx.save_for_backward`; numbers and flags can be attributes of `ctx`.",
        "`apply` takes six inputs, so backward returns six values: three gradients, then None for causal and the "
        "two blocks.",
    ),
    explanation="Kept: q, k, v, out and one number a query. The scores are computed again from these. Backward returns one "
    "value for each input of forward, None for what has no gradient.",
    next_step="Compare with naive attention on one small input: first the output, then each gradient.",
    misconceptions=(
        Misconception(
            "saves_the_scores",
            "The results are right, but what is kept for backward grows with Tq × Tk. Keep one number a query instead.",
            matches=_kept,
        ),
        Misconception(
            "makes_all_scores_at_once",
            "The results are right and little is kept, but a Tq × Tk tensor exists for a moment. Work tile by tile.",
            matches=_peaked,
        ),
        Misconception(
            "returns_too_few_gradients",
            "backward must return one value for each input of forward: None for causal, block_q and block_k.",
            matches=lambda case, observation, _: isinstance(observation, dict) and "wrong_count" in observation,
        ),
        Misconception(
            "returns_gradients_in_another_order",
            "The gradients are right, but not in the order of forward's inputs q, k, v.",
            matches=_gradient_order,
        ),
        *(
            Misconception(name, text, matches=oracle.has_fault(name, _get_out))
            for name, text in {
                "ignores_causal": "causal has no effect: later keys still count.",
                "aligns_mask_to_start": "With fewer queries than keys the *last* query sees the last key.",
                "merges_heads_without_transposing": (
                    "Right numbers in wrong places: a reshape moved heads and positions."
                ),
            }.items()
        ),
    ),
)

"""Selective recomputation: which outputs a checkpointed block keeps."""

import functools
import gc
import random
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from course_lib.checkpointing import selective_policy
from course_lib.grading.compare import as_float, describe, tensor_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.nanogpt import Block, GPTConfig

BYTES_ALLOWANCE = 0.02
BLOCKS = 2


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    cases = []
    for bias, dropout in ((True, 0.0), (False, 0.0), (True, 0.2)):
        heads, batch, seq = draw.choice([2, 3, 5]), draw.randint(2, 3), draw.randint(48, 90)
        biased = "with" if bias else "without"
        label = f"{BLOCKS} blocks {biased} bias, dropout {dropout}, {heads} heads, input ({batch}, {seq}, {8 * heads})"
        cases.append(Case(label, (heads, batch, seq, bias, dropout, draw.randrange(2**31))))
    return cases


def observe(solution: Callable, case: Case) -> dict[str, Any]:
    from torch.utils.flop_counter import FlopCounterMode

    from course_lib.memory import MemoryLedger

    heads, batch, seq, bias, dropout, seed = case.args
    torch.manual_seed(seed)
    config = GPTConfig(n_layer=1, n_head=heads, n_embd=8 * heads, bias=bias, dropout=dropout, attention="naive")
    blocks = torch.nn.ModuleList(Block(config) for _ in range(BLOCKS))
    for parameter in blocks.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
        parameter.grad = torch.zeros_like(parameter)
    x = torch.randn(batch, seq, 8 * heads, requires_grad=True)
    output_weights = torch.randn(batch, seq, 8 * heads)

    def step() -> tuple[torch.Tensor, dict]:
        torch.manual_seed(seed)
        context_fn = functools.partial(create_selective_checkpoint_contexts, solution)
        gc.disable()  # the caches are freed by the collector: when it runs must not change the peak
        try:
            with MemoryLedger() as ledger:
                y = x
                for block in blocks:
                    y = checkpoint(block, y, use_reentrant=False, context_fn=context_fn)
                kept = ledger.live_bytes
                (y * output_weights).sum().backward()
        finally:
            gc.enable()
        return y.detach(), {"kept": kept, "peak": ledger.peak_bytes}

    with FlopCounterMode(display=False) as counter:
        output, seen = step()
    gradients = {"the input": x.grad, **{name: p.grad.clone() for name, p in blocks.named_parameters()}}
    return {"output": output, "gradients": gradients, **seen, "flops": counter.get_total_flops()}


def grade(case: Case, got: Any, expected: dict[str, Any]) -> Mismatch | None:
    if not isinstance(got, dict) or got.keys() != expected.keys() or not isinstance(got["gradients"], dict):
        return Mismatch("a block that ran forward and backward", describe(got))
    for name, gradient in [("the output", expected["output"]), *expected["gradients"].items()]:
        mine = got["output"] if name == "the output" else got["gradients"].get(name)
        floor = 64 * torch.finfo(torch.float32).eps * gradient.abs().max().item()
        title = name if name == "the output" else f"the gradient of {name}"
        problem = tensor_mismatch(mine, gradient, gradient.double(), name=title, floor=floor)
        if problem:
            return problem
    for key, text in (
        ("flops", "FLOPs of forward and backward"),
        ("kept", "bytes kept for backward"),
        ("peak", "bytes at the peak"),
    ):
        number = as_float(got[key])
        allowance = 0.001 if key == "flops" else BYTES_ALLOWANCE
        is_low = number is None or (key != "peak" and number < (1 - allowance) * expected[key])
        if is_low or number > (1 + allowance) * expected[key]:
            kept = f"Kept {got['kept']} bytes ({expected['kept']} due)"
            both = f"{kept}, computed {got['flops']} FLOPs ({expected['flops']} due)."
            return Mismatch(f"{expected[key]} {text}", describe(got[key]), both)
    return None


def saves_everything(ctx, op, *args, **kwargs):
    return CheckpointPolicy.PREFER_SAVE


def saves_nothing(ctx, op, *args, **kwargs):
    return CheckpointPolicy.PREFER_RECOMPUTE


MATRICES = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def keeps_bmm_too(ctx, op, *args, **kwargs):
    return op in (*MATRICES, torch.ops.aten.bmm.default)


def the_other_way_round(ctx, op, *args, **kwargs):
    return op not in MATRICES


def keeps_attention_only(ctx, op, *args, **kwargs):
    return op == torch.ops.aten.bmm.default


def forgets_addmm(ctx, op, *args, **kwargs):
    return op == torch.ops.aten.mm.default


def forgets_mm(ctx, op, *args, **kwargs):
    return op == torch.ops.aten.addmm.default


def keeps_dropout_too(ctx, op, *args, **kwargs):
    return op in MATRICES or "dropout" in str(op) or "bernoulli" in str(op)


EXERCISE = Exercise(
    name="selective_policy",
    points=3,
    minutes=15,
    difficulty=2,
    checks="gradients, bytes kept, peak and FLOPs of two blocks with naive attention under your policy",
    reference=selective_policy,
    cases=cases,
    observe=observe,
    grade=grade,
    measured_in_process=True,
    time_limit_s=30.0,
    hints=(
        "The policy is asked once for each operation. It answers with `CheckpointPolicy.MUST_SAVE` or "
        "`CheckpointPolicy.PREFER_RECOMPUTE`.",
        "A linear layer is `aten.addmm` with a bias and `aten.mm` without. Attention's two products are `aten.bmm`.",
        "`op` is an overload: compare with `torch.ops.aten.mm.default` and `torch.ops.aten.addmm.default`, not with "
        "`torch.ops.aten.mm`.",
    ),
    explanation=(
        "The weight matrices' outputs are dear to compute and small, in units of sbh. The attention scores are "
        "cheap to compute and large, as²b. So keep the first and compute the second again: that is selective "
        "recomputation, from Korthikanti et al. 2022, §5."
    ),
    next_step="Print `op` inside your policy for one block and mark which lines return MUST_SAVE.",
    misconceptions=(
        Misconception(
            "keeps_dropout_too",
            "The case with dropout alone fails: your policy keeps something of dropout besides the matrix products. "
            "The second run draws the same random numbers by itself.",
            solution=keeps_dropout_too,
        ),
        Misconception(
            "saves_everything",
            "Everything is kept and nothing is computed again: the checkpoint has no effect, or less than none. "
            "What do you return for an operation that is no matrix product?",
            solution=saves_everything,
        ),
        Misconception(
            "keeps_bmm_too",
            "You keep attention's products as well: q @ kᵀ is as²b numbers, the largest tensor of the block and one "
            "of the cheapest to compute. Which operation is it?",
            solution=keeps_bmm_too,
        ),
        Misconception(
            "the_other_way_round",
            "You compute the weight matrices again and keep the rest. Which of the two is dear to compute, and "
            "which is large?",
            solution=the_other_way_round,
        ),
        Misconception(
            "keeps_attention_only",
            "You keep attention's products and recompute the weight matrices. Which of the two is dear to compute, "
            "and which is large?",
            solution=keeps_attention_only,
        ),
        Misconception(
            "forgets_addmm",
            "Linear layers with a bias are computed again. Which operation are they?",
            solution=forgets_addmm,
        ),
        Misconception(
            "forgets_mm",
            "Linear layers without a bias are computed again. Which operation are they?",
            solution=forgets_mm,
        ),
        Misconception(
            "saves_nothing",
            "Nothing is kept: this is full recomputation. If you compare `op` with `torch.ops.aten.mm`, note that "
            "`op` is one of its overloads.",
            solution=saves_nothing,
        ),
    ),
)

"""The capstone: a plan, and a step that keeps to it; real gradients at a small size, bytes at full size by dry run."""

import dataclasses
import functools
import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from course_lib.exercises.lesson_06.left_alone import left_alone, left_alone_mismatch
from course_lib.grading.compare import as_float, describe, float_mismatch, tensor_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.nanogpt import GPT, GPTConfig
from course_lib.toolbox import CAPSTONE_CONFIG, CAPSTONE_GLOBAL_BATCH, CAPSTONE_GPU, Plan, capstone_plan, capstone_step

FIELDS = {entry.name: type(entry.default) for entry in dataclasses.fields(Plan)}
SMALL = {"vocab_size": 61, "block_size": 24, "n_layer": 3, "n_head": 2, "n_embd": 32}
FP16_ERROR = 4.0  # times the reference's own error against float64, both in fp16


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)

    def case(what: str, label: str, **plan: Any) -> Case:
        return Case(label, (what, draw.randrange(2**31), {"attention": "sdpa", **plan}))

    return [
        case("plan", "the plan"),
        case("gradients", "fp32, two micro-batches", micro_batch=2, accumulation=2),
        case("gradients", "fp32, unequal numbers of valid targets", micro_batch=1, accumulation=4, chunk_tokens=7),
        case(
            "gradients", "fp16 with a loss scaler", precision="fp16", micro_batch=2, accumulation=3, checkpoint_blocks=3
        ),
        case("overflow", "an overflow in the middle", precision="fp16", micro_batch=1, accumulation=3),
        case("growth", "ten steps", micro_batch=2, accumulation=2, chunk_tokens=16, checkpoint_blocks=2),
        case("full size", "1.2 billion parameters on one T4"),
    ]


def build(seed: int, plan: Plan) -> tuple[GPT, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    model = GPT(GPTConfig(**SMALL, attention=plan.attention))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.15, generator=generator)
    shape = (plan.micro_batch * plan.accumulation, SMALL["block_size"])
    tokens = torch.randint(SMALL["vocab_size"], shape, generator=generator)
    targets = torch.randint(SMALL["vocab_size"], shape, generator=generator)
    for row in range(len(targets)):  # later rows hold fewer valid targets
        targets[row, : row * shape[1] // (len(targets) + 1)] = -100
    return model, tokens, targets


def observe(solution: tuple[Callable, Callable], case: Case) -> Any:
    step, make_plan = solution
    what, seed, fields = case.args
    if what == "plan":
        return _plain(make_plan())
    if what == "full size":
        return _full_size(step, make_plan)
    plan = Plan(**fields)
    model, tokens, targets = build(seed, plan)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2000, enabled=plan.precision == "fp16")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    if what == "growth":
        return _growth(step, model, optimizer, scaler, tokens, targets, plan)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    if what == "overflow":
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=2000)
        step(model, optimizer, scaler, tokens, targets, plan)
        moved = any(not torch.equal(before[name], parameter) for name, parameter in model.named_parameters())
        # the next scale is one that fits; the step has to go on from it
        scale_after = scaler.get_scale()
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2000)
        step(model, optimizer, scaler, tokens, targets, plan)
        return {"moved": moved, "scale": scale_after, "updates": _updates(before, model)}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    changed = left_alone((tokens, targets), model)
    loss = step(model, optimizer, scaler, tokens, targets, plan)
    return {
        "loss": loss,
        "changed": changed(),
        "updates": _updates(before, model),
        "scale": scaler.get_scale(),
        "calls": _block_calls(step, seed, plan),
    }


def _plain(plan: Any) -> Any:
    return dataclasses.asdict(plan) if isinstance(plan, Plan) else plan


def _updates(before: dict[str, torch.Tensor], model: GPT) -> dict[str, torch.Tensor]:
    """What SGD at lr 1 subtracted: the unscaled gradient."""
    return {name: before[name] - parameter.detach() for name, parameter in model.named_parameters()}


def _block_calls(step: Callable, seed: int, plan: Plan) -> dict[str, int]:
    """Forward passes of blocks, and the most rows that one of them saw: whether checkpointing and micro-batches happen."""
    model, tokens, targets = build(seed, plan)
    seen = {"blocks": 0, "rows": 0}

    def count(module: Any, args: Any) -> None:
        seen["blocks"] += 1
        seen["rows"] = max(seen["rows"], len(args[0]))

    for block in model.blocks:
        block.register_forward_pre_hook(count)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=plan.precision == "fp16")
    step(model, torch.optim.SGD(model.parameters(), lr=1.0), scaler, tokens, targets, plan)
    return seen


def _growth(step: Callable, model: GPT, optimizer: Any, scaler: Any, tokens: Any, targets: Any, plan: Plan) -> Any:
    from course_lib.memory import MemoryLedger

    alive, peaks, results = [], [], []
    ledger = MemoryLedger()
    ledger.watch(model, optimizer, tokens, targets)
    with ledger:
        for _ in range(10):
            results.append(step(model, optimizer, scaler, tokens, targets, plan))
            alive.append(ledger.live_bytes)
            peaks.append(ledger.peak_bytes)
    has_graph = any(isinstance(result, torch.Tensor) and result.requires_grad for result in results)
    return {"alive": alive, "peak": peaks[-1], "has_graph": has_graph}


def _full_size(step: Callable, make_plan: Callable) -> Any:
    from course_lib.memory import SimulatedOutOfMemoryError
    from course_lib.toolbox import step_report

    plan = make_plan()
    if plan_problem(_plain(plan)):
        return {"problem": "no plan"}
    try:
        report = step_report(CAPSTONE_CONFIG, plan, CAPSTONE_GPU, step)
    except SimulatedOutOfMemoryError as error:
        where = f" in {error.module}" if error.module else ""
        return {
            "problem": f"{error.operation}{where} ({error.phase}) asks for {error.requested_bytes / 2**30:.2f} GiB; "
            f"{error.free_bytes / 2**30:.2f} GiB are free",
            "peak": error.report.peak_bytes if error.report else None,
        }
    has_backward = any(mark.phase == "backward" for mark in report.marks)
    # the least that such a step can hold: weights, gradients, and what the plan's optimizer keeps
    return {"problem": "" if has_backward else "no backward pass was seen", "peak": report.peak_bytes}


def plan_problem(got: Any) -> str:
    """Why the capstone's plan is no plan for it; "" when it is."""
    if not isinstance(got, dict) or got.keys() != FIELDS.keys():
        return f"capstone_plan must return a Plan; got {describe(got)}."
    for name, kind in FIELDS.items():
        if type(got[name]) is not kind:
            return f"{name} must be {kind.__name__}; got {got[name]!r}."
    words = {"precision": ("fp32", "fp16", "bf16"), "attention": ("naive", "sdpa"), "optimizer": ("adamw", "adamw8bit")}
    words["offload"] = ("none", "activations")
    for name, allowed in words.items():
        if got[name] not in allowed:
            return f"{name} must be one of {', '.join(allowed)}; got {got[name]!r}."
    if got["precision"] == "bf16":
        return f'precision must be "fp32" or "fp16": a {CAPSTONE_GPU} has no bf16 units.'
    if min(got["micro_batch"], got["accumulation"]) < 1 or min(got["checkpoint_blocks"], got["chunk_tokens"]) < 0:
        return "micro_batch and accumulation must be at least 1, checkpoint_blocks and chunk_tokens at least 0."
    if got["micro_batch"] * got["accumulation"] != CAPSTONE_GLOBAL_BATCH:
        batch = got["micro_batch"] * got["accumulation"]
        return f"micro_batch × accumulation must be {CAPSTONE_GLOBAL_BATCH} sequences, the global batch; got {batch}."
    return ""


@functools.lru_cache(maxsize=64)
def _truth(seed: int, fields: tuple) -> tuple[float, dict[str, torch.Tensor]]:
    """The full batch's loss and gradients in float64, in one piece."""
    model, tokens, targets = build(seed, Plan(**dict(fields)))
    model.double()
    loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in model.named_parameters()}


def _truth_of(case: Case) -> tuple[float, dict[str, torch.Tensor]]:
    return _truth(case.args[1], tuple(sorted(case.args[2].items())))


def _updates_mismatch(case: Case, got: Any, expected: Any) -> Mismatch | None:
    if not isinstance(got.get("updates"), dict):
        return Mismatch("gradients", describe(got.get("updates")))
    is_half = case.args[2].get("precision") == "fp16"
    for name, exact in _truth_of(case)[1].items():
        size = exact.abs().max().item()
        floor = (2.0**-9 if is_half else 2.0**-17) * size  # fp16's rounding of activations; the sums of fp32
        wrong = tensor_mismatch(
            got["updates"].get(name),
            expected["updates"][name],
            exact,
            factor=FP16_ERROR if is_half else 2.0,
            name=f"the gradient of {name} (from SGD's update)",
            floor=floor,
        )
        if wrong:
            return wrong
    return None


def grade(case: Case, got: Any, expected: Any) -> Mismatch | None:
    what, plan = case.args[0], case.args[2]
    if what == "plan":
        problem = plan_problem(got)
        return Mismatch("a plan for 32 sequences on a T4", describe(got), problem) if problem else None
    if not isinstance(got, dict):
        return Mismatch("a step", describe(got))
    if what == "full size":
        if got.get("problem") or as_float(got.get("peak")) is None:
            return Mismatch("a step that fits", "one that does not", f"{got.get('problem')}.")
        return None
    if what == "growth":
        alive = got.get("alive")
        if not isinstance(alive, list) or len(alive) != 10 or any(type(n) is not int for n in alive):
            return Mismatch("bytes after each of ten steps", describe(alive))
        if got.get("has_graph"):
            return Mismatch("a Python number", "a tensor with its graph", "Whoever keeps ten of them keeps ten graphs.")
        if max(alive) > alive[0] + 8192:
            return Mismatch(
                f"about {alive[0]:,} bytes after each step", f"{max(alive):,} after ten", "Something is kept."
            )
        if not isinstance(got.get("peak"), int) or got["peak"] > 1.3 * expected["peak"] + 65_536:
            note = "Peak of a small step; the plan asks for micro-batches, checkpointing and chunks."
            return Mismatch(f"at most {int(1.3 * expected['peak']) + 65_536:,} bytes", describe(got.get("peak")), note)
        return None
    if what == "overflow":
        if got.get("moved"):
            return Mismatch(
                "parameters as they were", "changed parameters", "Gradients were infinite: the step is to be skipped."
            )
        if got.get("scale") != 2.0**39:
            return Mismatch(
                "a scale of 2^39 after one overflow at 2^40", describe(got.get("scale")), "One update a step."
            )
        return _updates_mismatch(case, got, expected)
    wrong = _updates_mismatch(case, got, expected)
    if wrong:
        return wrong
    wrong = float_mismatch(as_float(got.get("loss")), _truth_of(case)[0], rel=1e-2 if plan.get("precision") else 1e-5)
    if wrong:
        return Mismatch(wrong.expected, describe(got.get("loss")), "That is the mean loss over all valid targets.")
    calls = got.get("calls")
    if not isinstance(calls, dict) or calls.get("rows") != expected["calls"]["rows"]:
        rows = calls.get("rows") if isinstance(calls, dict) else None
        return Mismatch(f"micro-batches of {expected['calls']['rows']} sequences", describe(rows))
    if calls["blocks"] < expected["calls"]["blocks"]:
        note = f"The plan recomputes {plan.get('checkpoint_blocks', 0)} blocks."
        return Mismatch(f"{expected['calls']['blocks']} forward passes of blocks", describe(calls["blocks"]), note)
    return left_alone_mismatch(got)


def _about(kind: str, sign: Callable[[Case, Any, Any], bool], *, or_follows: tuple[str, ...] = ()) -> Callable:
    """The mistake shows in cases of this kind; failures of the kinds in `or_follows` are its consequences."""

    def matches(case: Case, got: Any, expected: Any) -> bool:
        return case.args[0] in or_follows or (
            case.args[0] == kind and isinstance(got, dict) and sign(case, got, expected)
        )

    return matches


BYTES = ("growth", "full size")


def _ratio(case: Case, got: Any) -> float:
    """How many times too large the gradients are, taken together."""
    exact = _truth_of(case)[1]
    total = sum(float((got["updates"][name].double() * grad).sum()) for name, grad in exact.items())
    return total / sum(float(grad.square().sum()) for grad in exact.values())


def _has_updates(case: Case, got: Any) -> bool:
    exact = _truth_of(case)[1] if case.args[0] in ("gradients", "overflow") else {}
    updates = got.get("updates") if isinstance(got, dict) else None
    return (
        bool(exact)
        and isinstance(updates, dict)
        and all(
            isinstance(updates.get(name), torch.Tensor) and updates[name].shape == grad.shape
            for name, grad in exact.items()
        )
    )


def _sums(case: Case, got: Any, expected: Any) -> bool:
    if case.args[0] in BYTES:
        return True
    if not _has_updates(case, got):
        return False
    got = {"updates": {name: update / case.args[2]["accumulation"] for name, update in got["updates"].items()}}
    return _is_mean_of_means(case, got) or 0.9 < _ratio(case, got) < 1.1


def _is_mean_of_means(case: Case, got: Any) -> bool:
    if not math.isfinite(_ratio(case, got)):
        return False
    model, tokens, targets = build(case.args[1], Plan(**case.args[2]))
    rows = case.args[2]["micro_batch"]
    pairs = list(zip(tokens.split(rows), targets.split(rows), strict=True))
    for inputs, labels in pairs:
        (F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten()) / len(pairs)).backward()
    both = [(got["updates"][name], parameter.grad) for name, parameter in model.named_parameters()]
    return all(torch.allclose(a, b, rtol=0.05, atol=0.02 * b.abs().max().item()) for a, b in both)


def _mean_of_means(case: Case, got: Any, expected: Any) -> bool:
    return case.args[0] in BYTES or (_has_updates(case, got) and _is_mean_of_means(case, got))


def _scaled(case: Case, got: Any, expected: Any) -> bool:
    if case.args[0] in BYTES:
        return True
    return _has_updates(case, got) and (got.get("moved") or not 0.01 < abs(_ratio(case, got)) < 100)


def _not_one_update(case: Case, got: Any, expected: Any) -> bool:
    return not got.get("moved") and as_float(got.get("scale")) not in (2.0**39, 2.0**40, None)


def _whole_batch(case: Case, got: Any, expected: Any) -> bool:
    calls = got.get("calls")
    has_rows = isinstance(calls, dict) and calls.get("rows") != expected["calls"]["rows"]
    return not _updates_mismatch(case, got, expected) and has_rows


def _no_recompute(case: Case, got: Any, expected: Any) -> bool:
    return not _updates_mismatch(case, got, expected) and case.args[2].get("checkpoint_blocks", 0) > 0


def _small_batch(case: Case, got: Any, expected: Any) -> bool:
    if case.args[0] == "full size":
        return isinstance(got, dict) and got.get("problem") == "no plan"
    is_plan = case.args[0] == "plan" and isinstance(got, dict) and got.keys() == FIELDS.keys()
    return is_plan and "the global batch; got" in plan_problem(got)


EXERCISE = Exercise(
    name="capstone_step",
    points=10,
    minutes=60,
    difficulty=3,
    checks="gradients of a small model, an overflow, ten steps in a row, and 1.2 billion parameters on a T4 by dry run",
    reference=(capstone_step, capstone_plan),
    functions=("capstone_step", "capstone_plan"),
    cases=cases,
    observe=observe,
    grade=grade,
    time_limit_s=90.0,
    measured_in_process=True,
    hints=(
        "You have written every part: accumulation weighted by valid tokens, a scaler that steps once, checkpointed "
        "blocks, a "
        "chunked loss. Put them in the order of one step, and only then choose the plan.",
        "For each micro-batch: forward under autocast, its sum of losses over all valid targets of the step, "
        "scaler.scale(...)"
        ".backward(). After the last one: scaler.step(optimizer), scaler.update().",
        "`hidden_states(model, tokens, plan.checkpoint_blocks)` and `chunked_cross_entropy(hidden.flatten(0, 1), "
        "model.lm_head.weight, ...)` take the place of model(tokens). For the plan: 8-bit moments first, then every "
        "block "
        "recomputed, then chunks or no cache of weight casts.",
    ),
    explanation=(
        "State first: 16 bytes × 1.21 billion are 18 GiB, so AdamW in fp32 is out, and 8-bit moments leave 11.4. Then "
        "the second "
        "micro-batch's forward pass, with the gradients there: autocast's copies (2.3 GiB), boundaries of 22 blocks, "
        "and the loss. "
        "Chunks make the loss small; autocast without its cache makes the copies small. Either is enough."
    ),
    next_step=(
        "Run your step on the small model of the notebook and compare its gradients with one backward of the full "
        "batch."
    ),
    misconceptions=(
        Misconception(
            "shrinks_the_global_batch",
            "The plan fits by training on fewer sequences a step. Which number goes up when the micro-batch goes down?",
            matches=_small_batch,
        ),
        Misconception(
            "does_not_fit",
            "The step is right and the plan does not fit the T4. Look at which operation it stops, and which part of "
            "the memory "
            "is the largest there.",
            matches=_about("full size", lambda case, got, expected: bool(got.get("problem"))),
        ),
        Misconception(
            "leaks_from_step_to_step",
            "Bytes grow from step to step, or the loss comes back with its graph. What lives longer than its step?",
            matches=_about("growth", lambda case, got, expected: True, or_follows=("full size",)),
        ),
        Misconception(
            "steps_on_overflow",
            "Infinite gradients reached the parameters. Who looks at them before the step?",
            matches=_about("overflow", lambda case, got, expected: bool(got.get("moved")), or_follows=BYTES),
        ),
        Misconception(
            "updates_the_scale_per_micro_batch",
            "One overflow lowered the scale more than once: `update()` ran for each micro-batch. How often does the "
            "scale change "
            "in a step?",
            matches=_about("overflow", _not_one_update, or_follows=BYTES),
        ),
        Misconception(
            "whole_batch_at_once",
            "The gradients are right, but the micro-batches do not have the plan's size. Where is the batch to be "
            "split?",
            matches=_about("gradients", _whole_batch, or_follows=BYTES),
        ),
        Misconception(
            "ignores_checkpointing",
            "The gradients are right, and no block runs twice although the plan asks for it. Which argument of "
            "`hidden_states` "
            "does that?",
            matches=_about("gradients", _no_recompute, or_follows=BYTES),
        ),
        Misconception(
            "mean_of_means",
            "Each micro-batch has the same weight, however few valid targets it holds. What does the full batch's "
            "mean divide by?",
            matches=_mean_of_means,
        ),
        Misconception(
            "sum_instead_of_mean",
            "The gradients grow with the number of micro-batches: their means are added up. What do the weights sum "
            "to?",
            matches=_sums,
        ),
        Misconception(
            "steps_with_scaled_gradients",
            "The update is larger by the loss scale: it was never divided out. Whose `step` takes the scale away?",
            matches=_scaled,
        ),
    ),
)

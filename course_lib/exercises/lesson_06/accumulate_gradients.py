"""Gradient accumulation weighted by valid tokens: every gradient, the loss, and the peak through backward."""

import functools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.exercises.lesson_06.left_alone import left_alone, left_alone_mismatch
from course_lib.exercises.lesson_06.same_values import same_values
from course_lib.grading.compare import as_float, describe, float_mismatch, tensor_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.toolbox import accumulate_gradients

VOCAB, WIDTH = 23, 16
PEAK_ALLOWANCE = 1.3  # of the reference's peak; two graphs at a time cost 1.8 and more


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)

    def case(label: str, valid: list[int], rows: int = 3, length: int = 24) -> Case:
        return Case(f"{label}: valid targets {valid}", (draw.randrange(2**31), tuple(valid), rows, length))

    def some() -> int:
        return draw.randint(1, 60)

    return [
        case("two micro-batches", [4, 12], rows=2, length=8),
        case("one micro-batch", [some()]),
        case("one of them without a valid target", [9, 0, 40]),
        case("six micro-batches", [some() for _ in range(6)]),
        case("the first without a valid target", [0, some(), some(), 0, some()]),
    ]


def tiny_model() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, VOCAB))


def build(case: Case) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    seed, valid, rows, length = case.args
    generator = torch.Generator().manual_seed(seed)
    model = tiny_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4, generator=generator)
    micro_batches = []
    for count in valid:
        tokens = torch.randint(VOCAB, (rows, length), generator=generator)
        targets = torch.randint(VOCAB, (rows * length,), generator=generator)
        targets[torch.randperm(rows * length, generator=generator)[count:]] = -100
        micro_batches.append((tokens, targets.view(rows, length)))
    return model, micro_batches


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=-100)


def observe(solution: Callable, case: Case) -> dict[str, Any]:
    from course_lib.memory import MemoryLedger

    model, micro_batches = build(case)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)  # left over from the last step
    before = [parameter.detach().clone() for parameter in model.parameters()]
    changed = left_alone(micro_batches, model)
    with MemoryLedger() as ledger:
        loss = solution(model, micro_batches, mean_cross_entropy)
    return {
        "loss": loss,
        "has_graph": isinstance(loss, Tensor) and loss.requires_grad,
        "moved": any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)),
        "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
        "peak": ledger.peak_bytes,
        "changed": changed(),
    }


@functools.lru_cache(maxsize=64)
def _truth(args: tuple) -> tuple[float, dict[str, Tensor]]:
    """The full batch in float64, in one piece."""
    model, micro_batches = build(Case("", args))
    model.double()
    tokens, targets = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    loss = mean_cross_entropy(model(tokens), targets)
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in model.named_parameters()}


def values_mismatch(got: Any, expected: dict[str, Any], truth: tuple[float, dict[str, Tensor]]) -> Mismatch | None:
    """Loss and gradients: the arithmetic is the reference's, with room for another order of summation."""
    if not isinstance(got, dict) or not isinstance(got.get("gradients"), dict):
        return Mismatch("a loss and gradients", describe(got))
    if got.get("moved"):
        return Mismatch(
            "parameters as they were", "changed parameters", "This function gives gradients; it takes no step."
        )
    for name, exact in truth[1].items():
        floor = 64 * torch.finfo(torch.float32).eps * exact.abs().max().item()
        gradient = got["gradients"].get(name)
        wrong = tensor_mismatch(
            gradient, expected["gradients"][name], exact, name=f"the gradient of {name}", floor=floor
        )
        if wrong:
            return wrong
    if got.get("has_graph"):
        return Mismatch("a Python number", describe(got["loss"]), "The loss that is returned still holds its graph.")
    wrong = float_mismatch(as_float(got.get("loss")), truth[0], rel=1e-5)
    return wrong and Mismatch(
        f"a loss of {truth[0]:.6g}",
        describe(got.get("loss")),
        "The gradients are right; the number returned is to be the mean over all valid targets.",
        "Add up, as numbers, the same weighted losses whose gradients you add up.",
    )


def gradients_are_wrong(got: Any, expected: dict[str, Any], truth: tuple[float, dict[str, Tensor]]) -> bool:
    """Whether the gradients are, whatever the returned number is."""
    return bool(values_mismatch({**got, "loss": truth[0], "has_graph": False}, expected, truth))


def peak_limit(expected: dict[str, Any]) -> int:
    return int(PEAK_ALLOWANCE * expected["peak"]) + 30_000  # a second set of gradients is no mistake


def grade(case: Case, got: Any, expected: dict[str, Any]) -> Mismatch | None:
    wrong = values_mismatch(got, expected, _truth(case.args))
    if wrong:
        return wrong
    limit = peak_limit(expected)
    if isinstance(got["peak"], int) and got["peak"] <= limit:
        return left_alone_mismatch(got)
    note = "Peak of new tensors, backward included; all gradients are right."
    return Mismatch(
        f"at most {limit:,} bytes", f"{got['peak']:,} bytes" if isinstance(got["peak"], int) else "none", note
    )


def mean_of_means(model: nn.Module, micro_batches: Sequence, loss_fn: Callable) -> float:
    model.zero_grad()
    total = 0.0
    for inputs, targets in micro_batches:
        if (targets != -100).any():
            loss = loss_fn(model(inputs), targets) / len(micro_batches)
            loss.backward()
            total += loss.item()
    return total


def mean_of_the_valid_means(model: nn.Module, micro_batches: Sequence, loss_fn: Callable) -> float:
    return mean_of_means(model, [pair for pair in micro_batches if (pair[1] != -100).any()], loss_fn)


def mean_of_means_with_nan(model: nn.Module, micro_batches: Sequence, loss_fn: Callable) -> float:
    model.zero_grad()
    total = 0.0
    for inputs, targets in micro_batches:
        loss = loss_fn(model(inputs), targets) / len(micro_batches)
        loss.backward()
        total += loss.item()
    return total


def no_division(model: nn.Module, micro_batches: Sequence, loss_fn: Callable) -> float:
    return mean_of_means_with_nan(model, micro_batches, lambda *both: loss_fn(*both) * len(micro_batches))


def no_division_but_skips(model: nn.Module, micro_batches: Sequence, loss_fn: Callable) -> float:
    return mean_of_means(model, micro_batches, lambda *both: loss_fn(*both) * len(micro_batches))


def counts_ignored(model: nn.Module, micro_batches: Sequence, loss_fn: Callable) -> float:
    everything = sum(targets.numel() for _, targets in micro_batches)

    def summed(logits: Tensor, targets: Tensor) -> Tensor:
        return loss_fn(logits, targets) * (targets != -100).sum() / everything * len(micro_batches)

    return mean_of_means(model, micro_batches, summed)


def weights_nothing(model: nn.Module, micro_batches: Sequence, loss_fn: Callable) -> float:
    model.zero_grad()
    total, mean = sum(int((targets != -100).sum()) for _, targets in micro_batches), 0.0
    for inputs, targets in micro_batches:
        loss = loss_fn(model(inputs), targets) * int((targets != -100).sum()) / total
        loss.backward()
        mean += loss.item()
    return mean


def keeps_old_gradients(model: nn.Module, micro_batches: Sequence, loss_fn: Callable) -> float:
    old = [parameter.grad for parameter in model.parameters()]
    loss = accumulate_gradients(model, micro_batches, loss_fn)
    for parameter, gradient in zip(model.parameters(), old, strict=True):
        parameter.grad = parameter.grad + gradient
    return loss


def _gives(*wrong_solutions: Callable) -> Callable[[Case, Any, Any], bool]:
    alike_gradients = same_values(observe, ("gradients",), *wrong_solutions)

    def matches(case: Case, got: Any, expected: dict[str, Any]) -> bool:
        return alike_gradients(case, got, expected) and gradients_are_wrong(got, expected, _truth(case.args))

    return matches


def _high_peak(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    return not values_mismatch(got, expected, _truth(case.args)) and got["peak"] > peak_limit(expected)


_alike_weights_nothing = same_values(observe, ("gradients",), weights_nothing)


def _nan_loss(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    """Gradients may be right all the same: PyTorch's mean over no target has gradients of zero."""
    return _alike_weights_nothing(case, got, expected) and math.isnan(as_float(got.get("loss")) or 0.0)


EXERCISE = Exercise(
    name="accumulate_gradients",
    points=3,
    minutes=15,
    difficulty=2,
    checks="every gradient against the full batch in float64, the loss, and the peak through backward",
    reference=accumulate_gradients,
    cases=cases,
    observe=observe,
    grade=grade,
    measured_in_process=True,
    hints=(
        "Write the full batch's loss as a sum over targets divided by a count. Which count does each micro-batch know?",
        "A micro-batch's mean times its number of valid targets is its sum. Count the valid targets of all "
        "micro-batches "
        "before the first forward pass.",
        "loss = loss_fn(model(inputs), targets) * valid_here / valid_in_all, then backward at once. A mean over no "
        "target is "
        "NaN, and NaN times 0 is NaN: such a micro-batch is to be passed over.",
    ),
    explanation=(
        "The full batch weighs each target alike; a mean of means weighs each micro-batch alike, so targets in short "
        "ones "
        "count more. Trainers had this fault until late 2024. backward stands inside the loop: it frees the graph, "
        "and so the "
        "peak is that of one micro-batch."
    ),
    next_step="Compare the weight that one target gets in your sum with 1 / (valid targets of the full batch).",
    misconceptions=(
        Misconception(
            "keeps_every_graph",
            "The gradients are right, and the peak is that of the full batch: all graphs are alive together. When "
            "does a graph "
            "get freed?",
            matches=_high_peak,
        ),
        Misconception(
            "mean_of_means",
            "Each micro-batch gets the same weight, however few valid targets it holds. Which weight makes every "
            "target count "
            "alike?",
            matches=_gives(mean_of_means, mean_of_the_valid_means, mean_of_means_with_nan),
        ),
        Misconception(
            "no_division",
            "The micro-batches' means are added up, so the gradient grows with the number of micro-batches. What "
            "should their "
            "weights sum to?",
            matches=_gives(no_division, no_division_but_skips),
        ),
        Misconception(
            "counts_ignored_targets",
            "You divide by all targets, the ignored ones too. Which targets does the full batch's mean divide by?",
            matches=_gives(counts_ignored),
        ),
        Misconception(
            "nan_times_zero",
            "A micro-batch without a valid target has the mean 0 / 0. A weight of zero does not remove a NaN; what "
            "does?",
            matches=_nan_loss,
        ),
        Misconception(
            "keeps_old_gradients",
            "The gradients of the last step are still in the sum. When are they to be cleared?",
            matches=_gives(keeps_old_gradients),
        ),
    ),
)

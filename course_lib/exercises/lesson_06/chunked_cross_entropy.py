"""Cross-entropy in chunks: loss, both gradients, and a peak through backward that does not grow with N·V."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from course_lib.exercises.lesson_06.left_alone import left_alone, left_alone_mismatch
from course_lib.exercises.lesson_06.same_values import same_values
from course_lib.grading.compare import as_float, describe, tensor_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.toolbox import chunked_cross_entropy

VALUES = "Compare loss and gradients with those of `F.cross_entropy(hidden @ weight.T, targets)` on a few rows."
UPSTREAM = 3.0  # backward starts from 3 · loss: a gradient made in forward has to be multiplied too


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)

    def case(label: str, n: int, h: int, v: int, chunk: int, ignored: float, frozen: str = "") -> Case:
        text = f"{label}: hidden [{n}, {h}], weight [{v}, {h}], chunks of {chunk}"
        return Case(text, (draw.randrange(2**31), n, h, v, chunk, ignored, frozen))

    return [
        case("two chunks", 6, 3, 5, 3, 0.0),
        case("a last chunk that is shorter", 11, 4, 7, 4, 0.3),
        case("all targets ignored", 9, 3, 6, 4, 1.0),
        case("one chunk longer than all", 5, 3, 4, 50, 0.2),
        case("one chunk without a valid target", 12, 4, 9, 4, -1.0),
        case("a frozen weight", draw.randint(20, 40), 5, 13, 8, 0.3, "weight"),
        case("logits in the hundreds", draw.randint(20, 40), 5, 13, 8, 0.3, "large"),
        case("frozen hidden states", draw.randint(20, 40), 5, 13, 8, 0.3, "hidden"),
        case("a large vocabulary", draw.randint(330, 360), 8, draw.randint(500, 700), 16, 0.25),
        case("a wide one", 16 * draw.randint(30, 34), 16, draw.randint(300, 400), 32, 0.6),
    ]


def tensors(args: tuple) -> tuple[Tensor, Tensor, Tensor]:
    seed, n, h, v, chunk, ignored, frozen = args
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, h, generator=generator).requires_grad_(frozen != "hidden")
    weight = torch.randn(v, h, generator=generator).requires_grad_(frozen != "weight")
    if frozen == "large":
        hidden.detach().mul_(100.0)  # exp overflows where the largest logit is not taken away first
    targets = torch.randint(v, (n,), generator=generator)
    if ignored < 0:
        targets[chunk : 2 * chunk] = -100
    else:
        targets[torch.rand(n, generator=generator) < ignored] = -100
        if ignored < 1:
            targets[-1] = 0  # at least one valid target, and one in the last chunk
    return hidden, weight, targets


def observe(solution: Callable, case: Case) -> dict[str, Any]:
    from course_lib.memory import MemoryLedger

    hidden, weight, targets = tensors(case.args)
    changed = left_alone((hidden, weight, targets))
    with MemoryLedger() as ledger:
        loss = solution(hidden, weight, targets, case.args[4])
        if isinstance(loss, Tensor) and loss.requires_grad:
            (loss * UPSTREAM).backward()
    return {
        "loss": loss,
        "has_graph": isinstance(loss, Tensor) and loss.requires_grad,
        "hidden": hidden.grad,
        "weight": weight.grad,
        "peak": ledger.peak_bytes,
        "changed": changed(),
    }


def _truth(args: tuple) -> tuple[Tensor, Tensor | None, Tensor | None]:
    hidden, weight, targets = tensors(args)
    wide = [x.detach().double().requires_grad_(x.requires_grad) for x in (hidden, weight)]
    loss = F.cross_entropy(wide[0] @ wide[1].T, targets, reduction="sum") / (targets != -100).sum().clamp(min=1)
    (loss * UPSTREAM).backward()
    return loss.detach(), wide[0].grad, wide[1].grad


def values_mismatch(case: Case, got: Any, expected: dict[str, Any]) -> Mismatch | None:
    if not isinstance(got, dict) or not isinstance(got.get("loss"), Tensor):
        seen = got.get("loss") if isinstance(got, dict) else got
        return Mismatch("a 0-d tensor", describe(seen), "" if seen is not None else "Did you forget `return`?")
    if got["loss"].dim() or not got["loss"].is_floating_point():
        return Mismatch("a 0-d floating tensor", describe(got["loss"]))
    truth = _truth(case.args)
    for name, exact in zip(("loss", "hidden", "weight"), truth, strict=True):
        if exact is None:
            continue
        value = got.get(name)
        if not got.get("has_graph"):
            return Mismatch("a loss with a graph", "a loss without one", "Someone will call `backward` on it.", VALUES)
        if value is None and not exact.any() and not got["loss"].any():
            continue  # nothing to learn from: no gradient and a gradient of zeros say the same
        if value is None:
            return Mismatch(f"a gradient of {name}", "None", "The loss does not lead back to it.")
        floor = 64 * torch.finfo(torch.float32).eps * max(exact.abs().max().item(), 1e-3)
        label = "the loss" if name == "loss" else f"the gradient of {name}"
        wrong = tensor_mismatch(value, expected[name], exact, name=label, floor=floor)
        if wrong:
            return replace(wrong, next_step=VALUES)
    return None


def peak_limit(case: Case) -> int:
    _, _, h, v, chunk, *_ = case.args
    return 6 * 4 * chunk * v + 16 * v * h


def grade(case: Case, got: Any, expected: dict[str, Any]) -> Mismatch | None:
    wrong = values_mismatch(case, got, expected)
    if wrong:
        return wrong
    _, n, h, v, chunk, *_ = case.args
    if n < 16 * chunk or n < 30 * h:
        return left_alone_mismatch(got)
    limit = peak_limit(case)
    if isinstance(got.get("peak"), int) and got["peak"] <= limit:
        return left_alone_mismatch(got)
    note = f"Peak through backward (all {n} rows of logits are {4 * n * v:,} bytes); loss and gradients are right."
    peak = f"{got['peak']:,} bytes" if isinstance(got.get("peak"), int) else describe(got.get("peak"))
    return Mismatch(f"at most {limit:,} bytes", peak, note)


def _in_chunks(hidden: Tensor, weight: Tensor, targets: Tensor, chunk_size: int, reduction: str) -> list[Tensor]:
    def one(rows: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(rows @ weight.T, labels, reduction=reduction)

    pairs = zip(hidden.split(chunk_size), targets.split(chunk_size), strict=True)
    return [checkpoint(one, rows, labels, use_reentrant=False) for rows, labels in pairs]


def mean_of_chunk_means(hidden: Tensor, weight: Tensor, targets: Tensor, chunk_size: int) -> Tensor:
    return torch.stack(_in_chunks(hidden, weight, targets, chunk_size, "mean")).mean()


def mean_of_finite_chunk_means(hidden: Tensor, weight: Tensor, targets: Tensor, chunk_size: int) -> Tensor:
    means = [
        F.cross_entropy(rows @ weight.T, labels)
        for rows, labels in zip(hidden.split(chunk_size), targets.split(chunk_size), strict=True)
        if (labels != -100).any()
    ]
    return torch.stack(means).mean() if means else (hidden.sum() + weight.sum()) * 0


def divides_by_all(hidden: Tensor, weight: Tensor, targets: Tensor, chunk_size: int) -> Tensor:
    return sum(_in_chunks(hidden, weight, targets, chunk_size, "sum")) / len(targets)


def nan_when_all_ignored(hidden: Tensor, weight: Tensor, targets: Tensor, chunk_size: int) -> Tensor:
    return sum(_in_chunks(hidden, weight, targets, chunk_size, "sum")) / (targets != -100).sum()


def drops_the_last_chunk(hidden: Tensor, weight: Tensor, targets: Tensor, chunk_size: int) -> Tensor:
    whole = len(targets) // chunk_size * chunk_size
    if not whole:
        return (hidden.sum() + weight.sum()) * 0
    total = sum(_in_chunks(hidden[:whole], weight, targets[:whole], chunk_size, "sum"))
    return total / (targets != -100).sum().clamp(min=1)


def _gives(*wrong_solutions: Callable) -> Callable[[Case, Any, Any], bool]:
    return same_values(observe, ("loss", "hidden", "weight"), *wrong_solutions)


def _is_high(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    return not values_mismatch(case, got, expected) and got["peak"] > peak_limit(case)


def _ignores_upstream(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    truth = _truth(case.args)
    if as_float(got.get("loss")) is None:
        return False
    pairs = [(got.get("hidden"), truth[1]), (got.get("weight"), truth[2])]
    pairs = [(value, exact / UPSTREAM) for value, exact in pairs if exact is not None]
    return all(
        isinstance(a, Tensor) and a.shape == b.shape and torch.allclose(a.double(), b, 1e-3, 1e-6) for a, b in pairs
    )


EXERCISE = Exercise(
    name="chunked_cross_entropy",
    points=4,
    minutes=25,
    difficulty=3,
    checks="the loss, both gradients against float64, and the peak through backward",
    reference=chunked_cross_entropy,
    cases=cases,
    observe=observe,
    grade=grade,
    measured_in_process=True,
    hints=(
        "Add up the chunks' sums and divide once, at the end, by the number of valid targets.",
        "After `F.cross_entropy` of a chunk, autograd keeps a tensor of the chunk's logits until backward. Which tool "
        "of "
        "lesson 04 throws it away?",
        "checkpoint(chunk_loss, rows, weight, labels, use_reentrant=False) with reduction='sum' inside; "
        "`hidden.split(chunk_size)`; and a divisor of at least 1.",
    ),
    explanation=(
        "Chunks alone change nothing: each chunk's graph holds its log-probabilities until backward, and together "
        "they are "
        "the logits again. Recomputing a chunk costs one more product with the vocabulary, 2·V·h FLOPs a token. Fused "
        "kernels "
        "(Liger, cut cross-entropy) make the gradient in forward instead, while the chunk's logits are there."
    ),
    next_step="List what is alive when backward begins: which of it has a side of V, and how many rows has it?",
    misconceptions=(
        Misconception(
            "keeps_every_chunk",
            "Loss and gradients are right, and the peak is still that of all the logits: every chunk's graph waits for "
            "backward. How can a chunk let go of its logits?",
            matches=_is_high,
        ),
        Misconception(
            "zero_by_zero",
            "Where every target is ignored, 0 / 0 is NaN, as in `F.cross_entropy`. Here the loss is to be 0: which "
            "divisor "
            "gives that?",
            matches=_gives(nan_when_all_ignored),
        ),
        Misconception(
            "mean_of_chunk_means",
            "Each chunk's mean gets the same weight, however few valid targets the chunk holds. What should be added "
            "up instead?",
            matches=_gives(mean_of_chunk_means, mean_of_finite_chunk_means),
        ),
        Misconception(
            "divides_by_all_targets",
            "You divide by all targets, the ignored ones too. How many targets does the mean stand for?",
            matches=_gives(divides_by_all),
        ),
        Misconception(
            "drops_the_last_chunk",
            "The tokens after the last whole chunk are missing. How many chunks does it take to cover all of them?",
            matches=_gives(drops_the_last_chunk),
        ),
        Misconception(
            "ignores_the_gradient_from_above",
            "The gradients are those of the loss alone; whoever multiplies the loss afterwards (a loss scaler does) "
            "gets the "
            "wrong ones. What does backward hand to you?",
            matches=_ignores_upstream,
        ),
    ),
)

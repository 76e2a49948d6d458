"""Evaluation that keeps nothing: the mean over examples, the model's mode, and bytes batch after batch."""

import functools
import random
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.exercises.lesson_06.left_alone import left_alone, left_alone_mismatch
from course_lib.exercises.lesson_06.same_values import same_values
from course_lib.grading.compare import as_float, describe, float_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.toolbox import mean_loss

WIDTH, CLASSES = 12, 7


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)

    def case(label: str, sizes: list[int], training: bool, kind: str, dropout: float = 0.0) -> Case:
        text = (
            f"{label}: {kind} of batches with {', '.join(map(str, sizes[:4]))}{', ...' if sizes[4:] else ''} examples"
        )
        return Case(text, (draw.randrange(2**31), tuple(sizes), training, kind, dropout))

    return [
        case("one batch", [3], False, "list"),
        case("a smaller last batch", [8, 8, 3], True, "list"),
        case("with dropout", [16, 5], True, "list", dropout=0.5),
        case("a model in eval mode", [draw.randint(5, 9), draw.randint(1, 4)], False, "generator", dropout=0.3),
        case("many batches", [draw.randint(20, 40) for _ in range(12)], True, "generator", dropout=0.1),
    ]


def build(args: tuple) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    seed, sizes, training, _, dropout = args
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Dropout(dropout), nn.Linear(64, CLASSES)).train(training)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.7, generator=generator)
    batches = [
        (torch.randn(n, WIDTH, generator=generator), torch.randint(CLASSES, (n,), generator=generator)) for n in sizes
    ]
    return model, batches


def observe(solution: Callable, case: Case) -> dict[str, Any]:
    from course_lib.memory import MemoryLedger

    model, batches = build(case.args)
    training, kind = case.args[2], case.args[3]
    alive: list[int] = []
    seen: list[weakref.ref] = []
    batches_alive: list[int] = []

    def generate() -> Iterator[tuple[Tensor, Tensor]]:
        for inputs, targets in batches:
            alive.append(ledger.live_bytes)
            batches_alive.append(sum(ref() is not None for ref in seen))
            fresh = inputs.clone(), targets.clone()
            seen.append(weakref.ref(fresh[0]))
            yield fresh
            del fresh

    graphs: list[bool] = []
    handle = model.register_forward_hook(lambda module, args, output: graphs.append(output.requires_grad))
    changed = left_alone(batches)
    with MemoryLedger() as ledger:
        result = solution(model, batches if kind == "list" else generate())
        after = ledger.live_bytes
    handle.remove()
    return {
        "result": result,
        "has_graph": isinstance(result, Tensor) and result.requires_grad,
        "training_after": model.training,
        "training_before": training,
        "alive": alive,
        "builds_graphs": any(graphs),
        "frozen": any(not parameter.requires_grad for parameter in model.parameters()),
        "changed": changed(),
        "batches_alive": max(batches_alive, default=0),
        "after": after,
        "peak": ledger.peak_bytes,
        "gradients": any(parameter.grad is not None for parameter in model.parameters()),
    }


@functools.lru_cache(maxsize=64)
def _truth(args: tuple) -> float:
    model, batches = build(args)
    model.double().eval()
    inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    return F.cross_entropy(model(inputs.double()), targets).item()


def _value(case: Case, got: Any) -> Mismatch | None:
    if not isinstance(got, dict):
        return Mismatch("a number", describe(got))
    wrong = float_mismatch(got.get("result"), _truth(case.args), rel=1e-4)
    return wrong and Mismatch(f"{_truth(case.args):.6g}", describe(got.get("result")), wrong.note)


def _kept_mismatch(case: Case, alive: Any) -> Mismatch | None:
    """What is alive when the next batch is asked for: the names of the last one's inputs, targets and logits may be."""
    if not isinstance(alive, list) or not all(isinstance(size, int) for size in alive):
        return Mismatch("bytes alive at each batch", describe(alive))
    for index, (size, rows) in enumerate(zip(alive[1:], case.args[1], strict=False), 1):
        limit = rows * (4 * WIDTH + 8 + 4 * CLASSES) + 2048
        if size > limit:
            note = f"When batch {index + 1} is asked for: more than the last batch's inputs, targets and logits."
            return Mismatch(f"at most {limit:,} bytes alive", f"{size:,} bytes", note)
    return None


def grade(case: Case, got: Any, expected: dict[str, Any]) -> Mismatch | None:
    wrong = _value(case, got)
    if wrong:
        return wrong
    if got.get("has_graph"):
        return Mismatch("a Python number", describe(got["result"]), "The tensor holds the graph that made it.")
    if got.get("training_after") is not got.get("training_before"):
        words = {True: "training mode", False: "eval mode"}
        before, after = (words.get(got.get(f"training_{when}"), "an odd mode") for when in ("before", "after"))
        return Mismatch(f"the model back in {before}", after)
    if got.get("frozen"):
        return Mismatch("parameters that can be trained", "parameters with requires_grad off")
    if got.get("gradients"):
        return Mismatch("parameters without gradients", "parameters with `.grad`", "Evaluation calls no `backward`.")
    limit = int(1.5 * expected["peak"]) + 2048
    if not isinstance(got.get("peak"), int) or got["peak"] > limit:
        note = "Peak of new tensors: something lives longer than its batch."
        return Mismatch(f"at most {limit:,} bytes", describe(got.get("peak")), note)
    if not isinstance(got.get("batches_alive"), int) or got["batches_alive"] > 2:
        return Mismatch("at most two batches alive at a time", f"{describe(got.get('batches_alive'))} batches")
    return _kept_mismatch(case, got.get("alive")) or left_alone_mismatch(got)


def mean_of_batch_means(model: nn.Module, batches: Iterable) -> float:
    model.eval()
    with torch.no_grad():
        means = [F.cross_entropy(model(inputs), targets).item() for inputs, targets in batches]
    return sum(means) / len(means)


def _left_in_eval(case: Case, got: Any, expected: Any) -> bool:
    return not _value(case, got) and not got.get("has_graph") and got["training_after"] != got["training_before"]


def _keeps_graphs(case: Case, got: Any, expected: Any) -> bool:
    is_only_evaluation = not got.get("gradients") and not got.get("frozen") and bool(got.get("builds_graphs"))
    keeps = got.get("peak", 0) > 1.5 * expected["peak"] or bool(_kept_mismatch(case, got.get("alive")))
    return not _value(case, got) and (bool(got.get("has_graph")) or (is_only_evaluation and keeps))


def _keeps_batches(case: Case, got: Any, expected: Any) -> bool:
    is_small = got.get("peak", 0) < 3 * expected["peak"]  # the batches alone, without what a graph keeps of each
    return not _value(case, got) and not got.get("has_graph") and is_small and got.get("batches_alive", 0) > 2


def _random(case: Case, got: Any, expected: Any) -> bool:
    return case.args[4] > 0 and case.args[2] and bool(_value(case, got)) and as_float(got.get("result")) is not None


FEEDBACK_TRAINING = (
    "The model was evaluated in training mode, so dropout was at work. Which mode is it to be in, and afterwards?"
)

EXERCISE = Exercise(
    name="mean_loss",
    points=2,
    minutes=10,
    difficulty=1,
    checks="the mean over all examples, the model's mode afterwards, and the bytes alive from batch to batch",
    reference=mean_loss,
    cases=cases,
    observe=observe,
    grade=grade,
    measured_in_process=True,
    hints=(
        "What is to be divided by what? Batches may differ in size. And what does a loss tensor hold on to?",
        "Under `torch.no_grad()` no graph is built; `.item()` turns a loss into a number. `model.eval()` does neither.",
        "Remember `model.training`, call `model.eval()`, add up cross-entropies with reduction='sum' as numbers, count "
        "examples, restore the mode, divide.",
    ),
    explanation=(
        "A sum of loss tensors holds every batch's graph, and with it every batch's activations. During training the "
        "same "
        "line is harmless, since backward frees the graph: the leak shows in evaluation. eval() switches dropout off; "
        "only "
        "no_grad() or inference_mode() switches the graph off."
    ),
    next_step="Ask for each name in your loop: what does it still hold when the next batch comes?",
    misconceptions=(
        Misconception(
            "mean_of_batch_means",
            "The last, smaller batch counts as much as the others. What should the sum of the losses be divided by?",
            matches=same_values(observe, ("result",), mean_of_batch_means),
        ),
        Misconception("evaluates_in_training_mode", FEEDBACK_TRAINING, matches=_random),
        Misconception(
            "leaves_the_mode_changed",
            "The number is right, and the model comes back in another mode: the next training step would run without "
            "dropout. Where is the old mode to be kept?",
            matches=_left_in_eval,
        ),
        Misconception(
            "keeps_the_batches",
            "All batches are alive at the end: a list of a generator holds everything it gave. Can you use a batch "
            "and forget it?",
            matches=_keeps_batches,
        ),
        Misconception(
            "sums_tensors_with_their_graphs",
            "The number is right, and bytes grow from batch to batch: each loss keeps the graph that made it. What "
            "does a Python number hold, and what does a tensor hold?",
            matches=_keeps_graphs,
        ),
    ),
)

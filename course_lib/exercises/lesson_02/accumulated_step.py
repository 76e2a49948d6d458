"""One step over several micro-batches, under a scaler."""

import random

import torch

from course_lib.exercises.lesson_02.tiny import (
    OPTIMIZERS,
    TinyNet,
    draw_batch,
    first_difference,
    mean_squared,
    record_gradients,
    snapshot,
)
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.loss_scaling import accumulated_step


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    chosen = [
        (1, "SGD", 2, 3, 2.0**10, ["good"]),
        (2, "SGD", 1, 4, 2.0**10, ["good", "good"]),
        (3, "SGD", 4, 2, 2.0**16, ["good", "good", "good"]),
        (4, "SGD", 3, 3, 2.0**16, ["good", "overflow in the second micro-batch", "good"]),
        (5, "SGD with momentum", 4, 2, 2.0**12, ["good", "good", "good", "good"]),
    ]
    for _ in range(4):
        kinds = [draw.choice(["good", "good", "overflow in the second micro-batch"]) for _ in range(3)] + ["good"]
        name = draw.choice(["SGD", "SGD with momentum"])
        chosen.append(
            (draw.randrange(10**6), name, draw.randint(2, 5), draw.randint(1, 4), 2.0 ** draw.randint(4, 18), kinds)
        )
    return [
        Case(
            f"{name}, {parts} micro-batches of {size}, scale {scale:g}",
            kwargs={"seed": s, "optimizer": name, "parts": parts, "size": size, "scale": scale, "kinds": kinds},
        )
        for s, name, parts, size, scale, kinds in chosen
    ]


def observe(solution, case: Case) -> list:
    options = case.kwargs
    model = TinyNet(options["seed"])
    optimizer = OPTIMIZERS[options["optimizer"]](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=options["scale"], growth_interval=2)
    for parameter in (model.first.weight, model.second.bias):
        parameter.grad = torch.ones_like(parameter)  # left over from before
    trace = []
    for number, kind in enumerate(options["kinds"]):
        gradients: list = []
        first = options["seed"] + 100 * number
        micro_batches = [draw_batch(first + part, options["size"]) for part in range(options["parts"])]
        if kind != "good" and len(micro_batches) > 1:
            micro_batches[1][0][0] = float("inf")
        record_gradients(optimizer, gradients)
        sizes: list = []

        def loss_fn(outputs, targets, sizes=sizes):
            sizes.append(len(outputs))
            return mean_squared(outputs, targets)

        solution(model, optimizer, scaler, micro_batches, loss_fn)
        row = {"kind": kind, "parameters": snapshot(model.parameters()), "scale": scaler.get_scale(), "sizes": sizes}
        trace.append({**row, "gradient": gradients[0] if gradients else None})
    return trace


def grade(case: Case, got: object, expected: list) -> Mismatch | None:
    names = {
        "sizes": "the size of each batch whose loss you took",
        "gradient": "the gradient that the optimizer used",
        "parameters": "a parameter",
        "scale": "the scaler's scale (it hears one `update` a step)",
    }
    return first_difference(got, expected, names)


def _variant(*, divide=1, unscale_each=False, update_each=False, step_each=False, clear="before", update=True):
    """The reference with its lines in the wrong places."""

    def step(model, optimizer, scaler, micro_batches, loss_fn):
        count = len(micro_batches)
        if clear == "before":
            optimizer.zero_grad()
        for inputs, targets in micro_batches:
            if clear == "each":
                optimizer.zero_grad()
            loss = loss_fn(model(inputs), targets) / (count if divide else 1)
            scaler.scale(loss).backward()
            if step_each:
                scaler.step(optimizer)
            elif unscale_each:
                scaler.unscale_(optimizer)
            if update_each:
                scaler.update()
        if divide == 2:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad /= count
        if not step_each:
            scaler.step(optimizer)
            if update:
                scaler.update()
        if clear == "after":
            optimizer.zero_grad()

    return step


def joins_the_micro_batches(model, optimizer, scaler, micro_batches, loss_fn):
    optimizer.zero_grad()
    inputs, targets = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    scaler.scale(loss_fn(model(inputs), targets)).backward()
    scaler.step(optimizer)
    scaler.update()


def forgets_scaler(model, optimizer, scaler, micro_batches, loss_fn):
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        (loss_fn(model(inputs), targets) / len(micro_batches)).backward()
    optimizer.step()


EXERCISE = Exercise(
    name="accumulated_step",
    points=3,
    minutes=15,
    difficulty=2,
    checks="the gradient of several micro-batches together, under a loss scaler",
    reference=accumulated_step,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "`backward` adds to what is in `.grad`. What may be there before the first micro-batch, and what must not "
        "happen between two of them?",
        "The sum is only right if all of its terms are multiplied by the same scale. Which call changes the scale?",
        "Clear once; in the loop only forward, a division by the number of micro-batches and "
        "`scaler.scale(loss).backward()`; after the loop "
        "`scaler.step` and `scaler.update` once.",
    ),
    explanation=(
        "A mean over equal parts is the mean of their means, so each loss is divided by their number. The scaler "
        "works on the sum: one unscale, one look for "
        "infinities, one step or skip, one update. An `update()` in the loop silences the error that a second "
        "`unscale_` raises, and leaves a sum of "
        "gradients with different scales."
    ),
    next_step="Compare with the gradient of one batch in which the micro-batches are joined by `torch.cat`.",
    misconceptions=(
        Misconception(
            "updates_per_micro_batch",
            "You unscale and call `update()` after every micro-batch. The gradients already summed are then divided "
            "again and the scale can change "
            "in the middle of the sum. Which of these calls belong to the whole step?",
            solution=_variant(unscale_each=True, update_each=True),
        ),
        Misconception(
            "updates_per_micro_batch",
            "`update()` is called after every micro-batch, so that the scaler counts several steps where there is one.",
            solution=_variant(update_each=True, update=False),
        ),
        Misconception(
            "steps_per_micro_batch",
            "You step after every micro-batch: the parameters move in the middle of the sum.",
            solution=_variant(step_each=True, update_each=True, clear="each", divide=0),
        ),
        Misconception(
            "steps_per_micro_batch",
            "You step after every micro-batch: the parameters move in the middle of the sum.",
            solution=_variant(step_each=True, update_each=True, clear="each"),
        ),
        Misconception(
            "steps_per_micro_batch",
            "You step after every micro-batch: the parameters move in the middle of the sum.",
            solution=_variant(step_each=True, update_each=True),
        ),
        Misconception(
            "unscales_per_micro_batch",
            "You call `unscale_` after every micro-batch; the scaler refuses the second one. The sum needs it once.",
            solution=_variant(unscale_each=True),
        ),
        Misconception(
            "forgets_to_divide",
            "Your gradient is the sum over the micro-batches. The loss of the full batch is a mean: what is missing?",
            solution=_variant(divide=0),
        ),
        Misconception(
            "divides_twice",
            "Your gradient is too small by the number of micro-batches: you divide twice.",
            solution=_variant(divide=2),
        ),
        Misconception(
            "forgets_to_clear",
            "Gradients from before are still in your sum.",
            solution=_variant(clear="never"),
        ),
        Misconception(
            "forgets_to_clear",
            "You clear at the end of your step, so what was there before its first micro-batch is still in the sum.",
            solution=_variant(clear="after"),
        ),
        Misconception(
            "joins_the_micro_batches",
            "You make one large batch again. It was cut because its activations do not fit: one micro-batch at a time.",
            solution=joins_the_micro_batches,
        ),
        Misconception(
            "clears_per_micro_batch",
            "You clear the gradients inside the loop, so only the last micro-batch is left.",
            solution=_variant(clear="each"),
        ),
        Misconception(
            "forgets_update",
            "The scaler is never updated, so it neither grows nor backs off.",
            solution=_variant(update=False),
        ),
        Misconception(
            "leaves_out_the_scaler",
            "The scaler takes no part in your step: nothing is scaled, and an overflow is not skipped.",
            solution=forgets_scaler,
        ),
    ),
)

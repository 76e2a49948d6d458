"""Clipping under a scaler: of true gradients, not of scaled ones."""

import math
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
from course_lib.grading.compare import as_float
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.loss_scaling import clipped_step


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    chosen = [
        (1, "SGD", 2.0**10, 0.1, ["good"]),
        (2, "SGD", 2.0**16, 1000.0, ["good"]),
        (3, "SGD", 2.0**16, 0.3, ["overflow", "good"]),
        (4, "SGD with momentum", 2.0**8, 0.5, ["good", "overflow", "good", "good"]),
    ]
    for _ in range(5):
        kinds = [draw.choice(["good", "good", "overflow"]) for _ in range(3)] + ["good"]
        name = draw.choice(["SGD", "SGD with momentum"])
        chosen.append(
            (draw.randrange(10**6), name, 2.0 ** draw.randint(5, 20), draw.choice([0.05, 0.2, 0.5, 50.0]), kinds)
        )
    return [
        Case(
            f"{name}, scale {scale:g}, max_norm {max_norm:g}",
            kwargs={"seed": s, "optimizer": name, "scale": scale, "max_norm": max_norm, "kinds": kinds},
        )
        for s, name, scale, max_norm, kinds in chosen
    ]


def observe(solution, case: Case) -> list:
    options = case.kwargs
    model = TinyNet(options["seed"])
    optimizer = OPTIMIZERS[options["optimizer"]](model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=options["scale"], growth_interval=2)
    trace = []
    for number, kind in enumerate(options["kinds"]):
        gradients: list = []
        optimizer.zero_grad()
        inputs, targets = draw_batch(options["seed"] + number)
        loss = 4 * mean_squared(model(inputs), targets)
        if kind == "overflow":
            weight = model.first.weight[1, 1]
            loss = loss + (weight - weight.detach()).sqrt()
        record_gradients(optimizer, gradients)
        norm = solution(model, optimizer, scaler, loss, options["max_norm"])
        row = {"kind": kind, "norm": norm, "parameters": snapshot(model.parameters()), "scale": scaler.get_scale()}
        trace.append({**row, "gradient": gradients[0] if gradients else None})
    return trace


def grade(case: Case, got: object, expected: list) -> Mismatch | None:
    if isinstance(got, list) and len(got) == len(expected):  # any non-finite number will do for an overflow
        got = [_plain(mine, due) for mine, due in zip(got, expected, strict=True)]
    names = {
        "norm": "the returned norm",
        "gradient": "the gradient that the optimizer used",
        "parameters": "a parameter",
        "scale": "the scaler's scale",
    }
    return first_difference(got, expected, names, rel=1e-4)  # clip_grad_norm_ adds 1e-6 to a norm of 0.1 and more


def _plain(mine: object, due: dict) -> object:
    if not isinstance(mine, dict):
        return mine
    norm = as_float(mine.get("norm"))
    is_infinite_twice = norm is not None and not math.isfinite(norm) and not math.isfinite(due["norm"])
    return {**mine, "norm": due["norm"] if is_infinite_twice else mine.get("norm")}


def _norm(model) -> torch.Tensor:
    return torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])


def clips_scaled(model, optimizer, scaler, loss, max_norm):
    scaler.scale(loss).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm.item()


def clips_scaled_but_reports_true(model, optimizer, scaler, loss, max_norm):
    scale = scaler.get_scale()
    return clips_scaled(model, optimizer, scaler, loss, max_norm) / scale


def _variant(*, clip=True, update=True, after=False, direct=False, each=False, values=False):
    def step(model, optimizer, scaler, loss, max_norm):
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = _norm(model)
        if each:
            for p in model.parameters():
                torch.nn.utils.clip_grad_norm_([p], max_norm)
        elif values:
            torch.nn.utils.clip_grad_value_(model.parameters(), max_norm)
        elif clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        result = _norm(model) if after else norm
        optimizer.step() if direct else scaler.step(optimizer)
        if update:
            scaler.update()
        return result.item()

    return step


def leaves_out_the_scaler(model, optimizer, scaler, loss, max_norm):
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return norm.item()


EXERCISE = Exercise(
    name="clipped_step",
    points=2,
    minutes=10,
    difficulty=2,
    checks="gradient clipping under a loss scaler",
    reference=clipped_step,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "With a scale of 65,536 the norm of what `backward` leaves is 65,536 times the true one. What would "
        "`max_norm` do to that?",
        "The scaler can make the gradients true before you look at them: `scaler.unscale_(optimizer)`. It remembers, "
        "and `step` will not do it again.",
        "`torch.nn.utils.clip_grad_norm_` returns the norm from before clipping. Then `scaler.step`, `scaler.update`, "
        "and `.item()` for a plain number.",
    ),
    explanation=(
        "Micikevicius et al. (§3.2) say it already: unscale before clipping. Clipping scaled gradients does not crash "
        "and does not look wrong; "
        "it shortens nearly every step by the scale, and Adam, which does not care about the size of gradients, hides "
        "even that."
    ),
    next_step="Compute the gradient norm of this loss without any scaler and compare it with what you return.",
    misconceptions=(
        Misconception(
            "clips_scaled_gradients",
            "You clip gradients that are still multiplied by the scale, so almost every step is clipped, and far too "
            "much. What has to happen before?",
            solution=clips_scaled,
        ),
        Misconception(
            "clips_scaled_gradients",
            "Your norm is right, but what was clipped is still multiplied by the scale. What has to happen before "
            "clipping?",
            solution=clips_scaled_but_reports_true,
        ),
        Misconception(
            "returns_the_clipped_norm",
            "You return the norm after clipping. Asked for is the norm before: it shows when training becomes "
            "unstable.",
            solution=_variant(after=True),
        ),
        Misconception(
            "forgets_update",
            "The scaler never hears that the iteration is over: its scale stays, and its next `unscale_` fails.",
            solution=_variant(update=False),
        ),
        Misconception(
            "steps_past_the_scaler",
            "You call `optimizer.step()` yourself, so an overflow is not skipped. Who knows whether there was one?",
            solution=_variant(direct=True),
        ),
        Misconception(
            "clips_each_tensor",
            "You clip each parameter's gradient by itself. That changes the direction of the step; the norm of all of "
            "them together is meant.",
            solution=_variant(each=True),
        ),
        Misconception(
            "clips_values",
            "You limit each entry to `max_norm`. That changes the direction of the step; the norm of the whole "
            "gradient is meant.",
            solution=_variant(values=True),
        ),
        Misconception(
            "leaves_out_the_scaler",
            "The scaler takes no part in your step: nothing is scaled, and an overflow is not skipped.",
            solution=leaves_out_the_scaler,
        ),
        Misconception("does_not_clip", "Your steps are not clipped.", solution=_variant(clip=False)),
    ),
)

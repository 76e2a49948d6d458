"""One step with a fixed loss scale."""

import random

import torch

from course_lib.exercises.lesson_02.tiny import (
    OPTIMIZERS,
    TinyNet,
    draw_batch,
    first_difference,
    mean_squared,
    optimizer_state,
    snapshot,
)
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.loss_scaling import scaled_step

GOOD, OVERFLOW, INFINITE, NAN = "good", "overflow by the scale", "infinite gradient", "NaN gradient"


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    chosen = [
        (1, "SGD", 2.0**10, [GOOD]),
        (2, "SGD", 2.0**20, [INFINITE]),
        (3, "SGD", 2.0**20, [NAN]),
        (4, "SGD with momentum", 2.0**30, [OVERFLOW, GOOD]),
        (5, "SGD", 1000.0, [GOOD, NAN, GOOD]),
        (6, "Adam", 2.0**16, [NAN, GOOD, INFINITE, GOOD]),
    ]
    for _ in range(4):
        kinds = [draw.choice([GOOD, GOOD, OVERFLOW, INFINITE, NAN]) for _ in range(draw.randint(2, 4))] + [GOOD]
        chosen.append((draw.randrange(10**6), draw.choice(list(OPTIMIZERS)), 2.0 ** draw.randint(28, 32), kinds))
    return [
        Case(
            f"{optimizer}, scale {scale:g}", kwargs={"seed": s, "optimizer": optimizer, "scale": scale, "kinds": kinds}
        )
        for s, optimizer, scale, kinds in chosen
    ]


def bad_term(model: TinyNet, kind: str) -> torch.Tensor:
    """A term of the loss that is small or zero itself, while its gradient is not finite."""
    weight = model.second.weight[0, 1]
    zero = weight - weight.detach()
    if kind == OVERFLOW:
        return zero * 2e30  # finite, until it is multiplied by 2**28 and more
    if kind == INFINITE:
        return -zero.sqrt()
    return zero.abs().sqrt()  # 0 · infinity in the chain rule


def observe(solution, case: Case) -> list:
    options = case.kwargs
    model = TinyNet(options["seed"])
    optimizer = OPTIMIZERS[options["optimizer"]](model.parameters())
    trace = []
    for number, kind in enumerate(options["kinds"]):
        optimizer.zero_grad()
        inputs, targets = draw_batch(options["seed"] + number)
        loss = mean_squared(model(inputs), targets)
        if kind != GOOD:
            loss = loss + bad_term(model, kind)
        stepped = solution(model, optimizer, loss, options["scale"])
        after = snapshot(model.parameters())
        trace.append({"kind": kind, "stepped": stepped, "parameters": after, "state": optimizer_state(optimizer)})
    return trace


def grade(case: Case, got: object, expected: list) -> Mismatch | None:
    names = {"stepped": "what your function returned", "parameters": "a parameter", "state": "the optimizer's state"}
    if isinstance(got, list):  # numbers and tensors of one element may stand for True and False
        got = [{**row, "stepped": _as_bool(row.get("stepped"))} if isinstance(row, dict) else row for row in got]
    return first_difference(got, expected, names)


def _as_bool(value: object) -> object:
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_complex():
        return bool(value.item())
    return bool(value) if isinstance(value, int) and value in (0, 1) else value


def forgets_to_unscale(model, optimizer, loss, scale):
    (loss * scale).backward()
    if not all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None):
        return False
    optimizer.step()
    return True


def _with_check(is_bad):
    def step(model, optimizer, loss, scale):
        (loss * scale).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        for gradient in gradients:
            gradient.div_(scale)
        if any(is_bad(gradient) for gradient in gradients):
            return False
        optimizer.step()
        return True

    return step


def zeroes_bad_entries(model, optimizer, loss, scale):
    (loss * scale).backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.div_(scale).nan_to_num_(0.0, 0.0, 0.0)
    optimizer.step()
    return True


def looks_at_the_loss(model, optimizer, loss, scale):
    (loss * scale).backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.div_(scale)
    if not torch.isfinite(loss * scale):
        return False
    optimizer.step()
    return True


def steps_with_zeros(model, optimizer, loss, scale):
    (loss * scale).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    is_good = all(gradient.isfinite().all() for gradient in gradients)
    for gradient in gradients:
        gradient.div_(scale) if is_good else gradient.zero_()
    optimizer.step()
    return is_good


def returns_nothing(model, optimizer, loss, scale):
    scaled_step(model, optimizer, loss, scale)


def returns_skipped(model, optimizer, loss, scale):
    return not scaled_step(model, optimizer, loss, scale)


def forgets_to_scale(model, optimizer, loss, scale):
    loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.div_(scale)
    if not all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None):
        return False
    optimizer.step()
    return True


def ignores_scale(model, optimizer, loss, scale):
    return scaled_step(model, optimizer, loss, 1.0)


EXERCISE = Exercise(
    name="scaled_step",
    points=3,
    minutes=15,
    difficulty=2,
    checks="one training step with a fixed loss scale, and its skipped steps",
    reference=scaled_step,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "Five things in order: scale, backward, unscale, look, step or not.",
        "Unscaling happens in place: `parameter.grad.div_(scale)`. A parameter that took no part has `grad` None.",
        "`tensor.isfinite().all()` is false for infinity and for NaN. Look at every gradient before the optimizer "
        "sees any.",
    ),
    explanation=(
        "The gradients are true again before anything looks at their size, so learning rate, clipping and weight "
        "decay need no change. Infinity minus "
        "infinity is NaN, so both signs of overflow must be looked for. Skipping means that `optimizer.step()` is not "
        "called: a step with zero gradients "
        "would still move parameters by momentum, and count in Adam's bias correction."
    ),
    next_step="Print each parameter's gradient before and after `backward`, and before the step; one stays None.",
    misconceptions=(
        Misconception(
            "steps_with_scaled_gradients",
            "Your optimizer sees gradients that are still multiplied by the scale. With Adam you would hardly notice; "
            "with SGD the step is far too long.",
            solution=forgets_to_unscale,
        ),
        Misconception(
            "skips_on_nan_only",
            "You skip on NaN but step on infinity. An overflow is infinite first; it becomes NaN only later, when two "
            "of them meet.",
            solution=_with_check(lambda g: g.isnan().any()),
        ),
        Misconception(
            "skips_on_infinity_only",
            "You skip on infinity but step on NaN. Infinity minus infinity, or zero times infinity, is NaN: both are "
            "signs of overflow.",
            solution=_with_check(lambda g: g.isinf().any()),
        ),
        Misconception(
            "zeroes_the_bad_entries",
            "You put zeros for the entries that are not finite and step. The finite entries of such a gradient come "
            "from the same broken "
            "backward pass: what should become of the whole step?",
            solution=zeroes_bad_entries,
        ),
        Misconception(
            "looks_at_the_loss_only",
            "A gradient that is not finite passes your test. The loss is finite here, and so are other gradients: backward "
            "has its own overflows. Which tensors must you ask, and must all of them agree?",
            solution=looks_at_the_loss,
        ),
        Misconception(
            "steps_with_zero_gradients",
            "Instead of skipping you step with zero gradients. Momentum and Adam's step count move on even then.",
            solution=steps_with_zeros,
        ),
        Misconception(
            "does_not_say_whether_it_stepped",
            "Your steps are right. Return whether there was one.",
            solution=returns_nothing,
        ),
        Misconception(
            "says_the_opposite",
            "Your steps are right, but you return whether the step was skipped. Asked for is whether it was taken.",
            solution=returns_skipped,
        ),
        Misconception(
            "unscales_without_scaling",
            "You divide the gradients by a scale that the loss was never multiplied by. `backward` must see the "
            "scaled loss.",
            solution=forgets_to_scale,
        ),
        Misconception(
            "ignores_scale",
            "Your steps are those of no scaling at all. Multiply the loss first: some overflows appear only then.",
            solution=ignores_scale,
        ),
    ),
)

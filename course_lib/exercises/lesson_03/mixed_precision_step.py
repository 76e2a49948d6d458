"""A step with bfloat16 compute and float32 master weights, judged against a float64 trajectory."""

import random

import torch
from torch import Tensor

from course_lib.exercises.lesson_02.tiny import OPTIMIZERS, TinyNet, draw_batch, mean_squared, snapshot
from course_lib.grading.compare import as_float, as_tensor_problem, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.mixed_precision import mixed_precision_step

BF16 = torch.bfloat16
FACTOR = 4  # room for other orders of rounding than the reference's


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    chosen = [(1, "SGD", 1, 4, False), (2, "SGD", 4, 6, True), (3, "SGD with momentum", 4, 6, False)]
    chosen += [
        (draw.randrange(10**6), draw.choice(["SGD", "SGD with momentum"]), draw.randint(3, 6), draw.randint(3, 9), True)
        for _ in range(5)
    ]
    return [
        Case(
            f"{steps} step{'s' * (steps > 1)} of {name}" + ", gradients left from before" * stale,
            kwargs={"seed": s, "optimizer": name, "steps": steps, "size": size, "stale": stale},
        )
        for s, name, steps, size, stale in chosen
    ]


def observe(solution, case: Case) -> list:
    options = case.kwargs
    master = [torch.nn.Parameter(p.detach().clone()) for p in TinyNet(options["seed"]).parameters()]
    model = TinyNet(options["seed"], dtype=BF16)
    optimizer = OPTIMIZERS[options["optimizer"]](master)
    dtypes: list = []
    model.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    if options["stale"]:
        for tensor in (*model.parameters(), *master):
            tensor.grad = torch.ones_like(tensor)
    trace = []
    for number in range(options["steps"]):
        batch = draw_batch(options["seed"] + number, options["size"], BF16)
        loss = solution(master, model, optimizer, mean_squared, batch)
        row = {"loss": loss, "master": snapshot(master), "model": snapshot(model.parameters())}
        trace.append({**row, "compute": list(dtypes)})
        dtypes.clear()
    return trace


def float64_trajectory(case: Case) -> list[tuple[float, Tensor]]:
    """The same steps with nothing rounded: (loss, weights) after each."""
    options = case.kwargs
    model = TinyNet(options["seed"]).double()
    optimizer = OPTIMIZERS[options["optimizer"]](model.parameters())
    rows = []
    for number in range(options["steps"]):
        inputs, targets = draw_batch(options["seed"] + number, options["size"], BF16)
        optimizer.zero_grad()
        loss = mean_squared(model(inputs.double()), targets.double())
        loss.backward()
        optimizer.step()
        rows.append((loss.item(), snapshot(model.parameters())))
    return rows


def grade(case: Case, got: object, expected: list) -> Mismatch | None:
    if not isinstance(got, list) or len(got) != len(expected) or not all(isinstance(row, dict) for row in got):
        return Mismatch(f"{len(expected)} steps", describe(got))
    for number, (mine, due, (loss, weights)) in enumerate(zip(got, expected, float64_trajectory(case), strict=True), 1):
        problem = _grade_step(mine, due, loss, weights)
        if problem:
            return Mismatch(problem[0], problem[1], f"After step {number}: {problem[2]}")
    return None


def _grade_step(mine: dict, due: dict, loss: float, weights: Tensor) -> tuple[str, str, str] | None:
    master, model = mine.get("master"), mine.get("model")
    problem = as_tensor_problem(master, due["master"].shape, torch.float32)
    if problem:
        return "a float32 master", describe(master), problem
    problem = as_tensor_problem(model, due["model"].shape, BF16)
    if problem:
        return "a bfloat16 model", describe(model), problem
    error = (master.double() - weights).abs().nan_to_num(nan=torch.inf)
    reference_error = (due["master"].double() - weights).abs().max().item()
    budget = FACTOR * reference_error + torch.finfo(torch.float32).eps * weights.abs().max().item()
    if error.max() > budget:
        at = int(error.argmax())
        note = (
            f"element {at} of the master is {error[at]:.2g} from the float64 trajectory, where {budget:.2g} is allowed."
        )
        return f"{weights[at]:.6g}", f"{master[at]:.6g}", note
    if torch.equal(master, master.to(BF16).float()):
        return "a master finer than bfloat16", "only bfloat16 values", "the master has lost its low bits."
    if not torch.equal(model, master.to(BF16)):
        return "the model equal to master.bfloat16()", "other bits", "the copy down is missing or comes too early."
    if mine.get("compute") != due["compute"]:
        return "forward once, in bfloat16", describe(mine.get("compute")), "look at how the model was called."
    number = as_float(mine.get("loss"))
    room = FACTOR * abs(due["loss"] - loss) + torch.finfo(BF16).eps * abs(loss)
    if number is None or not abs(number - loss) <= room:
        return f"a loss of {loss:.4g}", describe(mine.get("loss")), "this is about the returned value."
    return None


def _is_rounded(case: Case, got: object, expected: object) -> bool:
    masters = [row.get("master") for row in got if isinstance(row, dict)] if isinstance(got, list) else []
    floats = [m for m in masters if isinstance(m, Tensor) and m.is_floating_point()]
    return bool(floats) and all(torch.equal(m.double(), m.to(BF16).double()) for m in floats)


def _model_stays(case: Case, got: object, expected: object) -> bool:
    start = snapshot(TinyNet(case.kwargs["seed"], dtype=BF16).parameters())
    models = [row.get("model") for row in got if isinstance(row, dict)] if isinstance(got, list) else []
    return bool(models) and all(isinstance(m, Tensor) and torch.equal(m, start) for m in models)


def _is_one_step_behind(case: Case, got: object, expected: object) -> bool:
    rows = [row for row in got if isinstance(row, dict)] if isinstance(got, list) else []
    tensors = [(row.get("master"), row.get("model")) for row in rows]
    if not tensors or not all(isinstance(t, Tensor) for pair in tensors for t in pair):
        return False
    due = [snapshot(TinyNet(case.kwargs["seed"]).parameters()), *(master for master, _ in tensors)]
    return all(torch.equal(model, old.to(BF16)) for (_, model), old in zip(tensors, due, strict=False))


def _variant(*, clear=True, alias=False, step=True):
    def solution(master, model, optimizer, loss_fn, batch):
        inputs, targets = batch
        if clear:
            model.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        for parameter, copy in zip(model.parameters(), master, strict=True):
            copy.grad = None if parameter.grad is None else parameter.grad.float()
        if step:
            optimizer.step()
        for parameter, copy in zip(model.parameters(), master, strict=True) if alias else ():
            parameter.data = copy.data
        if not alias:
            _copy_down(model, master)
        return loss.item()

    return solution


def _copy_down(model, master):
    with torch.no_grad():
        for parameter, copy in zip(model.parameters(), master, strict=True):
            parameter.copy_(copy)


def adds_to_master_gradients(master, model, optimizer, loss_fn, batch):
    inputs, targets = batch
    model.zero_grad()
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    for parameter, copy in zip(model.parameters(), master, strict=True):
        if parameter.grad is not None:
            copy.grad = parameter.grad.float() if copy.grad is None else copy.grad + parameter.grad.float()
    optimizer.step()
    _copy_down(model, master)
    return loss.item()


EXERCISE = Exercise(
    name="mixed_precision_step",
    points=5,
    minutes=30,
    difficulty=3,
    checks="training with bfloat16 compute and float32 master weights, against a float64 trajectory",
    reference=mixed_precision_step,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "Two lists of tensors take part. Which of them does the forward pass read, which does the optimizer change, "
        "and what has to cross between them, "
        "in which direction and when?",
        "The optimizer reads `.grad` of the master, but `backward` writes `.grad` of the model. A gradient must have "
        "its tensor's dtype: `.float()`.",
        "Clear, forward, backward, copy gradients up, `optimizer.step()`, then under `torch.no_grad()` "
        "`parameter.copy_(master_tensor)`, which rounds. "
        "A parameter that took no part has no gradient.",
    ),
    explanation=(
        "Forward and backward are bfloat16; the update is float32. The master is never rebuilt from the rounded "
        "weights, so updates too small to change "
        "a bfloat16 weight still add up until they do. The copy down is the only place where weights are rounded."
    ),
    next_step="Take one step by hand: print dtype and value of one weight, its gradient and its master at each line.",
    misconceptions=(
        Misconception(
            "updates_the_bf16_copy",
            "Every entry of your master is a bfloat16 value: the update went to the rounded weights, or was copied up "
            "from them. Which tensors must hold the "
            "bits that bfloat16 has no room for?",
            matches=_is_rounded,
        ),
        Misconception(
            "never_steps", "Your master does not move: who calls the optimizer?", solution=_variant(step=False)
        ),
        Misconception(
            "forgets_to_copy_down",
            "Your master moves, but the model keeps its old weights, so every step computes the gradient at the "
            "starting point.",
            matches=_model_stays,
        ),
        Misconception(
            "keeps_old_gradients",
            "Gradients from before are still in your step: `backward` adds. Clear the model's gradients first.",
            solution=_variant(clear=False),
        ),
        Misconception(
            "keeps_old_gradients",
            "Gradients from before are still in your step: you add to the master's `.grad`. It should hold this "
            "step's gradient only.",
            solution=adds_to_master_gradients,
        ),
        Misconception(
            "copies_down_too_early",
            "You copy the weights down before the optimizer has stepped, so the model is always one step behind its "
            "master.",
            matches=_is_one_step_behind,
        ),
        Misconception(
            "model_becomes_float32",
            "After your step the model's weights are float32: they share the master's memory instead of being its "
            "rounded copy.",
            solution=_variant(alias=True),
        ),
    ),
)

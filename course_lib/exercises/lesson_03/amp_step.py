"""A whole training step under autocast, for float16 and bfloat16."""

import math
import random
from unittest import mock

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
from course_lib.grading.compare import as_float, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.mixed_precision import amp_step

FP16, BF16 = torch.float16, torch.bfloat16
NAMES = {FP16: "FP16", BF16: "BF16"}
# Right solutions take the same operations in the same order; one rounding of float16 is the room that they get.
REL = 1e-3


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    chosen = [
        (1, BF16, "SGD", 1.0, 2.0**10, ["good"]),
        (2, FP16, "SGD", 1.0, 2.0**10, ["good"]),
        (3, FP16, "SGD", 2.0**-18, 2.0**20, ["good", "good"]),
        (4, FP16, "SGD with momentum", 1.0, 2.0**10, ["good", "overflow", "good", "good"]),
        (5, BF16, "SGD with momentum", 1.0, 2.0**10, ["good", "good", "good"]),
    ]
    for _ in range(4):
        dtype = draw.choice([FP16, BF16])
        kinds = [draw.choice(["good", "good", "overflow"] if dtype is FP16 else ["good"]) for _ in range(3)] + ["good"]
        factor, name = 2.0 ** draw.choice([0, -18]), draw.choice(["SGD", "SGD with momentum"])
        chosen.append((draw.randrange(10**6), dtype, name, factor, 2.0**10 / factor, kinds))
    listed = [
        Case(
            f"{NAMES[dtype]}, {name}" + (f", loss times {factor:g}" if factor < 1 else ""),
            kwargs={"seed": s, "dtype": dtype, "optimizer": name, "factor": factor, "scale": scale, "kinds": kinds},
        )
        for s, dtype, name, factor, scale, kinds in chosen
    ]
    cuda = Case('FP16, device_type="cuda"', kwargs={"seed": 6, "dtype": FP16, "device_type": "cuda"})
    return [*listed, cuda]


class CountingScaler(torch.amp.GradScaler):
    """A GradScaler that notes how often it was used."""

    uses = 0

    def scale(self, outputs):
        self.uses += 1
        return super().scale(outputs)

    def step(self, optimizer, *args, **kwargs):
        self.uses += 1
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale=None):
        self.uses += 1
        return super().update(new_scale)


class Watch(torch.autograd.Function):
    """Passes its input on, and notes whether autocast is on when backward comes by."""

    @staticmethod
    def forward(ctx, x, notes):
        ctx.notes = notes
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.notes["backward"] = torch.is_autocast_enabled("cpu")
        return gradient, None


def asked_device_types(solution, options: dict) -> list:
    """The device types for which autocast was asked when the step was for CUDA; it is the CPU's that runs."""
    asked: list = []
    real = torch.amp.autocast_mode.autocast.__init__

    def init(self, device_type, *args, **kwargs):
        asked.append(device_type)
        real(self, "cpu", *args, **kwargs)

    model = TinyNet(options["seed"])
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    with mock.patch.object(torch.amp.autocast_mode.autocast, "__init__", init):
        try:
            solution(model, optimizer, scaler, draw_batch(options["seed"]), mean_squared, options["dtype"], "cuda")
        except Exception as error:  # a step may move its batch to CUDA, which this machine may not have
            if isinstance(error, NotImplementedError) and not str(error):
                raise  # the untouched stub
    return sorted({str(device_type) for device_type in asked})


def observe(solution, case: Case) -> list:
    options = case.kwargs
    if options.get("device_type") == "cuda":
        return asked_device_types(solution, options)
    model = TinyNet(options["seed"])
    optimizer = OPTIMIZERS[options["optimizer"]](model.parameters())
    for group in optimizer.param_groups:
        group["lr"] /= options["factor"]
    scaler = CountingScaler("cpu", init_scale=options["scale"], growth_interval=2)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, options["factor"])  # left over from before
    trace = []
    for number, kind in enumerate(options["kinds"]):
        notes: dict = {"loss": None, "backward": None, "outputs": None}
        gradients: list = []

        def loss_fn(outputs, targets, notes=notes):
            notes["loss"], notes["outputs"] = torch.is_autocast_enabled("cpu"), outputs.dtype
            return Watch.apply(mean_squared(outputs, targets) * options["factor"], notes)

        inputs, targets = draw_batch(options["seed"] + number)
        if kind == "overflow":
            inputs[0, 0] = math.inf
        record_gradients(optimizer, gradients)
        loss = solution(model, optimizer, scaler, (inputs, targets), loss_fn, options["dtype"], "cpu")
        trace.append(
            {
                "kind": kind,
                "outputs": str(notes["outputs"]),
                "autocast": [notes["loss"], notes["backward"]],
                "weights": str(model.first.weight.dtype),
                "gradient": gradients[0] if gradients else None,
                "parameters": snapshot(model.parameters()),
                "returned": loss,
                "scaler": [scaler.uses > 0, scaler.get_scale()],
            }
        )
    return trace


def grade(case: Case, got: object, expected: list) -> Mismatch | None:
    if case.kwargs.get("device_type") == "cuda":
        if got in ([], expected):
            return None
        note = "Look at what you pass to `torch.autocast`."
        return Mismatch('autocast for "cuda"', f"autocast for {describe(got)}", note)
    if isinstance(got, list):  # a loss may come as a tensor of one element
        got = [{**row, "returned": as_float(row.get("returned"))} if isinstance(row, dict) else row for row in got]
    names = {
        "weights": "the dtype of the model's weights after the step",
        "outputs": "the dtype of what the model gave to `loss_fn`",
        "autocast": "whether autocast was on in [`loss_fn`, backward]",
        "gradient": "the gradient that the optimizer used",
        "parameters": "a parameter",
        "scaler": "[whether the scaler was used, its scale]",
        "returned": "the returned loss",
    }
    return first_difference(got, expected, names, rel=REL)


def _variant(
    *, clear=True, scaler_for=(FP16,), update=True, direct=False, inside=False, loss_inside=True, dtype=None, on=True
):
    """The reference with one of its decisions changed."""

    def solution(model, optimizer, scaler, batch, loss_fn, dtype_, device_type):
        inputs, targets = batch
        uses_scaler = dtype_ in scaler_for
        if clear:
            optimizer.zero_grad()
        with torch.autocast(device_type, dtype=dtype or dtype_, enabled=on):
            outputs = model(inputs)
            if loss_inside:
                loss = loss_fn(outputs, targets)
            if inside:
                (scaler.scale(loss) if uses_scaler else loss).backward()
        if not loss_inside:
            loss = loss_fn(outputs, targets)
        if not inside:
            (scaler.scale(loss) if uses_scaler else loss).backward()
        if uses_scaler and not direct:
            scaler.step(optimizer)
            if update:
                scaler.update()
        else:
            optimizer.step()
        return loss.item()

    return solution


def halves_the_model(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    inputs, targets = batch
    optimizer.zero_grad()
    model.to(dtype)
    loss = loss_fn(model(inputs.to(dtype)), targets.to(dtype))
    loss.backward()
    optimizer.step()
    return loss.item()


def _is_halved(case: Case, got: object, expected: object) -> bool:
    rows = [row for row in got if isinstance(row, dict)] if isinstance(got, list) else []
    return bool(rows) and all(row.get("weights") in ("torch.float16", "torch.bfloat16") for row in rows)


def returns_scaled_loss(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    scale = scaler.get_scale() if dtype is FP16 else 1.0
    return amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type) * scale


EXERCISE = Exercise(
    name="amp_step",
    points=4,
    minutes=20,
    difficulty=2,
    checks="a training step under autocast, in FP16 with the scaler and in BF16 without",
    reference=amp_step,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "What belongs under autocast: the forward pass, the loss, backward, the optimizer? Two of the four.",
        "`with torch.autocast(device_type, dtype=dtype):` around model and loss. Backward runs outside and follows "
        "the dtypes of the forward pass.",
        "Clear first. For torch.float16: `scaler.scale(loss).backward()`, `scaler.step(optimizer)`, "
        "`scaler.update()`; for torch.bfloat16 plain backward and "
        "step, without touching the scaler.",
    ),
    explanation=(
        "Autocast chooses a dtype for each operation of the forward pass, and autograd's backward operations follow. "
        "bfloat16 has float32's range, so nothing "
        "underflows that float32 would keep, and a scaler would only add work. The weights stay float32: autocast is "
        "not `.half()`."
    ),
    next_step=(
        "Print `torch.is_autocast_enabled(device_type)` and the dtypes of outputs, loss and gradients at each line."
    ),
    misconceptions=(
        Misconception(
            "backward_inside_autocast",
            "You call `backward` under autocast. Its operations already follow the dtypes of the forward pass; "
            "autocast would choose for them again.",
            solution=_variant(inside=True),
        ),
        Misconception(
            "scaler_for_bf16",
            "You use the scaler for bfloat16 too. bfloat16 has float32's exponents: what would scaling save?",
            solution=_variant(scaler_for=(FP16, BF16)),
        ),
        Misconception(
            "halves_the_model",
            "Your step turns the model's own weights into 16 bits. Autocast casts for single operations and leaves "
            "the weights in float32.",
            matches=_is_halved,
        ),
        Misconception(
            "loss_outside_autocast",
            "Your loss is computed outside autocast, on 16-bit outputs and by no rule. Under autocast a loss is on "
            "the float32 list.",
            solution=_variant(loss_inside=False),
        ),
        Misconception(
            "forgets_to_clear",
            "Gradients from before are still in your step.",
            solution=_variant(clear=False),
        ),
        Misconception(
            "no_scaler_for_fp16",
            "You leave the scaler out for float16: small gradients become zero, and an overflow is not skipped.",
            solution=_variant(scaler_for=()),
        ),
        Misconception(
            "forgets_update",
            "The scaler never hears that the iteration is over.",
            solution=_variant(update=False),
        ),
        Misconception(
            "steps_past_the_scaler",
            "You scale the loss and then call `optimizer.step()` yourself: the gradients it sees are still scaled, "
            "and an overflow is not skipped.",
            solution=_variant(direct=True),
        ),
        Misconception(
            "forgets_the_dtype",
            "Your autocast does not use the dtype that was asked for: left to itself it takes bfloat16 on a CPU and "
            "float16 on CUDA.",
            solution=_variant(dtype=BF16),
        ),
        Misconception(
            "forgets_the_dtype",
            "Your autocast always uses float16. Which dtype was asked for?",
            solution=_variant(dtype=FP16),
        ),
        Misconception("no_autocast", "Autocast is not on in your forward pass.", solution=_variant(on=False)),
        Misconception(
            "returns_the_scaled_loss",
            "Your step is right; the loss you return is still multiplied by the scale.",
            solution=returns_scaled_loss,
        ),
    ),
)

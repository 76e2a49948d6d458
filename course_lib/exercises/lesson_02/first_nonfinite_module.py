"""Which module is the first to go wrong in a forward pass."""

import random

import torch
from torch import Tensor, nn

from course_lib.grading.compare import as_float, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.loss_scaling import first_nonfinite_module

VALUES = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


class Spoil(nn.Module):
    """Passes its input on, with one entry replaced where `value` is given."""

    def __init__(self, value: str | None = None):
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        if self.value is None:
            return x
        out = x.clone()
        out.view(-1)[-1] = VALUES[self.value]
        return out


class Pair(Spoil):
    """Returns a tuple: a clean tensor, then a list with the spoilt one and a label."""

    def forward(self, x: Tensor) -> tuple:
        return x, [super().forward(x), "label"], torch.zeros(1, dtype=torch.int64)


class First(nn.Module):
    def forward(self, pair: tuple) -> Tensor:
        return pair[0]


class Reversed(nn.Module):
    """Defined in one order, called in the other."""

    def __init__(self, early: nn.Module, late: nn.Module):
        super().__init__()
        self.late, self.early = late, early

    def forward(self, x: Tensor) -> Tensor:
        return self.late(self.early(x))


class Overflowing(nn.Module):
    """Its children are all clean: the product is its own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return (self.linear(x).half() + 300) * 300


class Hidden(nn.Module):
    """Two modules go wrong, and the block repairs it before it returns."""

    def __init__(self, value: str):
        super().__init__()
        self.attention = Spoil(value)
        self.mlp = Spoil(value)

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.attention(x)).nan_to_num(0.0, 0.0, 0.0)


def build(plan: list) -> nn.Module:
    kind, *rest = plan
    if kind == "seq":
        return nn.Sequential(*(build(part) for part in rest))
    if kind == "reversed":
        return Reversed(build(rest[0]), build(rest[1]))
    if kind == "hidden":
        return Hidden(rest[0])
    if kind in ("spoil", "pair"):
        return nn.Sequential(Pair(*rest), First()) if kind == "pair" else Spoil(*rest)
    return {"linear": lambda: nn.Linear(3, 3), "relu": nn.ReLU, "overflow": Overflowing}[kind]()


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    linear, clean = ["linear"], ["spoil"]
    plans = [
        ("a clean model", ["seq", linear, clean]),
        ("one module makes an infinity", ["seq", linear, ["spoil", "inf"], linear]),
        ("one module makes a NaN", ["seq", linear, ["spoil", "nan"], ["relu"]]),
        ("two modules go wrong", ["seq", ["spoil", "-inf"], linear, ["spoil", "nan"], linear]),
        ("a module inside a module", ["seq", linear, ["seq", linear, ["spoil", "inf"]], linear]),
        ("the model's own arithmetic overflows float16", ["overflow"]),
        ("a block's own arithmetic overflows float16", ["seq", linear, ["seq", linear, ["overflow"]]]),
        ("a tuple with an infinity inside", ["seq", linear, ["pair", "inf"], linear]),
        ("defined in one order, called in another", ["reversed", ["spoil", "nan"], ["spoil", "inf"]]),
        ("repaired later on", ["seq", linear, ["hidden", "nan"], linear]),
        ("an infinity that is repaired", ["hidden", "inf"]),
    ]
    for _ in range(6):
        plans.append(("a random model", _random_plan(draw, 3)))
    return [Case(label, kwargs={"plan": plan, "seed": draw.randrange(10**6)}) for label, plan in plans]


def _random_plan(draw: random.Random, depth: int) -> list:
    if depth == 0:
        return draw.choice([["linear"], ["relu"], ["spoil"], ["spoil", draw.choice(list(VALUES))], ["pair", "nan"]])
    if draw.random() < 0.25:
        return ["reversed", _random_plan(draw, depth - 1), _random_plan(draw, depth - 1)]
    return ["seq", *(_random_plan(draw, depth - 1) for _ in range(draw.randint(2, 3)))]


def _hooks(model: nn.Module) -> int:
    count = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return count + len(nn.modules.module._global_forward_hooks)


def observe(solution, case: Case) -> dict:
    torch.manual_seed(case.kwargs["seed"])
    model = build(case.kwargs["plan"])
    x = torch.randn(2, 3)
    runs: list = []
    model.register_forward_hook(lambda module, inputs, output: runs.append(1))  # somebody else's, to be left alone
    before = _hooks(model)
    try:
        answer = solution(model, x)
        left = _hooks(model) - before
    finally:
        nn.modules.module._global_forward_hooks.clear()
    return {"answer": answer, "runs": len(runs), "hooks left": left, "training": model.training}


def grade(case: Case, got: object, expected: dict) -> Mismatch | None:
    if not isinstance(got, dict):
        return Mismatch(describe(expected["answer"]), describe(got))
    if got.get("answer") != expected["answer"] or type(got.get("answer")) is not type(expected["answer"]):
        return Mismatch(describe(expected["answer"]), describe(got.get("answer")))
    if got.get("runs") not in (0, 1):  # none where the search ends the run early
        note, next_step = "A run can change a model.", "Put a hook on every module first, then run the model once."
        return Mismatch("one run of the model", f"{got.get('runs')} runs", note, next_step)
    if got.get("hooks left") == -1:
        next_step = "Keep the handles that `register_forward_hook` returns, and remove those only."
        return Mismatch("a hook that was there before you", "no hook", "It is somebody else's.", next_step)
    for key in ("hooks left", "training"):
        if got.get(key) != expected[key]:
            return Mismatch(f"{key}: {expected[key]}", f"{got.get(key)}", "The model must be left as it was.")
    return None


def _search(*, pick="first", is_bad=lambda t: not t.isfinite().all(), nested=True, remove=True, root=True, blocks=True):
    """The reference with one idea changed."""

    def tensors(output):
        if isinstance(output, Tensor):
            return [output]
        return [t for item in output for t in tensors(item)] if nested and isinstance(output, tuple | list) else []

    def search(model, batch):
        found, handles = [], []
        for name, module in model.named_modules():
            if (name or root) and (blocks or not list(module.children())):

                def hook(module, inputs, output, name=name):
                    if any(is_bad(tensor) for tensor in tensors(output)):
                        found.append(name)

                handles.append(module.register_forward_hook(hook))
        model(batch)
        for handle in handles if remove else []:
            handle.remove()
        order = [name for name, _ in model.named_modules() if name in found]
        if not found:
            return None
        outer = next((name for name in order if name), "")
        return {"first": found[0], "last": found[-1], "defined": order[0], "outer": outer, "deepest": _deepest(order)}[
            pick
        ]

    return search


def _deepest(names: list) -> str:
    return max(names, key=lambda name: name.count(".") + bool(name))


def looks_at_inputs(model, batch):
    found, handles = [], []
    for name, module in model.named_modules():

        def hook(module, inputs, name=name):
            if any(isinstance(tensor, Tensor) and not tensor.isfinite().all() for tensor in inputs):
                found.append(name)

        handles.append(module.register_forward_pre_hook(hook))
    model(batch)
    for handle in handles:
        handle.remove()
    return found[0] if found else None


EXERCISE = Exercise(
    name="first_nonfinite_module",
    points=2,
    minutes=20,
    difficulty=2,
    checks="the name of the first module that finishes with infinity or NaN",
    reference=first_nonfinite_module,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "`register_forward_hook` calls you when a module has finished. In which order do a module and the module "
        "around it finish?",
        "`model.named_modules()` gives every name with its module, the root as ''. A hook does not know its module's "
        "name: let it remember one "
        "(a closure, or a default argument).",
        "In the hook: if nothing is found yet and a tensor in the output is not finite, note the name. Outputs may be "
        "tuples, also nested. "
        "Remove every handle, even when the forward pass raises (`try`/`finally`).",
    ),
    explanation=(
        "Hooks fire on finishing, so inner modules come before the ones around them, and the first name is the place "
        "where the number was made. "
        "A loss scaler can only make gradients smaller: when the forward pass itself is infinite, halving the scale "
        "again and again "
        "helps nothing, and this search is what you need."
    ),
    next_step="Let your hook print the name of every module that finishes, with whether its output is finite.",
    misconceptions=(
        Misconception(
            "leaves_out_the_root",
            "The model itself is a module too: its name is ''. Its own arithmetic can overflow when all of its "
            "children are fine.",
            solution=_search(root=False),
        ),
        Misconception(
            "looks_at_leaves_only",
            "You look only at modules that have no modules inside. A block's own arithmetic can overflow too, when all of its "
            "children are fine.",
            solution=_search(blocks=False),
        ),
        Misconception(
            "names_the_outermost_module",
            "You name the outermost module with a bad output. It only passes on what a module inside it has made: "
            "which one finished first?",
            solution=_search(pick="defined"),
        ),
        Misconception(
            "names_the_outermost_module",
            "You name an outer block. It only passes on what a module inside it has made: which one finished first?",
            solution=_search(pick="outer"),
        ),
        Misconception(
            "names_the_last_module",
            "You name the last module that went wrong. Once a value is infinite it spreads: remember the first and "
            "keep it.",
            solution=_search(pick="last"),
        ),
        Misconception(
            "looks_for_nan_only",
            "An infinity passes your test. Overflow in float16 gives infinity first.",
            solution=_search(is_bad=lambda t: t.isnan().any()),
        ),
        Misconception(
            "looks_for_infinity_only",
            "A NaN passes your test.",
            solution=_search(is_bad=lambda t: t.isinf().any()),
        ),
        Misconception(
            "ignores_tuples",
            "A module here returns a tuple, and you look only at outputs that are tensors. Search tuples and lists, "
            "also nested ones.",
            solution=_search(nested=False),
        ),
        Misconception(
            "leaves_hooks_behind",
            "Your answer is right, but your hooks stay on the model and will run at every later step. Remove each "
            "handle.",
            matches=lambda case, got, expected: (
                isinstance(got, dict)
                and got.get("answer") == expected["answer"]
                and (as_float(got.get("hooks left")) or 0) > 0
            ),
        ),
        Misconception(
            "looks_at_inputs",
            "You look at what goes into a module. The culprit is the one whose output goes wrong, not the next one "
            "that receives it.",
            solution=looks_at_inputs,
        ),
    ),
)

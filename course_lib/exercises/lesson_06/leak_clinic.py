"""The leak clinic: three programs whose results are right and that must leave nothing behind."""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.exercises.lesson_06.left_alone import left_alone, left_alone_mismatch
from course_lib.grading.compare import alike, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.toolbox import activation_norms, collect_failures, train_and_release

WIDTH, ROWS = 32, 64
FUNCTIONS = ("collect_failures", "train_and_release", "activation_norms")


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    return [Case(name, (name, draw.randrange(2**31), draw.randint(3, 5))) for name in FUNCTIONS]


class Fragile(nn.Module):
    """Raises on a batch with a NaN in it, after it has made something large."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(WIDTH, 4 * WIDTH), nn.Sequential(nn.Tanh(), nn.Linear(4 * WIDTH, 3))
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        hidden = self.first(x).tanh()
        if x.isnan().any():
            raise RuntimeError(f"bad batch of {len(x)} rows")
        if x.isinf().any():
            raise ValueError("infinite")
        return self.rest(hidden)


def observe(solution: tuple[Callable, ...], case: Case) -> dict[str, Any]:
    from course_lib.memory import MemoryLedger

    name, seed, count = case.args
    function = solution[FUNCTIONS.index(name)]
    torch.manual_seed(seed)
    model = Fragile()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loose = {"alive": 0, "gradients": 0}

    def note() -> None:
        loose["alive"] = max(loose["alive"], ledger.live_bytes)
        loose["gradients"] = max(loose["gradients"], sum(p.grad is not None for p in model.parameters()))

    def bad_batches() -> Iterator[Tensor]:
        for index in range(2 * count):
            note()
            yield torch.randn(ROWS + index, WIDTH) if index % 2 else torch.full((ROWS + index, WIDTH), torch.nan)

    def good_batches() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(count):
            note()
            yield torch.randn(ROWS, WIDTH), torch.randint(3, (ROWS,))

    arguments = {
        "collect_failures": lambda: (model, bad_batches()),
        "train_and_release": lambda: (model, optimizer, good_batches(), F.cross_entropy),
        "activation_norms": lambda: (model, torch.randn(ROWS, WIDTH)),
    }[name]
    changed = left_alone((), model)
    with MemoryLedger() as ledger:
        given = arguments()
        value = copy.copy(function(*given))  # a hook left behind may write into it later
        del given
        note()
        after, calls = ledger.live_bytes, model.calls
        hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
        # what a hook left behind keeps shows in the next forward pass
        model(torch.randn(ROWS, WIDTH))
        later = ledger.live_bytes
    has_tensor = isinstance(value, dict | list) and any(
        isinstance(item, Tensor | BaseException) for item in (value.values() if isinstance(value, dict) else value)
    )
    left = changed()
    weights = {key: parameter.detach() for key, parameter in model.named_parameters()}
    return {
        "value": value,
        "after": after,
        "later": later,
        "hooks": hooks,
        "kept": has_tensor,
        "weights": weights,
        "calls": calls,
        "changed": left,
        "others": _others(function, model) if name == "collect_failures" else [],
        **loose,
    }


def _others(collect: Callable, model: nn.Module) -> list[Any]:
    """What is made of a batch that raises another error than RuntimeError: letting it pass is right too."""
    try:
        return list(collect(model, [torch.full((2, WIDTH), torch.inf)]))
    except ValueError:
        return []


def _value(case: Case, got: Any, expected: dict[str, Any]) -> Mismatch | None:
    if not isinstance(got, dict):
        return Mismatch("a result", describe(got))
    if case.args[0] == "collect_failures" and isinstance(got["value"], list):
        texts = [getattr(item, "message", item) for item in got["value"]]  # an exception is judged by what it keeps
        is_right = texts == expected["value"]
    else:
        is_right = alike(got["value"], expected["value"], rel=1e-4)
    if not is_right:
        next_step = "Compare the result on one batch by hand; what is left behind comes after."
        wanted, seen = (repr(v)[:120] for v in (expected["value"], got["value"]))
        return Mismatch(wanted, seen, "That is the result, leaks aside.", next_step)
    if not alike(got["weights"], expected["weights"], rel=1e-4):
        return Mismatch("the weights after a step for each batch", "other weights")
    return None


def grade(case: Case, got: Any, expected: dict[str, Any]) -> Mismatch | None:
    wrong = _value(case, got, expected)
    if wrong:
        return wrong
    if got["others"]:
        return Mismatch(
            "RuntimeErrors alone", "another error's message too", "A ValueError is a mistake of another kind."
        )
    if case.args[0] == "activation_norms" and got["calls"] != expected["calls"]:
        return Mismatch("one call of the model", f"{describe(got['calls'])} calls")
    if got["hooks"]:
        return Mismatch("no hook left on the model", f"{got['hooks']} hooks")
    if got["gradients"]:
        return Mismatch(
            "no gradient alive between steps", f"{got['gradients']} gradients", "A gradient of zeros takes its bytes."
        )
    if got["kept"]:
        return Mismatch(
            "plain numbers and texts", describe(got["value"]), "What is returned still holds tensors or frames."
        )
    for key, when in (("after", "after the call"), ("alive", "between batches")):
        limit = expected[key] + 4096
        if not isinstance(got[key], int) or got[key] > limit:
            return Mismatch(
                f"at most {limit:,} bytes {when}", f"{got[key]:,} bytes" if isinstance(got[key], int) else "none"
            )
    return left_alone_mismatch(got)


def _in(name: str, sign: Callable[[Any], bool]) -> Callable[[Case, Any, Any], bool]:
    def matches(case: Case, got: Any, expected: Any) -> bool:
        return case.args[0] == name and not _value(case, got, expected) and sign(got)

    return matches


EXERCISE = Exercise(
    name="leak_clinic",
    points=3,
    minutes=15,
    difficulty=2,
    checks="the result of three programs, and the bytes and hooks that they leave behind",
    reference=(collect_failures, train_and_release, activation_norms),
    functions=FUNCTIONS,
    cases=cases,
    observe=observe,
    grade=grade,
    bonus=True,
    partial=True,
    measured_in_process=True,
    hints=(
        "Ask of each thing that outlives the loop: an exception, a gradient, a hook, a dictionary. What does it hold?",
        "`str(error)` holds text; `zero_grad(set_to_none=True)` after the step releases; `.item()` gives a number; a "
        "handle has "
        "`remove()`.",
        "For the norms: a forward hook on each nn.Linear that stores output.norm().item(), model(inputs) under "
        "no_grad, and "
        "handle.remove() in a `finally`.",
    ),
    explanation=(
        "An exception keeps its traceback, the traceback keeps the frames, a frame keeps its locals: one stored error "
        "can hold a "
        "batch's whole graph, and so can the notebook's last traceback. Zeros cost as much as gradients. A hook stays "
        "until it is "
        "removed, and runs in every later forward pass."
    ),
    next_step="Run your function twice under a MemoryLedger and compare live_bytes.",
    misconceptions=(
        Misconception(
            "keeps_the_exception",
            "The exceptions themselves are kept, and each holds the frames and tensors of its failure. What of an "
            "exception do you need?",
            matches=_in("collect_failures", lambda got: got["kept"] or got["after"] > 4096),
        ),
        Misconception(
            "zeroes_instead_of_releasing",
            "The gradients are still there between steps, full of numbers or of zeros. Which argument, and which "
            "moment, releases them?",
            matches=_in("train_and_release", lambda got: bool(got["gradients"])),
        ),
        Misconception(
            "leaves_the_hooks",
            "The hooks are still on the model and will run in every later forward pass. What does registering one "
            "hand back to you?",
            matches=_in("activation_norms", lambda got: bool(got["hooks"])),
        ),
    ),
)

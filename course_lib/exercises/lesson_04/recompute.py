"""A checkpoint of one's own: values, gradients, random numbers, autocast, and the peak through backward."""

import contextlib
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.checkpointing import recompute
from course_lib.exercises.lesson_04 import recompute_mistakes as mistakes
from course_lib.grading.compare import describe, tensor_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch

PROGRAMS = (
    "one input",
    "an input and two weights",
    "an input that does not require gradients, and two weights",
    "two inputs, one without gradients",
    "an input that is no leaf",
    "the same input twice",
    "whole numbers, text, None and a list among the inputs",
    "token numbers and a table",
    "an input that the function does not use",
    "dropout",
    "under autocast",
    "under autocast with float16",
    "only backward under autocast",
    "a gradient that is there already",
    "one inside the other",
    "six in a row",
)
FORWARD_UNDER_AUTOCAST = {"under autocast": torch.bfloat16, "under autocast with float16": torch.float16}
UNDER_AUTOCAST = (*FORWARD_UNDER_AUTOCAST, "only backward under autocast")
SEGMENTS = 6
PEAK_ALLOWANCE = 1.1  # of the reference's peak; an input that is copied, not kept, costs 1.3


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    sizes = [
        (2, 3) if i < PROGRAMS.index("dropout") else (draw.randint(5, 9), draw.randint(10, 14))
        for i in range(len(PROGRAMS))
    ]
    sizes[-1] = (draw.randint(300, 500), draw.randint(15, 25))  # long enough for activations to outweigh weights
    small = [Case(name, (name, *size, draw.randrange(2**31))) for name, size in zip(PROGRAMS, sizes, strict=True)]
    more = [
        Case(f"{name}, again", (name, 7, 11, draw.randrange(2**31))) for name in ("dropout", "one inside the other")
    ]
    return small + more


def _build(program: str, rows: int, columns: int, seed: int) -> tuple[Callable, tuple, dict[str, Tensor]]:
    """The function, its inputs, and the leaves by name."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, grad: bool = True, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=generator) * scale).requires_grad_(grad)

    x, other = draw(rows, columns), draw(rows, columns)
    up, down = draw(2 * columns, columns, scale=0.3), draw(columns, 2 * columns, scale=0.3)
    leaves = {"input": x, "weight 1": up, "weight 2": down}

    def mlp(value: Tensor) -> Tensor:
        return F.gelu(value @ up.t()) @ down.t()

    match program:
        case "one input":
            return lambda value: value.sin() * value, (x,), {"input": x}
        case "an input that does not require gradients, and two weights":
            return mlp, (x.requires_grad_(False),), {"weight 1": up, "weight 2": down}
        case "two inputs, one without gradients":
            return lambda a, b: mlp(a * b), (x, other.requires_grad_(False)), leaves
        case "an input that is no leaf":
            return mlp, (x.tanh(),), leaves
        case "the same input twice":
            return lambda a, b: mlp(a.sin() * b), (x, x), leaves
        case "whole numbers, text, None and a list among the inputs":

            def function(a: Tensor, power: int, name: str, nothing: None, b: Tensor, parts: list, flag: bool) -> Tensor:
                assert nothing is None and flag is True and sum(parts) == columns
                first, second = (mlp(a) * getattr(b, name)()).split(parts, dim=1)
                return torch.cat([first**power, second], dim=1)

            return function, (x, 3, "tanh", None, other, [1, columns - 1], True), {**leaves, "second input": other}
        case "token numbers and a table":
            tokens = torch.randint(rows, (rows + 3,), generator=generator)
            return lambda table, numbers: mlp(table[numbers]), (x, tokens), leaves
        case "an input that the function does not use":
            return lambda a, b: mlp(a), (x, other), {**leaves, "second input": other}
        case "dropout":
            return lambda value: F.dropout(mlp(F.dropout(value, 0.3)), 0.4), (x,), leaves
        case "a gradient that is there already":
            for leaf in leaves.values():
                leaf.grad = torch.randn(leaf.shape, generator=generator)
        case "six in a row":
            for leaf in leaves.values():
                leaf.grad = torch.zeros_like(leaf)  # there before the measurement: only activations count
    return mlp, (x,), leaves


def _autocast(is_on: bool, dtype: torch.dtype | None) -> contextlib.AbstractContextManager:
    return torch.autocast("cpu", dtype) if is_on else contextlib.nullcontext()


def observe(solution: Callable, case: Case) -> dict[str, Any]:
    program, rows, columns, seed = case.args
    function, inputs, leaves = _build(program, rows, columns, seed)
    calls, called_by_torch, autocast_states = 0, False, set()

    def counted(*values: Any) -> Tensor:
        nonlocal calls, called_by_torch
        calls += 1
        is_on = torch.is_autocast_enabled("cpu")
        autocast_states.add(str(torch.get_autocast_dtype("cpu")).removeprefix("torch.") if is_on else "off")
        frame = sys._getframe(1)
        while frame is not None:
            called_by_torch |= frame.f_globals.get("__name__") == "torch.utils.checkpoint"
            frame = frame.f_back
        return function(*values)

    weights = torch.randn((rows + 3, columns), generator=torch.Generator().manual_seed(seed + 1))
    forward_autocast = _autocast(program in FORWARD_UNDER_AUTOCAST, FORWARD_UNDER_AUTOCAST.get(program))
    backward_autocast = _autocast(program == "only backward under autocast", torch.bfloat16)
    torch.manual_seed(seed)
    torch.rand(3)  # from here no seed leads to the state in which forward starts
    if program == "six in a row":
        from course_lib.memory import MemoryLedger

        ledger: Any = MemoryLedger()
    else:
        ledger = contextlib.nullcontext()
    with ledger:
        with forward_autocast:
            output = inputs[0]
            if program in ("six in a row", "one inside the other"):
                for _ in range(SEGMENTS if program == "six in a row" else 1):
                    # neg: what a call returns is not the next one's input, so that keeping it costs something
                    output = solution(counted, output).neg()
                if program == "one inside the other":
                    output = solution(lambda value: solution(counted, value.sin()), output)
            else:
                output = solution(counted, *inputs)
        after_forward = torch.rand(3)  # also makes backward start from another random state
        before = torch.get_rng_state()
        loss = (output * weights[: output.shape[0]]).sum()
        result = output.detach().clone()
        del output
        error = ""
        if loss.requires_grad:
            try:
                with backward_autocast:
                    loss.backward()
            except RuntimeError as raised:
                if "backward through the graph a second time" not in str(raised):
                    raise
                error = str(raised)
    return {
        "output": result,
        "gradients": {
            name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for name, leaf in leaves.items()
        },
        "random numbers after forward": after_forward,
        "random state kept": torch.equal(before, torch.get_rng_state()),
        "peak": getattr(ledger, "peak_bytes", None),
        "calls": calls,
        "autocast states": sorted(autocast_states),
        "error in backward": error,
        "called by torch.utils.checkpoint": called_by_torch,
    }


def _tensor_problem(got: Any, expected: Tensor, name: str) -> Mismatch | None:
    # Reference and learner do the same arithmetic, under autocast too: room for another order of summation only.
    floor = 16 * torch.finfo(torch.float32).eps * expected.abs().max().item()
    return tensor_mismatch(got, expected, expected.double(), name=name, floor=floor)


def wrong_parts(case: Case, got: Any, expected: dict[str, Any]) -> dict[str, Mismatch]:
    """What is wrong, by part: "output", a leaf's name, "random numbers", "random state", "autocast", "peak", "error", "torch"."""
    if not isinstance(got, dict) or got.keys() != expected.keys() or not isinstance(got["gradients"], dict):
        return {"output": Mismatch("a tensor", describe(got))}
    found = {"output": _tensor_problem(got["output"], expected["output"], "the output")}
    # Whether backward's own products run inside the restored autocast or outside of it is left to the learner.
    gradients = {} if case.args[0] == "only backward under autocast" else expected["gradients"]
    for name, gradient in gradients.items():
        found[name] = _tensor_problem(got["gradients"].get(name), gradient, f"the gradient of {name}")
    numbers = got["random numbers after forward"], expected["random numbers after forward"]
    if not isinstance(numbers[0], Tensor) or not torch.equal(*numbers):
        found["random numbers"] = Mismatch(
            *map(describe, reversed(numbers)), "Random numbers drawn after forward differ from the plain call's."
        )
    if got["random state kept"] is not True:
        found["random state"] = Mismatch(
            "the random state that it found", "another one", "Backward changed the random state."
        )
    if got["autocast states"] != expected["autocast states"]:
        states = got["autocast states"]
        seen = " and ".join(map(str, states)) if isinstance(states, list) else describe(states)
        found["autocast"] = Mismatch(
            f"autocast {expected['autocast states'][0]} in both runs", f"autocast {seen}", "The two runs differ."
        )
    if expected["peak"] is not None:
        limit = int(PEAK_ALLOWANCE * expected["peak"])
        if not isinstance(got["peak"], int) or got["peak"] > limit:
            note = f"Peak of new tensors through forward and backward, over {SEGMENTS} calls in a row."
            found["peak"] = Mismatch(f"at most {limit} bytes", describe(got["peak"]), note)
    if got["error in backward"]:
        found = {"error": Mismatch("gradients", f"RuntimeError: {got['error in backward']}"[:120])}
    if got["called by torch.utils.checkpoint"] is not False:
        found["torch"] = Mismatch("a checkpoint of your own", "a call through torch.utils.checkpoint")
    return {part: problem for part, problem in found.items() if problem is not None}


def grade(case: Case, got: Any, expected: dict[str, Any]) -> Mismatch | None:
    return next(iter(wrong_parts(case, got, expected).values()), None)


def _only(*parts: str, programs: tuple[str, ...] = PROGRAMS, calls: int | None = None) -> Callable:
    """Matches when nothing but these parts is wrong, in these programs only."""

    def matches(case: Case, got: Any, expected: dict[str, Any]) -> bool:
        wrong = wrong_parts(case, got, expected)
        is_called = calls is None or got["calls"] <= calls
        return case.args[0] in programs and wrong.keys() <= set(parts) and is_called

    return matches


def _weights_stay_empty(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    wrong = wrong_parts(case, got, expected)
    return all(part.startswith("weight") for part in wrong) and (
        case.args[0] == "a gradient that is there already" or all(not got["gradients"][part].any() for part in wrong)
    )


def _goes_on_below(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    """Backward of the second run went on into the graph before it, or gave an input its gradient twice."""
    wrong = wrong_parts(case, got, expected)
    return bool(wrong.keys() & {"error", "input"}) or got["calls"] > 2 * SEGMENTS


LEAVES = ("input", "second input", "weight 1", "weight 2")

EXERCISE = Exercise(
    name="recompute",
    points=5,
    minutes=45,
    difficulty=3,
    checks="your checkpoint's output, every gradient, the random state, and the peak through backward",
    reference=recompute,
    cases=cases,
    observe=observe,
    grade=grade,
    measured_in_process=True,
    time_limit_s=20.0,
    hints=(
        "`forward` of an autograd.Function runs without a graph: call the function there and keep its inputs. "
        "`backward` runs it again under `torch.enable_grad()` and calls `torch.autograd.backward` on the result.",
        "In backward, detach the inputs and give back their `requires_grad`; return their `.grad` in the order of "
        "forward's arguments, None for the others. Before, set the random state that forward began with "
        "(`torch.random.fork_rng` puts yours back) and enter autocast as forward had it.",
        "If no input requires gradients, the output has no graph, whatever the weights need: pass one more tensor "
        "that does, `torch.empty(0, requires_grad=True)`. Tensors go to `ctx.save_for_backward`, everything else to "
        "an attribute of `ctx`.",
    ),
    explanation=(
        "Forward leaves nothing but the inputs. Backward rebuilds the graph of this one function, uses it and lets "
        "it go, so that the peak holds one graph at a time. `torch.autograd.backward`, unlike "
        "`torch.autograd.grad`, also reaches the weights, which are no arguments. The random state and autocast are "
        "inputs too: leave them out and the second run is another function."
    ),
    next_step=(
        "Run the plain call and yours side by side for this case, from the same seed, and compare the part that is "
        "named."
    ),
    misconceptions=(
        Misconception(
            "uses_torch_checkpoint",
            "This is `torch.utils.checkpoint`, which you will use from the next exercise on. Here you build what is "
            "inside it.",
            matches=_only("torch"),
        ),
        Misconception(
            "needs_an_input_with_gradients",
            "Nothing has a gradient when the inputs need none, although the weights do: the output has no graph "
            "then. What must one argument of `apply` have for autograd to call your backward? (`use_reentrant=True` "
            "has this very fault.)",
            matches=_only(*LEAVES, programs=("an input that does not require gradients, and two weights",)),
        ),
        Misconception(
            "gradient_to_inputs_only",
            "The inputs have their gradients, the weights have none. `torch.autograd.grad` gives what you ask for "
            "and nothing else: which call fills `.grad` of every leaf that it reaches?",
            matches=_weights_stay_empty,
        ),
        Misconception(
            "gradient_to_inputs_only",
            "You ask for the inputs' gradients only: the weights get none, and an input that needs none is an "
            "error. Which call fills `.grad` of every leaf that it reaches?",
            solution=mistakes.gradient_to_inputs_only,
        ),
        Misconception(
            "other_random_numbers",
            "The output is right and the gradients are wrong, only where the function draws random numbers: the "
            "second run drops other elements than the first. From which random state did forward start?",
            matches=_only(*LEAVES, "random state", programs=("dropout",)),
        ),
        Misconception(
            "leaves_the_random_state_changed",
            "Backward leaves another random state than it found: whatever the learner draws next repeats old "
            "numbers. Who puts it back?",
            matches=_only("random state"),
        ),
        Misconception(
            "forgets_autocast",
            "Only where autocast is about is something wrong: backward may run outside of forward's `with` block, or "
            "inside another one, and then the second run is in another precision. What must forward remember "
            "besides its inputs?",
            matches=_only(*LEAVES, "autocast", programs=UNDER_AUTOCAST),
        ),
        Misconception(
            "keeps_the_graph",
            "Values and gradients are right, and nothing is saved: the function ran once a call, so its graph was "
            "kept from forward to backward. When should the graph be built?",
            matches=_only("peak", programs=("six in a row",), calls=SEGMENTS),
        ),
        Misconception(
            "keeps_more_than_the_inputs",
            "The function runs again, but the peak is too high: something besides the inputs stays from forward to "
            "backward, such as a copy or an output.",
            matches=_only("peak", programs=("six in a row",)),
        ),
        Misconception(
            "fails_on_a_non_tensor",
            "Your code fails as soon as an input is no tensor. `save_for_backward` takes tensors only, and only "
            "tensors can be detached: where can the others wait?",
            solution=mistakes.saves_all_inputs,
        ),
        Misconception(
            "fails_on_a_non_tensor",
            "Your code fails as soon as an input is no tensor: only tensors can be detached, and only tensors have "
            "a gradient. What becomes of the others?",
            solution=mistakes.detaches_all_inputs,
        ),
        Misconception(
            "replaces_gradients",
            "A gradient that was there before is gone: gradients add up, over calls and over uses of one weight.",
            matches=_only(
                *LEAVES, programs=("a gradient that is there already", "one inside the other", "six in a row")
            ),
        ),
        Misconception(
            "does_not_detach",
            "Your second run is connected to the graph that came before it, so backward runs on into it. Which "
            "tensors should the second run start from?",
            matches=_goes_on_below,
        ),
    ),
)

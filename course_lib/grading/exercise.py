"""What an exercise is: cases, an observation, a grade, and the wrong ideas worth naming.

An exercise is mostly data. `cases` and `grade` run on the trusted side, `observe` runs beside the learner's
code and returns plain data, so that the same exercise serves a notebook and a batch of strangers' notebooks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Case:
    """One question put to a solution.

    Attributes:
        label: how feedback names it, for example ``ulp(1.0, FP16)``.
        args, kwargs: plain data only (whatever `observation.encode` carries without loss).
        weight: share of this case where an exercise gives partial points.
    """

    label: str
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0


@dataclass(frozen=True)
class Mismatch:
    """Why one case is not right, in short texts for the learner.

    Attributes:
        expected, got: what was due and what came, with bits where formats are the subject.
        note: one sentence that says where the two differ.
        next_step: one thing to do next; empty for the exercise's own.
        score: credit for this case between 0 and 1, used by exercises with `partial=True`.
    """

    expected: str
    got: str
    note: str = ""
    next_step: str = ""
    score: float = 0.0


@dataclass(frozen=True)
class Misconception:
    """A wrong idea that deserves its own sentence.

    Attributes:
        name: snake_case; stands in `Verdict.misconception`.
        feedback: names the idea and what to reconsider, never the solution.
        solution: a wrong solution that holds the idea. It is recognised when the learner's observations are
            alike to this one's on every failing case.
        matches: or a predicate on (case, observation, expected) that holds on every failing case.
    """

    name: str
    feedback: str
    solution: Any = None
    matches: Callable[[Case, Any, Any], bool] | None = None


def clone(value: Any) -> Any:
    """Copies tensors and containers, so that a solution that writes to its inputs harms only itself."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(clone(item) for item in value)
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    return value


def call(solution: Callable, case: Case) -> Any:
    """The default observation: what the solution returns for the case."""
    return solution(*clone(case.args), **clone(case.kwargs))


def _available() -> str | None:
    return None


@dataclass(frozen=True)
class Exercise:
    """One graded question of the course.

    Attributes:
        name: the function's or class's name in the learner's notebook.
        points, minutes, difficulty: worth, expected time, and 1 to 3.
        checks: first line of feedback, for example ``the spacing of numbers at x, in four formats``.
        reference: the course's own solution, from a subject module (a tuple for several functions).
        cases: seed -> cases, smallest first, since feedback shows the first that fails.
        grade: (case, observation, expected) -> Mismatch, or None when right; pure; survives any junk.
        hints: three, from a nudge to nearly there.
        explanation: shown beside the reference by `solution()`.
        next_step: what to do next when neither a misconception nor the mismatch says it.
        observe: calls the learner's code and returns plain data.
        misconceptions: named wrong solutions.
        bonus: does not count towards the total.
        partial: points in proportion to the weights of the right cases, else all or nothing.
        functions: the names, for exercises of several functions.
        time_limit_s: for all cases together.
        unavailable: the reason why it cannot be graded here, or None.
        measured_in_process: bytes measured in the learner's own process decide; batch reports say so.
    """

    name: str
    points: int
    minutes: int
    difficulty: int
    checks: str
    reference: Any
    cases: Callable[[int], list[Case]]
    grade: Callable[[Case, Any, Any], Mismatch | None]
    hints: tuple[str, str, str]
    explanation: str
    next_step: str
    observe: Callable[[Any, Case], Any] = call
    misconceptions: tuple[Misconception, ...] = ()
    bonus: bool = False
    partial: bool = False
    functions: tuple[str, ...] = ()
    time_limit_s: float = 10.0
    unavailable: Callable[[], str | None] = _available
    measured_in_process: bool = False

    def __post_init__(self) -> None:
        if not self.functions:
            object.__setattr__(self, "functions", (self.name,))

    @property
    def references(self) -> tuple[Any, ...]:
        """The reference as a tuple, one entry a function."""
        return self.reference if isinstance(self.reference, tuple) else (self.reference,)


@dataclass(frozen=True)
class Lesson:
    """A notebook and its exercises, in order.

    Attributes:
        number: ``"01"``.
        slug: the notebook's file name without ``.ipynb``.
        title: in words.
        exercises: in the order of the notebook.
    """

    number: str
    slug: str
    title: str
    exercises: tuple[Exercise, ...] = ()

    @property
    def max_points(self) -> int:
        """Points without bonus."""
        return sum(exercise.points for exercise in self.exercises if not exercise.bonus)

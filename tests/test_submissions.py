"""The graders' own test: right solutions must pass, however unusual; wrong ones must fail, with their reason.

`tests/submissions/lesson_NN/<exercise>.py` holds whole notebook cells, each under a line that says what is due:

    # %% accepted: <how it differs>
    # %% rejected: <misconception that the verdict must name, or - for none>
"""

from __future__ import annotations

import functools
import linecache
import math
import re
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib import notebooks
from course_lib.exercises import SYLLABUS
from course_lib.grading.assess import expected_values, judge, observe_all
from course_lib.grading.exercise import Exercise, Lesson
from course_lib.grading.verdict import GRADER_ERROR, NOT_ATTEMPTED, PASSED, Verdict

ROOT = Path(__file__).resolve().parents[1]
SUBMISSIONS = ROOT / "tests" / "submissions"
HEADING = re.compile(r"^# %% (accepted|rejected): *(.*?) *$", re.MULTILINE)
ACCEPTED_SEEDS = range(20)
REJECTED_SEEDS = (0, 1, 2)
EXERCISES = [(lesson, exercise) for lesson in SYLLABUS for exercise in lesson.exercises]


@dataclass(frozen=True)
class Submission:
    lesson: Lesson
    exercise: Exercise
    is_accepted: bool
    about: str
    source: str
    line: int

    def __str__(self) -> str:
        word = "accepted" if self.is_accepted else "rejected"
        return f"{self.exercise.name}:{self.line}-{word}"


def submissions_of(lesson: Lesson, exercise: Exercise) -> list[Submission]:
    path = SUBMISSIONS / f"lesson_{lesson.number}" / f"{exercise.name}.py"
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    headings = list(HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    found = []
    for heading, end in zip(headings, ends, strict=True):
        line = text[: heading.start()].count("\n") + 1
        source = text[heading.end() : end]
        found.append(Submission(lesson, exercise, heading[1] == "accepted", heading[2], source, line))
    return found


ALL = [submission for lesson, exercise in EXERCISES for submission in submissions_of(lesson, exercise)]
# One process judges one exercise, so that the reference's answers are computed once.
each_exercise = pytest.mark.parametrize(
    ("lesson", "exercise"),
    [
        pytest.param(lesson, exercise, id=exercise.name, marks=pytest.mark.xdist_group(exercise.name))
        for lesson, exercise in EXERCISES
    ],
)


def params(submissions: list[Submission]) -> list[Any]:
    return [
        pytest.param(submission, id=str(submission), marks=pytest.mark.xdist_group(submission.exercise.name))
        for submission in submissions
    ]


@functools.cache
def imported(slug: str) -> dict[str, Any]:
    """The namespace after a notebook's import cell, with which every exercise must make do."""
    path = ROOT / "notebooks" / f"{slug}.ipynb"
    if not path.exists():  # a lesson that is being written
        return {"math": math, "torch": torch, "F": torch.nn.functional, "nn": torch.nn}
    cells = [cell for cell in notebooks.read(path).cells if "bootstrap" in cell.metadata.get("tags", [])]
    return run(notebooks.without_magics(cells[0].source), f"<imports of {slug}>", {})


def run(source: str, name: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """Runs a cell as the notebook would; its warnings and prints are the learner's business."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace = {"__name__": "__main__", **namespace}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, name, "exec"), namespace)
    return namespace


def solution_of(submission: Submission) -> Any:
    name = f"<{submission.exercise.name}, line {submission.line}>"
    namespace = run(submission.source, name, imported(submission.lesson.slug))
    return pick(submission.exercise, namespace)


def pick(exercise: Exercise, namespace: dict[str, Any]) -> Any:
    parts = tuple(namespace[name] for name in exercise.functions)
    return parts[0] if len(parts) == 1 else parts


@functools.lru_cache(maxsize=len(ACCEPTED_SEEDS))
def prepared(name: str, seed: int) -> tuple[list[Any], list[Any]]:
    exercise = next(exercise for _, exercise in EXERCISES if exercise.name == name)
    cases = exercise.cases(seed)
    return cases, expected_values(exercise, cases)


def verdict_on(exercise: Exercise, solution: Any, seed: int) -> Verdict:
    """What `assess` says, with the reference's answers computed once for all solutions of a seed.

    The time limit is stretched: how busy the machine is must not decide a test.
    """
    cases, expected = prepared(exercise.name, seed)
    patient = replace(exercise, time_limit_s=8 * exercise.time_limit_s)
    return judge(patient, cases, expected, observe_all(patient, solution, cases))


def skip_unavailable(exercise: Exercise) -> None:
    reason = exercise.unavailable()
    if reason:
        pytest.skip(reason)


@each_exercise
def test_enough_solutions_try_the_grader(lesson: Lesson, exercise: Exercise):
    found = submissions_of(lesson, exercise)
    assert sum(submission.is_accepted for submission in found) >= 2
    assert sum(not submission.is_accepted for submission in found) >= 4
    names = {idea.name for idea in exercise.misconceptions}
    rejected = {submission.about for submission in found if not submission.is_accepted}
    assert rejected - {"-"} <= names, "a rejected solution names an unknown misconception"
    only_seen = {idea.name for idea in exercise.misconceptions if idea.solution is None}
    assert only_seen <= rejected, "a misconception without a solution of its own needs a rejected one"


def test_every_file_belongs_to_an_exercise():
    known = {f"lesson_{lesson.number}/{exercise.name}.py" for lesson, exercise in EXERCISES}
    assert {path.relative_to(SUBMISSIONS).as_posix() for path in SUBMISSIONS.rglob("*.py")} <= known


@pytest.mark.parametrize("submission", params([submission for submission in ALL if submission.is_accepted]))
def test_right_solutions_pass_with_full_points(submission: Submission):
    exercise = submission.exercise
    skip_unavailable(exercise)
    solution = solution_of(submission)
    # what runs a billion parameters through a dry run hardly depends on the seed
    for seed in ACCEPTED_SEEDS if exercise.time_limit_s <= 60 else (0,):
        verdict = verdict_on(exercise, solution, seed)
        assert verdict.status == PASSED, f"seed {seed}: {verdict}"
        assert verdict.points == exercise.points


@pytest.mark.parametrize("submission", params([submission for submission in ALL if not submission.is_accepted]))
def test_wrong_solutions_fail_with_their_reason(submission: Submission):
    exercise = submission.exercise
    skip_unavailable(exercise)
    solution = solution_of(submission)
    for seed in REJECTED_SEEDS if exercise.time_limit_s <= 60 else (0,):
        verdict = verdict_on(exercise, solution, seed)
        assert verdict.status not in (PASSED, NOT_ATTEMPTED, GRADER_ERROR), f"seed {seed}: {verdict}"
        assert verdict.points < exercise.points
        if submission.about != "-":
            assert verdict.misconception == submission.about, f"seed {seed}: {verdict}"


@each_exercise
def test_misconceptions_are_named(lesson: Lesson, exercise: Exercise):
    skip_unavailable(exercise)
    for idea in exercise.misconceptions:
        if idea.solution is None:
            continue
        for seed in REJECTED_SEEDS:
            verdict = verdict_on(exercise, idea.solution, seed)
            assert verdict.status not in (PASSED, NOT_ATTEMPTED, GRADER_ERROR), f"{idea.name}, seed {seed}: {verdict}"
            assert verdict.misconception == idea.name, f"{idea.name}, seed {seed}: {verdict}"


@each_exercise
def test_the_stub_is_not_attempted(lesson: Lesson, exercise: Exercise):
    skip_unavailable(exercise)
    path = ROOT / "notebooks" / f"{lesson.slug}.ipynb"
    if not path.exists():
        pytest.skip("the notebook is being written")
    sources = [cell.source for cell, name in notebooks.exercise_cells(notebooks.read(path)) if name == exercise.name]
    assert len(sources) == 1
    solution = pick(exercise, run(sources[0], f"<stub of {exercise.name}>", imported(lesson.slug)))
    verdict = verdict_on(exercise, solution, seed=0)
    assert verdict.status == NOT_ATTEMPTED, verdict
    assert verdict.points == 0


class Odd:
    """What no exercise asks for."""


def raising(*args: Any, **kwargs: Any) -> None:
    raise RuntimeError("no")


def giving(value: Any) -> Any:
    return lambda *args, **kwargs: value


JUNK = {
    "None": giving(None),
    "text": giving("text"),
    "empty list": giving([]),
    "empty tuple": giving(()),
    "an object": giving(Odd()),
    "nan": giving(math.nan),
    "minus infinity": giving(-math.inf),
    "a huge integer": giving(10**400),
    "True": giving(True),
    "a tensor of NaN": giving(torch.full((2, 3), math.nan)),
    "an empty tensor": giving(torch.empty(0)),
    "a dict": giving({"a": 1}),
    "a dict of odd things": giving({0: Odd(), None: [math.nan]}),
    "tensors in tuples": giving((torch.zeros(1), torch.zeros(2, 2), None)),
    "a type": giving(int),
    "no arguments": lambda: 0,
    "raises": raising,
    "a class": Odd,
    "not callable": 3.5,
    "nothing": None,
}


@each_exercise
def test_junk_is_the_solutions_fault(lesson: Lesson, exercise: Exercise):
    skip_unavailable(exercise)
    for what, junk in JUNK.items():
        solution = junk if len(exercise.functions) == 1 else (junk,) * len(exercise.functions)
        verdict = verdict_on(exercise, solution, seed=0)
        assert verdict.status not in (PASSED, GRADER_ERROR), f"{what}: {verdict}"
        assert verdict.points < exercise.points
        assert str(verdict) and verdict._repr_html_()

"""From a solution to a verdict: observe each case beside the learner's code, judge on the trusted side."""

import contextlib
import difflib
import io
import linecache
import random
import sysconfig
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course_lib.grading.compare import alike
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.grading.limits import TimeLimitExceeded, run_limited
from course_lib.grading.observation import Observation, decode, encode, record_exception
from course_lib.grading.verdict import (
    CRASHED,
    FAILED,
    GRADER_ERROR,
    NOT_ATTEMPTED,
    PARTLY,
    PASSED,
    Verdict,
)

_NOISE_CHARS = 300
_OURS = (str(Path(__file__).resolve().parents[1]), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["stdlib"])


def find_exercise(name: str) -> Exercise:
    """The exercise of that name.

    Raises:
        KeyError: with the nearest names, when there is none.
    """
    from course_lib.exercises import SYLLABUS  # the only way from grading to the exercises

    by_name = {exercise.name: exercise for lesson in SYLLABUS for exercise in lesson.exercises}
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(str(name), by_name, n=3) or sorted(by_name)[:3]
    raise KeyError(f"exercise name must be one of the course's; got {name!r}. Near it: {', '.join(near)}.")


def learner_line(error: BaseException) -> str:
    """``line 3, `return 1 / 0` ``: the deepest line that is neither ours nor a library's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_OURS) and frame.lineno:
            source = linecache.getline(frame.filename, frame.lineno).strip()
            return f"line {frame.lineno}" + (f", `{source[:100]}`" if source else "")
    return ""


@contextlib.contextmanager
def clean_state() -> Iterator[None]:
    """Gradients on, autocast off, default dtype, one thread; the random states are as before afterwards."""
    states = torch.random.get_rng_state(), random.getstate(), np.random.get_state()
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_num_threads(1)  # cases are small: on a busy machine a second thread would wait, up to thirty times as long
    # Not by `torch.autocast(enabled=False)`: inside another autocast block the learner's own would not empty its cache of
    # weight casts on leaving, and the next step would compute with the weights of the last one.
    autocast = torch.is_autocast_enabled("cpu")
    torch.set_autocast_enabled("cpu", False)
    torch.set_default_dtype(torch.float32)
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # honest noise costs nothing
            yield
    finally:
        torch.set_autocast_enabled("cpu", autocast)
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
        torch.random.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


def observe_case(exercise: Exercise, solution: Any, case: Case, limit_s: float | None = None) -> Observation:
    """Runs one case in this process. Whatever the code does but end the process becomes an Observation."""
    noise = io.StringIO()
    try:
        with clean_state(), contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            value = run_limited(lambda: exercise.observe(solution, case), limit_s or exercise.time_limit_s)
            plain = decode(encode(value))
        return Observation(plain, noise=noise.getvalue()[:_NOISE_CHARS])
    except TimeLimitExceeded:
        return Observation(ended="timed_out", noise=noise.getvalue()[:_NOISE_CHARS])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a learner's sys.exit() ends the exercise, not the kernel
        record = record_exception(error, learner_line(error))
        return Observation(ended="raised", error=record, noise=noise.getvalue()[:_NOISE_CHARS])


def observe_all(exercise: Exercise, solution: Any, cases: list[Case]) -> list[Observation]:
    """Every case in order, within the exercise's time limit; after a case that ran out of time the rest is not run."""
    deadline = time.monotonic() + exercise.time_limit_s
    observations: list[Observation] = []
    for case in cases:
        left = deadline - time.monotonic()
        if observations and (left <= 0 or observations[-1].ended == "timed_out"):
            observations.append(Observation(ended="not_run" if observations[-1].ended != "returned" else "timed_out"))
        else:
            observations.append(observe_case(exercise, solution, case, max(left, 0.05)))
    return observations


class GraderFailure(RuntimeError):
    """Our side failed; never the learner's fault."""


def expected_values(exercise: Exercise, cases: list[Case]) -> list[Any]:
    """What the reference gives.

    Raises:
        GraderFailure: when the reference does not return.
    """
    values = []
    for case in cases:
        seen = observe_case(exercise, exercise.reference, case, limit_s=120.0)
        if seen.ended != "returned":
            raise GraderFailure(f"{exercise.name}: the reference {seen.ended} on {case.label}: {seen.error}")
        values.append(seen.value)
    return values


def _grade(exercise: Exercise, case: Case, observation: Observation, expected: Any) -> Mismatch | None:
    if observation.ended == "returned":
        return exercise.grade(case, observation.value, expected)
    if observation.ended == "raised":
        return Mismatch("a result", str(observation.error))
    if observation.ended == "timed_out":
        return Mismatch("a result", f"no end within {exercise.time_limit_s:g} seconds")
    return Mismatch("a result", "not run" if observation.ended == "not_run" else "the process that ran it died")


Failure = tuple[Case, Observation, Any, Mismatch]


def _holds(exercise: Exercise, idea: Misconception, failures: list[Failure]) -> bool:
    for case, observation, expected, _ in failures:
        if idea.matches is not None:
            if observation.ended != "returned" or not idea.matches(case, observation.value, expected):
                return False
        else:
            other = observe_case(exercise, idea.solution, case)
            if other.ended != observation.ended or not alike(observation.value, other.value):
                return False
            if other.error is not None and not alike(observation.error, other.error):
                return False
    return True


def _recognise(exercise: Exercise, failures: list[Failure]) -> Misconception | None:
    known = [failure for failure in failures if failure[1].ended in ("returned", "raised")]
    if not known or len(known) < len(failures):
        return None
    return next((idea for idea in exercise.misconceptions if _holds(exercise, idea, known)), None)


def _sentence(text: str) -> str:
    return text if text.rstrip().endswith((".", "?", "!")) else text.rstrip() + "."


def judge(exercise: Exercise, cases: list[Case], expected: list[Any], observations: list[Observation]) -> Verdict:
    """Pure: the verdict on observations, wherever they come from. Runs on the trusted side."""

    def verdict(status: str, points: float, lines: list[str], misconception: str | None = None) -> Verdict:
        notes = _noise_note(observations)
        return Verdict(
            exercise.name, status, points, exercise.points, misconception, tuple(lines), notes, exercise.bonus
        )

    def is_stub(seen: Observation) -> bool:
        return seen.error is not None and seen.error.class_name == "NotImplementedError"

    if observations and all(is_stub(seen) for seen in observations):
        return verdict(
            NOT_ATTEMPTED,
            0,
            [f"This will check {exercise.checks}.", f"Next: write the function; `hint({exercise.name})` helps."],
        )
    failures: list[Failure] = []
    earned = 0.0
    try:
        for case, seen, value in zip(cases, observations, expected, strict=True):
            mismatch = _grade(exercise, case, seen, value)
            earned += case.weight * (1.0 if mismatch is None else min(max(mismatch.score, 0.0), 1.0))
            if mismatch is not None:
                failures.append((case, seen, value, mismatch))
        total = sum(case.weight for case in cases)
        counted = f"Checked: {exercise.checks} ({len(cases) - len(failures)} of {len(cases)} cases right)."
        if not failures:
            return verdict(PASSED, exercise.points, [f"Checked: {exercise.checks} (all {len(cases)} cases right)."])
        idea = _recognise(exercise, failures)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return grader_error(exercise, error)
    case, seen, _, mismatch = failures[0]
    middle = f"{case.label}: expected {mismatch.expected}, got {mismatch.got}. {mismatch.note}".rstrip()
    if seen.ended == "raised":
        middle = f"{case.label}: your code raised {_sentence(str(seen.error))}"
    elif seen.ended == "timed_out":
        middle = f"{case.label}: {mismatch.got}; the check stopped your code."
    elif seen.ended == "lost":
        middle = f"{case.label}: the process that ran your code died (out of memory, or ended by the code itself)."
    step = f"Next: {idea.feedback if idea else mismatch.next_step or exercise.next_step}"
    points = round(exercise.points * earned / total, 2) if exercise.partial else 0.0
    status = PARTLY if points > 0 else CRASHED if seen.ended in ("raised", "lost") else FAILED
    return verdict(status, points, [counted, middle, step], idea.name if idea else None)


def grader_error(exercise: Exercise, error: BaseException | str) -> Verdict:
    """The verdict when our side failed."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    lines = (
        f"The grader of `{exercise.name}` itself failed. This is not your fault, and your code was not judged.",
        f"What it said: {text[:300]}",
        "Next: please report this text and your code to the course's maintainers; then go on with the next exercise.",
    )
    return Verdict(exercise.name, GRADER_ERROR, 0.0, exercise.points, None, lines, (), exercise.bonus)


def _noise_note(observations: list[Observation]) -> tuple[str, ...]:
    first = next((seen.noise.strip() for seen in observations if seen.noise.strip()), "")
    if not first:
        return ()
    line = first.splitlines()[0][:100]
    return (f"Your code printed something, which costs nothing: {line}",)


def assess(name: str, solution: Any, seed: int | None = None) -> Verdict:
    """Judges a solution in this process, without printing.

    Args:
        name: the exercise.
        solution: a function or class; a tuple of them for exercises of several functions.
        seed: of the random cases; None draws one.
    Raises:
        KeyError: there is no such exercise.
    """
    exercise = find_exercise(name)
    reason = exercise.unavailable()
    if reason:
        lines = (f"This exercise cannot be checked here: {reason}",)
        return Verdict(name, NOT_ATTEMPTED, 0.0, exercise.points, None, lines, (), exercise.bonus)
    try:
        with clean_state():
            cases = exercise.cases(random.SystemRandom().randrange(2**31) if seed is None else seed)
        expected = expected_values(exercise, cases)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return grader_error(exercise, error)
    return judge(exercise, cases, expected, observe_all(exercise, solution, cases))

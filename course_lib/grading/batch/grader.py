"""One submission, from its bytes to its points.

Runs on the trusted side: it draws the cases, computes what the reference gives, asks a worker what the submission
gives, and compares. It never forks, so that the process may have run any torch code.
"""

import dataclasses
import hashlib
import re
import time
from typing import Any

from course_lib.grading.assess import GraderFailure, clean_state, expected_values, grader_error, judge
from course_lib.grading.batch import flags
from course_lib.grading.batch.collect import Submission
from course_lib.grading.batch.reading import Reading, Unreadable, read
from course_lib.grading.batch.selection import Answer, NotOfTheCourse, Selection, select
from course_lib.grading.exercise import Case, Exercise, Lesson
from course_lib.grading.observation import ExceptionRecord, MalformedObservation, Observation
from course_lib.grading.sandbox.session import Sandbox, Session, WorkerDied
from course_lib.grading.verdict import CRASHED, NOT_ATTEMPTED, PASSED, Verdict

_MAX_LINE_CHARS = 2_000
GRADED, NEEDS_REPAIR = "graded", "needs_repair"


def seed_of(run_seed: int, student: str, digest: str) -> int:
    """A submission's seed: it depends on the run, the student and the file, never on order or place."""
    text = f"{run_seed}\0{student}\0{digest}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big")


def _derived(seed: int, what: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}\0{what}".encode()).digest()[:4], "big") >> 1


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A submission as read, small enough to send to a cluster.

    Attributes:
        submission: whose it is.
        digest: the SHA-256 of the file, or ``""``.
        reading: its cells, or None.
        problem: why there are none.
    """

    submission: Submission
    digest: str
    reading: Reading | None = None
    problem: str = ""


def prepare(submission: Submission) -> Prepared:
    """Reads a submission, whatever it is."""
    digest = ""
    try:
        data = submission.load()
        digest = hashlib.sha256(data).hexdigest()
        return Prepared(submission, digest, read(data))
    except Unreadable as error:
        return Prepared(submission, digest, None, str(error))
    except MemoryError:
        return Prepared(submission, digest, None, "the file needs more memory than there is. Ask for it again.")


class Grader:
    """Grades submissions one after another in one sandbox.

    Args:
        sandbox: a started one, or one that starts at the first submission.
        syllabus: the course's lessons.
        run_seed: of the whole run.
    """

    def __init__(self, sandbox: Sandbox, syllabus: tuple[Lesson, ...], run_seed: int) -> None:
        self.sandbox, self._syllabus, self._run_seed = sandbox, syllabus, run_seed

    def grade(self, prepared: Prepared) -> dict[str, Any]:
        """The result as plain data, the same at each rerun apart from `seconds`."""
        started = time.monotonic()
        submission, digest = prepared.submission, prepared.digest
        if prepared.reading is None:
            return _unread(submission, digest, prepared.problem)
        try:
            selection = select(prepared.reading, self._syllabus, submission.file_name)
        except NotOfTheCourse as error:
            return _unread(submission, digest, str(error))
        seed = seed_of(self._run_seed, submission.student, digest)
        with _Attempt(self.sandbox, selection, seed) as attempt:
            rows = [attempt.row(exercise) for exercise in selection.lesson.exercises]
            notes = [*selection.notes, *attempt.notes]
        counted = [row for row in rows if not row["bonus"]]
        return {
            **_head(submission, digest),
            "status": NEEDS_REPAIR if selection.problems else GRADED,
            "lesson": selection.lesson.number,
            "seed": seed,
            "points": _number(sum(row["points"] for row in counted)),
            "max_points": sum(row["max_points"] for row in counted),
            "bonus_points": _number(sum(row["points"] for row in rows if row["bonus"])),
            "problems": list(selection.problems),
            "notes": notes,
            "exercises": rows,
            "seconds": round(time.monotonic() - started, 3),
        }


def _unread(submission: Submission, digest: str, problem: str) -> dict[str, Any]:
    return {
        **_head(submission, digest),
        "status": NEEDS_REPAIR,
        "lesson": None,
        "seed": None,
        "points": 0,
        "max_points": 0,
        "bonus_points": 0,
        "problems": [problem],
        "notes": [],
        "exercises": [],
        "seconds": 0.0,
    }


def _head(submission: Submission, digest: str) -> dict[str, Any]:
    return {
        "id": submission.id,
        "student": submission.student,
        "number": submission.number,
        "source": submission.source,
        "sha256": digest,
    }


class _Attempt:
    """The workers of one submission: a new one when the last has died, without the cell that killed it."""

    def __init__(self, sandbox: Sandbox, selection: Selection, seed: int) -> None:
        self._sandbox, self._selection, self._seed = sandbox, selection, seed
        self._limits = sandbox.limits
        self._deadline = time.monotonic() + self._limits.submission_s
        self._session: Session | None = None
        self._left_out: frozenset[int] = frozenset()
        self._deadly: set[int] = set()
        self.errors: dict[int, ExceptionRecord] = {}
        self.notes: list[str] = []

    def __enter__(self) -> "_Attempt":
        return self

    def __exit__(self, *_: Any) -> None:
        self._end()

    def _end(self) -> None:
        if self._session is not None:
            self._sandbox.retire(self._session)
            self._session = None

    def _ready(self, left_out: frozenset[int] = frozenset()) -> Session:
        """A worker that has run the cells."""
        if self._session is not None and left_out != self._left_out:
            self._end()
        if time.monotonic() > self._deadline:
            self._end()
        while self._session is None:
            if time.monotonic() > self._deadline:
                raise WorkerDied("the notebook used up the time that one submission may take", is_time=True)
            self._left_out = left_out
            cells = [cell for cell in self._selection.cells if cell[0] not in self._deadly | left_out]
            worker_seed = hashlib.sha256(f"worker\0{self._seed}".encode()).hexdigest()
            session = self._session = self._sandbox.worker()
            running = cells[0][0] if cells else 0
            try:
                session.ask({"do": "cells", "seed": worker_seed, "cells": cells})
                for running, _ in cells:
                    session.allow(self._limits.cell_cpu_s / (1 + len(self._deadly)))
                    match session.reply():
                        case ("cell", index, ExceptionRecord() | None as error) if index == running:
                            self.errors.pop(index, None)
                            if error is not None:
                                self.errors[index] = error
                        case _:
                            raise WorkerDied("your code wrote into the grader's channel")
            except WorkerDied as death:
                self._end()
                self._deadly.add(running)
                name = f"cell {running + 1}" if running >= 0 else "the first cell"
                self.notes.append(f"{name} was left out: {death}")
                self.errors[running] = ExceptionRecord("stopped", str(death))
        return self._session

    def row(self, exercise: Exercise) -> dict[str, Any]:
        """The result of one exercise."""
        answer = self._selection.answers[exercise.name]
        verdict, was_ours = self._verdict(exercise, answer)
        best_cells = answer.cells[-1:]
        for position in range(len(answer.cells) - 2, -1, -1):
            if verdict.status == PASSED or len(exercise.functions) > 1:
                break
            other, ours = self._verdict(exercise, answer, frozenset(answer.cells[position + 1 :]))
            if other.points > verdict.points:
                verdict, was_ours, best_cells = other, ours, answer.cells[position : position + 1]
        found = flags.static_flags(exercise, [source for place, source in self._selection.cells if place >= 0])
        if was_ours and flags.IMPORTED not in found:
            found.append(flags.IMPORTED)
        return {
            "name": exercise.name,
            "status": verdict.status,
            "points": _number(verdict.points),
            "max_points": exercise.points,
            "bonus": exercise.bonus,
            "misconception": verdict.misconception,
            "feedback": [_without_addresses(line) for line in verdict.lines],
            "notes": [_without_addresses(line) for line in verdict.notes],
            "flags": sorted(found) if verdict.points else [],
            "measured_in_process": exercise.measured_in_process,
            "cell": best_cells[0] + 1 if best_cells else None,
        }

    def _verdict(
        self, exercise: Exercise, answer: Answer, left_out: frozenset[int] = frozenset()
    ) -> tuple[Verdict, bool]:
        """The verdict, and whether the answer was the course's own."""
        reason = exercise.unavailable()
        if reason:
            return _without(exercise, NOT_ATTEMPTED, f"This exercise cannot be graded here: {reason}"), False
        try:
            with clean_state():
                cases = exercise.cases(_derived(self._seed, exercise.name))
        except Exception as error:
            return grader_error(exercise, error), False
        seen: list[Observation] = []
        was_ours, death, expected = False, None, None
        try:
            session = self._ready(left_out)
            limit_s = exercise.time_limit_s * self._limits.cpu_factor
            session.ask(
                {
                    "do": "exercise",
                    "name": exercise.name,
                    "cases": [(case.label, case.args, case.kwargs) for case in cases],
                    "limit_s": self._limits.wall_s(limit_s),
                }
            )
            session.allow(limit_s)
            if answer.cells:
                expected = expected_values(exercise, cases)  # while the worker works
            match session.reply():
                case ("found", [], bool() as was_ours):
                    pass
                case ("found", [*missing], bool()):
                    return self._missing(exercise, answer, [str(name) for name in missing]), False
                case _:
                    raise WorkerDied("your code wrote into the grader's channel")
            while len(seen) < len(cases):
                seen.append(_observation(session.reply_bytes()))
            match session.reply():
                case ("end", bool() as called):
                    was_ours = was_ours or called
                case _:
                    raise WorkerDied("your code wrote into the grader's channel")
        except WorkerDied as error:
            self._end()
            death = error
        except GraderFailure as error:
            self._end()
            return grader_error(exercise, error), False
        if death is not None and not (len(seen) == len(cases)):
            seen.append(Observation(ended="timed_out" if death.is_time else "lost"))
            seen += [Observation(ended="not_run")] * (len(cases) - len(seen))
        verdict = self._judged(exercise, cases, expected, seen)
        if death is not None and verdict.status != PASSED:
            verdict = dataclasses.replace(verdict, notes=(*verdict.notes, f"How it ended: {death}."))
        return verdict, was_ours

    @staticmethod
    def _judged(exercise: Exercise, cases: list[Case], expected: list[Any] | None, seen: list[Observation]) -> Verdict:
        try:
            if expected is None:
                is_stub = all(one.error and one.error.class_name == "NotImplementedError" for one in seen)
                expected = [] if is_stub else expected_values(exercise, cases)  # a stub is not compared with anything
            return judge(exercise, cases, expected, seen)
        except Exception as error:
            return grader_error(exercise, error)

    def _missing(self, exercise: Exercise, answer: Answer, missing: list[str]) -> Verdict:
        """The name was not there after all cells had run."""
        wanted = " and ".join(name for name in exercise.functions if name in missing) or exercise.name
        for place in answer.cells:
            if place in self.errors:
                return _without(
                    exercise,
                    CRASHED,
                    f"Cell {place + 1}, which defines `{wanted}`, ended with {str(self.errors[place])[:300]}.",
                    "Next: restart the kernel, run all cells, and mend the first that fails.",
                )
        if answer.has_cell:
            text = f"The cell for this exercise does not define `{wanted}`."
            return _without(exercise, NOT_ATTEMPTED, text, "Next: keep the name that the stub had.")
        return _without(exercise, NOT_ATTEMPTED, f"No cell of the notebook defines `{wanted}`.")


def _number(points: float) -> float:
    """2 for 2.0, and no more than two decimals."""
    rounded = round(float(points), 2)
    return int(rounded) if rounded == int(rounded) else rounded


def _without_addresses(text: str) -> str:
    """An object's address in memory differs at each run, and says nothing."""
    return re.sub(r"\b0x[0-9a-f]{8,}\b", "0x…", text)[:_MAX_LINE_CHARS]


def _observation(body: bytes) -> Observation:
    try:
        return Observation.from_bytes(body)
    except MalformedObservation as error:
        raise WorkerDied(f"your code wrote into the grader's channel: {error}") from None


def _without(exercise: Exercise, status: str, *lines: str) -> Verdict:
    return Verdict(exercise.name, status, 0.0, exercise.points, None, lines, (), exercise.bonus)

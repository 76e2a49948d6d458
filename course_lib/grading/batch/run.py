"""Grades all submissions, on several processes or on a Dask cluster, and can be stopped at any moment.

The same command in the same folder goes on where it stopped: a result counts when it was made from the same bytes,
with the same seed, by the same version of the course, in the same kind of sandbox.
"""

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import multiprocessing
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.grading.batch import report, summary
from course_lib.grading.batch.collect import Submission
from course_lib.grading.batch.grader import Grader, prepare
from course_lib.grading.batch.results import (
    SCHEMA,
    Store,
    course_fingerprint,
    grades_csv,
    grades_document,
    grades_text,
    write_whole,
)
from course_lib.grading.sandbox import box, kernel
from course_lib.grading.sandbox.quotas import Limits
from course_lib.grading.sandbox.session import Sandbox
from course_lib.grading.sandbox.zygote import load_syllabus

SYLLABUS = "course_lib.exercises:SYLLABUS"
FAILED = "grader_error"
_ATTEMPTS = 2
_BARREN = 5
_TABLES_EVERY_S = 2.0


@dataclass(frozen=True)
class Plan:
    """How submissions are graded; all that a process or a cluster's worker needs to know.

    Attributes:
        run_seed: from it comes the seed of each submission.
        mode: one of `box.MODES`.
        limits: of each submission.
        hidden: folders that no submission may see.
        syllabus: where the exercises are, as ``module:attribute``.
    """

    run_seed: int
    mode: str = box.BUBBLEWRAP
    limits: Limits = field(default_factory=Limits)
    hidden: tuple[str, ...] = ()
    syllabus: str = SYLLABUS

    def grader(self) -> Grader:
        """A grader with a sandbox of its own."""
        import torch

        torch.set_num_threads(1)  # the same additions in the same order on every machine
        hidden = tuple(Path(path) for path in self.hidden)
        sandbox = Sandbox(self.limits, self.mode, hidden, self.syllabus)
        return Grader(sandbox, load_syllabus(self.syllabus), self.run_seed)


class RunError(Exception):
    """The run cannot start; the message says what to do."""


_grader: Grader | None = None  # of this process, when it is one of the pool's


def _start_process(plan: Plan) -> None:
    global _grader
    kernel.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the run
    _grader = plan.grader()


def _grade_here(submission: Submission) -> dict[str, Any]:
    assert _grader is not None
    return _grader.grade(prepare(submission))


def ungraded(submission: Submission, reason: str) -> dict[str, Any]:
    """Stands in the tables, but is not stored: the next run tries again."""
    return {
        "id": submission.id, "student": submission.student, "number": submission.number, "source": submission.source,
        "sha256": "", "status": FAILED, "lesson": None, "seed": None, "points": 0, "max_points": 0, "bonus_points": 0,
        "problems": [f"the grader failed; this is not the student's fault: {reason}. Run the same command again."],
        "notes": [], "exercises": [], "seconds": 0.0,
    }  # fmt: skip


def on_processes(todo: Iterable[Submission], plan: Plan, jobs: int) -> Iterator[dict[str, Any]]:
    """Results in the order in which they are ready, from `jobs` processes with a warm parent each."""
    waiting = iter(todo)
    attempts: dict[str, int] = {}
    again: list[Submission] = []
    barren = 0  # pools that broke without a single result
    while True:
        running: dict[concurrent.futures.Future, Submission] = {}
        pool = concurrent.futures.ProcessPoolExecutor(
            jobs, multiprocessing.get_context("spawn"), _start_process, (plan,)
        )
        try:
            while True:
                while len(running) < 2 * jobs:
                    submission = again.pop() if again else next(waiting, None)
                    if submission is None:
                        break
                    again.append(submission)  # so that it is not lost when the pool is found broken just here
                    future = pool.submit(_grade_here, submission)
                    running[future] = again.pop()
                if not running:
                    return
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    result = future.result()
                    del running[future]
                    barren = 0
                    yield result
        except BrokenProcessPool:  # a process of ours was killed: all that it and the others held is tried again
            barren += 1
            if barren > _BARREN:
                raise RunError("grading processes die as soon as they start, perhaps for lack of memory.") from None
            for future, submission in running.items():
                if future.done() and future.exception() is None:
                    yield future.result()
                    continue
                attempts[submission.id] = attempts.get(submission.id, 0) + 1
                if attempts[submission.id] < _ATTEMPTS * jobs + 1:
                    again.append(submission)
                else:
                    yield ungraded(submission, "the process that graded it was killed, perhaps for lack of memory")
        finally:
            _end(pool)


def _end(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        with contextlib.suppress(OSError, ValueError):
            process.terminate()
    for process in processes:
        with contextlib.suppress(OSError, ValueError, AssertionError):
            process.join(10)


def key_of(submission: Submission, plan: Plan, fingerprint: str) -> str:
    """What a stored result must agree with to count."""
    try:
        content = hashlib.sha256(submission.load()).hexdigest()
    except ValueError as error:
        content = str(error)
    parts = [SCHEMA, fingerprint, plan.run_seed, plan.mode, dataclasses.asdict(plan.limits), plan.syllabus]
    text = json.dumps([*parts, submission.id, submission.student, submission.source, content])
    return hashlib.sha256(text.encode()).hexdigest()


Engine = Callable[[Iterable[Submission], Plan], Iterator[dict[str, Any]]]
Progress = Callable[[int, int, str], None]


def run(
    submissions: list[Submission],
    folder: Path,
    engine: Engine,
    *,
    seed: int | None = None,
    mode: str = box.BUBBLEWRAP,
    limits: Limits | None = None,
    hidden: tuple[Path, ...] = (),
    syllabus: str = SYLLABUS,
    progress: Progress = lambda done, total, name: None,
) -> dict[str, Any]:
    """Grades what is not graded yet, and writes everything.

    Args:
        submissions: all of the run, those graded before too.
        folder: where everything is written.
        engine: `on_processes` with its number of jobs, or `cluster.on_dask` with its address.
        seed: of the run; default: the folder's own, or a random one.
        hidden: folders that no submission may see, besides `folder`.
        progress: called with (done, total, name) as each submission ends.
    Returns:
        the document of `grades.json`.
    Raises:
        RunError: the folder holds another run, or is in use.
    """
    folder.mkdir(parents=True, exist_ok=True)
    store = Store(folder)
    with _locked(folder):
        settings = _settings(store, seed, mode, limits or Limits())
        covered = tuple(str(path.resolve()) for path in (folder, *hidden))
        plan = Plan(settings["seed"], mode, limits or Limits(), covered, syllabus)
        keys = {submission.id: key_of(submission, plan, settings["fingerprint"]) for submission in submissions}
        lessons = load_syllabus(syllabus)
        for half_written in folder.rglob("*.part"):  # of a run that was killed: nobody else writes here now
            half_written.unlink(missing_ok=True)
        results: dict[str, dict[str, Any]] = {}
        todo = []
        for submission in submissions:
            stored = store.load(submission.id, keys[submission.id])
            if stored is None:
                todo.append(submission)
            else:
                results[submission.id] = stored
        written = 0.0
        progress(len(results), len(submissions), "")
        for result in engine(todo, plan) if todo else ():
            results[result["id"]] = result
            if result["status"] != FAILED:
                store.save(result, keys[result["id"]])
                report.write(folder, result, lessons)
            progress(len(results), len(submissions), result["student"])
            if time.monotonic() - written > _TABLES_EVERY_S and len(results) < len(submissions):
                started = time.monotonic()
                _write_tables(folder, grades_document(results.values(), lessons, settings))
                written = time.monotonic() + 10 * (time.monotonic() - started)
        document = grades_document(results.values(), lessons, settings)
        for submission in submissions:
            if not report.path_of(folder, submission.id).exists():
                report.write(folder, results[submission.id], lessons)
        _write_tables(folder, document)
        summary.write(folder, document)
        return document


def _write_tables(folder: Path, document: dict[str, Any]) -> None:
    write_whole(folder / "grades.json", grades_text(document))
    write_whole(folder / "grades.csv", grades_csv(document))


def _settings(store: Store, seed: int | None, mode: str, limits: Limits) -> dict[str, Any]:
    old = store.run_settings()
    if old and seed is not None and old.get("seed") != seed:
        raise RunError(
            f"--out must be a new folder, or one graded with seed {seed}; {store.folder} was graded with seed "
            f"{old.get('seed')}. Give another folder, or leave out --seed."
        )
    chosen = seed if seed is not None else old.get("seed")
    import torch

    settings = {
        "seed": chosen if isinstance(chosen, int) else secrets.randbelow(2**48),
        "sandbox": mode,
        "torch": torch.__version__,
        "fingerprint": course_fingerprint(),
        "limits": dataclasses.asdict(limits),
    }
    store.save_run_settings(settings)
    return settings


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"only one run may write to {folder}; another one is at it. Wait for it.") from None
        yield
    finally:
        os.close(handle)

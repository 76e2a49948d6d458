"""Inside the walls: runs a submission's cells and answers the grader's questions with plain data.

Everything here is in the hands of the submission as soon as its first cell has run. That is why nothing here
decides anything: what goes out are observations, which the grader compares with values that it never sent in.
"""

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import os
import random
import resource
import signal
import sys
from typing import Any

import numpy as np
import torch

import course_lib
from course_lib.grading.assess import observe_case
from course_lib.grading.exercise import Case, Exercise
from course_lib.grading.observation import ExceptionRecord, Observation, decode, encode
from course_lib.grading.sandbox import kernel, seccomp, wire
from course_lib.grading.sandbox.cells import Notebook
from course_lib.grading.sandbox.quotas import MIB

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "USER": "learner",
    "LOGNAME": "learner",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TERM": "dumb",
}


HELLO = bytes(wire.NONCE_BYTES)  # the nonce of the one message that nobody asked for: that all is ready


def main(questions: int, answers: int, message: dict[str, Any], syllabus: Any, size_bytes: int) -> None:
    """Confines this process, then serves until the grader stops asking."""
    kernel.die_with_parent()
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    keep = (os.dup2(questions, 1000, False), os.dup2(answers, 1001, False))
    os.closerange(3, 1000)
    os.closerange(1002, 65536)
    _limit(message, size_bytes)
    kernel.drop_privileges(message.get("user"))
    kernel.die_with_parent()  # a change of user took it away
    kernel.set_dumpable()
    if message["is_enclosed"]:
        seccomp.install()
    try:
        _move_in(message["folder"])
        worker = Worker(*keep, message, syllabus)
    except Exception as error:
        wire.write_all(keep[1], wire.pack(HELLO, 0, f"{type(error).__name__}: {error}".encode()))
        raise
    wire.write_all(keep[1], wire.pack(HELLO, 0, b""))
    worker.serve()


def _limit(message: dict[str, Any], size_bytes: int) -> None:
    def bound(kind: int, value: int) -> None:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))

    bound(resource.RLIMIT_AS, size_bytes + message["memory_mib"] * MIB)
    bound(resource.RLIMIT_FSIZE, message["file_mib"] * MIB)
    bound(resource.RLIMIT_CPU, int(message["cpu_s"]) + 1)
    bound(resource.RLIMIT_CORE, 0)
    bound(resource.RLIMIT_NOFILE, max(message["open_files"], 64))
    if message["processes"]:
        bound(resource.RLIMIT_NPROC, message["processes"])
    # Writing too long a file is an error for the one who writes, not the end of the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _move_in(folder: str) -> None:
    home = os.path.join(folder, "home")
    work = os.path.join(home, "work")
    os.makedirs(work, exist_ok=True)
    os.environ.clear()
    os.environ.update(ENVIRONMENT, HOME=home, TMPDIR=folder, SIXTEEN_BYTES_HOME=home, MPLCONFIGDIR=home)
    import tempfile

    tempfile.tempdir = folder
    os.chdir(work)
    sys.path.insert(0, work)
    sys.argv = ["notebook"]


class Worker:
    """One submission's process."""

    def __init__(self, questions: int, answers: int, message: dict[str, Any], syllabus: Any) -> None:
        self._questions, self._answers = questions, answers
        self._max_bytes = message["reply_mib"] * MIB
        self._exercises: dict[str, Exercise] = {ex.name: ex for lesson in syllabus for ex in lesson.exercises}
        self._seed = ""
        self._notebook = Notebook()
        self._called: set[str] = set()
        self._ours: dict[str, list[Any]] = {}
        self._given: dict[str, Any] = {}
        self._nonce, self._number = b"", 0
        _silence_course()
        self._mark_references()
        course_lib.solved_or_reference = self._solved_or_reference  # type: ignore[attr-defined]

    def serve(self) -> None:
        """Answers questions until the grader closes its end."""
        while True:
            try:
                head = wire.read_exactly(self._questions, wire.HEADER.size)
                self._nonce, self._number, length = wire.HEADER.unpack(head)
                question = decode(wire.read_exactly(self._questions, length))
            except wire.EndOfStream:
                return
            if question["do"] == "cells":
                self._seed = question["seed"]
                self._run_cells(question["cells"])
            else:
                self._answer_exercise(question)

    def _reply(self, body: bytes) -> None:
        wire.write_all(self._answers, wire.pack(self._nonce, self._number, body))
        self._number += 1

    def _run_cells(self, cells: list[tuple[int, str]]) -> None:
        for index, source in cells:
            self._seed_all(f"cell {index}")
            self._reply(encode(("cell", index, self._notebook.run(index, source))))

    def _answer_exercise(self, question: dict[str, Any]) -> None:
        exercise = self._exercises[question["name"]]
        names = self._notebook.names
        missing = [name for name in exercise.functions if name not in names]
        parts = self._own_parts(exercise)
        is_ours = any(_is_same(part, ours) for part in parts for ours in self._ours[exercise.name])
        self._reply(encode(("found", missing, is_ours)))
        if missing:
            return
        solution = parts[0] if len(parts) == 1 else parts
        self._called.clear()
        self._seed_all(exercise.name)
        for label, args, kwargs in question["cases"]:
            self._reply(self._observe(exercise, solution, Case(label, args, kwargs), question["limit_s"]))
        self._reply(encode(("end", bool(self._called.intersection(exercise.functions)))))

    def _observe(self, exercise: Exercise, solution: Any, case: Case, limit_s: float) -> bytes:
        try:
            seen = observe_case(exercise, solution, case, limit_s)
            data = dataclasses.replace(seen, noise="").to_bytes()  # prints are honest noise, and differ at each run
        except Exception as error:  # an observation that cannot be written down
            data = _raised(type(error).__name__, str(error)[:500])
        if len(data) > self._max_bytes:
            return _raised("ValueError", f"the answer takes {len(data)} bytes; at most {self._max_bytes} are taken")
        return data

    def _seed_all(self, what: str) -> None:
        """The same random numbers at each rerun, and others than the cases were drawn with."""
        seed = int.from_bytes(hashlib.sha256(f"{self._seed} {what}".encode()).digest()[:4], "little")
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)

    def _mark_references(self) -> None:
        """Notes when a submission's own line calls one of the course's answers; the report says so."""
        called = self._called

        def marked(function: Any, name: str) -> Any:
            def stand_in(*args: Any, **kwargs: Any) -> Any:
                if sys._getframe(1).f_code.co_filename.startswith("<cell "):
                    called.add(name)
                return function(*args, **kwargs)

            # As functools.wraps does, but without the way back that it leaves.
            for attribute in functools.WRAPPER_ASSIGNMENTS:
                with contextlib.suppress(AttributeError):
                    setattr(stand_in, attribute, getattr(function, attribute))
            with contextlib.suppress(ValueError, TypeError):
                stand_in.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
            return stand_in

        for exercise in self._exercises.values():
            self._ours[exercise.name] = [*exercise.references]
            parts = []
            for name, function in zip(exercise.functions, exercise.references, strict=False):
                part = marked(function, name) if type(function) is type(marked) else function
                parts.append(part)
                self._ours[exercise.name].append(part)
                module = sys.modules.get(getattr(function, "__module__", ""))
                if getattr(module, name, None) is function:
                    setattr(module, name, part)
            object.__setattr__(exercise, "reference", parts[0] if len(parts) == 1 else tuple(parts))

    def _solved_or_reference(self, function: Any) -> Any:
        """As in the notebook, but what it stands in for is remembered, and is what will be graded."""
        from course_lib.grading.assess import assess
        from course_lib.grading.names import collect

        exercise, solution = collect((function,), self._notebook.names)
        if not isinstance(solution, tuple) and any(solution is ours for ours in self._ours[exercise.name]):
            return solution
        parts = solution if isinstance(solution, tuple) else (solution,)
        self._given.update(zip(exercise.functions, parts, strict=False))
        return solution if assess(exercise.name, solution).status == "passed" else exercise.reference

    def _own_parts(self, exercise: Exercise) -> tuple[Any, ...]:
        """The submission's own functions, also where `solved_or_reference` put ours in their place."""
        names = self._notebook.names
        parts = []
        for name in exercise.functions:
            part = names.get(name)
            is_ours = any(part is ours for ours in self._ours[exercise.name])
            parts.append(self._given.get(name, part) if is_ours else part)
        return tuple(parts)


def _is_same(given: Any, ours: Any) -> bool:
    given = getattr(given, "__wrapped__", given)
    if given is ours:
        return True
    with contextlib.suppress(TypeError):
        if isinstance(given, type) and isinstance(ours, type) and issubclass(given, ours):
            return True
    code = getattr(given, "__code__", None)
    return code is not None and code is getattr(ours, "__code__", None)


def _raised(name: str, text: str) -> bytes:
    return Observation(ended="raised", error=ExceptionRecord(name, text)).to_bytes()


def _silence_course() -> None:
    """`check` and its kin say nothing here: they would take the time of a second check."""
    for word in ("check", "hint", "solution", "progress"):
        setattr(course_lib, word, lambda *_, **__: None)

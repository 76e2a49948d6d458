"""A toy exercise in a syllabus of its own, so that these tests do not depend on any lesson."""

import pytest

import course_lib.exercises
from course_lib.grading.compare import float_mismatch
from course_lib.grading.exercise import Case, Exercise, Lesson, Misconception


def double_it(x: float) -> float:
    return 2.0 * x


def cases(seed: int) -> list[Case]:
    return [Case(f"double_it({x})", (x,)) for x in (0.0, 1.0, 3.0, 3.0 + seed)]


def make_exercise(**changes) -> Exercise:
    parts = {
        "name": "double_it",
        "points": 3,
        "minutes": 1,
        "difficulty": 1,
        "checks": "twice the number",
        "reference": double_it,
        "cases": cases,
        "grade": lambda case, seen, due: float_mismatch(seen, due),
        "hints": ("one", "two", "three"),
        "explanation": "Twice is times two.",
        "next_step": "try 3.",
        "misconceptions": (
            Misconception("squares", "you square; twice is not squared.", lambda x: x * x),
            Misconception("keeps", "you return x itself.", lambda x: x),
        ),
    }
    return Exercise(**{**parts, **changes})


@pytest.fixture
def syllabus(monkeypatch, tmp_path):
    """Call it with changed fields of the toy exercise to install it."""
    monkeypatch.setenv("SIXTEEN_BYTES_HOME", str(tmp_path))

    def install(*exercises, **changes):
        chosen = exercises or (make_exercise(**changes),)
        monkeypatch.setattr(course_lib.exercises, "SYLLABUS", (Lesson("00", "00_toy", "Toy", chosen),))

    install()
    return install

"""The course's own notebooks through the whole of batch grading: answered and as handed out."""

import functools
from pathlib import Path

import pytest

from course_lib import notebooks
from course_lib.exercises import SYLLABUS
from course_lib.grading.batch.collect import collect
from course_lib.grading.batch.run import on_processes, run
from course_lib.grading.batch.selection import released_notebook
from tests.test_submissions import submissions_of

LESSONS = [lesson for lesson in SYLLABUS if released_notebook(lesson).exists()]
QUICK = {"00", "01", "03"}  # the others take a minute and more: tests/benchmarks grades them all
pytestmark = pytest.mark.xdist_group("lessons")


def answered(lesson: notebooks.Any) -> str:
    answers = {}
    for exercise in lesson.exercises:
        accepted = [one for one in submissions_of(lesson, exercise) if one.is_accepted]
        answers[exercise.name] = accepted[0].source.strip()
    return notebooks.as_text(notebooks.solve(notebooks.read(released_notebook(lesson)), answers))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict:
    top = tmp_path_factory.mktemp("lessons")
    for lesson in LESSONS:
        (top / "in" / "untouched").mkdir(parents=True, exist_ok=True)
        (top / "in" / "answered").mkdir(exist_ok=True)
        name = f"{lesson.slug}.ipynb"
        (top / "in" / "untouched" / name).write_bytes(released_notebook(lesson).read_bytes())
        if lesson.number in QUICK:
            (top / "in" / "answered" / name).write_text(answered(lesson))
    submissions = collect([top / "in"], slugs=[lesson.slug for lesson in SYLLABUS])
    document = run(submissions, top / "out", functools.partial(on_processes, jobs=2), seed=5, hidden=(top / "in",))
    return {(row["student"], row["lesson"]): row for row in document["submissions"]}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.slug)
def test_as_handed_out_nothing_is_attempted_and_nothing_earned(lesson: notebooks.Any, rows: dict) -> None:
    row = rows["untouched", lesson.number]
    assert (row["status"], row["points"], row["bonus_points"], row["problems"]) == ("graded", 0, 0, [])
    assert {exercise["status"] for exercise in row["exercises"]} == {"not_attempted"}


@pytest.mark.parametrize("lesson", [one for one in LESSONS if one.number in QUICK], ids=lambda lesson: lesson.slug)
def test_answered_it_gets_all_points(lesson: notebooks.Any, rows: dict) -> None:
    row = rows["answered", lesson.number]
    wrong = [exercise for exercise in row["exercises"] if exercise["points"] < exercise["max_points"]]
    assert wrong == []
    assert row["problems"] == row["notes"] == [] and not any(ex["flags"] for ex in row["exercises"])
    assert Path(row["source"]).name == f"{lesson.slug}.ipynb"

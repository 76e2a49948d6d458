"""What is handed out: no answers for learners, and an edition that the real nbgrader takes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from course_lib import notebooks
from course_lib.commands.release import command
from course_lib.exercises import SYLLABUS
from course_lib.grading.batch.selection import released_notebook
from course_lib.grading.exports import release

WITH_NOTEBOOK = [lesson for lesson in SYLLABUS if released_notebook(lesson).exists()]


def nbgrader(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}
    line = [str(bin_folder / "nbgrader"), *arguments]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)


def test_learners_get_stubs_and_a_page(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--for", "learner", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    for lesson in WITH_NOTEBOOK:
        notebook = nbformat.read(tmp_path / "out" / "notebooks" / f"{lesson.slug}.ipynb", 4)
        cells = {name: cell.source for cell, name in notebooks.exercise_cells(notebook)}
        assert set(cells) == {exercise.name for exercise in lesson.exercises}
        assert all("raise NotImplementedError" in source for source in cells.values())
    assert "pip install" in (tmp_path / "out" / "START.txt").read_text()
    again = CliRunner().invoke(command, ["--for", "learner", "--out", str(tmp_path / "out")])
    assert again.exit_code != 0 and "empty or new folder" in again.output


@pytest.mark.parametrize("lesson", WITH_NOTEBOOK, ids=lambda lesson: lesson.slug)
def test_every_stub_gets_a_solution_that_nbgrader_can_take_out(lesson: release.Lesson) -> None:
    by_name = {exercise.name: exercise for exercise in lesson.exercises}
    notebook = notebooks.read(released_notebook(lesson))
    namespace: dict = {}
    first = next(cell.source for cell in notebook.cells if cell.cell_type == "code")
    exec(notebooks.without_magics(first), namespace)
    for cell, name in notebooks.exercise_cells(notebook):
        solved = release.with_solution(cell.source, by_name[name])
        exec(solved, namespace)
        pattern = re.compile(rf"^( *){release.BEGIN}.*?{release.END}", re.MULTILINE | re.DOTALL)
        cleared = pattern.sub(r"\1raise NotImplementedError()", solved)
        assert release.is_stub(release.ast.parse(cleared), by_name[name].functions)
        assert "course_lib" not in cleared or "course_lib" in cell.source


def test_the_real_nbgrader_generates_and_validates(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--for", "nbgrader", "--out", str(tmp_path / "course")])
    assert result.exit_code == 0, result.output
    course = tmp_path / "course"
    slug = "00_start_here"
    made = nbgrader(course, "generate_assignment", slug, "--create")
    assert made.returncode == 0, made.stderr[-2000:]
    text = (course / "release" / slug / f"{slug}.ipynb").read_text()
    assert "BEGIN SOLUTION" not in text and "import to_gib as reference" not in text
    assert "raise NotImplementedError()" in text
    solved = nbgrader(course, "validate", f"source/{slug}/{slug}.ipynb")
    assert "Success" in solved.stdout, solved.stdout + solved.stderr[-2000:]
    unsolved = nbgrader(course, "validate", f"release/{slug}/{slug}.ipynb")
    assert "VALIDATION FAILED" in unsolved.stdout, unsolved.stdout + unsolved.stderr[-2000:]


def test_an_answer_in_the_notebooks_is_never_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lesson = WITH_NOTEBOOK[0]
    solved = tmp_path / f"{lesson.slug}.ipynb"
    solved.write_text(notebooks.as_text(notebooks.solve(notebooks.read(released_notebook(lesson)))))
    monkeypatch.setattr(release, "released_notebook", lambda lesson: tmp_path / f"{lesson.slug}.ipynb")
    with pytest.raises(release.ExportError, match="must be the stub"):
        release.for_learners(tmp_path / "out", (lesson,))
    assert json.loads(solved.read_text())["cells"]

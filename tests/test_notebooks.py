"""Rules that every notebook of the course keeps, and what `course notebooks` and `course check` do with them."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import nbformat
import pytest

from course_lib import notebooks
from course_lib.commands.check import check_notebook
from course_lib.exercises import SYLLABUS

ROOT = Path(__file__).resolve().parents[1]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LESSONS = {lesson.slug: lesson for lesson in SYLLABUS}
EXERCISES = {exercise.name: exercise for lesson in SYLLABUS for exercise in lesson.exercises}
MAX_WORDS = 140  # the aim is 120
MAX_LINES = 40  # the aim is 15

every_notebook = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
with_exercises = pytest.mark.parametrize(
    "path",
    [path for path in PATHS if LESSONS.get(path.stem) and LESSONS[path.stem].exercises],
    ids=lambda path: path.stem,
)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(source: str) -> list[str]:
    """The words of a Markdown cell that are read as prose: no code, tables, link targets or hidden answers."""
    for pattern in (r"(?s)```.*?```", r"(?s)<details>.*?</details>", r"(?s)\$\$.*?\$\$", r"<[^>]+>", r"\]\([^)]*\)"):
        source = re.sub(pattern, " ", source)
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("|", "#"))]
    return [word for word in " ".join(lines).split() if re.search(r"\w", word)]


def is_list(source: str) -> bool:
    """A glossary, a list of sources or of questions is looked up, not read through."""
    lines = [line for line in source.splitlines() if line.strip()]
    return sum(bool(re.match(r"\s*([-*]|\d+\.)\s|\s*<|\|", line)) for line in lines) > len(lines) / 2


def test_each_lesson_has_its_notebook():
    assert set(LESSONS) == {path.stem for path in PATHS}


@every_notebook
def test_committed_notebook_is_in_order(path: Path):
    assert notebooks.problems(path) == []


@every_notebook
def test_first_cells_carry_the_address(path: Path):
    notebook = notebooks.read(path)
    assert notebook.cells[0].source.startswith(notebooks.badges(path.stem))
    first = code_cells(notebook)[0]
    assert first.source.startswith(notebooks.bootstrap().rstrip("\n"))
    assert "bootstrap" in first.metadata.tags
    # Nothing else needs the internet.
    for cell in code_cells(notebook)[1:]:
        assert not re.search(r"^\s*[!%]|urlopen|requests\.|wget|curl |from_pretrained\(", cell.source, re.M)


@every_notebook
def test_cells_have_ids_and_known_tags(path: Path):
    notebook = notebooks.read(path)
    ids = [cell.id for cell in notebook.cells]
    assert len(ids) == len(set(ids))
    known = {"bootstrap", "gpu", "gpu-only", "nbval-check-output", "nbval-ignore-output", "widget", "hide-input"}
    for cell in notebook.cells:
        assert set(cell.metadata.get("tags", [])) <= known, cell.id


@every_notebook
def test_exercise_cells_are_stubs_followed_by_their_check(path: Path):
    from nbgrader.nbgraderformat.v3 import MetadataValidatorV3

    notebook = notebooks.read(path)
    MetadataValidatorV3().validate_nb(notebook)
    lesson = LESSONS[path.stem]
    found = []
    for position, cell in enumerate(notebook.cells):
        nbgrader = cell.metadata.get("nbgrader")
        if cell.cell_type != "code" or nbgrader is None or not nbgrader["solution"]:
            continue
        exercise = EXERCISES[nbgrader["grade_id"]]
        found.append(exercise.name)
        assert cell.source.startswith(f"# exercise: {exercise.name}\n")
        assert "raise NotImplementedError" in cell.source
        assert set(exercise.functions) <= notebooks.defined_names(cell.source)
        check = notebook.cells[position + 1]
        assert check.source == f"check({', '.join(exercise.functions)})"
        grade = check.metadata["nbgrader"]
        assert grade["grade_id"] == f"check_{exercise.name}"
        assert grade["grade"] and grade["locked"] and not grade["solution"]
        assert grade["points"] == exercise.points
    assert found == [exercise.name for exercise in lesson.exercises]
    others = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert len(others) == len(found)


@every_notebook
def test_each_exercise_says_points_minutes_and_difficulty(path: Path):
    """In the prose between the exercise before and this one's stub."""
    notebook, known, prose = notebooks.read(path), notebooks.exercises(), ""
    stubs = {cell.id: name for cell, name in notebooks.exercise_cells(notebook)}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose += cell.source + "\n"
        elif cell.id in stubs:
            exercise = known[stubs[cell.id]]
            points = "3 × 3" if exercise.name == "fit_on_gpu" else exercise.points
            line = rf"{points} points?, {exercise.minutes} minutes, difficulty {exercise.difficulty}\b"
            assert re.search(line, prose), f"{exercise.name}: {line}"
            prose = ""


@every_notebook
def test_images_say_what_they_show(path: Path):
    for cell in code_cells(notebooks.read(path)):
        for output in cell.outputs:
            png = output.get("data", {}).get("image/png")
            if png is None:
                continue
            alt = output.metadata["image/png"]["alt"]
            assert len(alt.split()) >= 5, cell.id
            assert output.data["text/plain"] == alt
            assert len(base64.b64decode(png)) <= notebooks.MAX_IMAGE_BYTES
    for cell in notebooks.read(path).cells:
        if cell.cell_type == "markdown":
            assert not re.search(r"!\[\]\(|<img(?![^>]*\balt=\"[^\"]+\")", cell.source), cell.id


@every_notebook
def test_cells_are_short(path: Path):
    for cell in notebooks.read(path).cells:
        if cell.cell_type == "markdown" and not is_list(cell.source):
            assert len(prose(cell.source)) <= MAX_WORDS, f"{cell.id}: {len(prose(cell.source))} words"
        if cell.cell_type == "code" and "nbgrader" not in cell.metadata:
            assert len(cell.source.splitlines()) <= MAX_LINES, f"{cell.id}: {len(cell.source.splitlines())} lines"


@every_notebook
def test_sections_of_a_lesson(path: Path):
    number = LESSONS[path.stem].number
    headings = [
        line.lstrip("# ").strip().lower()
        for cell in notebooks.read(path).cells
        if cell.cell_type == "markdown"
        for line in re.sub(r"(?s)```.*?```", "", cell.source).splitlines()
        if line.startswith("#")
    ]
    text = " | ".join(headings)
    wanted = {"00": [], "07": []}.get(number, ["where this bites", "self-test", "the thirty-second answer", "sources"])
    for heading in wanted:
        assert heading in text, heading
    opening = "\n".join(cell.source for cell in notebooks.read(path).cells[:4]).lower()
    assert re.search(r"you will be able to|after this (lesson|notebook) you can", opening)
    if wanted:
        sources = [cell.source for cell in notebooks.read(path).cells]
        assert any(re.search(r"^## Self-test$", source, re.M) for source in sources)
        assert any(re.search(r"^## The thirty-second answer$", source, re.M) for source in sources)


@with_exercises
def test_unsolved_notebook_earns_nothing(path: Path):
    result = check_notebook(path, seed=1)
    assert {row["status"] for row in result["exercises"]} == {"not_attempted"}
    assert result["points"] == 0 and result["bonus_points"] == 0
    assert result["max_points"] == LESSONS[path.stem].max_points


@with_exercises
def test_solved_edition_earns_full_marks(path: Path, tmp_path: Path):
    target = tmp_path / path.name
    notebooks.write_text(target, notebooks.as_text(notebooks.solve(notebooks.read(path))))
    result = check_notebook(target, seed=1)
    assert [(row["name"], row["feedback"]) for row in result["exercises"] if row["status"] != "passed"] == []
    assert result["points"] == result["max_points"] > 0
    assert result["bonus_points"] == result["max_bonus_points"]


def test_every_bare_edition_is_valid(tmp_path: Path):
    """Without outputs a notebook is still a notebook, and no cell of the course carries a time or a version."""
    for path in PATHS:
        notebook = notebooks.read(path)
        nbformat.validate(notebook)
        assert notebook.metadata.language_info == {"name": "python"}
        assert "widgets" not in notebook.metadata
        for cell in notebook.cells:
            assert set(cell.metadata) <= {"tags", "nbgrader"}, cell.id

"""`course check`: grade one's own notebooks, in a process of their own but without a sandbox."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from course_lib.data_files import PACKAGE

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from course_lib.grading.exercise import Lesson

TIME_LIMIT_S = 600


@click.command("check")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--seed", type=int, help="Draw other random cases than the notebook's own check.")
def command(paths: tuple[Path, ...], as_json: bool, seed: int | None) -> None:
    """Grade your own notebooks and print the points of each exercise.

    Runs the first code cell, your exercise cells and the cells that you added; not the course's demonstrations.
    """
    results = []
    for path in paths:
        try:
            results.append(check_notebook(path, seed))
        except ValueError as error:
            raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps({"notebooks": results}, indent=1))
    else:
        click.echo("\n\n".join(describe(result) for result in results))
    if any(row["status"] == "grader_error" for result in results for row in result["exercises"]):
        raise SystemExit(1)


def check_notebook(path: Path, seed: int | None = None) -> dict[str, Any]:
    """Points of one notebook, exercise by exercise, as plain data.

    Raises:
        ValueError: the file is no notebook, or holds none of the course's exercises.
    """
    from course_lib import notebooks

    notebook = notebooks.read(path)
    lesson = lesson_of(path, notebook)
    verdicts = _run(path, notebook, lesson, seed)
    rows = []
    for exercise in lesson.exercises:
        found = verdicts.get(exercise.name, {})
        rows.append(
            {
                "name": exercise.name,
                "status": found.get("status", "crashed"),
                "points": found.get("points", 0),
                "max_points": exercise.points,
                "bonus": exercise.bonus,
                "misconception": found.get("misconception"),
                "feedback": found.get("feedback", "The process that ran the notebook ended before this exercise."),
            }
        )
    counted = [row for row in rows if not row["bonus"]]
    extra = [row for row in rows if row["bonus"]]
    return {
        "path": str(path),
        "lesson": lesson.number,
        "points": sum(row["points"] for row in counted),
        "max_points": sum(row["max_points"] for row in counted),
        "bonus_points": sum(row["points"] for row in extra),
        "max_bonus_points": sum(row["max_points"] for row in extra),
        "exercises": rows,
    }


def lesson_of(path: Path, notebook: NotebookNode) -> Lesson:
    """The lesson that a notebook belongs to: by the exercises in it, else by the file's name."""
    from course_lib import notebooks
    from course_lib.exercises import SYLLABUS

    names = {name for _, name in notebooks.exercise_cells(notebook)}
    if not names:
        for cell in notebook.cells:
            names |= notebooks.defined_names(cell.source) if cell.cell_type == "code" else set()
    lessons = sorted(SYLLABUS, key=lambda lesson: -len(names & {exercise.name for exercise in lesson.exercises}))
    if lessons and names & {exercise.name for exercise in lessons[0].exercises}:
        return lessons[0]
    for lesson in SYLLABUS:
        if lesson.slug in path.stem and lesson.exercises:
            return lesson
    raise ValueError(f"{path} must hold exercises of the course; got none. Give one of the course's notebooks.")


def cells_to_run(notebook: NotebookNode, lesson: Lesson) -> list[tuple[str, str]]:
    """The code that matters for points, in order, as (source, kind): the imports, exercises, and learner's own cells.

    The course's own demonstrations and checks are left out: they are cells of the original notebook, found by their
    source. Where the original is not at hand nothing but the checks can be left out; that is slower, not wrong.
    """
    from course_lib import notebooks

    original = PACKAGE.parent / "notebooks" / f"{lesson.slug}.ipynb"
    known_sources: set[str] = set()
    known_ids: set[str] = set()
    if original.exists():
        for cell in notebooks.read(original).cells:
            if cell.cell_type == "code":
                known_sources.add(cell.source.strip())
                known_ids.add(cell.id)
    answers = {id(cell): name for cell, name in notebooks.exercise_cells(notebook)}
    wanted = {name for exercise in lesson.exercises for name in exercise.functions}
    cells = []
    for cell in notebook.cells:
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        source = cell.source
        if "bootstrap" in cell.metadata.get("tags", []) or 'find_spec("course_lib")' in source:
            cells.append((source, "imports"))
        elif id(cell) in answers or notebooks.defined_names(source) & wanted:
            cells.append((source, "answer"))
        elif cell.metadata.get("nbgrader", {}).get("grade") or source.strip() in known_sources:
            continue
        elif cell.get("id") not in known_ids:
            cells.append((source, "own"))
    return [(notebooks.without_magics(source), kind) for source, kind in cells]


def _run(path: Path, notebook: NotebookNode, lesson: Lesson, seed: int | None) -> dict[str, dict[str, Any]]:
    from course_lib import notebooks

    job = {
        "cells": cells_to_run(notebook, lesson),
        "exercises": [[exercise.name, list(exercise.functions)] for exercise in lesson.exercises],
        "seed": seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.jsonl")
        Path(folder, "job.json").write_text(json.dumps(job), encoding="utf-8")
        environment = notebooks.kernel_environment(folder, threads=1)
        environment |= {"MPLBACKEND": "Agg", "PYTHONWARNINGS": "ignore"}
        line = [sys.executable, "-m", "course_lib.commands.check_worker", folder]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                line,
                env=environment,
                cwd=path.resolve().parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # honest noise: prints, warnings, progress bars
                stderr=subprocess.DEVNULL,
                timeout=TIME_LIMIT_S,
            )
        found = {}
        if results.exists():
            for text in results.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(text)
                except ValueError:
                    continue
                found[row["name"]] = row
        return found


def describe(result: dict[str, Any]) -> str:
    """A table of the exercises, the sum, and what to do about those that are not right."""
    width = max(len(row["name"]) for row in result["exercises"])
    lines = [result["path"]]
    for row in result["exercises"]:
        points = f"{row['points']:g} of {row['max_points']:g}"
        bonus = "  (bonus)" if row["bonus"] else ""
        lines.append(f"  {row['name']:<{width}}  {points:>10}  {row['status'].replace('_', ' ')}{bonus}")
    lines.append(f"  {'points':<{width}}  {result['points']:g} of {result['max_points']:g}")
    if result["max_bonus_points"]:
        lines.append(f"  {'bonus':<{width}}  {result['bonus_points']:g} of {result['max_bonus_points']:g}")
    for row in result["exercises"]:
        if row["status"] not in ("passed", "not_attempted"):
            lines += ["", f"{row['name']}:", *(f"  {line}" for line in str(row["feedback"]).splitlines())]
    return "\n".join(lines)

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

if TYPE_CHECKING:
    from course_lib.grading.batch.selection import Selection

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

    Reads and selects cells exactly as batch grading does, so that nobody is surprised later.

    Raises:
        ValueError: the file is no notebook, or holds none of the course's exercises.
    """
    from course_lib.exercises import SYLLABUS
    from course_lib.grading.batch.reading import read
    from course_lib.grading.batch.selection import select

    try:
        selection = select(read(path.read_bytes()), tuple(SYLLABUS), path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    verdicts = _run(path, selection, seed)
    rows = []
    for exercise in selection.lesson.exercises:
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
        "lesson": selection.lesson.number,
        "points": sum(row["points"] for row in counted),
        "max_points": sum(row["max_points"] for row in counted),
        "bonus_points": sum(row["points"] for row in extra),
        "max_bonus_points": sum(row["max_points"] for row in extra),
        "exercises": rows,
        "problems": list(selection.problems),
    }


def _run(path: Path, selection: Selection, seed: int | None) -> dict[str, dict[str, Any]]:
    from course_lib import notebooks

    job = {
        "cells": selection.cells,
        "exercises": [
            [exercise.name, list(exercise.functions), list(selection.answers[exercise.name].cells)]
            for exercise in selection.lesson.exercises
        ],
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
    lines += [f"  to repair: {problem}" for problem in result["problems"]]
    for row in result["exercises"]:
        if row["status"] not in ("passed", "not_attempted"):
            lines += ["", f"{row['name']}:", *(f"  {line}" for line in str(row["feedback"]).splitlines())]
    return "\n".join(lines)

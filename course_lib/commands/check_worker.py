"""Runs a learner's cells and judges the exercises; `course check` starts it as a process of its own.

Reads `job.json` in the folder that it is given and writes `results.jsonl` there, a line as soon as an exercise is
judged, so that code which ends the process costs only what comes after it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.grading.observation import ExceptionRecord
    from course_lib.grading.sandbox.cells import Notebook

CELL_LIMIT_S = 60.0


def run_cells(cells: list[tuple[int, str]]) -> tuple[Notebook, dict[int, ExceptionRecord]]:
    """Runs each cell, whatever the cells before it did; what was raised, by the cell's place."""
    from course_lib.grading.limits import run_limited
    from course_lib.grading.sandbox.cells import Notebook

    notebook = Notebook()
    errors = {}
    for place, source in cells:
        error = run_limited(lambda place=place, source=source: notebook.run(place, source), CELL_LIMIT_S)  # type: ignore[misc]
        if error is not None:
            errors[place] = error
    return notebook, errors


def judge(
    name: str,
    functions: list[str],
    places: list[int],
    names: dict[str, Any],
    errors: dict[int, ExceptionRecord],
    seed: int | None,
) -> dict[str, Any]:
    """One exercise's verdict as plain data.

    Args:
        functions: the names that the exercise asks for.
        places: of the cells that define them.
        names: the notebook's namespace.
        errors: what cells raised.
    """
    from course_lib.grading import assess

    missing = [function for function in functions if function not in names]
    if missing:
        for place in places:
            if place in errors:
                feedback = f"Cell {place + 1}, which defines {missing[0]}, ended with {str(errors[place])[:300]}."
                return {"name": name, "status": "crashed", "points": 0, "feedback": feedback}
        return {"name": name, "status": "not_attempted", "points": 0, "feedback": f"No cell defines {missing[0]}."}
    parts = [names[function] for function in functions]
    verdict = assess(name, parts[0] if len(parts) == 1 else tuple(parts), seed)
    return {
        "name": name,
        "status": verdict.status,
        "points": verdict.points,
        "misconception": verdict.misconception,
        "feedback": verdict.feedback,
    }


def main(folder: str) -> None:
    job = json.loads(Path(folder, "job.json").read_text(encoding="utf-8"))
    with open(Path(folder, "results.jsonl"), "a", encoding="utf-8") as results:
        notebook, errors = run_cells(job["cells"])
        for name, functions, places in job["exercises"]:
            row = judge(name, functions, places, notebook.names, errors, job["seed"])
            results.write(json.dumps(row) + "\n")
            results.flush()


if __name__ == "__main__":
    main(sys.argv[1])

"""Runs a learner's cells and judges the exercises; `course check` starts it as a process of its own.

Reads `job.json` in the folder that it is given and writes `results.jsonl` there, a line as soon as an exercise is
judged, so that code which ends the process costs only what comes after it.
"""

from __future__ import annotations

import json
import linecache
import sys
import traceback
import types
from pathlib import Path
from typing import Any

CELL_LIMIT_S = 60.0


def run_cells(cells: list[tuple[str, str]]) -> tuple[dict[str, Any], list[str]]:
    """Runs each cell in one namespace, whatever the cells before it did; returns the namespace and what went wrong."""
    from course_lib.grading.limits import TimeLimitExceeded, run_limited

    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = module.__dict__
    namespace["display"] = lambda *things, **options: None
    wrong = []
    for number, (source, kind) in enumerate(cells, start=1):
        name = f"<cell {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        try:
            code = compile(source, name, "exec")
            run_limited(lambda code=code: exec(code, namespace), CELL_LIMIT_S)  # type: ignore[misc]
        except (Exception, SystemExit, TimeLimitExceeded) as error:
            if kind != "own":
                wrong.append(traceback.format_exception_only(error)[-1].strip())
    return namespace, wrong


def judge(
    name: str, functions: list[str], namespace: dict[str, Any], wrong: list[str], seed: int | None
) -> dict[str, Any]:
    """One exercise's verdict as plain data."""
    from course_lib.grading import assess

    parts = [namespace.get(function) for function in functions]
    if any(part is None for part in parts):
        missing = [function for function, part in zip(functions, parts, strict=True) if part is None]
        if wrong:
            feedback = f"{', '.join(missing)} is not defined. A cell did not run: {wrong[0]}"
            return {"name": name, "status": "crashed", "points": 0, "feedback": feedback}
        return {"name": name, "status": "not_attempted", "points": 0, "feedback": f"No cell defines {missing[0]}."}
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
        namespace, wrong = run_cells(job["cells"])
        for name, functions in job["exercises"]:
            results.write(json.dumps(judge(name, functions, namespace, wrong, job["seed"])) + "\n")
            results.flush()


if __name__ == "__main__":
    main(sys.argv[1])

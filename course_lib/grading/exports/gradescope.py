"""Gradescope's `results.json`, and the autograder archive that makes one."""

import io
import json
import stat
import zipfile
from pathlib import Path
from typing import Any

from course_lib.data_files import PACKAGE, data_directories
from course_lib.grading.exports.grades import ExportError
from course_lib.grading.verdict import PASSED, points_text

WALLS = (
    "Gradescope's containers cannot start bubblewrap: your code ran as a separate user of the container, not in the "
    "course's full sandbox."
)

SETUP = """\
#!/usr/bin/env bash
# Runs once, when Gradescope builds the container (Ubuntu 22.04 or later, as root).
set -euo pipefail
apt-get update
apt-get install -y --no-install-recommends python3 python3-pip python3-venv
python3 -m venv /autograder/venv
/autograder/venv/bin/pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu
/autograder/venv/bin/pip install --no-cache-dir -e /autograder/source/course
"""

RUN = """\
#!/usr/bin/env bash
# Grades one submission. Gradescope's containers cannot start bubblewrap, so the submission runs as a separate user,
# which can read neither the submission folder of others (there is none) nor the results.
set -uo pipefail
root="${AUTOGRADER_ROOT:-/autograder}"
course="${COURSE_COMMAND:-$root/venv/bin/course}"
out="$(mktemp -d)"
mkdir -p "$root/results"
chmod 700 "$root/submission" "$root/results" "$out"
"$course" grade "$root/submission" --out "$out/graded" --separate-user @OPTIONS@
"$course" export "$out/graded" --for gradescope --output "$root/results/results.json"
status=$?
rm -rf "$out"
exit "$status"
"""


def results(row: dict[str, Any], *, separate_user: bool) -> dict[str, Any]:
    """One submission as Gradescope's results."""
    tests = []
    for exercise in row["exercises"]:
        bonus = " (bonus)" if exercise["bonus"] else ""
        tests.append(
            {
                "name": exercise["name"] + bonus,
                "score": exercise["points"],
                # Extra credit on Gradescope is a score above what the assignment is worth.
                "max_score": exercise["max_points"],
                "status": "passed" if exercise["status"] == PASSED else "failed",
                "output": "\n".join([*exercise["feedback"], *exercise["notes"]]),
                "output_format": "text",
                "visibility": "visible",
            }
        )
    lines = [f"Needs repair: {problem}" for problem in row["problems"]] + row["notes"]
    if row["exercises"]:
        lines.insert(0, f"{points_text(row['points'])} of {row['max_points']} points.")
    if separate_user:
        lines.append(WALLS)
    return {
        "score": row["points"] + row["bonus_points"],
        "output": "\n".join(lines),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }


def results_text(document: dict[str, Any]) -> str:
    """`results.json` of a run with one submission: of several files the one with the most points."""
    rows = document["submissions"]
    if not rows:
        raise ExportError("there must be a submission; found none.")
    best = max(rows, key=lambda row: (row["points"] + row["bonus_points"], -len(row["problems"])))
    return json.dumps(results(best, separate_user=document["sandbox"] != "bubblewrap"), ensure_ascii=False, indent=1)


def archive(options: str = "") -> bytes:
    """The autograder archive: the course, `setup.sh` and `run_autograder`; the same bytes each time.

    Args:
        options: more options for `course grade`, as a command line.
    """
    root = PACKAGE.parent
    data = next((folder for folder in data_directories() if folder.is_dir()), None)
    wanted = {f"course/course_lib/{path.relative_to(PACKAGE)}": path for path in PACKAGE.rglob("*") if _is_source(path)}
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (root / name).exists():
            wanted[f"course/{name}"] = root / name
    if "course/pyproject.toml" not in wanted:
        raise ExportError("--for gradescope needs a clone of the course; this is an installed package.")
    if data is not None:
        wanted |= {f"course/data/{path.relative_to(data)}": path for path in data.rglob("*") if path.is_file()}
    wanted |= {f"course/notebooks/{path.name}": path for path in (root / "notebooks").glob("*.ipynb")}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, path in sorted(wanted.items()):
            _add(zipped, name, path.read_bytes(), 0o644)
        _add(zipped, "setup.sh", SETUP.encode(), 0o755)
        _add(zipped, "run_autograder", RUN.replace("@OPTIONS@", options).encode(), 0o755)
    return packed.getvalue()


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")


def _add(zipped: zipfile.ZipFile, name: str, data: bytes, mode: int) -> None:
    info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
    info.external_attr = (stat.S_IFREG | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    zipped.writestr(info, data)

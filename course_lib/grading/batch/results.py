"""What a run leaves behind: one file a submission as soon as it is graded, then the tables.

`results/ID.json` is written whole or not at all, so that a run that was killed goes on where it stopped. All else is
made from these files. Nothing in `grades.json` depends on how long anything took or on what ran beside it.
"""

import csv
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from course_lib.data_files import PACKAGE
from course_lib.grading.exercise import Lesson

SCHEMA = 1
_NOT_COMPARED = ("seconds",)


def write_whole(path: Path, text: str) -> None:
    """Writes a file whole or not at all, also when the machine stops in the middle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def course_fingerprint() -> str:
    """Changes when any line of the course's package does: then old results are no longer this course's."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes() + b"\0")
    digest.update(version("torch").encode())
    return digest.hexdigest()[:16]


class Store:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._results = folder / "results"

    def load(self, identity: str, key: str) -> dict[str, Any] | None:
        """A result stored under that key, or None; a damaged file is none."""
        try:
            stored = json.loads((self._results / f"{identity}.json").read_text(encoding="utf-8"))
            if stored["key"] == key and stored["result"]["id"] == identity:
                return stored["result"]
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def save(self, result: dict[str, Any], key: str) -> None:
        """Stores one result."""
        text = json.dumps({"key": key, "result": result}, ensure_ascii=False, indent=1)
        write_whole(self._results / f"{result['id']}.json", text + "\n")

    def run_settings(self) -> dict[str, Any]:
        """What `save_run_settings` stored, or nothing."""
        try:
            stored = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
            return stored if isinstance(stored, dict) else {}
        except (OSError, ValueError):
            return {}

    def save_run_settings(self, settings: dict[str, Any]) -> None:
        write_whole(self.folder / "run.json", json.dumps(settings, indent=1) + "\n")


def grades_document(results: Iterable[dict[str, Any]], lessons: Iterable[Lesson], settings: dict[str, Any]) -> dict:
    """`grades.json`, described in INSTRUCTORS.md."""
    ordered = sorted(results, key=lambda result: result["id"])
    return {
        "schema": SCHEMA,
        "course": "Sixteen Bytes",
        **settings,
        "lessons": [_lesson(lesson) for lesson in lessons],
        "submissions": [{k: v for k, v in result.items() if k not in _NOT_COMPARED} for result in ordered],
    }


def _lesson(lesson: Lesson) -> dict[str, Any]:
    exercises = [{"name": ex.name, "points": ex.points, "bonus": ex.bonus} for ex in lesson.exercises]
    return {"number": lesson.number, "title": lesson.title, "max_points": lesson.max_points, "exercises": exercises}


def grades_text(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _guarded(text: str) -> str:
    """A spreadsheet takes a cell that starts like this for a formula, and runs it."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def grades_csv(document: dict[str, Any]) -> str:
    """`grades.csv`: RFC 4180, a line a submission, a column an exercise of the lessons that occur."""
    present = {submission["lesson"] for submission in document["submissions"]}
    names = [ex["name"] for lesson in document["lessons"] if lesson["number"] in present for ex in lesson["exercises"]]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    head = ["student", "number", "submission", "source", "lesson", "status", "points", "max_points", "bonus_points"]
    writer.writerow([*head, *names, "problems", "flags"])
    for row in document["submissions"]:
        by_name = {ex["name"]: ex for ex in row["exercises"]}
        flagged = [f"{ex['name']}: {flag}" for ex in row["exercises"] for flag in ex["flags"]]
        writer.writerow(
            [
                *(_guarded(row[key]) for key in ("student", "number", "id", "source")),
                row["lesson"] or "",
                row["status"],
                *(row[key] for key in ("points", "max_points", "bonus_points")),
                *(by_name[name]["points"] if name in by_name else "" for name in names),
                _guarded("; ".join(row["problems"])),
                _guarded("; ".join(flagged)),
            ]
        )
    return text.getvalue()

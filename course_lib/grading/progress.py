"""Where a learner stands: a small file that may be deleted or damaged without loss of anything but the picture."""

import html
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from course_lib.grading.verdict import Verdict, points_text


def _path() -> Path:
    home = os.environ.get("SIXTEEN_BYTES_HOME")
    return (Path(home) if home else Path.home() / ".sixteen-bytes") / "progress.json"


def _read() -> dict[str, float]:
    try:
        data = json.loads(_path().read_text(encoding="utf-8"))
        return {str(name): float(points) for name, points in data["points"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}  # no file, or a damaged one: start anew


def best_points(name: str) -> float | None:
    """The best result so far, or None when the exercise was never checked."""
    return _read().get(name)


def remember(verdict: Verdict) -> None:
    """Keeps the best result of an exercise. A folder that cannot be written to costs only the picture."""
    points = _read()
    points[verdict.name] = max(verdict.points, points.get(verdict.name, 0.0))
    try:
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"points": dict(sorted(points.items()))}, file, indent=1)
        os.replace(temporary, path)
    except OSError:
        return


class ProgressPicture:
    """Points by lesson as bars, in text and in HTML."""

    def __init__(self, points: dict[str, float], lessons: Any) -> None:
        self.rows = []
        for lesson in lessons:
            counted = [ex for ex in lesson.exercises if not ex.bonus]
            bonus = sum(points.get(ex.name, 0.0) for ex in lesson.exercises if ex.bonus)
            earned = sum(min(points.get(ex.name, 0.0), ex.points) for ex in counted)
            open_ones = [ex.name for ex in counted if points.get(ex.name, 0.0) < ex.points]
            self.rows.append((lesson.number, lesson.title, earned, lesson.max_points, bonus, open_ones))

    def _total(self) -> str:
        return f"{points_text(sum(row[2] for row in self.rows))} of {sum(row[3] for row in self.rows)} points"

    def __repr__(self) -> str:
        width = max((len(row[1]) for row in self.rows), default=0)
        lines = []
        for number, title, earned, due, bonus, _ in self.rows:
            filled = round(20 * earned / due) if due else 0
            bar = "█" * filled + "·" * (20 - filled)
            extra = f" + {points_text(bonus)} bonus" if bonus else ""
            lines.append(f"{number}  {title:<{width}}  {bar}  {points_text(earned):>5} of {due}{extra}")
        return "\n".join([*lines, f"Together: {self._total()}"])

    def _repr_html_(self) -> str:
        cells = []
        for number, title, earned, due, bonus, open_ones in self.rows:
            extra = f" + {points_text(bonus)} bonus" if bonus else ""
            text = f"{points_text(earned)} of {due}{extra}"
            if open_ones and earned > 0:
                text += f"; next: <code>{html.escape(open_ones[0])}</code>"
            share = 100 * earned / due if due else 0
            bar = (
                f"<div role='img' aria-label='{points_text(earned)} of {due} points' "
                "style='width:12em;height:0.9em;border:1px solid currentColor'>"
                f"<div style='width:{share:.0f}%;height:100%;background:#0072B2'></div></div>"
            )
            cells.append(
                f"<tr><th scope='row' style='text-align:left'>{number} {html.escape(title)}</th>"
                f"<td>{bar}</td><td style='text-align:left'>{text}</td></tr>"
            )
        head = "<tr><th scope='col'>Lesson</th><th scope='col'>Done</th><th scope='col'>Points</th></tr>"
        return f"<table><caption>{self._total()}</caption>{head}{''.join(cells)}</table>"


def progress() -> None:
    """Draws where you stand, lesson by lesson."""
    from course_lib.exercises import SYLLABUS  # the only way from grading to the exercises
    from course_lib.grading.check import show

    show(ProgressPicture(_read(), SYLLABUS))

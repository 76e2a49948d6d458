"""One page a student: points, feedback, and what should be repaired. All text is escaped; no script can run."""

import html
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from course_lib.grading.batch.results import write_whole
from course_lib.grading.exercise import Lesson
from course_lib.grading.verdict import Verdict, points_text

STYLE = """
body { font-family: system-ui, sans-serif; line-height: 1.5; max-width: 62em; margin: 2em auto; padding: 0 1em;
  color: #1a1a1a; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; } code { background: #f2f2f2; padding: 0 0.2em; }
table { border-collapse: collapse; margin: 1em 0; } caption { text-align: left; font-weight: 600; padding: 0.3em 0; }
th, td { text-align: left; padding: 0.25em 0.9em 0.25em 0; border-bottom: 1px solid #ddd; vertical-align: top; }
td.number, th.number { text-align: right; } .sum { font-size: 1.25em; }
.repair { border: 2px solid #D55E00; padding: 0.4em 1em; } .repair h2 { margin-top: 0.4em; }
figure { margin: 1em 0; overflow-x: auto; } figcaption { max-width: 48em; } svg { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #1b1b1b; } code { background: #333; }
  th, td { border-color: #444; } figure { background: #fff; color: #1a1a1a; padding: 0.5em; } }
@media print { body { margin: 0; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

MEASURED = "The bytes that decide this one were measured in the submission's own process."


def text(value: Any) -> str:
    """Escaped for HTML."""
    return html.escape(str(value), quote=True)


def page(title: str, body: str) -> str:
    """A page that loads nothing and runs nothing."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def items(lines: Iterable[str]) -> str:
    """A list of escaped lines."""
    return "<ul>" + "".join(f"<li>{text(line)}</li>" for line in lines) + "</ul>"


def path_of(folder: Path, identity: str) -> Path:
    """Where a submission's page is."""
    return folder / "reports" / f"{identity}.html"


def write(folder: Path, result: dict[str, Any], lessons: Iterable[Lesson]) -> None:
    """Writes one student's page."""
    write_whole(path_of(folder, result["id"]), student_page(result, {lesson.number: lesson for lesson in lessons}))


def verdict_of(row: dict[str, Any]) -> Verdict:
    """The stored row as the verdict that it was."""
    return Verdict(
        row["name"], row["status"], row["points"], row["max_points"], row["misconception"],
        tuple(row["feedback"]), tuple(row["notes"]), row["bonus"],
    )  # fmt: skip


def student_page(result: dict[str, Any], lessons: dict[str, Lesson]) -> str:
    """The page of one submission."""
    lesson = lessons.get(result["lesson"] or "")
    title = f"{lesson.number} {lesson.title}" if lesson else "Sixteen Bytes"
    parts = [
        f"<h1>{text(result['student'])}: {text(title)}</h1>",
        f"<p>File: <code>{text(result['source'])}</code></p>",
    ]
    if result["exercises"]:
        bonus = f", and {points_text(result['bonus_points'])} bonus" if result["bonus_points"] else ""
        parts.append(
            f'<p class="sum"><strong>{points_text(result["points"])} of {result["max_points"]} points</strong>{bonus}</p>'
        )
    if result["problems"]:
        parts.append(
            '<section class="repair"><h2>Needs repair</h2><p>Parts of the notebook could not be read or found. '
            "Mend them and hand it in again, or talk to your instructor.</p>"
            f"{items(result['problems'])}</section>"
        )
    if result["exercises"]:
        parts.append(_table(result["exercises"]))
        parts.append("<h2>Feedback</h2>")
    for row in result["exercises"]:
        parts.append(verdict_of(row)._repr_html_())
        if row["measured_in_process"] and row["points"]:
            parts.append(f"<p><small>{MEASURED}</small></p>")
    if result["notes"]:
        parts.append(f"<h2>Notes on the notebook</h2>{items(result['notes'])}")
    if result["seed"] is not None:
        parts.append(
            f"<p><small>Graded on inputs drawn with seed {text(result['seed'])}, "
            f"from a file with SHA-256 {text(result['sha256'][:16])}….</small></p>"
        )
    return page(f"{result['student']}: {title}", "\n".join(parts))


def _table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        name = f"{text(row['name'])}{' (bonus)' if row['bonus'] else ''}"
        status = verdict_of(row).heading.split(": ", 1)[1].rsplit(",", 1)[0]
        sign = verdict_of(row).heading.split(" ", 1)[0]
        lines.append(
            f'<tr><th scope="row"><code>{name}</code></th><td>{sign} {text(status)}</td>'
            f'<td class="number">{points_text(row["points"])} of {row["max_points"]}</td></tr>'
        )
    head = '<tr><th scope="col">Exercise</th><th scope="col">Result</th><th scope="col" class="number">Points</th></tr>'
    return f"<table><caption>Points by exercise</caption>{head}{''.join(lines)}</table>"

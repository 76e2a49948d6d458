"""The class on one page: what is solved, what is misunderstood, where people stop, and who needs a look."""

import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

from course_lib.figures import COLORS
from course_lib.grading.batch import report
from course_lib.grading.batch.report import items, text
from course_lib.grading.batch.results import write_whole
from course_lib.grading.verdict import CRASHED, FAILED, GRADER_ERROR, NOT_ATTEMPTED, PARTLY, PASSED, points_text

# Each status with a colour and, as a second channel, a hatch.
_LOOKS = {
    PASSED: ("passed", COLORS["green"], ""),
    PARTLY: ("partly", COLORS["orange"], "//"),
    FAILED: ("not right", COLORS["vermillion"], "xx"),
    CRASHED: ("crashed", COLORS["purple"], "\\\\"),
    GRADER_ERROR: ("grader error", COLORS["yellow"], "oo"),
    NOT_ATTEMPTED: ("not attempted", "#DDDDDD", ".."),
}


def write(folder: Path, document: dict[str, Any]) -> None:
    """Writes `class.html`."""
    write_whole(folder / "class.html", class_page(document))


def class_page(document: dict[str, Any]) -> str:
    """The page for the instructor; it holds names, so it is not for students."""
    submissions = document["submissions"]
    parts = [
        "<h1>Class summary</h1>",
        f"<p>{len(submissions)} submissions, run seed {text(document['seed'])}, sandbox: {text(document['sandbox'])}, "
        f"torch {text(document['torch'])}.</p>",
    ]
    if document["sandbox"] != "bubblewrap":
        parts.append(
            '<section class="repair"><h2>Graded without the full sandbox</h2>'
            "<p>These submissions could read files of this machine while they ran. Trust the points accordingly.</p>"
            "</section>"
        )
    for lesson in document["lessons"]:
        mine = [row for row in submissions if row["lesson"] == lesson["number"]]
        if mine:
            parts += _lesson_parts(lesson, mine)
    parts += _attention(submissions)
    return report.page("Class summary", "\n".join(parts))


def _lesson_parts(lesson: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    names = [exercise["name"] for exercise in lesson["exercises"]]
    by_name = {name: [ex for row in rows for ex in row["exercises"] if ex["name"] == name] for name in names}
    parts = [f"<h2>{text(lesson['number'])} {text(lesson['title'])}</h2>"]
    points = sorted(row["points"] for row in rows)
    middle = points[len(points) // 2]
    parts.append(
        f"<p>{len(rows)} submissions; median {points_text(middle)} of {lesson['max_points']} points, from "
        f"{points_text(points[0])} to {points_text(points[-1])}.</p>"
    )
    parts.append(_statuses_figure(lesson, by_name))
    parts.append(_stops_figure(names, rows))
    parts.append(_points_figure(lesson, points))
    parts.append(_exercise_table(lesson, by_name))
    return parts


def _exercise_table(lesson: dict[str, Any], by_name: dict[str, list[dict[str, Any]]]) -> str:
    lines = []
    for exercise in lesson["exercises"]:
        rows = by_name[exercise["name"]]
        tried = [row for row in rows if row["status"] != NOT_ATTEMPTED]
        ideas = Counter(row["misconception"] for row in rows if row["misconception"])
        shown = ", ".join(f"{name.replace('_', ' ')} ({count})" for name, count in ideas.most_common(4))
        solved = sum(row["status"] == PASSED for row in rows)
        share = f"{100 * solved / len(rows):.0f} %" if rows else ""
        lines.append(
            f'<tr><th scope="row"><code>{text(exercise["name"])}</code>{" (bonus)" if exercise["bonus"] else ""}</th>'
            f'<td class="number">{exercise["points"]}</td><td class="number">{len(tried)}</td>'
            f'<td class="number">{solved}</td><td class="number">{share}</td><td>{text(shown)}</td></tr>'
        )
    head = "".join(
        f'<th scope="col"{kind}>{name}</th>'
        for name, kind in (
            ("Exercise", ""), ("Points", ' class="number"'), ("Tried", ' class="number"'),
            ("Solved", ' class="number"'), ("Share", ' class="number"'), ("Misconceptions recognised", ""),
        )
    )  # fmt: skip
    return f"<table><caption>Exercise by exercise</caption><tr>{head}</tr>{''.join(lines)}</table>"


def _figure(figure: Any, alt: str) -> str:
    """A matplotlib figure inside the page, described, and the same bytes each time."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    drawn = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sixteen-bytes"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    svg = drawn.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{text(alt)}" ', 1)
    return f"<figure>{svg}<figcaption>{text(alt)}</figcaption></figure>"


def _axes(rows: float) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt.subplots(figsize=(8.4, rows))


def _statuses_figure(lesson: dict[str, Any], by_name: dict[str, list[dict[str, Any]]]) -> str:
    names = list(by_name)
    figure, axes = _axes(1.4 + 0.36 * len(names))
    left = [0] * len(names)
    for status, (label, colour, hatch) in _LOOKS.items():
        counts = [sum(row["status"] == status for row in by_name[name]) for name in names]
        if not any(counts):
            continue
        bars = axes.barh(names, counts, left=left, color=colour, hatch=hatch, edgecolor="white", label=label)
        for bar, count in zip(bars, counts, strict=True):
            if count:
                axes.text(
                    bar.get_x() + bar.get_width() / 2, bar.get_y() + bar.get_height() / 2, str(count), ha="center",
                    va="center", fontsize=8, bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none"},
                )  # fmt: skip
        left = [before + count for before, count in zip(left, counts, strict=True)]
    solved = {name: sum(row["status"] == PASSED for row in rows) for name, rows in by_name.items()}
    hardest = min(solved, key=lambda name: solved[name])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("submissions")
    axes.set_title(f"{hardest} is solved least: by {solved[hardest]} of {len(by_name[hardest])}")
    figure.legend(loc="outside lower center", ncols=6, fontsize=8)
    shares = ", ".join(f"{name} {count}" for name, count in solved.items())
    return _figure(figure, f"How often each exercise is solved, of {max(left, default=0)} submissions: {shares}.")


def _stops_figure(names: list[str], rows: list[dict[str, Any]]) -> str:
    tried = []
    for row in rows:
        places = [names.index(ex["name"]) for ex in row["exercises"] if ex["status"] != NOT_ATTEMPTED]
        tried.append(max(places, default=-1))
    reached = [sum(last >= place for last in tried) for place in range(len(names))]
    drops = [before - after for before, after in zip([len(rows), *reached], reached, strict=False)]
    worst = max(range(len(drops)), key=lambda place: drops[place]) if drops else 0
    figure, axes = _axes(3.0)
    axes.step(range(len(names)), reached, where="mid", color=COLORS["blue"], linestyle="-")
    axes.plot(range(len(names)), reached, "o", color=COLORS["blue"])
    for place, count in enumerate(reached):
        axes.annotate(str(count), (place, count), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8)
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", fontsize=8)
    axes.set_ylim(0, len(rows) * 1.15 + 0.5)
    axes.set_ylabel("submissions that get so far")
    finding = f"Most stop before {names[worst]}: {drops[worst]}" if drops[worst] else "Everyone tries the last exercise"
    axes.set_title(finding)
    return _figure(figure, f"{finding}. Submissions that try an exercise or a later one: {_listed(names, reached)}.")


def _listed(names: list[str], counts: list[int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))


def _points_figure(lesson: dict[str, Any], points: list[float]) -> str:
    figure, axes = _axes(2.6)
    top = lesson["max_points"]
    bins = [edge - 0.5 for edge in range(0, top + 2)]
    axes.hist(points, bins=bins, color=COLORS["sky"], edgecolor=COLORS["blue"], hatch="//", linewidth=0.8)
    axes.set_xlabel(f"points of {top}")
    axes.set_ylabel("submissions")
    axes.yaxis.get_major_locator().set_params(integer=True)
    full = sum(value >= top for value in points)
    none = sum(value == 0 for value in points)
    finding = f"{full} of {len(points)} have all points, {none} have none"
    axes.set_title(finding)
    return _figure(figure, f"Points by submission. {finding}.")


def _attention(submissions: list[dict[str, Any]]) -> list[str]:
    def listed(title: str, lines: list[str], empty: str) -> str:
        return f"<h2>{title} ({len(lines)})</h2>" + (items(lines) if lines else f"<p>{empty}</p>")

    repair = [
        f"{row['student']} ({row['source']}): {'; '.join(row['problems'])}" for row in submissions if row["problems"]
    ]
    flagged = [
        f"{row['student']}: {ex['name']}: {flag}"
        for row in submissions
        for ex in row["exercises"]
        for flag in ex["flags"]
    ]
    errors = [
        f"{row['student']}: {ex['name']}: {' '.join(ex['feedback'])}"
        for row in submissions
        for ex in row["exercises"]
        if ex["status"] == GRADER_ERROR
    ]
    measured = sorted({ex["name"] for row in submissions for ex in row["exercises"] if ex["measured_in_process"]})
    lines = []
    for row in submissions:
        number = f"{points_text(row['points'])} of {row['max_points']}" if row["exercises"] else ""
        bonus = points_text(row["bonus_points"]) if row["bonus_points"] else ""
        lines.append(
            f'<tr><th scope="row"><a href="reports/{text(row["id"])}.html">{text(row["student"])}</a></th>'
            f"<td>{text(row['lesson'] or '')}</td><td>{text(row['status'].replace('_', ' '))}</td>"
            f'<td class="number">{number}</td><td class="number">{bonus}</td></tr>'
        )
    head = (
        '<tr><th scope="col">Student</th><th scope="col">Lesson</th><th scope="col">Status</th>'
        '<th scope="col" class="number">Points</th><th scope="col" class="number">Bonus</th></tr>'
    )
    return [
        listed("Needs repair", repair, "Every file could be read."),
        listed("Answers that look like the course's own", flagged, "None."),
        listed("The grader itself failed", errors, "Nowhere."),
        f"<p>Measured in the submission's own process, and so no proof: {text(', '.join(measured))}.</p>"
        if measured
        else "",
        "<h2>Everyone</h2>",
        f"<table><caption>Each name leads to the student's page</caption>{head}{''.join(lines)}</table>",
    ]

"""Moodle's grading worksheet: grade and feedback in one import (Assignment, Upload grading worksheet)."""

import html
from pathlib import Path
from typing import Any

from course_lib.grading.exports.canvas import read_table, write_table
from course_lib.grading.exports.grades import ExportError, match, plain_feedback, total
from course_lib.grading.verdict import points_text

_HEADER = ["Identifier", "Full name", "Grade", "Maximum grade", "Feedback comments"]
_PARTICIPANT = "Participant "


def feedback(row: dict[str, Any]) -> str:
    """The feedback as the HTML that Moodle stores."""
    return "".join(f"<p>{html.escape(line)}</p>" for line in plain_feedback(row).splitlines() if line.strip())


def worksheet(rows: list[dict[str, Any]], max_points: float, *, with_bonus: bool = False) -> str:
    """A worksheet made from the numbers in the names of the folders that Moodle hands out.

    Raises:
        ExportError: the submissions carry no such numbers.
    """
    numbered = [row for row in rows if row["number"]]
    if not numbered:
        raise ExportError(
            "the submissions carry no participant numbers (folders such as 'Jane Doe_123_assignsubmission_file_'). "
            "Give --gradebook with the grading worksheet from Moodle."
        )
    lines = [
        [
            _PARTICIPANT + row["number"],
            row["student"],
            points_text(total(row, with_bonus=with_bonus)),
            points_text(max_points),
            feedback(row),
        ]
        for row in numbered
    ]
    return write_table("", [_HEADER, *lines])


def fill(
    sheet: Path, rows: list[dict[str, Any]], *, with_bonus: bool = False
) -> tuple[str, list[dict[str, Any]], list[str]]:
    """The worksheet that was downloaded from Moodle, with grades and feedback.

    Returns:
        the new text, the results that no line could take, and remarks.
    """
    mark, table = read_table(sheet)
    header = table[0] if table else []
    for name in ("Identifier", "Grade"):
        if name not in header:
            raise ExportError(f"--gradebook must be Moodle's grading worksheet with a column {name}; {sheet} has none.")
    comments = header.index("Feedback comments") if "Feedback comments" in header else None
    remarks = [] if comments is not None else ["the worksheet has no column 'Feedback comments': grades only"]
    people = [dict(zip(header, line, strict=False)) for line in table[1:]]
    found, left = match(
        rows,
        people,
        lambda person: [person["Identifier"].removeprefix(_PARTICIPANT), person.get("Email address", "")],
        lambda person: [person.get("Full name", ""), person.get("Email address", "").partition("@")[0]],
    )
    for position, row in found.items():
        line = table[position + 1]
        line.extend([""] * (len(header) - len(line)))
        line[header.index("Grade")] = points_text(total(row, with_bonus=with_bonus))
        if comments is not None:
            line[comments] = feedback(row)
    return write_table(mark, table), left, remarks

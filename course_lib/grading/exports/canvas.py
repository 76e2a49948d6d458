"""Fills one column of a gradebook that was exported from Canvas; every other cell stays as it was."""

import csv
import io
from pathlib import Path
from typing import Any

from course_lib.grading.exports.grades import ExportError, match, total
from course_lib.grading.verdict import points_text

_OURS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Integration ID", "Section")


def read_table(path: Path) -> tuple[str, list[list[str]]]:
    """A CSV file's byte order mark and its rows.

    Raises:
        ExportError: it is no CSV file in UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8")
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        return mark, list(csv.reader(io.StringIO(text.removeprefix(mark), newline=""), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ExportError(f"--gradebook must be the CSV file as exported; {path}: {error}.") from None


def write_table(mark: str, rows: list[list[Any]]) -> str:
    """Rows as RFC 4180."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return mark + text.getvalue()


def fill(
    gradebook: Path,
    rows: list[dict[str, Any]],
    column: str | None,
    max_points: float,
    *,
    with_bonus: bool = False,
    scale: bool = False,
) -> tuple[str, list[dict[str, Any]], list[str]]:
    """The gradebook with points in one column.

    Args:
        gradebook: as exported: a header, a line of points possible, a line a student.
        rows: one result a student.
        column: the header of the assignment, or its beginning.
        max_points: of the lesson.
        scale: in proportion to the column's points possible.
    Returns:
        the new text, the results that no line could take, and remarks.
    """  # fmt: skip
    mark, table = read_table(gradebook)
    header = table[0] if table else []
    for name in ("Student", "ID"):
        if name not in header:
            raise ExportError(f"--gradebook must be a Canvas gradebook with a column {name}; {gradebook} has none.")
    place = _column(header, column)
    width = len(header)
    lines = [number for number, line in enumerate(table) if number > 0 and _cell(line, header.index("ID")).strip()]
    people = [{name: _cell(table[number], header.index(name)) for name in _OURS if name in header} for number in lines]
    found, left = match(
        rows,
        people,
        lambda person: [person["ID"], person.get("SIS User ID", ""), person.get("SIS Login ID", "")],
        lambda person: [person["Student"], person.get("SIS Login ID", "").partition("@")[0]],
    )
    remarks = []
    possible = next((_number(_cell(line, place)) for line in table[1:3] if "Points Possible" in _cell(line, 0)), None)
    factor = 1.0
    if possible is not None and possible != max_points:
        if scale:
            factor = possible / max_points
        else:
            remarks.append(f"the column counts {possible:g} points, the lesson {max_points:g}; --scale adapts them")
    for position, row in found.items():
        line = table[lines[position]]
        line.extend([""] * (width - len(line)))
        line[place] = points_text(total(row, with_bonus=with_bonus) * factor)
    return write_table(mark, table), left, remarks


def _cell(line: list[str], place: int) -> str:
    return line[place] if place < len(line) else ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _column(header: list[str], wanted: str | None) -> int:
    own = [name for name in header if name not in _OURS and "(read only)" not in name and name.rstrip().endswith(")")]
    if wanted is None:
        raise ExportError(f"--column must name the assignment; the gradebook has: {'; '.join(own) or 'none'}.")
    exact = [place for place, name in enumerate(header) if name == wanted]
    begins = [place for place, name in enumerate(header) if name.startswith(wanted) and name not in _OURS]
    if len(exact) == 1 or (not exact and len(begins) == 1):
        return (exact or begins)[0]
    problem = "fits several columns" if begins else "fits no column"
    raise ExportError(f"--column {wanted!r} {problem}; the gradebook has: {'; '.join(own) or 'none'}.")

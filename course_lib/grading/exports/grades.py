"""Reads what `course grade` wrote: for each student and lesson the one result that counts."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from course_lib.grading.batch.report import verdict_of


class ExportError(Exception):
    """Nothing can be exported; the message says what to do."""


def read_grades(folder: Path) -> dict[str, Any]:
    """`grades.json` of a folder that `course grade` wrote.

    Raises:
        ExportError: there is none, or it is of another version.
    """
    path = folder / "grades.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExportError(f"DIR must be a folder that `course grade` wrote; {path}: {error}.") from None
    if not isinstance(document, dict) or document.get("schema") != 1:
        raise ExportError(f"{path} must have schema 1; grade again with this version of the course.")
    return document


def one_lesson(document: dict[str, Any], number: str | None) -> dict[str, Any]:
    """The lesson to export: the one asked for, or the only one that was graded.

    Raises:
        ExportError: there are several, or not this one.
    """
    present = sorted({row["lesson"] for row in document["submissions"] if row["lesson"]})
    if number is None:
        if len(present) != 1:
            raise ExportError(f"--lesson must say which of {', '.join(present) or 'no'} lessons to export.")
        number = present[0]
    for lesson in document["lessons"]:
        if lesson["number"] == number and number in present:
            return lesson
    raise ExportError(f"--lesson must be one of {', '.join(present) or 'none'}; got {number}.")


def counting(document: dict[str, Any], lesson: str) -> list[dict[str, Any]]:
    """One result a student: of several the one with the most points, the first of equals."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for row in document["submissions"]:
        if row["lesson"] != lesson:
            continue
        key = (row["student"], row["number"])
        if key not in best or row["points"] + row["bonus_points"] > best[key]["points"] + best[key]["bonus_points"]:
            best[key] = row
    return [best[key] for key in sorted(best)]


def ungraded(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Submissions without a lesson: they could not be read, and get no grade by an export."""
    return [row for row in document["submissions"] if row["lesson"] is None]


def total(row: dict[str, Any], *, with_bonus: bool = False) -> float:
    """The points that count."""
    return row["points"] + (row["bonus_points"] if with_bonus else 0)


def plain_feedback(row: dict[str, Any]) -> str:
    """All feedback on one submission as text."""
    parts = [f"Needs repair: {problem}" for problem in row["problems"]]
    parts += [str(verdict_of(exercise)) for exercise in row["exercises"]]
    return "\n".join(parts)


def key_of_name(name: str) -> str:
    """A name without case, accents' encoding, spaces and punctuation: ``Doe, Jane`` and ``doejane`` agree."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in folded if char.isalnum())


def name_keys(name: str) -> set[str]:
    """Keys of the ways to write a name: as it stands, and with first and last name exchanged."""
    keys = {key_of_name(name)}
    if "," in name:
        last, _, first = name.partition(",")
        keys.add(key_of_name(first + last))
    else:
        words = re.split(r"[\s_]+", name.strip())
        keys |= {key_of_name("".join(words[i:] + words[:i])) for i in range(1, len(words))}
    return keys - {""}


def match(
    rows: Iterable[dict[str, Any]],
    people: list[dict[str, str]],
    numbers: Callable[[dict[str, str]], Iterable[str]],
    names: Callable[[dict[str, str]], Iterable[str]],
) -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """Whose result is whose line: by number, else by a name that only one line has.

    Returns:
        the result for each line's position, and the results that no line, or more than one, could take.
    """
    by_number = {number: line for line, person in enumerate(people) for number in numbers(person) if number}
    by_name: dict[str, set[int]] = {}
    for line, person in enumerate(people):
        for name in names(person):
            for key in name_keys(name):
                by_name.setdefault(key, set()).add(line)
    found: dict[int, dict[str, Any]] = {}
    left = []
    for row in rows:
        place: int | None = by_number.get(row["number"]) if row["number"] else None
        if place is None:
            place = by_number.get(row["student"])
        if place is None:
            places = set().union(*(by_name.get(key, set()) for key in name_keys(row["student"])))
            place = places.pop() if len(places) == 1 else None
        if place is None or place in found:
            left.append(row)
        else:
            found[place] = row
    return found, left

"""Reads a notebook as it is, not as it should be: any bytes become cells, or a reason why not.

Students' files have been through Colab, mail programs, merge conflicts and text editors. Outputs are dropped at
once: a notebook of a hundred megabytes is mostly pictures.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

MAX_BYTES = 200 * 1024 * 1024
_MAX_CELLS = 5_000
_MAX_SOURCE_CHARS = 1_000_000
_CONFLICT = re.compile(rb"^(<<<<<<< |=======$|>>>>>>> )", re.MULTILINE)


class Unreadable(ValueError):
    """Not a notebook; the message says what it is and what to ask the student for."""


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        index: its place in the file, from 0.
        kind: ``"code"``, ``"markdown"`` or ``"raw"``.
        source: its text.
        identity: its id, or ``""``.
        grade_id: nbgrader's name for it where it holds a solution, or ``""``.
    """

    index: int
    kind: str
    source: str
    identity: str = ""
    grade_id: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """What could be read.

    Attributes:
        cells: in the order of the file.
        problems: what is damaged, a sentence each.
    """

    cells: tuple[Cell, ...]
    problems: tuple[str, ...] = field(default=())


def read(data: bytes) -> Reading:
    """The cells of a notebook.

    Raises:
        Unreadable: there is nothing to grade in these bytes.
    """
    if not data.strip():
        raise Unreadable("the file is empty. Ask for it again.")
    if len(data) > MAX_BYTES:
        raise Unreadable(
            f"the file has {len(data) // 2**20} MiB; at most {MAX_BYTES // 2**20} are read. "
            "Ask for it with all outputs cleared."
        )
    _refuse_other_kinds(data)
    text, problems = _decode(data)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return _salvage(data, text, error, problems)
    if not isinstance(document, dict):
        raise Unreadable("the file is JSON but not a notebook. Ask for the .ipynb file.")
    return Reading(_cells(_raw_cells(document), problems), tuple(problems))


def _refuse_other_kinds(data: bytes) -> None:
    head = data[:512].lstrip()
    kinds = (
        (b"PK\x03\x04", "a zip archive or an office document"),
        (b"%PDF", "a PDF"),
        (b"\x7fELF", "a program"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"\x89PNG", "a picture"),
        (b"<!DOCTYPE", "a web page: the notebook's print, or a login page that was saved in its place"),
        (b"<html", "a web page: the notebook's print, or a login page that was saved in its place"),
    )
    for start, kind in kinds:
        if head.lower().startswith(start.lower()):
            raise Unreadable(f"the file is {kind}, not a notebook. Ask for the .ipynb file.")


def _decode(data: bytes) -> tuple[str, list[str]]:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace"), ["the text was stored as UTF-16"]
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return data.decode("latin-1"), ["the text is not UTF-8 and was read as Latin-1"]


def _salvage(data: bytes, text: str, error: Exception, problems: list[str]) -> Reading:
    """Whole cells of a damaged file, from the first to where the damage begins, and after it."""
    if isinstance(error, RecursionError):
        raise Unreadable("the file is JSON nested too deep to be a notebook. Ask for it again.") from None
    if _CONFLICT.search(data):
        problems.append("the file holds a merge conflict (lines such as <<<<<<<)")
    start = re.search(r'"cells"\s*:\s*\[', text)
    found: list[Any] = []
    if start:
        decoder = json.JSONDecoder(strict=False)
        for opening in re.finditer(r'\{\s*"(?:cell_type|id|metadata|execution_count|attachments|source)"', text):
            if opening.start() < start.end() or (found and opening.start() < found[-1][1]):
                continue
            try:
                value, end = decoder.raw_decode(text, opening.start())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict) and "cell_type" in value and len(found) < _MAX_CELLS:
                found.append((value, end))
    where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "somewhere"
    if not found:
        raise Unreadable(f"the file is damaged: no valid JSON at {where}, and no cell could be read. Ask for it again.")
    problems.append(f"the file is damaged at {where}: {len(found)} whole cells were read, others may be missing")
    return Reading(_cells([value for value, _ in found], problems), tuple(problems))


def _raw_cells(document: dict) -> list:
    cells = document.get("cells")
    if isinstance(cells, list):
        return cells
    sheets = document.get("worksheets")  # nbformat 2 and 3
    if isinstance(sheets, list):
        return [cell for sheet in sheets if isinstance(sheet, dict) for cell in _as_list(sheet.get("cells"))]
    raise Unreadable("the file is JSON but holds no cells. Ask for the .ipynb file.")


def _as_list(value: Any) -> list:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _cells(raw: list, problems: list[str]) -> tuple[Cell, ...]:
    cells = []
    if len(raw) > _MAX_CELLS:
        problems.append(f"only the first {_MAX_CELLS} of {len(raw)} cells were read")
    for index, entry in enumerate(raw[:_MAX_CELLS]):
        if not isinstance(entry, dict):
            problems.append(f"cell {index + 1} is no cell")
            continue
        source = _text(entry.get("source", entry.get("input")))
        if len(source) > _MAX_SOURCE_CHARS:
            problems.append(f"cell {index + 1} has {len(source)} characters and was left out")
            continue
        metadata = entry.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        nbgrader = metadata.get("nbgrader")
        nbgrader = nbgrader if isinstance(nbgrader, dict) else {}
        is_answer = nbgrader.get("solution") and not nbgrader.get("grade")
        tags = tuple(tag for tag in _as_list(metadata.get("tags")) if isinstance(tag, str))
        kind = entry.get("cell_type") if entry.get("cell_type") in ("code", "markdown", "raw") else "code"
        identity = entry.get("id", metadata.get("id"))
        cells.append(
            Cell(
                index=index,
                kind=str(kind),
                source=source.replace("\r\n", "\n").encode("utf-8", "replace").decode("utf-8"),
                identity=identity if isinstance(identity, str) else "",
                grade_id=_text(nbgrader.get("grade_id")) if is_answer else "",
                tags=tags,
            )
        )
    return tuple(cells)

"""The self-tests and spoken answers of all lessons, read from the notebooks themselves."""

from __future__ import annotations

import html
import json
import random
import re
from pathlib import Path
from typing import NamedTuple

QUIZ_HEADING, ANSWER_HEADING = "## Self-test", "## The thirty-second answer"


class Question(NamedTuple):
    """A question of a self-test: the notebook's title, the question, its answer."""

    lesson: str
    question: str
    answer: str


def notebooks_folder() -> Path | None:
    """Where the course's notebooks are: beside the package in a clone, inside it where only the package is installed."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "notebooks", package / "data" / "notebooks"):
        if any(folder.glob("0*_*.ipynb")):
            return folder
    return None


def _sections(path: Path, heading: str) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    return [text.removeprefix(heading).strip() for text in texts if text.startswith(heading)]


def plain(text: str) -> str:
    """Markdown and HTML marks taken out."""
    text = re.sub(r"</?(?:p|br|details|summary|sub|sup|code|em|b|i)[^>]*>", " ", text)
    text = re.sub(r"^\s*>\s?", "", text, flags=re.MULTILINE)
    text = re.sub(r"[*_`]{1,2}(?=\S)|(?<=\S)[*`]{1,2}", "", text)
    return html.unescape(re.sub(r"[ \t]*\n(?!\n)[ \t]*", " ", text)).strip()


def questions(folder: Path | None = None) -> list[Question]:
    """All questions, lesson by lesson. Both forms of a self-test are read: the question before `<details>`, or in its
    `<summary>`."""
    folder = folder or notebooks_folder()
    found: list[Question] = []
    for path in sorted(folder.glob("0*_*.ipynb")) if folder else []:
        lesson = path.stem[:2]
        for section in _sections(path, QUIZ_HEADING):
            before = 0
            for match in re.finditer(r"<details>\s*<summary>(.*?)</summary>(.*?)</details>", section, re.DOTALL):
                summary = plain(match[1])
                asked = plain(re.sub(r"^\s*\d+\.\s*", "", section[before : match.start()].strip().split("\n\n")[-1]))
                question = asked if summary.lower().rstrip(".") in ("answer", "an answer") else summary
                before = match.end()
                if question:
                    found.append(Question(lesson, question, plain(match[2])))
    return found


def mixed(found: list[Question], seed: int, count: int) -> list[Question]:
    """`count` questions in a random order, as evenly over the lessons as it goes."""
    draw = random.Random(seed)
    by_lesson: dict[str, list[Question]] = {}
    for question in draw.sample(found, len(found)):
        by_lesson.setdefault(question.lesson, []).append(question)
    chosen: list[Question] = []
    while len(chosen) < min(count, len(found)):
        for left in by_lesson.values():
            if left and len(chosen) < count:
                chosen.append(left.pop())
    draw.shuffle(chosen)
    return chosen


def answer_cards(folder: Path | None = None) -> dict[str, str]:
    """The spoken answer of each lesson: question -> answer."""
    folder = folder or notebooks_folder()
    cards: dict[str, str] = {}
    for path in sorted(folder.glob("0*_*.ipynb")) if folder else []:
        for section in _sections(path, ANSWER_HEADING):
            quoted = re.match(r'\*"(.+?)"\*\s*(?:—|-)?\s*(.*)', section, re.DOTALL)
            title, text = (quoted[1], quoted[2]) if quoted else (path.stem[3:].replace("_", " "), section)
            cards[f"{path.stem[:2]} · {plain(title)}"] = plain(text)
    return cards

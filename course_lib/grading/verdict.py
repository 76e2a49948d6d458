"""What the learner reads: a status, points, and three lines that help."""

import html
from dataclasses import dataclass
from typing import Any

PASSED = "passed"
PARTLY = "partly"
NOT_ATTEMPTED = "not_attempted"
FAILED = "failed"
CRASHED = "crashed"
GRADER_ERROR = "grader_error"

# A word and a sign for each status: never colour alone.
_FACES = {
    PASSED: ("passed", "✓", "#009E73"),
    PARTLY: ("partly", "◐", "#E69F00"),
    NOT_ATTEMPTED: ("not attempted", "○", "#999999"),
    FAILED: ("not yet", "✗", "#D55E00"),
    CRASHED: ("crashed", "!", "#D55E00"),
    GRADER_ERROR: ("grader error", "?", "#CC79A7"),
}


def points_text(points: float) -> str:
    """``2`` for 2.0, ``1.5`` for 1.5: what is shown of points."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Verdict:
    """The outcome of one exercise.

    Attributes:
        name: the exercise.
        status: one of the six words above.
        points, max_points: earned and possible.
        misconception: the name of a recognised wrong idea, or None.
        lines: the feedback, a line each: what was checked, the smallest failing case, one next step.
        notes: asides, such as what the code printed.
        is_bonus: the points do not count towards the total.
    """

    name: str
    status: str
    points: float
    max_points: int
    misconception: str | None = None
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_bonus: bool = False

    @property
    def feedback(self) -> str:
        """The lines as one text."""
        return "\n".join([*self.lines, *self.notes])

    @property
    def heading(self) -> str:
        """``✓ ulp: passed, 2 of 2 points``."""
        word, sign, _ = _FACES[self.status]
        bonus = "bonus " if self.is_bonus else ""
        plural = "" if self.max_points == 1 else "s"
        return f"{sign} {self.name}: {word}, {points_text(self.points)} of {self.max_points} {bonus}point{plural}"

    def __str__(self) -> str:
        return "\n".join([self.heading, *(f"  {line}" for line in [*self.lines, *self.notes])])

    def _repr_html_(self) -> str:
        _, _, colour = _FACES[self.status]
        heading = html.escape(self.heading)
        rows = "".join(f"<p style='margin:0.2em 0'>{_inline(line)}</p>" for line in self.lines)
        notes = "".join(
            f"<p style='margin:0.2em 0;opacity:0.8'><small>{_inline(line)}</small></p>" for line in self.notes
        )
        return (
            f"<div role='status' aria-label='{html.escape(self.heading, quote=True)}' "
            f"style='border-left:5px solid {colour};padding:0.3em 0.9em;margin:0.3em 0;max-width:60em'>"
            f"<p style='margin:0.2em 0'><strong>{heading}</strong></p>{rows}{notes}</div>"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}


def _inline(line: str) -> str:
    """Escapes, and sets text between backticks as code."""
    parts = html.escape(line).split("`")
    if len(parts) % 2 == 0:
        return html.escape(line)
    return "".join(part if i % 2 == 0 else f"<code>{part}</code>" for i, part in enumerate(parts))

"""`hint` and `solution`: help in steps."""

import inspect
import sys
from typing import Any

from course_lib.grading import progress as record
from course_lib.grading.check import show
from course_lib.grading.names import UnknownExercise, resolve

_hints_shown: dict[str, int] = {}
_solutions_asked: set[str] = set()


class _Text:
    """Text for both a terminal and a notebook."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return self.text


def _find(thing: Any) -> Any:
    frame = sys._getframe(2)
    return resolve(thing, {**frame.f_globals, **frame.f_locals})[0]


def hint(function: Any) -> None:
    """Shows the next of three hints, each closer to the solution."""
    try:
        exercise = _find(function)
    except UnknownExercise as problem:
        show(_Text(str(problem)))
        return
    step = min(_hints_shown.get(exercise.name, 0), 2)
    _hints_shown[exercise.name] = step + 1
    rest = "" if step < 2 else f" (the last; then `solution('{exercise.name}')`)"
    show(_Text(f"**Hint {step + 1} of 3**{rest}: {exercise.hints[step]}"))


def solution(function: Any) -> None:
    """Shows the reference and why it works. The first call says what you have not tried yet."""
    try:
        exercise = _find(function)
    except UnknownExercise as problem:
        show(_Text(str(problem)))
        return
    if exercise.name not in _solutions_asked:
        _solutions_asked.add(exercise.name)
        untried = []
        if record.best_points(exercise.name) is None:
            untried.append(f"you have not run `check({exercise.name})` yet")
        unread = 3 - _hints_shown.get(exercise.name, 0)
        if unread > 0:
            untried.append(f"{unread} of 3 hints are unread: `hint({exercise.name})`")
        told = " and ".join(untried) or "you have tried everything that helps"
        show(_Text(f"Before you look: {told}. Call `solution({exercise.name})` once more to see it."))
        return
    sources = "\n\n".join(inspect.getsource(reference) for reference in exercise.references)
    show(_Text(f"**`{exercise.name}`**: {exercise.explanation}\n\n```python\n{sources}```"))

"""Recognise a wrong solution by its values alone, where the observation also holds bytes that vary with style."""

from collections.abc import Callable
from typing import Any

from course_lib.grading.compare import alike
from course_lib.grading.exercise import Case


def same_values(
    observe: Callable, keys: tuple[str, ...], *wrong_solutions: Callable
) -> Callable[[Case, Any, Any], bool]:
    """A predicate for `Misconception.matches`: on this case the learner's values are those of one wrong solution.

    Args:
        observe: the exercise's own.
        keys: of the observation; the rest is not compared.
        wrong_solutions: variants of one wrong idea.
    """

    def matches(case: Case, got: Any, expected: Any) -> bool:
        if not isinstance(got, dict):
            return False
        others = (observe(solution, case) for solution in wrong_solutions)
        return any(all(alike(got.get(key), other[key]) for key in keys) for other in others)

    return matches

"""The six statuses, and whatever a learner may leave in a cell."""

import functools
import sys

import numpy as np
import pytest
import torch

from course_lib.grading import assess
from course_lib.grading.compare import exact_mismatch
from course_lib.grading.exercise import Case, Mismatch

pytestmark = pytest.mark.usefixtures("syllabus")


class Doubler:
    def __call__(self, x):
        return 2 * x


def noisy(x):
    import warnings

    print("so many words")
    warnings.warn("careful", stacklevel=1)
    return 2 * x


@pytest.mark.parametrize(
    "solution",
    [
        lambda x: x + x,
        lambda x, factor=2: factor * x,
        functools.partial(lambda factor, x: factor * x, 2),
        Doubler(),
        noisy,
        lambda x: np.float32(2 * x),
        lambda x: torch.tensor(2 * x),
        lambda x: torch.tensor([2 * x]),
    ],
)
def test_right_answers_pass_in_any_form(solution):
    verdict = assess("double_it", solution, seed=1)
    assert (verdict.status, verdict.points, verdict.max_points) == ("passed", 3, 3)


@pytest.mark.parametrize(
    ("solution", "status", "words"),
    [
        (lambda x: None, "failed", "Did you forget `return`"),
        (lambda x: [2 * x, 0], "failed", "a number is due"),
        (lambda x: "6", "failed", "'6'"),
        (lambda x: float("nan"), "failed", "nan"),
        (lambda x: object(), "failed", "type object"),
        (lambda: 2, "crashed", "takes 0 positional arguments"),
        (lambda x: 1 / 0, "crashed", "ZeroDivisionError"),
        (lambda x: sys.exit(), "crashed", "SystemExit"),
        (5, "crashed", "'int' object is not callable"),
    ],
)
def test_wrong_answers_are_explained(solution, status, words):
    verdict = assess("double_it", solution, seed=1)
    assert verdict.status == status and verdict.points == 0
    assert words.lower() in verdict.feedback.lower()
    assert "Traceback" not in verdict.feedback


def test_the_stub_is_not_attempted():
    def double_it(x):
        raise NotImplementedError

    assert assess("double_it", double_it).status == "not_attempted"


def test_feedback_is_three_lines_with_the_smallest_failing_case():
    verdict = assess("double_it", lambda x: x + 2 if x > 2 else 2 * x, seed=1)
    assert verdict.lines == (
        "Checked: twice the number (2 of 4 cases right).",
        "double_it(3.0): expected 6.0, got 5.0.",
        "Next: try 3.",
    )


def test_a_known_misconception_is_named():
    def power(x):
        return x**2

    verdict = assess("double_it", power, seed=1)
    assert verdict.misconception == "squares" and "squared" in verdict.lines[2]


def test_a_misconception_must_fit_every_failing_case():
    verdict = assess("double_it", lambda x: x * x if x < 4 else 0.0, seed=1)
    assert verdict.status == "failed" and verdict.misconception is None


def test_where_the_code_raised_is_told():
    def broken(x):
        return x.missing

    assert "return x.missing" in assess("double_it", broken).feedback


def test_a_failing_grader_is_never_the_learners_fault(syllabus):
    for changes in (
        {"grade": lambda case, seen, due: 1 / 0},
        {"reference": lambda x: 1 / 0},
        {"cases": lambda seed: 1 / 0},
        {"misconceptions": (pytest,)},
    ):
        syllabus(**changes)
        verdict = assess("double_it", lambda x: x)
        assert verdict.status == "grader_error" and verdict.points == 0
        assert "not your fault" in verdict.feedback


def test_partial_points_follow_the_weights(syllabus):
    weighted = [Case("a", (1.0,), weight=1.0), Case("b", (2.0,), weight=3.0)]
    syllabus(partial=True, points=4, cases=lambda seed: weighted)
    verdict = assess("double_it", lambda x: 2 * x if x == 2 else 0.0)
    assert (verdict.status, verdict.points) == ("partly", 3.0)
    syllabus(partial=True, points=4, cases=lambda seed: weighted, grade=lambda c, s, d: Mismatch("", "", score=0.5))
    assert assess("double_it", lambda x: 0.0).points == 2.0


def test_inputs_are_copies(syllabus):
    def spoil(x):
        x.fill_(0)
        return x

    tensor = torch.ones(3)
    syllabus(
        reference=lambda x: x * 2,
        cases=lambda seed: [Case("t", (tensor,))],
        grade=lambda case, seen, due: exact_mismatch(seen, due),
    )
    assert assess("double_it", spoil).status == "failed" and tensor.tolist() == [1, 1, 1]


def test_the_learners_state_is_left_alone():
    def meddle(x):
        torch.manual_seed(0)
        torch.set_default_dtype(torch.float64)
        return 2 * x

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    assess("double_it", meddle)
    assert torch.get_default_dtype() == torch.float32 and torch.equal(before, torch.random.get_rng_state())


def test_gradients_are_on_whatever_the_notebook_left(syllabus):
    def slope(x):
        leaf = torch.tensor(x, requires_grad=True)
        (leaf * leaf).backward()
        return leaf.grad.item()

    with torch.no_grad():
        assert assess("double_it", slope, seed=1).status == "passed"


def test_unavailable_exercises_say_why(syllabus):
    syllabus(unavailable=lambda: "it needs Linux.")
    verdict = assess("double_it", lambda x: x)
    assert verdict.status == "not_attempted" and "needs Linux" in verdict.feedback


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(KeyError, match="Near it: double_it"):
        assess("duble_it", lambda x: x)

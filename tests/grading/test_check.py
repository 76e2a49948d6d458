"""The learner's words: check, hint, solution, progress, solved_or_reference."""

import functools
import json

import pytest

from course_lib import check, hint, progress, solution, solved_or_reference
from course_lib.grading import help as help_words
from course_lib.grading.check import NoPoints

from .conftest import make_exercise

pytestmark = pytest.mark.usefixtures("syllabus")


def double_it(x):
    return x + x


def half_right(x):
    return x


@pytest.fixture(autouse=True)
def fresh_memory(monkeypatch):
    from course_lib.grading import check as check_module

    monkeypatch.setattr(check_module, "_last", {})
    monkeypatch.setattr(help_words, "_hints_shown", {})
    monkeypatch.setattr(help_words, "_solutions_asked", set())


def test_check_finds_the_exercise_by_the_functions_name(capsys):
    check(double_it)
    out = capsys.readouterr()
    assert out.out.startswith("✓ double_it: passed, 3 of 3 points") and out.err == ""


def test_check_finds_lambdas_partials_and_names_in_the_callers_cell(capsys):
    double_it = lambda x: 2 * x  # noqa: E731
    check(double_it)
    double_it = functools.partial(lambda k, x: k * x, 2)
    check(double_it)
    check("double_it")
    assert capsys.readouterr().out.count("3 of 3") == 3


def test_check_of_something_else_is_a_sentence(capsys):
    check(half_right)
    check()
    check("doubleit")
    check(3)
    out = capsys.readouterr().out
    assert "got half_right" in out and "got nothing" in out and "Near it: double_it" in out and "type int" in out


def test_two_functions_are_one_exercise(syllabus, capsys):
    pair = make_exercise(
        name="split",
        functions=("split", "join"),
        reference=(lambda x: x, lambda x: 2 * x),
        observe=lambda both, case: both[1](both[0](*case.args)),
    )
    syllabus(pair)

    def split(x):
        return x

    def join(x):
        return 2 * x

    check(split, join)
    check(join)
    assert capsys.readouterr().out.count("3 of 3") == 2
    del join
    check(split)
    assert "needs join" in capsys.readouterr().out


def test_nbgrader_gets_points_as_a_float_or_an_exception(monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    points = check(double_it)
    assert type(points) is float and points == 3.0

    def double_it_wrongly(x):
        return x

    double_it_wrongly.__name__ = "double_it"
    with pytest.raises(NoPoints, match="0 of 3"):
        check(double_it_wrongly)
    with pytest.raises(NoPoints):
        check(half_right)
    out = capsys.readouterr()
    assert out.err == ""


def test_hints_climb_a_ladder_of_three(capsys):
    for _ in range(4):
        hint(double_it)
    lines = capsys.readouterr().out.splitlines()
    assert [line[:15] for line in lines] == ["**Hint 1 of 3**", "**Hint 2 of 3**", "**Hint 3 of 3**", "**Hint 3 of 3**"]


def test_the_solution_is_shown_at_the_second_call(capsys):
    solution(double_it)
    first = capsys.readouterr().out
    assert "have not run `check(double_it)`" in first and "3 of 3 hints" in first and "return" not in first
    solution("double_it")
    assert "return 2.0 * x" in capsys.readouterr().out


def test_later_cells_use_the_learners_function_only_if_it_passes(capsys):
    assert solved_or_reference(double_it) is double_it
    wrong = functools.partial(lambda k, x: k * x, 3)
    wrong.__name__ = "double_it"
    assert solved_or_reference(wrong)(4.0) == 8.0
    out = capsys.readouterr().out
    assert "yours is used" in out and "not solved yet" in out


def test_progress_keeps_the_best_and_survives_damage(tmp_path, capsys):
    check(double_it)
    wrong = functools.partial(lambda k, x: k * x, 3)
    wrong.__name__ = "double_it"
    check(wrong)
    file = tmp_path / "progress.json"
    assert json.loads(file.read_text())["points"] == {"double_it": 3.0}
    capsys.readouterr()
    progress()
    assert "3 of 3" in capsys.readouterr().out
    for damage in ("", "{", "[]", '{"points": 3}', "\x00"):
        file.write_text(damage)
        progress()
        assert "0 of 3" in capsys.readouterr().out
    check(double_it)
    assert json.loads(file.read_text())["points"] == {"double_it": 3.0}
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


def test_an_unwritable_home_costs_only_the_picture(monkeypatch, capsys):
    monkeypatch.setenv("SIXTEEN_BYTES_HOME", "/dev/null/none")
    check(double_it)
    assert "3 of 3" in capsys.readouterr().out

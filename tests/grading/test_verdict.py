"""A verdict reads well as text and as HTML, for eyes and for screen readers."""

import pytest

from course_lib.grading.verdict import _FACES, Verdict


@pytest.mark.parametrize("status", _FACES)
def test_every_status_has_a_word_and_a_sign(status):
    verdict = Verdict("ulp", status, 0, 2, lines=("a", "b"))
    word, sign, _ = _FACES[status]
    assert word in str(verdict) and sign in str(verdict)
    assert word in verdict._repr_html_() and "role='status'" in verdict._repr_html_()


def test_html_is_escaped_and_code_is_marked():
    text = Verdict("ulp", "failed", 0, 2, lines=("got <script>alert(1)</script> from `f(x)`",))._repr_html_()
    assert "<script>" not in text and "<code>f(x)</code>" in text


def test_points_are_shown_without_trailing_zeros():
    assert "1.5 of 3 points" in str(Verdict("x", "partly", 1.5, 3))
    assert "2 of 2 bonus points" in str(Verdict("x", "passed", 2.0, 2, is_bonus=True))

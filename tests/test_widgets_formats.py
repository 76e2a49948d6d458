"""The interactive figures of lesson 01 without a page: controls move, pictures and their descriptions follow."""

from __future__ import annotations

import math
import re

import pytest

from course_lib import widgets
from course_lib.formats import BF16, E4M3, E5M2, FORMATS, FP16, FP32, encode_float
from course_lib.widgets import formats


@pytest.fixture
def published(monkeypatch):
    """Widgets, pictures and descriptions that were shown."""
    shown = []
    for module in (widgets, formats):
        monkeypatch.setattr(module, "publish", lambda *args: shown.append(args))
    return shown


def walk(widget):
    yield widget
    for child in getattr(widget, "children", ()):
        yield from walk(child)


def alt_of(widget):
    html = next(w.value for w in walk(widget) if "<img" in str(getattr(w, "value", "")))
    return re.search(r'alt="([^"]*)"', html)[1]


def test_bits_follow_buttons_value_and_format(published):
    formats.bit_explorer(FP16, 1.0)
    box, png, alt = published[0]
    assert png.startswith(b"\x89PNG") and "1 in FP16" in alt
    by_kind = {}
    for widget in walk(box):
        by_kind.setdefault(type(widget).__name__, []).append(widget)
    typed, choice = by_kind["Text"][0], by_kind["Dropdown"][0]

    by_kind["ToggleButton"][0].value = True  # the sign
    assert typed.value == "-1.0" and "sign 1" in alt_of(box)
    typed.value = "1e-7"
    assert typed.value == "1.1920928955078125e-07"
    assert any("not a value of FP16" in str(w.value) for w in by_kind["HTML"])
    choice.value = "E4M3"
    assert typed.value == "0.0"
    assert sum(type(w).__name__ == "ToggleButton" for w in walk(box)) == 8
    typed.value = "nonsense"
    assert any("Type a number" in str(w.value) for w in by_kind["HTML"])
    typed.value = "inf"
    assert typed.value == "448.0"


def test_number_line_and_range_follow_their_controls(published):
    formats.number_line_explorer("300", zoom=-2)
    formats.range_explorer(-7.0)
    line, bars = published[0][0], published[1][0]
    assert "E4M3 stores 288" in alt_of(line)
    next(w for w in walk(line) if type(w).__name__ == "Combobox").value = "1e-08"
    assert "FP16 stores 0" in alt_of(line)
    for junk in ("word", "nan", "inf", "-1e308"):
        next(w for w in walk(line) if type(w).__name__ == "Combobox").value = junk
    next(w for w in walk(bars) if type(w).__name__ == "FloatSlider").value = 5.0
    assert "FP16 stores inf" in alt_of(bars)


@pytest.mark.parametrize("fmt", [FP16, BF16, E4M3, E5M2, FP32], ids=lambda fmt: fmt.name)
def test_every_kind_of_code_has_its_picture(fmt):
    for x in (0.0, -0.0, 1.5, -(2.0**-133), math.inf, math.nan):
        png, alt = widgets.drawn(*formats.bits_figure(encode_float(x, fmt), fmt))
        assert png.startswith(b"\x89PNG") and fmt.name in alt
        assert len(png) <= 60_000


def test_values_in_a_window_are_listed_or_counted():
    assert formats.values_between(0.9, 1.3, E5M2, 100) == [1.0, 1.25]
    assert formats.values_between(-0.3, 0.26, E5M2, 1000) == sorted(
        {v for code in range(256) if -0.3 <= (v := formats.decode_bits(code, E5M2)) <= 0.26}
    )
    assert formats.values_between(1.0, 2.0, FP16, 100) == 1025
    assert formats.values_between(1e6, 2e6, E4M3, 10) == []


def test_the_picture_reaches_readers_without_widgets(capsys):
    formats.range_explorer(-7.0)  # no notebook: the description is printed
    assert "FP16 stores 1.19209e-7" in capsys.readouterr().out


def test_every_format_has_a_line_of_its_own():
    assert set(formats.LINES) == set(FORMATS)
    assert len(set(formats.LINES.values())) == len(FORMATS)

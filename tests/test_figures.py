"""Figures reach the page once, small, with a description."""

from __future__ import annotations

import io
import itertools

import nbformat
import numpy as np
import pytest
from matplotlib import pyplot as plt
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

from course_lib import figures, notebooks

SHOW = """\
from matplotlib import pyplot as plt
from course_lib import figures
figure, axes = plt.subplots()
axes.plot([1, 2, 3])
figures.show(figure, alt="A line that rises from 1 to 3")
"""


def test_a_notebook_gets_one_described_picture(tmp_path):
    notebook = notebooks.execute(new_notebook(cells=[new_code_cell(SHOW)]), tmp_path)
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert output.data["text/plain"] == "A line that rises from 1 to 3"
    assert output.metadata["image/png"]["alt"] == "A line that rises from 1 to 3"
    path = tmp_path / "figure.ipynb"
    nbformat.write(notebook, path)
    assert notebooks.problems(path) == []


def test_nbconvert_turns_the_description_into_an_attribute(tmp_path):
    from nbconvert import HTMLExporter

    notebook = notebooks.execute(new_notebook(cells=[new_code_cell(SHOW)]), tmp_path)
    page, _ = HTMLExporter(template_name="classic").from_notebook_node(notebook)
    assert 'alt="A line that rises from 1 to 3"' in page


def test_a_noisy_picture_is_made_small():
    figure, axes = plt.subplots()
    axes.imshow(np.random.default_rng(0).random((300, 300)))
    png = figures.png_bytes(figure)
    plt.close(figure)
    assert len(png) <= figures.MAX_PNG_BYTES


def test_the_same_figure_gives_the_same_bytes_and_carries_its_description():
    pngs = []
    for _ in range(2):
        figure, axes = plt.subplots()
        axes.plot([1, 2])
        pngs.append(figures.png_bytes(figure, "Zwei Größen"))
        plt.close(figure)
    assert pngs[0] == pngs[1]
    with Image.open(io.BytesIO(pngs[0])) as image:
        assert image.text["Description"] == "Zwei Größen"


def test_a_script_gets_the_description_as_text(capsys):
    figure, _ = plt.subplots()
    figures.show(figure, alt="Nothing but an empty\n frame")
    assert capsys.readouterr().out == "Nothing but an empty frame\n"
    assert not plt.fignum_exists(figure.number)


def test_a_description_must_say_something():
    figure, _ = plt.subplots()
    with pytest.raises(ValueError, match="alt must be"):
        figures.show(figure, alt=" ")
    plt.close(figure)


def test_lines_differ_in_more_than_colour():
    styles = list(itertools.islice(plt.rcParams["axes.prop_cycle"], 8))
    assert len({style["color"] for style in styles}) == 8
    assert len({str(style["linestyle"]) for style in styles}) == 8

"""The figures of lessons 02 and 03: their numbers are a cast's and a ledger's, and the widgets run without a browser."""

import pytest
import torch
from matplotlib import pyplot as plt

from course_lib.mixed_precision import RECIPES, model_state_bytes
from course_lib.widgets.loss_scaling import fates, histogram_figure, scale_slider, trace_figure
from course_lib.widgets.mixed_precision import FLOWS, bytes_in_phase, flow_chooser, flow_figure, state_figure

GRADIENTS = torch.tensor([0.0, 1e-9, 2.0**-24, 1e-6, 1e-3, -1.0, 1e5])


def test_fates_are_those_of_the_cast():
    assert fates(GRADIENTS, 1.0) == pytest.approx({"zero": 1 / 6, "blurred": 2 / 6, "kept": 2 / 6, "infinite": 1 / 6})
    assert fates(GRADIENTS, 2.0**-10)["infinite"] == 0
    assert sum(fates(GRADIENTS, 2.0**20).values()) == pytest.approx(1)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_flow_adds_up_to_the_table_at_the_update(recipe):
    assert bytes_in_phase(recipe, 3) == sum(model_state_bytes(1, recipe).values())
    plt.close(flow_figure(recipe))
    assert recipe in FLOWS


def test_widgets_answer_without_a_browser():
    slider, image = scale_slider(GRADIENTS, start=0).children
    before = image.value
    slider.value = 16
    assert image.value != before
    menu, image = flow_chooser("fp32").children
    before = image.value
    menu.value = "pure_bf16"
    assert image.value != before


def test_figures_state_their_numbers():
    figure = histogram_figure(GRADIENTS)
    assert "16.7% into zero" in figure.axes[0].get_title(loc="left")
    plt.close(figure)
    plt.close(trace_figure([2.0, 1.0, 2.0], [True, False, False], "a title"))
    table = {recipe: model_state_bytes(1, recipe) for recipe in RECIPES}
    figure = state_figure(table, dict.fromkeys(RECIPES, 24.0), "a title")
    assert any(text.get_text() == "18, peak 24" for text in figure.axes[0].texts)
    plt.close(figure)

"""Figures of lesson 03: a training step as a flow of tensors by precision, and bytes a parameter by recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from course_lib.figures import COLORS, HATCHES, png_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PHASES = ("between steps", "forward", "backward", "update", "between steps")
PRECISIONS = {"FP32": ("sky", ""), "BF16": ("orange", "//")}


class Life(NamedTuple):
    """One kind of tensor over a step: bytes a parameter (None: grows with the batch), first and last phase."""

    name: str
    precision: str
    size: int | None
    first: int
    last: int


_MOMENTS = Life("AdamW's moments", "FP32", 8, 0, 4)
FLOWS: dict[str, tuple[Life, ...]] = {
    "fp32": (
        Life("weights", "FP32", 4, 0, 4),
        Life("activations", "FP32", None, 1, 2),
        Life("gradients", "FP32", 4, 2, 3),
        _MOMENTS,
    ),
    "autocast": (
        Life("weights", "FP32", 4, 0, 4),
        Life("casts of weights", "BF16", 2, 1, 2),
        Life("activations", "BF16", None, 1, 2),
        Life("gradients", "FP32", 4, 2, 3),
        _MOMENTS,
    ),
    "master_weights": (
        Life("weights", "BF16", 2, 0, 4),
        Life("activations", "BF16", None, 1, 2),
        Life("gradients", "BF16", 2, 2, 3),
        Life("master copy", "FP32", 4, 0, 4),
        _MOMENTS,
    ),
    "fp32_gradients": (
        Life("weights", "BF16", 2, 0, 4),
        Life("activations", "BF16", None, 1, 2),
        Life("gradients", "FP32", 4, 2, 3),
        Life("master copy", "FP32", 4, 0, 4),
        _MOMENTS,
    ),
    "pure_bf16": (
        Life("weights", "BF16", 2, 0, 4),
        Life("activations", "BF16", None, 1, 2),
        Life("gradients", "BF16", 2, 2, 3),
        Life("AdamW's moments", "BF16", 4, 0, 4),
    ),
}


def bytes_in_phase(recipe: str, phase: int) -> int:
    """Bytes a parameter that are alive in a phase; what grows with the batch is left out."""
    return sum(life.size or 0 for life in FLOWS[recipe] if life.first <= phase <= life.last)


def flow_figure(recipe: str) -> Figure:
    """Which tensor is alive when, in which precision, over one training step."""
    from matplotlib import pyplot as plt

    flow = FLOWS[recipe]
    figure, axes = plt.subplots(figsize=(7.2, 0.5 * len(flow) + 1.5))
    for row, life in enumerate(flow):
        color, hatch = PRECISIONS[life.precision]
        width = life.last - life.first + 1
        axes.barh(row, width, left=life.first, color=COLORS[color], hatch=hatch, edgecolor="white", height=0.74)
        size = "grows with the batch" if life.size is None else f"{life.size} bytes"
        box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none"}
        text = f"{life.precision}, {size}"
        axes.text(life.first + width / 2, row, text, ha="center", va="center", fontsize=9, bbox=box)
    for phase in range(1, 5):
        axes.axvline(phase, color=COLORS["grey"], linewidth=0.8)
    # Casts of weights die during backward while gradients are born, so their sum is a bound, not a sight.
    bounds = ["up to " if phase == 2 and recipe == "autocast" else "" for phase in range(5)]
    labels = [f"{name}\n{bounds[phase]}{bytes_in_phase(recipe, phase)} bytes" for phase, name in enumerate(PHASES)]
    axes.set_xticks([phase + 0.5 for phase in range(5)], labels)
    axes.set_yticks(range(len(flow)), [life.name for life in flow])
    axes.invert_yaxis()
    axes.set_xlim(0, 5)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    peak = max(bytes_in_phase(recipe, phase) for phase in range(5))
    axes.set_title(f"{recipe}: up to {peak} bytes a parameter")
    return figure


def flow_chooser(start: str = "autocast") -> Any:
    """A menu of recipes over `flow_figure`. Needs a kernel."""
    import ipywidgets
    from matplotlib import pyplot as plt

    def picture(recipe: str) -> bytes:
        figure = flow_figure(recipe)
        png = png_bytes(figure)
        plt.close(figure)
        return png

    menu = ipywidgets.Dropdown(options=list(FLOWS), value=start, description="recipe")
    image = ipywidgets.Image(value=picture(start), format="png", layout={"max_width": "100%"})
    menu.observe(lambda change: setattr(image, "value", picture(change["new"])), names="value")
    return ipywidgets.VBox([menu, image])


def state_figure(table: Mapping[str, Mapping[str, float]], peaks: Mapping[str, float], title: str) -> Figure:
    """Stacked bars of bytes a parameter by recipe, with the peak inside the optimizer's step beyond them.

    Args:
        table: recipe -> part -> bytes a parameter.
        peaks: recipe -> bytes a parameter at the peak of the optimizer's step.
    """
    from matplotlib import pyplot as plt

    parts = list(next(iter(table.values())))
    colors = ("blue", "green", "orange", "sky")
    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    for row, (recipe, sizes) in enumerate(table.items()):
        left = 0.0
        for at, part in enumerate(parts):
            size = sizes[part]
            label = part if row == 0 else None
            style: dict[str, Any] = {"color": COLORS[colors[at]], "hatch": HATCHES[at], "edgecolor": "white"}
            axes.barh(row, size, left=left, height=0.62, label=label, **style)
            if size:
                box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
                axes.text(left + size / 2, row, f"{size:g}", ha="center", va="center", fontsize=9, bbox=box)
            left += size
        axes.plot([left, peaks[recipe]], [row, row], color=COLORS["black"], linestyle=":", marker="|", markersize=10)
        axes.text(peaks[recipe] + 0.3, row, f"{left:g}, peak {peaks[recipe]:g}", va="center", fontweight="bold")
    axes.set_yticks(range(len(table)), list(table))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(peaks.values()))
    axes.set_xlabel("bytes a parameter (dotted: up to the peak inside AdamW's step)")
    axes.set_title(title)
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
    return figure

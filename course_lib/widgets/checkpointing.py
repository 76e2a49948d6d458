"""Figures of lesson 04: what a block saves, and memory over one step with a slider for the segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course_lib.figures import COLORS, HATCHES, WIDE, png_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course_lib.memory import TimelinePoint

BAR_COLORS = ("sky", "orange", "green", "purple", "yellow", "vermillion", "blue", "grey", "black")


def saved_bars(parts: Mapping[str, Mapping[str, float]], title: str) -> Figure:
    """Stacked horizontal bars of what a block saves.

    Args:
        parts: bar -> part -> size in units of sbh; parts have one colour and hatch in all bars.
    """
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(name for sizes in parts.values() for name in sizes))
    figure, axes = plt.subplots(figsize=(7.2, 0.62 * len(parts) + 1.5))
    longest = max(sum(sizes.values()) for sizes in parts.values())
    named: set[str] = set()
    for row, (_, sizes) in enumerate(parts.items()):
        left = 0.0
        for name, size in sizes.items():
            at = names.index(name)
            color = COLORS[BAR_COLORS[at % len(BAR_COLORS)]]
            hatch = HATCHES[at % len(HATCHES)]
            label = None if name in named else name
            named.add(name)
            axes.barh(row, size, left=left, color=color, hatch=hatch, edgecolor="white", label=label, height=0.62)
            if size > 0.05 * longest:
                box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}
                axes.text(left + size / 2, row, f"{size:g}", ha="center", va="center", fontsize=9, bbox=box)
            left += size
        axes.text(left + 0.01 * longest, row, f"{left:.4g}", va="center", fontweight="bold")
    axes.set_yticks(range(len(parts)), list(parts))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1 * longest)
    axes.set_xlabel("bytes saved for backward, in units of sbh (tokens × channels)")
    axes.set_title(title)
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8.5)
    return figure


def step_figure(timelines: Mapping[int, Sequence[TimelinePoint]], segments: int, unit: str = "MB") -> Figure:
    """Memory over one step with `segments` segments, beside the step without checkpointing (key 0)."""
    from matplotlib import pyplot as plt

    scale = {"MB": 1e6, "GB": 1e9, "KiB": 1024}[unit]
    figure, axes = plt.subplots(figsize=WIDE)
    plain, chosen = timelines[0], timelines[segments]
    live = [point.live_bytes / scale for point in chosen]
    axes.plot([point.live_bytes / scale for point in plain], color=COLORS["grey"], linestyle="--", linewidth=1.2)
    axes.fill_between(range(len(live)), live, color=COLORS["sky"], alpha=0.5, linewidth=0)
    axes.plot(live, color=COLORS["blue"], linestyle="-", linewidth=1.2)
    top = max(point.live_bytes for point in plain) / scale
    peak_at = max(range(len(live)), key=live.__getitem__)
    turn = next((point.index for point in chosen if point.phase == "backward"), len(live))
    axes.axvline(turn, color=COLORS["black"], linestyle=":", linewidth=1)
    axes.text(turn, 1.16 * top, " backward begins", fontsize=9, va="top")
    axes.annotate(
        f"peak {live[peak_at]:.2f} {unit}",
        (peak_at, live[peak_at]),
        (0.6 * max(len(live), len(plain)), 0.72 * top),
        arrowprops={"arrowstyle": "->", "color": COLORS["blue"]},
        color=COLORS["blue"],
    )
    label = f"  nothing checkpointed, peak {top:.2f} {unit}"
    axes.text(turn + 0.02 * len(live), 0.99 * top, label, fontsize=9, color="#555555", va="center")
    axes.set_ylim(0, 1.18 * top)
    axes.set_xlim(0, max(len(point) for point in timelines.values()))
    axes.set_xlabel("operation")
    axes.set_ylabel(f"activations and temporaries ({unit})")
    share = live[peak_at] / top
    word = "segment" if segments == 1 else "segments"
    axes.set_title(f"{segments} {word}: the peak is {share:.0%} of the plain step's")
    return figure


def segments_slider(timelines: Mapping[int, Sequence[TimelinePoint]], start: int, unit: str = "MB") -> Any:
    """A slider over the numbers of segments; each position shows `step_figure`. Needs a kernel."""
    import ipywidgets
    from matplotlib import pyplot as plt

    drawn: dict[int, bytes] = {}

    def picture(segments: int) -> bytes:
        if segments not in drawn:
            figure = step_figure(timelines, segments, unit)
            drawn[segments] = png_bytes(figure)
            plt.close(figure)
        return drawn[segments]

    slider = ipywidgets.SelectionSlider(
        options=[key for key in sorted(timelines) if key], value=start, description="segments", continuous_update=False
    )
    image = ipywidgets.Image(value=picture(start), format="png", layout={"max_width": "100%"})
    slider.observe(lambda change: setattr(image, "value", picture(change["new"])), names="value")
    return ipywidgets.VBox([slider, image])

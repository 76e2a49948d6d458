"""Figures of lesson 05: the tiles as they are visited, traffic against on-chip memory, the roofline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from course_lib.figures import COLORS, MARKERS, WIDE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from course_lib.memory import Gpu


@dataclass(frozen=True)
class Frame:
    """What is on chip after one pair of tiles, or when a Q tile is finished (`keys` is None then).

    Attributes:
        queries, keys: (first, end) of the rows of the tiles on chip.
        visited: pairs of tiles done so far, as (queries, keys).
        stored: rows of the output that are back in HBM.
        row_max, row_sum, correction: one number for each query of the tile.
    """

    queries: tuple[int, int]
    keys: tuple[int, int] | None
    visited: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    stored: int
    row_max: tuple[float, ...]
    row_sum: tuple[float, ...]
    correction: tuple[float, ...]


def tile_frames(scores: Tensor, block_q: int, block_k: int, causal: bool) -> list[Frame]:
    """Every step of the sweep over a (Tq, Tk) matrix of scores, causal masks aligned to the end."""
    q_len, k_len = scores.shape
    offset = k_len - q_len
    future = torch.arange(k_len)[None, :] > torch.arange(q_len)[:, None] + offset
    scores = scores.double().masked_fill(future & causal, -math.inf)
    frames: list[Frame] = []
    visited: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for i in range(0, q_len, block_q):
        queries = (i, min(i + block_q, q_len))
        row_max = torch.full((queries[1] - i,), -math.inf, dtype=torch.float64)
        row_sum, correction = torch.zeros_like(row_max), torch.zeros_like(row_max)
        for j in range(0, k_len, block_k):
            if causal and j > queries[1] - 1 + offset:
                break
            keys = (j, min(j + block_k, k_len))
            tile = scores[queries[0] : queries[1], keys[0] : keys[1]]
            new_max = torch.maximum(row_max, tile.amax(1))
            correction = torch.exp(row_max - new_max)
            row_sum = row_sum * correction + torch.exp(tile - new_max[:, None]).sum(1)
            row_max = new_max
            visited.append((queries, keys))
            numbers = (tuple(row_max.tolist()), tuple(row_sum.tolist()), tuple(correction.tolist()))
            frames.append(Frame(queries, keys, tuple(visited), i, *numbers))
        frames.append(Frame(queries, None, tuple(visited), queries[1], *numbers))
    return frames


def _box(axes: Axes, x: float, y: float, width: float, height: float, color: str, hatch: str = "", line: float = 0.6):
    from matplotlib.patches import Rectangle

    axes.add_patch(
        Rectangle((x, y), width, height, facecolor=color, hatch=hatch, edgecolor=COLORS["black"], linewidth=line)
    )


def _map(axes: Axes, frame: Frame, q_len: int, k_len: int, labels: bool = True) -> None:
    """Q down the left, K and V along the top, the scores between them, out down the right."""
    white, gap = "#FFFFFF", 0.8
    q_at, out_at, k_at = -gap - 1.2, k_len + gap, -gap - 1.2
    for y in range(q_len):
        is_here = frame.queries[0] <= y < frame.queries[1] and frame.keys is not None
        _box(axes, q_at, y, 1.2, 1, COLORS["orange"] if is_here else white, "//" if is_here else "")
        is_done = y < frame.stored
        color = COLORS["green"] if is_done else COLORS["orange"] if is_here else white
        _box(axes, out_at, y, 1.2, 1, color, ".." if is_done else "//" if is_here else "")
    for x in range(k_len):
        is_here = frame.keys is not None and frame.keys[0] <= x < frame.keys[1]
        _box(axes, x, k_at, 1, 1.2, COLORS["orange"] if is_here else white, "//" if is_here else "")
    _box(axes, 0, 0, k_len, q_len, white)
    for queries, keys in frame.visited:
        is_now = (queries, keys) == (frame.queries, frame.keys)
        color, hatch = (COLORS["orange"], "//") if is_now else (COLORS["sky"], "")
        _box(axes, keys[0], queries[0], keys[1] - keys[0], queries[1] - queries[0], color, hatch, 1.0)
    axes.set_xlim(q_at - 0.4, out_at + 1.6)
    axes.set_ylim(q_len + 0.3, k_at - (1.5 if labels else 0.3))
    axes.set_aspect("equal")
    axes.axis("off")
    if labels:
        style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 10}
        axes.text(q_at + 0.6, -0.2, "Q", **style)
        axes.text(out_at + 0.6, -0.2, "out", **style)
        axes.text(k_len / 2, k_at - 0.2, "K and V", **style)


def _happens(frame: Frame) -> str:
    if frame.keys is None:
        return f"out rows {frame.queries[0]} to {frame.queries[1] - 1} are divided by their sums and stored"
    queries, keys = (f"{first} to {end - 1}" for first, end in (frame.queries, frame.keys))
    return f"on chip: Q rows {queries}, K and V rows {keys}"


def tiles_figure(frames: Sequence[Frame], step: int, q_len: int, k_len: int) -> tuple[Figure, str]:
    """One step: the map of tiles, and the running numbers of the queries on chip."""
    from matplotlib import pyplot as plt

    frame = frames[step]
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.6), width_ratios=(1.25, 1))
    _map(left, frame, q_len, k_len)
    figure.suptitle(
        f"Step {step + 1} of {len(frames)}: {_happens(frame)}", fontsize=10.5, fontweight="bold", x=0.02, ha="left"
    )
    right.axis("off")
    columns = (0.0, 0.42, 0.66, 1.0)
    for x, text in zip(columns, ("row", "maximum", "sum", "correction"), strict=True):
        right.text(x, 0.95, text, ha="left" if x < 0.1 else "right", fontweight="bold", transform=right.transAxes)
    for row in range(len(frame.row_max)):
        y = 0.84 - 0.105 * row
        cells = (
            str(frame.queries[0] + row),
            f"{frame.row_max[row]:+.2f}",
            f"{frame.row_sum[row]:.3f}",
            f"× {frame.correction[row]:.3f}",
        )
        for x, text in zip(columns, cells, strict=True):
            right.text(x, y, text, ha="left" if x < 0.1 else "right", family="monospace", transform=right.transAxes)
    note = "correction: what the old sum and the old output\nwere multiplied by when this tile came"
    right.text(0.0, 0.02, note, fontsize=9, color="#444444", transform=right.transAxes)
    return figure, f"Step {step + 1} of {len(frames)} of tiled attention: {_happens(frame)}."


def tiles_strip(frames: Sequence[Frame], steps: Sequence[int], q_len: int, k_len: int) -> tuple[Figure, str]:
    """Several steps side by side, for readers without a kernel."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(steps), figsize=(7.2, 1.5))
    for step, one in zip(steps, axes, strict=True):
        _map(one, frames[step], q_len, k_len, labels=False)
        one.set_title(f"step {step + 1}", fontsize=9, fontweight="normal", loc="center")
    title = "A tile at a time: orange is on chip, blue is done and forgotten, green is written back"
    figure.suptitle(title, fontsize=10, fontweight="bold", x=0.02, ha="left")
    shown = "; ".join(f"step {step + 1}: {_happens(frames[step])}" for step in steps)
    return figure, f"Tiled attention at {len(steps)} moments. {shown}."


def explore_tiles(scores: Tensor, block_q: int, block_k: int, causal: bool) -> None:
    """A slider and a play button that step through the tiles."""
    from ipywidgets import IntSlider, Layout, Play, jslink

    from course_lib.widgets import explore

    frames = tile_frames(scores, block_q, block_k, causal)
    play = Play(min=0, max=len(frames) - 1, value=2, interval=900)
    slider = IntSlider(
        min=0, max=len(frames) - 1, value=2, description="step", readout=False, layout=Layout(width="420px")
    )
    jslink((play, "value"), (slider, "value"))

    def draw(play: int, step: int) -> tuple[Figure, str]:
        return tiles_figure(frames, step, *scores.shape)

    explore(draw, {"play": play, "step": slider})


def traffic_figure(
    sram_bytes: Sequence[int],
    measured: Mapping[str, Sequence[float]],
    predicted: Callable[[float], float],
    naive: float,
) -> Figure:
    """Traffic against on-chip memory on two logarithmic scales.

    Args:
        measured: loop order -> MB at each size.
        predicted: MB at a size in bytes.
        naive: MB that standard attention moves.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=WIDE)
    kib = [size / 1024 for size in sram_bytes]
    axes.plot(kib, [predicted(size) for size in sram_bytes], color=COLORS["grey"], linestyle="--", linewidth=1.2)
    axes.text(
        kib[1],
        0.5 * predicted(sram_bytes[1]),
        "dashed: 8N²d²/M + 2Nd",
        color="#555555",
        fontsize=9,
        ha="center",
        va="top",
    )
    for (label, values), color, marker in zip(measured.items(), ("blue", "vermillion"), MARKERS, strict=False):
        axes.plot(kib, values, color=COLORS[color], linestyle="", marker=marker, markersize=6)
        axes.text(kib[-1] * 1.12, values[-1], label, color=COLORS[color], va="center", fontsize=9)
    axes.axhline(naive, color=COLORS["black"], linestyle="-.", linewidth=1.2)
    axes.text(kib[-1] * 1.12, 1.05 * naive, "standard attention", va="bottom", fontsize=9)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(kib, [f"{size:g}" for size in kib])
    axes.set_xlim(kib[0] / 1.2, kib[-1] * 6)
    axes.set_ylim(top=2.5 * naive)
    axes.set_xlabel("on-chip memory (KiB)")
    axes.set_ylabel("traffic of one head (MB)")
    axes.set_title("Twice the on-chip memory, half the traffic")
    return figure


def roofline_figure(gpu: Gpu, points: Mapping[str, float], peak: float) -> Figure:
    """Attainable rate against arithmetic intensity for one GPU.

    Args:
        points: label -> FLOPs a byte.
        peak: the GPU's FLOP/s for the dtype at hand.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=WIDE)
    bandwidth = gpu.bandwidth_bytes_per_s
    ridge = peak / bandwidth
    span = (4, max(20 * ridge, 2 * max(points.values())))
    axes.plot(
        [span[0], ridge, span[1]],
        [span[0] * bandwidth / 1e12, peak / 1e12, peak / 1e12],
        color=COLORS["black"],
        linestyle="-",
    )
    axes.axvline(ridge, color=COLORS["grey"], linestyle=":", linewidth=1.2)
    axes.text(
        ridge * 1.08,
        span[0] * bandwidth / 1e12 * 1.15,
        f"ridge:\n{ridge:.0f} FLOPs a byte",
        fontsize=9,
        color="#555555",
    )
    for (label, intensity), color, marker in zip(
        points.items(), ("vermillion", "blue", "green"), MARKERS, strict=False
    ):
        rate = min(peak, intensity * bandwidth) / 1e12
        axes.plot(intensity, rate, color=COLORS[color], marker=marker, markersize=8, linestyle="")
        axes.annotate(
            label,
            (intensity, rate),
            (12, -3),
            textcoords="offset points",
            color=COLORS[color],
            ha="left",
            va="top",
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOPs for each byte moved")
    axes.set_ylabel("attainable TFLOP/s")
    return figure


def lengths_figure(rows: Mapping[str, Mapping[int, float]], unit: str, title: str) -> Figure:
    """Lines over sequence length on two logarithmic scales, labelled at their ends."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=WIDE)
    names = ("vermillion", "blue", "green", "purple", "orange", "sky", "black")
    for (label, values), color, marker in zip(rows.items(), names, MARKERS, strict=False):
        axes.plot(list(values), list(values.values()), color=COLORS[color], marker=marker, markersize=5)
        last = list(values)[-1]
        axes.text(last * 1.1, values[last], label, color=COLORS[color], va="center", fontsize=9)
    ticks = sorted({length for values in rows.values() for length in values})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [f"{length:,}" for length in ticks])
    axes.set_xlim(ticks[0] / 1.15, ticks[-1] * 4)
    axes.set_xlabel("sequence length")
    axes.set_ylabel(unit)
    axes.set_title(title)
    return figure

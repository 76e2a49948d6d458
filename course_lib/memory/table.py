"""A memory report as text and as a figure: a stacked bar by category."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course_lib.memory.errors import describe_bytes
from course_lib.memory.timeline import CATEGORIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course_lib.memory.report import MemoryReport

# A letter beside the colour in terminals, a hatch in figures: nobody has to tell colours apart.
LETTERS = {
    "parameter": "P",
    "gradient": "G",
    "optimizer state": "O",
    "buffer": "B",
    "input": "I",
    "activation": "A",
    "temporary": "T",
}
COLOURS = ("blue", "green", "orange", "grey", "yellow", "vermillion", "sky")
BAR_WIDTH = 60


def bar(by_category: dict[str, int], full_bytes: int, width: int = BAR_WIDTH) -> str:
    """One line of letters: `full_bytes` is `width` characters, what is not used is dots."""
    cells, filled, total = "", 0, 0
    for name in CATEGORIES:
        total += by_category.get(name, 0)
        end = round(total / full_bytes * width)
        cells += LETTERS[name] * (end - filled)
        filled = max(filled, end)
    return cells + "." * (width - len(cells))


def describe(report: MemoryReport) -> list[str]:
    """The report as lines of text: peak, categories, and a bar with the capacity marked."""
    where = f" in {report.peak_module}" if report.peak_module else ""
    lines = [f"peak      {describe_bytes(report.peak_bytes)} at {report.peak_operation}{where} ({report.peak_phase})"]
    for name in CATEGORIES:
        size = report.peak_by_category[name]
        if size:
            share = f"{size / report.peak_bytes:4.0%}"
            lines.append(f"  {LETTERS[name]} {name:<16}{describe_bytes(size):>14} {share}")
    full = max(report.peak_bytes, report.capacity_bytes or 0)
    drawn = bar(report.peak_by_category, full)
    if report.capacity_bytes is not None:
        edge = round(report.capacity_bytes / full * BAR_WIDTH)
        lines.append(f"  |{drawn[:edge]}|{drawn[edge:]}")
        lines.append("  " + " " * (edge + 1) + f"^ {describe_bytes(report.capacity_bytes)} usable on {report.gpu}")
    else:
        lines.append(f"  |{drawn}|")
    return lines


def stacked_bars(reports: dict[str, MemoryReport], *, title: str) -> Figure:
    """A horizontal stacked bar for each report, with the GPU's capacity as a line.

    Args:
        reports: by the label of their bar; those of one GPU.
        title: the finding.
    Returns:
        A matplotlib figure; show it with `course_lib.figures.show(fig, alt=...)`.
    """
    from matplotlib.figure import Figure

    from course_lib.figures import COLORS, HATCHES, WIDE

    fig = Figure(figsize=(WIDE[0], 1.7 + 0.45 * len(reports)), layout="constrained")
    axes = fig.subplots()
    left = [0.0] * len(reports)
    used = [
        name for name in CATEGORIES if any(r.peak_by_category[name] > 0.002 * r.peak_bytes for r in reports.values())
    ]
    for name in used:
        at = CATEGORIES.index(name)
        widths = [report.peak_by_category[name] / 2**30 for report in reports.values()]
        axes.barh(
            list(reports),
            widths,
            left=left,
            label=name,
            color=COLORS[COLOURS[at]],
            hatch=HATCHES[at],
            edgecolor="white",
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_ylim(len(reports) - 0.1, -0.5)  # first bar on top, and room below the last for the GPU's name
    gpu = next(iter(reports.values()))
    if gpu.capacity_bytes is not None:
        capacity = gpu.capacity_bytes / 2**30
        axes.axvline(capacity, color="black", linestyle="--")
        axes.text(capacity, len(reports) - 0.3, f" {capacity:.1f} GiB on {gpu.gpu}", va="center")
    axes.set_xlim(0)
    axes.set_xlabel("GiB of tensor storage at the peak")
    fig.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    fig.legend(loc="outside lower center", ncols=4, frameon=False)
    return fig


def as_json(report: MemoryReport) -> dict[str, Any]:
    """The report as plain data, without the timeline."""
    return {
        "peak_bytes": report.peak_bytes,
        "peak_by_category": report.peak_by_category,
        "peak_operation": report.peak_operation,
        "peak_phase": report.peak_phase,
        "peak_module": report.peak_module,
        "start_bytes": report.start_bytes,
        "gpu": report.gpu,
        "capacity_bytes": report.capacity_bytes,
        "fits": report.fits,
        "phases": [
            {"phase": mark.phase, "live_bytes": mark.live_bytes, "by_category": mark.by_category}
            for mark in report.marks
        ],
    }

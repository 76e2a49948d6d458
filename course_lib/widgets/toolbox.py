"""Figures of lessons 06 and 07: a step as a stacked timeline, a plan's trial, the allocator's segments."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from course_lib.figures import COLORS, HATCHES, MARKERS, WIDE, show
from course_lib.memory import CATEGORIES, MemoryReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from course_lib.toolbox import Level, Plan, Trial
    from course_lib.toolbox.allocator import CachingAllocator

GIB = 2**30
STYLES = {  # category -> colour, hatch
    "parameter": ("blue", ""),
    "optimizer state": ("purple", "//"),
    "gradient": ("green", ".."),
    "activation": ("orange", ""),
    "temporary": ("vermillion", "xx"),
}
MAX_POINTS = 400  # a step has thousands of operations, a figure some hundred columns


def _columns(report: MemoryReport) -> tuple[list[int], dict[str, list[float]]]:
    """The timeline, thinned: of each group of operations the one with the most bytes."""
    points = report.timeline
    width = max(1, -(-len(points) // MAX_POINTS))
    chosen = [max(points[i : i + width], key=lambda point: point.live_bytes) for i in range(0, len(points), width)]
    names = {name: [point.category_bytes[CATEGORIES.index(name)] / GIB for point in chosen] for name in STYLES}
    return [point.index for point in chosen], names


def draw_step(axes: Axes, report: MemoryReport, top: float | None = None) -> None:
    """A step's live bytes by category, stacked, with its phases, its peak and the GPU's capacity."""
    at, names = _columns(report)
    under = [0.0] * len(at)
    for name, (color, hatch) in STYLES.items():
        over = [low + high for low, high in zip(under, names[name], strict=True)]
        axes.fill_between(
            at, under, over, color=COLORS[color], alpha=0.75, hatch=hatch, edgecolor="white", linewidth=0, label=name
        )
        under = over
    peak = report.peak_bytes / GIB
    capacity = report.capacity_bytes / GIB if report.capacity_bytes else None
    top = top or 1.2 * max(peak, capacity or 0)
    if capacity and capacity < top:
        axes.axhline(capacity, color=COLORS["black"], linestyle="--", linewidth=1.2)
        axes.text(
            at[-1], capacity + 0.01 * top, f"{report.gpu}: {capacity:.1f} GiB", ha="right", va="bottom", fontsize=9
        )
    begin = None
    for point in report.timeline:
        if point.phase != begin:
            begin = point.phase
            if begin in ("backward", "step"):
                axes.axvline(point.index, color=COLORS["black"], linestyle=":", linewidth=0.8)
    axes.plot(report.peak_index, min(peak, top), marker="v", color=COLORS["black"], markersize=7)
    axes.set_xlim(0, max(at[-1], 1))
    axes.set_ylim(0, top)
    axes.set_ylabel("GiB alive")
    axes.set_xlabel("operation of the step (dotted lines: a phase begins)")


def step_figure(report: MemoryReport, title: str, top: float | None = None) -> Figure:
    """One step as a stacked timeline with a legend beside it."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=WIDE)
    draw_step(axes, report, top)
    axes.set_title(title)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", fontsize=9)
    return figure


def step_alt(report: MemoryReport, title: str) -> str:
    """What the picture shows, in words."""
    largest = sorted(report.peak_by_category.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in largest)
    return (
        f"{title}. Peak {report.peak_bytes / GIB:.2f} GiB in {report.peak_phase}, at {report.peak_operation}: {parts}."
    )


def trial_figure(level: Level, trial: Trial, best: Trial | None = None) -> Figure:
    """Memory of one plan on the left, its predicted time by part on the right, par and the best so far marked."""
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.0), width_ratios=(1.5, 1))
    if trial.report is not None:
        draw_step(left, trial.report)
        left.set_xlabel("operation")
    else:
        left.text(0.5, 0.5, "nothing to run", ha="center", va="center", transform=left.transAxes)
    verdict = (
        "it fits" if trial.fits else "it does not fit" if trial.kind == "out_of_memory" else "no plan for this level"
    )
    left.set_title(f"{level.name}: {verdict}")
    base = sum(trial.seconds.values()) / trial.slowdown if trial.slowdown else 1.0
    start = 0.0
    for (name, seconds), color, hatch in zip(
        trial.seconds.items(), ("blue", "sky", "orange", "green", "purple", "vermillion"), HATCHES, strict=False
    ):
        share = seconds / base
        right.bar(0, share, bottom=start, color=COLORS[color], hatch=hatch, edgecolor="white", width=0.5)
        if share > 0.09:
            box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
            right.text(0, start + share / 2, name, ha="center", va="center", fontsize=8.5, bbox=box)
        start += share
    right.axhline(level.par, color=COLORS["black"], linestyle="--", linewidth=1)
    right.text(0.95, level.par, " par", va="bottom", ha="right", fontsize=9)
    if best is not None:
        right.axhline(best.slowdown, color=COLORS["green"], linestyle=":", linewidth=1.4)
        right.text(-0.95, best.slowdown, "best so far", va="bottom", fontsize=9, color="#00664b")
    right.set_xlim(-1, 1)
    right.set_ylim(0, 1.25 * max(start, level.par, best.slowdown if best else 0))
    right.set_xticks([])
    right.set_ylabel("predicted slowdown (a model)")
    right.set_title(f"score {trial.score:.0%}")
    return figure


class Board:
    """A level with its attempts: each `try_plan` draws a picture, and the best so far stays."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.best: Trial | None = None
        self.attempts = 0

    def try_plan(self, plan: Plan) -> Trial:
        """Judges a plan, prints one or two lines, draws, and remembers it if it is the best."""
        from course_lib.toolbox import try_plan

        trial = try_plan(self.level, plan)
        self.attempts += 1
        is_best = trial.fits and (self.best is None or trial.slowdown < self.best.slowdown)
        if is_best:
            self.best = trial
        print(f"attempt {self.attempts}, level “{self.level.name}”: {describe_trial(trial)}")
        if self.best is not None and not is_best:
            print(f"best so far: score {self.best.score:.0%} with {short_plan(self.best.plan)}")
        figure = trial_figure(self.level, trial, self.best)
        alt = f"Memory over one step and predicted time of {short_plan(trial.plan)}: {describe_trial(trial)}"
        show(figure, alt=alt)
        return trial


def short_plan(plan: Plan) -> str:
    """What a plan changes, in few words."""
    words = [plan.precision, plan.attention, f"{plan.micro_batch} × {plan.accumulation}"]
    if plan.checkpoint_blocks:
        words.append(f"{plan.checkpoint_blocks} blocks recomputed")
    if plan.chunk_tokens:
        words.append(f"loss in chunks of {plan.chunk_tokens}")
    words.append(plan.optimizer)
    if plan.offload != "none":
        words.append(f"{plan.offload} offloaded")
    return ", ".join(words)


def describe_trial(trial: Trial) -> str:
    """The verdict in a sentence."""
    if not trial.fits:
        return trial.problem
    assert trial.report is not None
    peak = trial.report.peak_bytes / GIB
    return f"it fits, {peak:.2f} GiB; slowdown {trial.slowdown:.2f}, score {trial.score:.0%}."


def explore_plans(level: Level, **start: Any) -> None:
    """Switches for the level's plan; a dry run and a picture for each setting."""
    import ipywidgets

    from course_lib.toolbox import Plan, try_plan
    from course_lib.widgets import explore

    controls = {
        name: ipywidgets.Dropdown(
            options=list(options), value=start.get(name, options[0]), description=name.replace("_", " ")
        )
        for name, options in level.choices.items()
    }
    for control in controls.values():
        control.layout.width = "220px"
        control.style.description_width = "110px"

    def draw(**chosen: Any) -> tuple[Figure, str]:
        plan = Plan(**chosen, accumulation=level.global_batch // chosen["micro_batch"])
        trial = try_plan(level, plan)
        return trial_figure(level, trial), f"{short_plan(plan)}: {describe_trial(trial)}"

    explore(draw, controls)


def cost_figure(points: Mapping[str, tuple[float, float]], title: str) -> Figure:
    """The toolbox as cost against saving: label -> (GiB saved, slowdown in per cent)."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 3.6))
    colors = ("blue", "orange", "green", "vermillion", "sky", "purple", "black", "grey")
    for row, ((label, (saved, cost)), color, marker) in enumerate(zip(points.items(), colors, MARKERS, strict=False)):
        axes.plot(saved, cost, marker=marker, color=COLORS[color], markersize=9, linestyle="none")
        axes.annotate(label, (saved, cost), (8, 8 if row % 2 == 0 else -14), textcoords="offset points", fontsize=9)
    axes.axhline(0, color=COLORS["black"], linewidth=0.8)
    axes.set_yscale("symlog", linthresh=30)  # one tool costs twenty times what the others do
    axes.set_yticks([0, 10, 20, 30, 100, 300], ["0", "10", "20", "30", "100", "300"])
    axes.minorticks_off()
    axes.set_xlim(0, 1.35 * max(saved for saved, _ in points.values()))
    axes.margins(y=0.2)
    axes.set_xlabel("GiB less at the peak")
    axes.set_ylabel("more time (%), predicted")
    axes.set_title(title)
    return figure


def allocator_figure(allocators: Mapping[str, CachingAllocator], title: str) -> Figure:
    """The segments of one or more allocators as bars: blocks in use filled, free ones hatched, sizes in MiB."""
    from matplotlib import pyplot as plt

    mib = 2**20
    rows = [(who, segment) for who, allocator in allocators.items() for segment in allocator.segments]
    figure, axes = plt.subplots(figsize=(7.2, 0.42 * len(rows) + 1.3))
    for row, (_, segment) in enumerate(rows):
        for block in segment.blocks:
            is_free = block.owner is None
            axes.barh(
                row,
                block.size / mib,
                left=block.start / mib,
                color="white" if is_free else COLORS["sky"],
                hatch="//" if is_free else "",
                edgecolor=COLORS["grey"] if is_free else COLORS["black"],
                linewidth=0.8,
                height=0.7,
            )
            if block.size > mib:
                box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"} if is_free else None
                middle = (block.start + block.size / 2) / mib
                label = f"{block.size / mib:g}" + (" free" if is_free and block.size > 5 * mib else "")
                axes.text(middle, row, label, ha="center", va="center", fontsize=8.5, bbox=box)
    axes.set_yticks(range(len(rows)), [who for who, _ in rows], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("MiB within a segment (hatched: reserved, and free)")
    axes.set_title(title)
    return figure


def cards_html(cards: Mapping[str, str]) -> str:
    """Answers as cards that open on a click: title -> Markdown-free text."""
    pieces = []
    for title, text in cards.items():
        paragraphs = "".join(f"<p>{html.escape(part)}</p>" for part in text.split("\n\n") if part.strip())
        pieces.append(
            '<details style="border:1px solid #7f7f7f;border-radius:6px;padding:0.4em 0.8em;margin:0.4em 0;max-width:46em">'
            f"<summary><b>{html.escape(title)}</b></summary>{paragraphs}</details>"
        )
    return "".join(pieces)

"""Figures of lesson 01: the bits of a number, the marks on the number line, range against precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from course_lib.figures import COLORS
from course_lib.formats import (
    BF16,
    E4M3,
    E5M2,
    FORMATS,
    FP16,
    FP32,
    FloatFormat,
    bit_width,
    decode_bits,
    describe_bits,
    encode_float,
    format_limits,
    round_to,
    split_bits,
    ulp,
)
from course_lib.widgets import drawn, explore, image_tag, publish

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# field -> (colour, hatch); the hatch and the label below say the same as the colour
FIELDS = {"sign": ("vermillion", "xx"), "exponent": ("orange", "//"), "fraction": ("sky", "")}
LINES = {"FP32": "black", "FP16": "blue", "BF16": "vermillion", "E4M3": "green", "E5M2": "purple"}
DENSE = 160  # more marks than this in one row would run together


def short(x: float) -> str:
    """A number as a caption shows it."""
    return f"{x:.9g}".replace("e-0", "e-").replace("e+0", "e+") if math.isfinite(x) else str(x)


def equation(bits: int, fmt: FloatFormat) -> str:
    """The value of a code as sign x significand x power of two, in mathtext."""
    sign, exponent, fraction = split_bits(bits, fmt)
    kind = describe_bits(bits, fmt)
    value = decode_bits(bits, fmt)
    if kind in ("NaN", "infinity"):
        rest = "the fraction is 0" if kind == "infinity" else "the fraction is not 0"
        return f"exponent all ones, {rest if fmt.has_infinity else 'fraction all ones'}:  {kind} ({value})"
    lead, power = (1, exponent - fmt.bias) if exponent else (0, 1 - fmt.bias)
    digits = f"{fraction:0{fmt.fraction_bits}b}"
    shown = f"({'+' if sign == 0 else '−'}1) × {lead}.{digits}₂"
    origin = f"{exponent} − {fmt.bias}" if exponent else f"1 − {fmt.bias}"
    return f"{shown} × $2^{{{origin}\\;=\\;{power}}}$  =  {short(value)}"


def bits_figure(bits: int, fmt: FloatFormat) -> tuple[Figure, str]:
    """The bits of one code in boxes, with the value that they spell."""
    from matplotlib import pyplot as plt
    from matplotlib.patches import Rectangle

    n = bit_width(fmt)
    figure = plt.figure(figsize=(7.2, 2.2), layout="none")
    axes = figure.add_axes((0.01, 0.0, 0.98, 0.88))
    axes.set_xlim(0, n)
    axes.set_ylim(-1.6, 1.05)
    axes.axis("off")
    text = f"{bits:0{n}b}"
    spans = {"sign": (0, 1), "exponent": (1, 1 + fmt.exponent_bits), "fraction": (1 + fmt.exponent_bits, n)}
    for name, (start, end) in spans.items():
        color, hatch = FIELDS[name]
        for at in range(start, end):
            axes.add_patch(Rectangle((at, 0), 0.94, 1, facecolor=COLORS[color], alpha=0.35, linewidth=0))
            axes.add_patch(
                Rectangle((at, 0), 0.94, 0.12, facecolor=COLORS[color], hatch=hatch, edgecolor="white", lw=0)
            )
            axes.text(
                at + 0.47, 0.56, text[at], ha="center", va="center", fontsize=15 if n < 32 else 11, family="monospace"
            )
        middle, side = ((start + end) / 2 - 0.03, "center") if name != "sign" else (start, "left")
        axes.text(middle, -0.1, name, ha=side, va="top", fontsize=10)
    _, exponent, fraction = split_bits(bits, fmt)
    kind = describe_bits(bits, fmt)
    fields = f"exponent field {exponent}, fraction field {fraction:,} of {2**fmt.fraction_bits:,}: {kind}"
    axes.text(0, -0.62, equation(bits, fmt), va="top", fontsize=12 if fmt.fraction_bits < 23 else 10)
    if kind in ("normal", "subnormal", "zero"):
        fields += f"; one step here is {short(ulp(decode_bits(bits, fmt), fmt))}"
    axes.text(0, -1.2, fields, va="top", fontsize=9.5)
    value = decode_bits(bits, fmt)
    axes.set_title(f"{fmt.name} code {bits:#0{2 + n // 4}x} is {short(value)}")
    alt = (
        f"The bits of {short(value)} in {fmt.name}: sign {text[0]}, exponent {text[1 : 1 + fmt.exponent_bits]}, "
        f"fraction {text[1 + fmt.exponent_bits :]}. It is a {kind} number."
        if kind in ("normal", "subnormal")
        else f"The bits {text} of {fmt.name} are {kind}: {short(value)}."
    )
    return figure, alt


def bit_explorer(fmt: FloatFormat = FP16, value: float = 1.0) -> None:
    """Buttons for the bits of any format; below them what they mean. Typing a value sets the bits nearest to it."""
    from ipywidgets import HTML, Dropdown, HBox, Layout, Text, ToggleButton, VBox

    choice = Dropdown(options=list(FORMATS), value=fmt.name, description="format", layout=Layout(width="170px"))
    typed = Text(value=repr(value), description="value", continuous_update=False, layout=Layout(width="260px"))
    note, picture = HTML(), HTML()
    buttons = [ToggleButton(layout=Layout(width="30px", margin="0 1px 0 0", padding="0")) for _ in range(32)]
    row = HBox(layout=Layout(flex_flow="row wrap"))
    state: dict[str, Any] = {"bits": encode_float(value, fmt), "busy": False}

    def refresh() -> tuple[bytes, str]:
        chosen = FORMATS[choice.value]
        n, bits = bit_width(chosen), state["bits"]
        state["busy"] = True
        for at, button in enumerate(buttons[:n]):
            button.value = bool(bits >> (n - 1 - at) & 1)
            button.description = str(int(button.value))
            field = "sign" if at == 0 else "exponent" if at <= chosen.exponent_bits else "fraction"
            button.layout.width = "30px" if n < 32 else "21px"
            button.tooltip = f"{field}, bit {n - 1 - at}"
            button.layout.border = f"2px solid {COLORS[FIELDS[field][0]]}"
        row.children = tuple(buttons[:n])
        typed.value = repr(decode_bits(bits, chosen))
        state["busy"] = False
        png, alt = drawn(*bits_figure(bits, chosen))
        picture.value = image_tag(png, alt)
        return png, alt

    def on_button(_: Any) -> None:
        if not state["busy"]:
            n = bit_width(FORMATS[choice.value])
            state["bits"] = sum(button.value << (n - 1 - at) for at, button in enumerate(buttons[:n]))
            note.value = ""
            refresh()

    def on_value(_: Any) -> None:
        if state["busy"]:
            return
        chosen = FORMATS[choice.value]
        try:
            x = float(typed.value)
        except ValueError:
            note.value = "Type a number such as 0.1, 6e-8, inf or nan."
            return
        state["bits"] = encode_float(x, chosen)
        stored = decode_bits(state["bits"], chosen)
        note.value = (
            "" if stored == x or math.isnan(x) else f"{x!r} is not a value of {chosen.name}; the nearest is {stored!r}."
        )
        refresh()

    for button in buttons:
        button.observe(on_button, names="value")
    typed.observe(on_value, names="value")
    choice.observe(on_value, names="value")
    publish(VBox([HBox([choice, typed]), row, note, picture]), *refresh())


def values_between(low: float, high: float, fmt: FloatFormat, most: int) -> list[float] | int:
    """The finite values of a format in [low, high], or only how many there are if more than `most`."""
    limit = format_limits(fmt)["max"]
    low, high = max(low, -limit), min(high, limit)

    # Codes of one sign are consecutive, so the values are numbered: 0, 1, 2, ... up, -1, -2, ... down.
    def value(number: int) -> float:
        return math.copysign(1.0, number) * decode_bits(abs(number), fmt) if number else 0.0

    def nearest(x: float) -> int:
        return encode_float(x, fmt) if x > 0 else -encode_float(abs(x), fmt)

    first, last = nearest(low), nearest(high)
    first += value(first) < low
    last -= value(last) > high
    count = last - first + 1
    return count if count > most else [value(number) for number in range(first, last + 1)]


def number_line_figure(
    x: float, half_width: float, formats: Sequence[FloatFormat] = (FP32, FP16, BF16, E4M3, E5M2)
) -> tuple[Figure, str]:
    """The values of each format around x, and which of them x becomes."""
    from matplotlib import pyplot as plt

    low, high = x - half_width, x + half_width
    figure, axes = plt.subplots(figsize=(7.2, 3.3))
    said = []
    for row, fmt in enumerate(formats):
        color = COLORS[LINES[fmt.name]]
        found = values_between(low, high, fmt, DENSE)
        axes.axhline(row, color=COLORS["grey"], linewidth=0.6)
        if isinstance(found, int):
            axes.fill_between([low, high], row - 0.22, row + 0.22, color=color, alpha=0.3, hatch="||||", linewidth=0)
            count = f"{found:,} values"
        else:
            axes.vlines(found, row - 0.26, row + 0.26, color=color, linewidth=1.4)
            count = f"{len(found)} value{'s' if len(found) != 1 else ''}"
        stored = round_to(x, fmt)
        if low <= stored <= high:
            axes.plot([stored], [row], marker="o", color=color, markersize=8, markeredgecolor="white")
            if abs(stored - x) > 0.02 * half_width:
                arrow = {"arrowstyle": "->", "color": COLORS["black"], "linewidth": 1}
                axes.annotate("", (stored, row), (x, row + 0.4), arrowprops=arrow)
        step = ulp(stored, fmt) if math.isfinite(stored) else math.nan
        power = f"$2^{{{int(math.log2(step))}}}$" if step == step else "–"
        label = f"{short(stored)}, step {power}"
        axes.text(1.01, row, f"{label}\n{count}", transform=axes.get_yaxis_transform(), va="center", fontsize=8.5)
        said.append(f"{fmt.name} stores {short(stored)}")
    axes.axvline(x, color=COLORS["black"], linestyle=":", linewidth=1.2)
    axes.set_yticks(range(len(formats)), [fmt.name for fmt in formats])
    axes.set_ylim(len(formats) - 0.4, -0.75)
    axes.set_xlim(low, high)
    axes.grid(visible=False)
    axes.ticklabel_format(axis="x", useOffset=False) if 1e-3 < abs(x) < 1e5 and half_width > 1e-4 * abs(x) else None
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("value")
    axes.set_title(f"What {short(x)} becomes in each format")
    return figure, f"The values of each format within {short(half_width)} of {short(x)}: " + "; ".join(said) + "."


POINTS = ("1.0001", "0.1", "3.14159265", "1000.3", "65504", "2049", "0.0001", "1e-07", "1e-08", "0", "300")


def number_line_explorer(x: str = "1.0001", zoom: int = -6) -> None:
    """Choose a value and how far to zoom in; see the marks of each format around it."""
    from ipywidgets import Combobox, IntSlider, Layout

    wide = {"description_width": "70px"}
    value = Combobox(
        value=x,
        options=POINTS,
        description="value",
        ensure_option=False,
        continuous_update=False,
        style=wide,
        layout=Layout(width="230px"),
    )
    slider = IntSlider(
        value=zoom,
        min=-24,
        max=2,
        description="zoom, 2^",
        continuous_update=False,
        style=wide,
        layout=Layout(width="330px"),
    )

    def draw(x: str, zoom: int) -> tuple[Figure, str]:
        try:
            at = min(max(float(x), -1e30), 1e30)
        except ValueError:
            at = 1.0
        at = 1.0 if math.isnan(at) else at
        scale = 2.0 ** math.floor(math.log2(abs(at))) if at else 2.0**-12
        return number_line_figure(at, scale * 2.0**zoom)

    explore(draw, {"x": value, "zoom": slider})


def range_figure(x: float | None = None) -> tuple[Figure, str]:
    """Range (how far the values reach) against precision (how many bits a normal value has)."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 3.5))
    said = []
    for fmt in (FP32, FP16, BF16, E4M3, E5M2):
        limits, precision = format_limits(fmt), fmt.fraction_bits + 1
        color, at = COLORS[LINES[fmt.name]], math.log2(precision)
        ends = [math.log10(limits[name]) for name in ("smallest_subnormal", "smallest_normal", "max")]
        axes.barh(at, ends[2] - ends[1], left=ends[1], height=0.26, color=color)
        axes.barh(at, ends[1] - ends[0], left=ends[0], height=0.26, facecolor="white", edgecolor=color, hatch="////")
        label = f"{fmt.name}: {precision} bits, {precision * math.log10(2):.1f} digits"
        if x is not None:
            stored = round_to(x, fmt)
            label = f"{fmt.name} stores {short(float(f'{stored:.6g}'))}"
            said.append(label)
        axes.text(ends[2] + 0.9, at, label, va="center", fontsize=9.5)
    if x:
        axes.axvline(math.log10(abs(x)), color=COLORS["black"], linestyle="--", linewidth=1.2)
    axes.set_xlim(-47, 63)
    axes.set_xticks(range(-40, 41, 10), [f"$10^{{{k}}}$" for k in range(-40, 41, 10)])
    axes.set_yticks([math.log2(bits) for bits in (3, 4, 8, 11, 24)], ["3", "4", "8", "11", "24"])
    axes.set_xlabel("magnitude of the values (filled: normal numbers, hatched: subnormal)")
    axes.set_ylabel("bits of precision")
    axes.set_title(
        "Exponent bits buy range, fraction bits buy precision"
        if x is None
        else f"Where {short(x)} lies, and what it becomes"
    )
    alt = (
        "Range against precision: FP32 and BF16 both reach from about 1e-38 to 3e38 but have 24 and 8 bits; FP16 has 11 "
        "bits but reaches only from 6e-5 (6e-8 with subnormals) to 65504; E4M3 has 4 bits up to 448, E5M2 3 bits up to 57344."
    )
    return figure, alt if x is None else f"A line at {short(x)} across the ranges: {'; '.join(said)}."


def range_explorer(exponent: float = -7.0) -> None:
    """Move a value through the magnitudes; see which formats hold it and how well."""
    from ipywidgets import FloatSlider, Layout

    slider = FloatSlider(value=exponent, min=-44, max=38.5, step=0.5, description="value, 10^", continuous_update=False,
                         style={"description_width": "80px"}, layout=Layout(width="480px"))  # fmt: skip
    explore(lambda exponent: range_figure(10.0**exponent), {"exponent": slider})


def precision_figure(formats: Sequence[FloatFormat] = (FP16, BF16, E4M3)) -> tuple[Figure, str]:
    """The largest relative rounding error at each magnitude, from 1e-12 to 1e12."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    exponents = range(-40, 41)
    for fmt, dash, place in zip(formats, ("-", "--", "-."), (12, -36, -4), strict=False):
        limits = format_limits(fmt)
        xs, ys = [], []
        for exponent in exponents:
            for x in (2.0**exponent, 2.0**exponent * 1.999):
                if limits["smallest_subnormal"] <= x <= limits["max"]:
                    xs.append(x)
                    ys.append(ulp(x, fmt) / 2 / x)
        color = COLORS[LINES[fmt.name]]
        axes.plot(xs, ys, color=color, linestyle=dash, linewidth=1.6)
        axes.text(2.0**place, 2.0 ** -(fmt.fraction_bits + 1) * 1.25, fmt.name, fontweight="bold", fontsize=10)
        if limits["max"] < 2.0**40:
            axes.plot([xs[-1]], [ys[-1]], marker="X", color=color, markersize=8)
            axes.text(xs[-1] * 2.2, ys[-1], f"ends at {limits['max']:g}", va="center", fontsize=9)
    axes.set_xscale("log", base=10)
    axes.set_yscale("log", base=10)
    axes.set_ylim(1.5e-4, 0.8)
    axes.set_xlabel("magnitude of the value")
    axes.set_ylabel("largest relative error")
    axes.set_title("FP16 is finer than BF16 from 1.5e-5 to 65,504, and nowhere else")
    return figure, (
        "Largest relative rounding error against magnitude. BF16 stays near 0.4 percent everywhere. FP16 stays near "
        "0.05 percent from 6e-5 to 65504, where it ends; it crosses BF16 at 1.5e-5, and below that its error grows until "
        "values vanish below 3e-8. E4M3 stays near 6 percent from 0.016 to 448."
    )

"""Figures of lesson 02: gradients as a histogram of exponents under float16's window, with a slider for the scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from course_lib.figures import COLORS, WIDE, png_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# name: colour, hatch
FATES = {
    "zero": ("vermillion", "xx"),
    "blurred": ("orange", "//"),
    "kept": ("sky", ""),
    "infinite": ("black", "++"),
}
LIMITS = (-25.0, -14.0, 16.0)  # exponents where float16 ends, becomes subnormal, and overflows


def fates(gradients: Tensor, scale: float) -> dict[str, float]:
    """What a cast to float16 makes of the scaled non-zero gradients, as shares of their number."""
    values = gradients[gradients != 0].double() * scale
    cast = values.to(torch.float16)
    zero, infinite = cast == 0, cast.isinf()
    blurred = ~zero & (cast.abs() < torch.finfo(torch.float16).smallest_normal)
    count = max(values.numel(), 1)
    shares = {"zero": zero, "blurred": blurred, "infinite": infinite}
    found = {name: mask.sum().item() / count for name, mask in shares.items()}
    return {"zero": found["zero"], "blurred": found["blurred"], "kept": 1 - sum(found.values()), **found}


def _counts(gradients: Tensor, low: int, high: int) -> Tensor:
    exponents = gradients[gradients != 0].abs().double().log2().floor().clamp(low, high)
    return torch.histc(exponents.float(), bins=high - low + 1, min=low - 0.5, max=high + 0.5)


def histogram_figure(gradients: Tensor, log2_scale: int = 0) -> Figure:
    """Gradients by exponent after scaling by a power of two, and what float16 does to each part of them."""
    from matplotlib import pyplot as plt

    low, high = -60, 24
    counts = _counts(gradients.double() * 2.0**log2_scale, low, high)
    shares = counts / counts.sum() * 100
    figure, axes = plt.subplots(figsize=WIDE)
    for position, share in zip(range(low, high + 1), shares.tolist(), strict=True):
        name = ("zero", "blurred", "kept", "infinite")[sum(position >= limit for limit in LIMITS)]
        color, hatch = FATES[name]
        axes.bar(position + 0.5, share, width=1, color=COLORS[color], hatch=hatch, edgecolor="white", linewidth=0.3)
    top = 1.45 * max(shares.max().item(), 8.0)
    parts = fates(gradients, 2.0**log2_scale)
    edges = (low, *LIMITS, high)
    for (name, share), left, right in zip(parts.items(), edges, edges[1:], strict=False):
        axes.text((left + right) / 2, 0.97 * top, f"{name}\n{share:.1%}", ha="center", va="top", fontweight="bold")
    for limit in LIMITS:
        axes.axvline(limit, color=COLORS["black"], linestyle="--", linewidth=1)
    axes.set_xlim(low, high)
    axes.set_ylim(0, top)
    axes.set_xlabel(f"exponent: log₂ of |gradient × 2^{log2_scale}|")
    axes.set_ylabel("share of gradients (%)")
    axes.set_title(
        f"Scale 2^{log2_scale}: FP16 turns {parts['zero']:.1%} into zero, {parts['infinite']:.1%} into infinity"
    )
    axes.grid(axis="x", visible=False)
    return figure


def scale_slider(gradients: Tensor, start: int = 0) -> Any:
    """A slider for the loss scale's exponent, from 2^-24 to 2^40, over `histogram_figure`. Needs a kernel."""
    import ipywidgets
    from matplotlib import pyplot as plt

    drawn: dict[int, bytes] = {}

    def picture(log2_scale: int) -> bytes:
        if log2_scale not in drawn:
            figure = histogram_figure(gradients, log2_scale)
            drawn[log2_scale] = png_bytes(figure)
            plt.close(figure)
        return drawn[log2_scale]

    slider = ipywidgets.IntSlider(value=start, min=-24, max=40, step=2, description="scale 2^", continuous_update=False)
    image = ipywidgets.Image(value=picture(start), format="png", layout={"max_width": "100%"})
    slider.observe(lambda change: setattr(image, "value", picture(change["new"])), names="value")
    return ipywidgets.VBox([slider, image])


def trace_figure(scales: Sequence[float], skipped: Sequence[bool], title: str) -> Figure:
    """The scale over a training run; skipped steps are marked."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 2.8))
    exponents = torch.tensor(scales).log2().tolist()
    axes.step(range(len(exponents)), exponents, where="mid", color=COLORS["blue"])
    bad = [step for step, is_bad in enumerate(skipped) if is_bad]
    axes.plot(bad, [exponents[step] for step in bad], "X", color=COLORS["vermillion"], markersize=8)
    axes.set_xlabel("training step (✕: overflow, step skipped)")
    axes.set_ylabel("log₂ of the scale")
    axes.set_title(title)
    return figure

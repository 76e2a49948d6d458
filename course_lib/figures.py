"""How every figure of the course looks, and how it reaches the page: small, described, readable without colour.

Colours are those of Okabe and Ito (2008), which people with the common colour deficiencies can tell apart. Colour is
never the only channel: the default line cycle changes the dashes with the colour, and `HATCHES` and `MARKERS` give
bars and points a second one.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from cycler import cycler

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermillion": "#D55E00",
    "sky": "#56B4E9",
    "purple": "#CC79A7",
    "yellow": "#F0E442",
    "black": "#000000",
    "grey": "#7F7F7F",
}
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2, 2, 2)))
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SCALE = "cividis"  # for values on a scale; readable in grey

WIDE = (7.2, 3.2)
TALL = (7.2, 5.0)
SQUARE = (4.6, 4.2)

DPI = 90
MAX_PNG_BYTES = 60_000

STYLE: dict[str, Any] = {
    "axes.prop_cycle": cycler(color=list(COLORS.values())[:8]) + cycler(linestyle=DASHES),
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.dpi": DPI,
    "figure.figsize": WIDE,
    "font.size": 10,
    "grid.alpha": 0.3,
    "hatch.linewidth": 0.6,
    "image.cmap": SCALE,
    "legend.frameon": False,
    "svg.hashsalt": "sixteen-bytes",
}
mpl.rcParams.update(STYLE)  # type: ignore[arg-type]


def show(figure: Figure, alt: str) -> None:
    """Displays a figure once, as a small PNG with a description, and closes it.

    The description is stored where readers look for it: as `alt` in the image's metadata (nbconvert's classic page
    and nbsphinx make it the attribute), as a text chunk in the PNG itself, and as the output's plain text, which
    terminals show in place of the picture. JupyterLab uses none of the three, so the prose states the finding too.

    Args:
        figure: a matplotlib figure; closed afterwards, so that nothing displays it a second time.
        alt: what the figure shows, as a sentence that states its finding.
    Raises:
        ValueError: the description says nothing.
    """
    from IPython import get_ipython
    from IPython.display import display
    from matplotlib import pyplot as plt

    text = " ".join(alt.split())
    if len(text) < 15:
        raise ValueError(f"alt must be a sentence that states what the figure shows; got {alt!r}. Write the finding.")
    try:
        png = png_bytes(figure, text)
    finally:
        plt.close(figure)
    if get_ipython() is None:  # a plain script: no page to put the picture on
        print(text)
        return
    bundle = {"image/png": png, "text/plain": text}
    display(bundle, raw=True, metadata={"image/png": {"alt": text}})


def png_bytes(figure: Figure, alt: str = "", max_bytes: int = MAX_PNG_BYTES) -> bytes:
    """The figure as PNG, drawn again with fewer colours and then fewer dots until it has at most `max_bytes`."""
    from PIL import Image, PngImagePlugin

    info = PngImagePlugin.PngInfo()
    if alt:
        info.add_itxt("Description", alt)
    for dpi in (DPI, 80, 70, 60):
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=dpi, metadata={"Software": None})
        with Image.open(drawn) as opened:
            image = opened.convert("RGB")
        for colors in (256, 64, 24):
            packed = io.BytesIO()
            quantized = image.quantize(colors, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
            quantized.save(packed, format="png", optimize=True, pnginfo=info)
            if len(packed.getvalue()) <= max_bytes:
                return packed.getvalue()
    return packed.getvalue()

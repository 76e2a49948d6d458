"""Interactive figures, one module a subject. The drawing is matplotlib, so each has a static form too.

A page may be read without a kernel: on GitHub, in an exported file, before the first run. So an interactive figure
publishes its picture of the first view together with the controls: who can show the controls does, all others show
the picture.
"""

from __future__ import annotations

import base64
import html
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipywidgets import Widget
    from matplotlib.figure import Figure

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def explore(draw: Callable[..., tuple[Figure, str]], controls: Mapping[str, Widget]) -> None:
    """Shows a figure that is drawn again whenever a control changes.

    Args:
        draw: called with one keyword a control, its `value`; returns the figure and its alt text.
        controls: keyword -> ipywidgets control, shown above the figure in this order.
    """
    from ipywidgets import HTML, HBox, Layout, VBox

    picture = HTML()

    def redraw(_: Any = None) -> tuple[bytes, str]:
        png, alt = drawn(*draw(**{name: control.value for name, control in controls.items()}))
        picture.value = image_tag(png, alt)
        return png, alt

    for control in controls.values():
        control.observe(redraw, names="value")
    first = redraw()
    row = HBox(list(controls.values()), layout=Layout(flex_flow="row wrap"))
    publish(VBox([row, picture]), *first)


def drawn(figure: Figure, alt: str) -> tuple[bytes, str]:
    """The figure as a PNG that carries its description; the figure is closed."""
    from matplotlib import pyplot as plt

    from course_lib.figures import png_bytes

    text = " ".join(alt.split())
    try:
        return png_bytes(figure, text), text
    finally:
        plt.close(figure)


def image_tag(png: bytes, alt: str) -> str:
    """A picture with its alt text, as HTML; a screen reader hears the text again when it changes."""
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<img alt="{html.escape(alt)}" aria-live="polite" style="max-width:100%" src="data:image/png;base64,{data}">'
    )


def publish(widget: Widget, png: bytes, alt: str) -> None:
    """Displays a widget with a picture for readers who cannot show widgets."""
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is None:  # a plain script: no page to put it on
        print(alt)
    elif "google.colab" in sys.modules:  # Colab shows one kind of data only, and which one is its own choice
        display(widget)
    else:
        view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
        bundle = {WIDGET_VIEW: view, "image/png": png, "text/plain": alt}
        display(bundle, raw=True, metadata={"image/png": {"alt": alt}})

"""Draws the README's picture from the course's own numbers: python .github/picture.py"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from course_lib.figures import COLORS, HATCHES, png_bytes
from course_lib.memory.gpus import GPUS
from course_lib.mixed_precision import model_state_bytes

PARAMETERS = 8_000_000_000
PARTS = {"weights": "weights\n4 bytes", "gradients": "gradients\n4 bytes", "optimizer": "AdamW's two moments\n8 bytes"}


def main() -> None:
    state = model_state_bytes(PARAMETERS, "autocast")
    figure, axes = plt.subplots(figsize=(7.6, 2.5))
    left = 0.0
    for (part, label), color, hatch in zip(PARTS.items(), ("sky", "orange", "green"), HATCHES, strict=False):
        width = state[part] / 2**30
        axes.barh(0, width, 0.5, left=left, color=COLORS[color], hatch=hatch, edgecolor="white")
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5, "alpha": 0.9}
        middle = left + width * (0.66 if part == "optimizer" else 0.5)  # clear of the A100's line
        axes.text(middle, 0, label, ha="center", va="center", fontsize=9.5, bbox=box)
        left += width
    for name, label, dashes in (("T4", "a T4", "-"), ("A100-80GB", "an A100", "--")):
        usable = GPUS[name].usable_bytes / 2**30
        axes.axvline(usable, color=COLORS["vermillion"], linestyle=dashes, linewidth=2)
        axes.text(usable + 1, 0.42, f"{label} holds {usable:.0f} GiB", color=COLORS["vermillion"], fontsize=9.5)
    total = sum(state.values())
    title = f"8 billion parameters × {total // PARAMETERS} bytes: {total / 2**30:.0f} GiB before a single activation is stored"
    axes.set_title(title)
    axes.set(ylim=(-0.32, 0.55), yticks=[], xlim=(0, left * 1.02), xlabel="GiB, mixed precision with autocast and AdamW")
    axes.spines["left"].set_visible(False)
    axes.grid(False)
    Path(__file__).with_name("picture.png").write_bytes(png_bytes(figure))


if __name__ == "__main__":
    main()

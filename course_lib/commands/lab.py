"""`course lab`: open the course in JupyterLab."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import click

from course_lib.data_files import PACKAGE


@click.command("lab", context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def command(options: tuple[str, ...]) -> None:
    """Open the first notebook in JupyterLab. OPTIONS go to JupyterLab, for example --no-browser."""
    root = PACKAGE.parent
    first = root / "notebooks" / "00_start_here.ipynb"
    if not first.exists():
        raise click.ClickException(
            f"the notebooks must lie beside the package; found no {first}. Clone the course and run `make lab` in it."
        )
    if importlib.util.find_spec("jupyterlab") is None:
        raise click.ClickException("JupyterLab must be installed; found none. Run: pip install -e '.[lab]'")
    # A child, not exec: on Windows exec returns to the shell at once.
    line = [sys.executable, "-m", "jupyter", "lab", str(first.relative_to(root)), *options]
    if hasattr(os, "geteuid") and os.geteuid() == 0 and "--allow-root" not in options:
        line.append("--allow-root")  # in a container root is all there is
    try:
        sys.exit(subprocess.run(line, cwd=root, env=dict(os.environ)).returncode)
    except KeyboardInterrupt:
        sys.exit(130)

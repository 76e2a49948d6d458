"""`course record`: measure on this machine's GPU, and keep the results with their provenance."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from course_lib.data_files import PACKAGE


@click.command("record")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder; default: data/recorded.")
@click.option("--timeout", "timeout_s", default=600, show_default=True, help="Seconds that one cell may take.")
def command(paths: tuple[Path, ...], out: Path | None, timeout_s: int) -> None:
    """Run every notebook that has GPU cells and write what they measure, with GPU, versions, date and commit.

    PATHS are notebooks; default: all of the course.
    """
    import torch

    from course_lib import notebooks, recorded

    if not torch.cuda.is_available():
        raise click.ClickException("recording needs a CUDA GPU; torch sees none. Run this on a machine with one.")
    root = PACKAGE.parent
    paths = paths or tuple(sorted((root / "notebooks").glob("*.ipynb")))
    out = (out or root / "data" / "recorded").resolve()
    command_line = "course record " + " ".join(sys.argv[2:])
    environment = {recorded.RECORD_VARIABLE: str(out), "SIXTEEN_BYTES_COMMAND": command_line.strip()}
    failed = []
    for path in paths:
        try:
            notebook = notebooks.read(path)
            if not any({"gpu", "gpu-only"} & set(cell.metadata.get("tags", [])) for cell in notebook.cells):
                continue
            before = _written(out)
            notebooks.execute(notebook, path.resolve().parent, timeout_s=timeout_s, environment=environment)
        except (notebooks.NotebookFailed, ValueError) as error:
            failed.append(f"{path}: {error}")
            continue
        names = [name for name, time in _written(out).items() if before.get(name) != time]
        click.echo(f"{path.name}: recorded {', '.join(sorted(names)) or 'nothing'}")
    if failed:
        raise click.ClickException("\n".join(failed))


def _written(folder: Path) -> dict[str, int]:
    return {path.stem: path.stat().st_mtime_ns for path in folder.glob("*.json")}

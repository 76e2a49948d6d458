"""`course notebooks`: what maintainers do with notebooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from course_lib import notebooks

PATHS = click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group("notebooks")
def command() -> None:
    """Execute, solve and verify the course's notebooks."""


@command.command("execute")
@PATHS
def execute(paths: tuple[Path, ...]) -> None:
    """Run notebooks from top to bottom and store their outputs. A notebook that fails is left as it was."""
    failed = []
    for path in paths:
        with click.progressbar(length=1000, label=path.name) as bar:
            try:
                notebooks.execute_file(path, progress=_progress(bar))
            except (notebooks.NotebookFailed, ValueError) as error:
                failed.append(f"{path}: {error}")
    if failed:
        raise click.ClickException("\n".join(failed))


def _progress(bar: object) -> Callable[[int, int], None]:
    def step(done: int, total: int) -> None:
        bar.update(1000 * done // total - bar.pos)  # type: ignore[attr-defined]

    return step


@command.command("solve")
@PATHS
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File (one notebook) or folder to write to.")
@click.option("--execute/--no-execute", "run", default=False, help="Run the solved edition too.")
def solve(paths: tuple[Path, ...], output: Path | None, run: bool) -> None:
    """Write the solved edition: each exercise answered by the course's own solution."""
    if output is None:
        raise click.UsageError("say where to write: -o solved.ipynb, or a folder for several notebooks.")
    is_file = output.suffix == ".ipynb"
    if is_file and len(paths) > 1:
        raise click.UsageError(f"{len(paths)} notebooks need a folder; got the file {output}.")
    made = {}
    for path in paths:
        try:
            solved = notebooks.solve(notebooks.read(path))
            if run:
                notebooks.execute(solved, path.resolve().parent)
        except (notebooks.NotebookFailed, ValueError) as error:
            raise click.ClickException(f"{path}: {error}") from None
        target = output if is_file else output / path.name
        if target.resolve() == path.resolve():
            raise click.UsageError(f"the solved edition must not replace {path}; give another file or folder.")
        made[target] = notebooks.as_text(solved)
    for target, text in made.items():
        notebooks.write_text(target, text)
        click.echo(f"wrote {target}")


@command.command("verify")
@PATHS
def verify(paths: tuple[Path, ...]) -> None:
    """Say what is wrong with committed notebooks: not executed in order, tracebacks, size, ids, alt texts."""
    found = False
    for path in paths:
        try:
            wrong = notebooks.problems(path)
        except ValueError as error:
            wrong = [str(error)]
        for line in wrong:
            click.echo(f"{path}: {line}", err=True)
        found = found or bool(wrong)
    if found:
        raise SystemExit(1)
    click.echo(f"{len(paths)} notebook{'s' if len(paths) > 1 else ''} in order")


@command.command("address")
@click.argument("url", required=False)
def address(url: str | None) -> None:
    """Print the course's public address, or stamp the address URL into every badge and first cell."""
    if url is None:
        click.echo(notebooks.address())
        return
    try:
        changed = notebooks.stamp_address(url)
    except (FileNotFoundError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    for path in changed:
        click.echo(f"changed {path}")
    if not changed:
        click.echo("nothing to change")

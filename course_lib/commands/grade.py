"""`course grade`: trusted grading of many notebooks in a sandbox."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import click

from course_lib.grading.sandbox.quotas import Limits

_LIMITS = {field.name: field for field in dataclasses.fields(Limits)}
_HELP = {
    "cell_cpu_s": "Processor seconds for one cell.",
    "cpu_factor": "An exercise's own time limit, times this, in processor seconds.",
    "wall_factor": "Wall time for each second of processor time,",
    "wall_slack_s": "and this much more.",
    "submission_s": "Wall seconds for one submission.",
    "memory_mib": "Memory of one submission.",
    "processes": "Processes and threads of one submission.",
    "disk_mib": "Each writable folder of one submission.",
    "file_mib": "One file.",
    "open_files": "Open files of one process.",
    "reply_mib": "One reply to the grader.",
}
_WITHOUT = (
    "WARNING: --no-sandbox. The submissions run as you, with your files, your network and your other processes within "
    "reach. They can read other submissions, send them away, and change grades. Do this only with notebooks that you "
    "wrote or read yourself."
)
_OTHER_USER = (
    "NOTE: --separate-user. The submissions run as another user, without walls: they can read what everyone on this "
    "machine may read, and use the network. Meant for containers that hold one submission, such as Gradescope's."
)


def _with_limits(function: Any) -> Any:
    for name, field in reversed(_LIMITS.items()):
        option = "--" + name.removesuffix("_s").replace("_", "-")
        function = click.option(
            option, name, type=type(field.default), default=field.default, show_default=True, help=_HELP[name]
        )(function)
    return function


@click.command("grade")
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the results.")
@click.option("--jobs", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes on this machine.")
@click.option("--dask", metavar="ADDRESS", help="Send submissions to the Dask cluster at this address instead.")
@click.option("--pattern", help="Regular expression for a file's path, with a group (?P<student>…).")
@click.option("--seed", type=click.IntRange(0, 2**48), help="Of the random inputs; default: a new one, recorded.")
@click.option("--no-sandbox", is_flag=True, help="Run the submissions as you. For notebooks that you trust.")
@click.option("--separate-user", is_flag=True, help="No bubblewrap, but another user; needs root.")
@click.option("--syllabus", default="course_lib.exercises:SYLLABUS", hidden=True)
@_with_limits
def command(
    paths: tuple[Path, ...],
    out: Path,
    jobs: int,
    dask: str | None,
    pattern: str | None,
    seed: int | None,
    no_sandbox: bool,
    separate_user: bool,
    syllabus: str,
    **limits: Any,
) -> None:
    """Grade notebooks, folders and zip archives (PATHS) that strangers wrote.

    Writes grades.json, grades.csv, class.html and reports/<submission>.html as it goes. The same command goes on
    where an interrupted one stopped.
    """
    from course_lib.grading.batch import run as batch
    from course_lib.grading.batch.collect import collect
    from course_lib.grading.sandbox import box
    from course_lib.grading.sandbox.zygote import load_syllabus

    if no_sandbox and separate_user:
        raise click.UsageError("--no-sandbox and --separate-user exclude each other.")
    mode = box.NO_SANDBOX if no_sandbox else box.OTHER_USER if separate_user else box.BUBBLEWRAP
    try:
        chosen = Limits(**limits)
        _check_place(paths, out)
        submissions = collect(paths, pattern=pattern, slugs=[lesson.slug for lesson in load_syllabus(syllabus)])
        if mode == box.BUBBLEWRAP and not dask:
            box.check_walls(chosen)
    except (ValueError, box.SandboxUnavailable) as error:
        hint = " Or give --no-sandbox, if you trust every notebook." if "bubblewrap" in str(error) else ""
        raise click.ClickException(f"{error}{hint}") from None
    if mode != box.BUBBLEWRAP:
        click.echo(_WITHOUT if no_sandbox else _OTHER_USER, err=True)

    def engine(todo: Any, plan: Any) -> Any:
        if dask:
            from course_lib.grading.batch.cluster import on_dask

            return on_dask(todo, plan, dask)
        return batch.on_processes(todo, plan, jobs)

    progress = _Progress()
    hidden = tuple(path if path.is_dir() else path.parent for path in paths)
    try:
        document = batch.run(
            submissions, out, engine, seed=seed, mode=mode, limits=chosen, hidden=hidden, syllabus=syllabus,
            progress=progress,
        )  # fmt: skip
    except (batch.RunError, box.SandboxUnavailable) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        progress.close()
        click.echo(f"Stopped. What is graded is kept in {out}; the same command goes on from there.", err=True)
        sys.exit(130)
    progress.close()
    click.echo(_described(document, out))
    if any(row["status"] == batch.FAILED for row in document["submissions"]):
        sys.exit(1)


def _check_place(paths: tuple[Path, ...], out: Path) -> None:
    """The results must not be mistaken for submissions by the next run."""
    for path in paths:
        if path.is_dir() and (out.resolve() == path.resolve() or path.resolve() in out.resolve().parents):
            raise ValueError(f"--out must lie outside the submissions; got {out} in {path}. Give another folder.")


class _Progress:
    """A bar on a terminal, with the time left; a line now and then elsewhere."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, done: int, total: int, name: str) -> None:
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(total=total, initial=done, unit="notebook", dynamic_ncols=True, mininterval=0.2)
        self._bar.update(done - self._bar.n)
        if name:
            self._bar.set_postfix_str(name[:20], refresh=False)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def _described(document: dict[str, Any], out: Path) -> str:
    rows = document["submissions"]
    repair = [row for row in rows if row["problems"]]
    flagged = [row for row in rows if any(exercise["flags"] for exercise in row["exercises"])]
    lines = [f"{len(rows)} submissions graded into {out} (seed {document['seed']})."]
    if repair:
        lines.append(f"{len(repair)} need repair:")
        lines += [f"  {row['student']}: {row['problems'][0]}" for row in repair[:10]]
        lines += [f"  and {len(repair) - 10} more, in grades.csv"] if len(repair) > 10 else []
    if flagged:
        lines.append(f"{len(flagged)} hold answers that look like the course's own; class.html says which.")
    lines.append(f"See {out / 'class.html'}.")
    return "\n".join(lines)

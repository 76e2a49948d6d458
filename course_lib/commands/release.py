"""`course release`: what to hand out."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("release")
@click.option("--for", "kind", type=click.Choice(["learner", "nbgrader", "gradescope"]), required=True)
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="An empty or new folder.")
def command(kind: str, out: Path) -> None:
    """Make the edition that learners or a grading system get.

    learner: notebooks without answers. nbgrader: a source/ folder for `nbgrader generate_assignment`. gradescope:
    the learners' notebooks and autograder.zip.
    """
    from course_lib.exercises import SYLLABUS
    from course_lib.grading.exports import release
    from course_lib.grading.exports.grades import ExportError

    if out.exists() and any(out.iterdir()):
        raise click.ClickException(f"--out must be an empty or new folder; {out} holds files. Give another one.")
    make = {
        "learner": release.for_learners,
        "nbgrader": release.for_nbgrader,
        "gradescope": release.for_gradescope,
    }[kind]
    try:
        written = make(out, tuple(SYLLABUS))
    except (ExportError, ValueError, LookupError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"Wrote {len(written)} files to {out}.")

"""`course export`: grades into the gradebook that a school already uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

KINDS = ("canvas", "moodle", "nbgrader", "gradescope")


@click.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--for", "kind", type=click.Choice(KINDS), required=True, help="The gradebook's kind.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write; default: in DIR.")
@click.option(
    "--gradebook",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Canvas: the exported gradebook. Moodle: the grading worksheet.",
)
@click.option("--column", help="Canvas: the assignment's column, or its beginning.")
@click.option("--lesson", help="Which lesson, for example 01; needed when several were graded.")
@click.option("--db", default="sqlite:///gradebook.db", show_default=True, help="nbgrader: the gradebook's database.")
@click.option("--with-bonus", is_flag=True, help="Add bonus points to the grade.")
@click.option("--scale", is_flag=True, help="Canvas: in proportion to the column's points possible.")
def command(
    folder: Path,
    kind: str,
    output: Path | None,
    gradebook: Path | None,
    column: str | None,
    lesson: str | None,
    db: str,
    with_bonus: bool,
    scale: bool,
) -> None:
    """Turn what `course grade` wrote into DIR into a gradebook's format."""
    from course_lib.grading.exports.grades import ExportError

    try:
        _export(folder, kind, output, gradebook, column, lesson, db, with_bonus, scale)
    except ExportError as error:
        raise click.ClickException(str(error)) from None


def _export(
    folder: Path,
    kind: str,
    output: Path | None,
    gradebook: Path | None,
    column: str | None,
    number: str | None,
    db: str,
    with_bonus: bool,
    scale: bool,
) -> None:
    from course_lib.grading.batch.results import write_whole
    from course_lib.grading.exports import canvas, gradescope, moodle, nbgrader
    from course_lib.grading.exports.grades import ExportError, counting, one_lesson, read_grades, ungraded

    document = read_grades(folder)
    if kind == "gradescope":
        path = output or folder / "results.json"
        write_whole(path, gradescope.results_text(document) + "\n")
        click.echo(f"Wrote {path}.")
        return
    lesson = one_lesson(document, number)
    rows = counting(document, lesson["number"])
    left: list[dict[str, Any]] = []
    remarks: list[str] = []
    if kind == "nbgrader":
        slug = _slug(lesson["number"])
        count = nbgrader.into_gradebook(db, lesson, slug, rows)
        click.echo(f"Wrote the scores of {count} students on {slug} to {db}.")
    else:
        if kind == "canvas":
            if gradebook is None:
                raise ExportError("--gradebook must be the gradebook exported from Canvas (Grades, Export, Entire).")
            text, left, remarks = canvas.fill(
                gradebook, rows, column, lesson["max_points"], with_bonus=with_bonus, scale=scale
            )
        elif gradebook is not None:
            text, left, remarks = moodle.fill(gradebook, rows, with_bonus=with_bonus)
        else:
            text = moodle.worksheet(rows, lesson["max_points"], with_bonus=with_bonus)
            left = [row for row in rows if not row["number"]]
        if len(left) == len(rows):
            raise ExportError("no student of the gradebook was found among the submissions. Is it the right file?")
        path = output or folder / f"{kind}-{lesson['number']}.csv"
        write_whole(path, text)
        click.echo(f"Wrote {len(rows) - len(left)} grades to {path}.")
    for remark in remarks:
        click.echo(f"Note: {remark}.", err=True)
    for row in left:
        click.echo(f"Not in the gradebook, or not for certain: {row['student']} ({row['source']}).", err=True)
    for row in ungraded(document):
        click.echo(f"Not graded: {row['student']} ({row['source']}): {'; '.join(row['problems'])}", err=True)


def _slug(number: str) -> str:
    from course_lib.exercises import SYLLABUS

    return next((lesson.slug for lesson in SYLLABUS if lesson.number == number), number)

"""Scores into an nbgrader gradebook, through nbgrader's own interface."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

from course_lib.grading.exports.grades import ExportError


def into_gradebook(url: str, lesson: dict[str, Any], slug: str, rows: list[dict[str, Any]]) -> int:
    """Writes the results of one lesson; writing them again changes nothing.

    Cells that nbgrader knows already keep their points. In a gradebook that does not know the assignment, bonus
    exercises are cells of 0 points whose score is extra credit.

    Args:
        url: of the database, for example ``sqlite:///gradebook.db``.
        lesson: as in `grades.json`.
        slug: the assignment's and the notebook's name.
        rows: one result a student.
    Returns:
        the number of students written.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from nbgrader.api import Gradebook, MissingEntry
    except ImportError:
        raise ExportError("--for nbgrader needs nbgrader; found none. Run: pip install nbgrader") from None
    # A new gradebook is stamped by the program `alembic`, which lies beside the Python that runs this.
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Gradebook(url) as gradebook:
            gradebook.update_or_create_assignment(slug)
            gradebook.update_or_create_notebook(slug, slug)
            for exercise in lesson["exercises"]:
                cell = f"check_{exercise['name']}"
                try:
                    gradebook.find_grade_cell(cell, slug, slug)
                except MissingEntry:
                    most = 0 if exercise["bonus"] else exercise["points"]
                    gradebook.add_grade_cell(cell, slug, slug, max_score=most, cell_type="code")
            for row in rows:
                gradebook.update_or_create_student(row["student"])
                gradebook.update_or_create_submission(slug, row["student"])
                for exercise in row["exercises"]:
                    grade = gradebook.find_grade(f"check_{exercise['name']}", slug, slug, row["student"])
                    is_extra = exercise["bonus"] and grade.cell.max_score == 0
                    grade.auto_score = 0.0 if is_extra else float(exercise["points"])
                    grade.extra_credit = float(exercise["points"]) if is_extra else grade.extra_credit
                    grade.needs_manual_grade = False
            gradebook.db.commit()
    return len(rows)

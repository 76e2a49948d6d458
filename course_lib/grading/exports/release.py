"""What to hand out: notebooks for learners, an instructor's edition for nbgrader, an autograder for Gradescope."""

import ast
from pathlib import Path
from typing import Any

from course_lib import notebooks
from course_lib.grading.batch.results import write_whole
from course_lib.grading.batch.selection import is_stub, released_notebook
from course_lib.grading.exercise import Exercise, Lesson
from course_lib.grading.exports import gradescope
from course_lib.grading.exports.grades import ExportError

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"

NBGRADER_CONFIG = """\
# For nbgrader: the course's notebooks lie in source/, one assignment a lesson.
c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "sixteen_bytes"
c.ExecutePreprocessor.timeout = 300
"""

START = """\
Sixteen Bytes

1. Install the course:   pip install "sixteen-bytes @ git+{address}"
2. Open the notebooks:   jupyter lab
3. Start with 00_start_here.ipynb. `check(...)` tells you after each exercise where you stand.
4. Hand in the .ipynb files as they are, under the names that they have.
"""


def _lesson_notebooks(syllabus: tuple[Lesson, ...]) -> list[tuple[Lesson, Any]]:
    found = []
    for lesson in syllabus:
        path = released_notebook(lesson)
        if path.exists():
            found.append((lesson, notebooks.read(path)))
    if not found:
        raise ExportError("the notebooks must lie beside the package; found none. Work in a clone of the course.")
    for lesson, notebook in found:
        by_name = {exercise.name: exercise for exercise in lesson.exercises}
        for cell, name in notebooks.exercise_cells(notebook):
            if name in by_name and not is_stub(ast.parse(cell.source), by_name[name].functions):
                raise ExportError(f"{lesson.slug}: the cell of {name} must be the stub; it holds an answer.")
    return found


def for_learners(out: Path, syllabus: tuple[Lesson, ...]) -> list[Path]:
    """The notebooks without answers, and how to start."""
    written = []
    for lesson, notebook in _lesson_notebooks(syllabus):
        path = out / "notebooks" / f"{lesson.slug}.ipynb"
        write_whole(path, notebooks.as_text(notebook))
        written.append(path)
    write_whole(out / "START.txt", START.format(address=notebooks.address()))
    return [*written, out / "START.txt"]


def for_nbgrader(out: Path, syllabus: tuple[Lesson, ...]) -> list[Path]:
    """An nbgrader course: the instructor's edition of each lesson, with solutions that nbgrader takes out."""
    written = []
    for lesson, notebook in _lesson_notebooks(syllabus):
        by_name = {exercise.name: exercise for exercise in lesson.exercises}
        for cell, name in notebooks.exercise_cells(notebook):
            if name in by_name:
                cell.source = with_solution(cell.source, by_name[name])
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        path = out / "source" / lesson.slug / f"{lesson.slug}.ipynb"
        write_whole(path, notebooks.as_text(notebook))
        written.append(path)
    write_whole(out / "nbgrader_config.py", NBGRADER_CONFIG)
    return [*written, out / "nbgrader_config.py"]


def for_gradescope(out: Path, syllabus: tuple[Lesson, ...]) -> list[Path]:
    """The learners' notebooks and `autograder.zip`."""
    written = for_learners(out, syllabus)
    path = out / "autograder.zip"
    path.write_bytes(gradescope.archive())
    return [*written, path]


def with_solution(source: str, exercise: Exercise) -> str:
    """The stub with the course's answer between nbgrader's marks, in place of each `raise NotImplementedError`."""
    lines = source.splitlines()
    tree = ast.parse(source)
    replacements: list[tuple[int, int, list[str]]] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name not in exercise.functions:
            continue
        reference = exercise.references[exercise.functions.index(node.name)]
        get = f"from {reference.__module__} import {reference.__name__} as reference"
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    replacements.append(_replacement(method, _in_method(method, get)))
        else:
            replacements.append(_replacement(node, [get, f"return reference({_call(node.args)})"]))
    for first, last, body in sorted(replacements, reverse=True):
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        lines[first : last + 1] = [indent + line for line in (BEGIN, *body, END)]
    return "\n".join(lines)


def _replacement(node: ast.FunctionDef, body: list[str]) -> tuple[int, int, list[str]]:
    raises = [inner for inner in node.body if isinstance(inner, ast.Raise)]
    if len(raises) != 1:
        raise ExportError(f"the stub of {node.name} must hold one `raise NotImplementedError`; it has {len(raises)}.")
    return raises[0].lineno - 1, (raises[0].end_lineno or raises[0].lineno) - 1, body


def _in_method(method: ast.FunctionDef, get: str) -> list[str]:
    is_static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list)
    call = f"return reference.{method.name}({_call(method.args)})"
    # The object becomes one of the course's own class, so that its other methods are found too.
    return [get, call] if is_static else [get, "self.__class__ = reference", call]


def _call(arguments: ast.arguments) -> str:
    parts = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg:
        parts.append(f"*{arguments.vararg.arg}")
    parts += [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    if arguments.kwarg:
        parts.append(f"**{arguments.kwarg.arg}")
    return ", ".join(parts)

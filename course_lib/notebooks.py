"""Notebooks as maintainers handle them: run in place, make the solved edition, verify, stamp the address.

A notebook is committed executed, so that readers without a kernel see results at once; so executing the same
notebook twice must write the same bytes.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import os
import re
import tempfile
import tomllib
import urllib.parse
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

from course_lib.data_files import PACKAGE

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from course_lib.grading.exercise import Exercise

BRANCH = "main"
CELL_TIMEOUT_S = 120
MAX_NOTEBOOK_BYTES = 600_000
MAX_IMAGE_BYTES = 60_000
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
MARKER = re.compile(r"^# exercise: (\w+)\s*$", re.MULTILINE)
MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)


# The public address: one line in pyproject.toml, stamped into badges and first cells.


def project_file() -> Path:
    """`pyproject.toml` of the clone that this package is part of; it does not exist in an installed wheel."""
    return PACKAGE.parent / "pyproject.toml"


def address() -> str:
    """The course's public address: `[project.urls] Repository`."""
    path = project_file()
    if path.exists():
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        if project["name"] == "sixteen-bytes":
            return str(project["urls"]["Repository"]).rstrip("/")
    for line in importlib.metadata.metadata("sixteen-bytes").get_all("Project-URL") or []:
        label, _, url = line.partition(", ")
        if label == "Repository":
            return str(url).rstrip("/")
    raise LookupError("the course must know its address; found none. Install the course again, or work in a clone.")


def badges(slug: str, url: str | None = None) -> str:
    """The line of badges on top of a notebook: open it on Colab, on Binder.

    Args:
        slug: the notebook's name without the folder and `.ipynb`.
        url: the course's address; default: the one in `pyproject.toml`.
    """
    url = url or address()
    parts = urllib.parse.urlsplit(url)
    path = f"notebooks/{slug}.ipynb"
    binder_path = f"{BRANCH}?urlpath=lab/tree/{path}"
    shown = []
    if parts.netloc == "github.com":
        colab = f"https://colab.research.google.com/github{parts.path}/blob/{BRANCH}/{path}"
        shown.append(_badge("Open in Colab", "https://colab.research.google.com/assets/colab-badge.svg", colab))
        binder = f"https://mybinder.org/v2/gh{parts.path}/{binder_path}"
    elif parts.netloc == "gitlab.com":
        binder = f"https://mybinder.org/v2/gl/{urllib.parse.quote(parts.path.strip('/'), safe='')}/{binder_path}"
    else:
        binder = f"https://mybinder.org/v2/git/{urllib.parse.quote(url, safe='')}/{binder_path}"
    shown.append(_badge("Open in Binder", "https://mybinder.org/badge_logo.svg", binder))
    return " ".join(shown)


def _badge(alt: str, picture: str, target: str) -> str:
    return f"[![{alt}]({picture})]({target})"


def bootstrap(url: str | None = None) -> str:
    """The lines that open each notebook's first code cell: install the course where it is missing."""
    return f"""\
# On Colab this installs the course, which takes a minute. Where the course is there already, it does nothing.
import importlib.util

if importlib.util.find_spec("course_lib") is None:
    %pip install --quiet "sixteen-bytes @ git+{url or address()}"
"""


def without_magics(source: str) -> str:
    """A cell's source as plain Python: each line magic and shell line becomes `pass`, with its indentation."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        pass
    else:
        return source  # a line may start with % and be arithmetic
    return MAGIC.sub(r"\1pass", source)


def check_address(url: str) -> str:
    """The address without a trailing slash or `.git`.

    Raises:
        ValueError: it is not the https address of a repository.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" or not parts.netloc or parts.path.strip("/").count("/") < 1 or re.search(r"\s|\"", url):
        raise ValueError(f"address must be https://HOST/OWNER/NAME; got {url!r}. Copy it from the repository's page.")
    return url.rstrip("/").removesuffix(".git")


def stamp_address(new: str, root: Path | None = None) -> list[Path]:
    """Writes a new public address into `pyproject.toml`, every notebook and the README; returns what changed.

    Everything is prepared first and written only when all of it is right.
    """
    root = root or PACKAGE.parent
    new = check_address(new)
    project = root / "pyproject.toml"
    if not project.exists():
        raise FileNotFoundError(f"an address is stamped into a clone of the course; found no {project}.")
    text = project.read_text(encoding="utf-8")
    old = str(tomllib.loads(text)["project"]["urls"]["Repository"])
    changes = {project: text.replace(f'Repository = "{old}"', f'Repository = "{new}"')}
    old = old.rstrip("/")
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        notebook = read(path)
        for cell in notebook.cells:
            cell.source = cell.source.replace(badges(path.stem, old), badges(path.stem, new))
            cell.source = cell.source.replace(bootstrap(old), bootstrap(new))
        changes[path] = as_text(notebook)
    for path in (root / "README.md", root / ".github" / "CONTRIBUTING.md"):
        if path.exists():
            text = path.read_text(encoding="utf-8")
            for slug in re.findall(r"notebooks/(\w+)\.ipynb", text):
                text = text.replace(badges(slug, old), badges(slug, new))
            changes[path] = text.replace(old, new)
    changed = [path for path, text in changes.items() if path.read_text(encoding="utf-8") != text]
    for path in changed:
        write_text(path, changes[path])
    return changed


# Reading and writing


def read(path: Path) -> NotebookNode:
    """A valid notebook, or a ValueError that says why it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # missing and double ids, which editors make: mended while reading
            notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
            nbformat.validate(notebook)
    except FileNotFoundError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{path} must be a Jupyter notebook; got: {reason}. Open it in Jupyter and save it."
        ) from error
    return notebook


def as_text(notebook: NotebookNode) -> str:
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def write_text(path: Path, text: str) -> None:
    """Writes the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".", delete=False, encoding="utf-8") as file:
        file.write(text)
    os.chmod(file.name, path.stat().st_mode & 0o777 if path.exists() else 0o644)
    os.replace(file.name, path)


# Executing


class NotebookFailed(RuntimeError):
    """A cell raised, or ran out of time; the message says which one and why."""


def kernel_environment(home: str, threads: int = 2) -> dict[str, str]:
    """The environment in which notebooks run so that their outputs are the same each time, everywhere."""
    environment = dict(os.environ)
    environment.update(
        SIXTEEN_BYTES_HOME=home,
        OMP_NUM_THREADS=environment.get("OMP_NUM_THREADS", str(threads)),
        PYTHONHASHSEED="0",
        PYTHONWARNINGS="default",
        COLUMNS="100",
        NO_COLOR="1",
    )
    environment.pop("MPLBACKEND", None)
    environment.pop("FORCE_COLOR", None)
    return environment


def execute(
    notebook: NotebookNode,
    directory: Path,
    *,
    timeout_s: int = CELL_TIMEOUT_S,
    environment: dict[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NotebookNode:
    """Runs every code cell in a fresh kernel, from top to bottom, and tidies the outputs; changes the notebook.

    Args:
        notebook: what `read` gave.
        directory: the kernel's working directory.
        timeout_s: the longest that one cell may take.
        environment: added to the kernel's environment.
        progress: called with (cells done, cells in all).
    Raises:
        NotebookFailed: a cell raised, died or took too long.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    total = len(notebook.cells)
    done = 0

    def step(**_: Any) -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    with tempfile.TemporaryDirectory() as home:
        client = NotebookClient(
            notebook,
            timeout=timeout_s,
            kernel_name="python3",
            resources={"metadata": {"path": str(directory)}},
            record_timing=False,
            coalesce_streams=True,
            store_widget_state=False,
            on_cell_start=step,
        )
        try:
            client.execute(env=kernel_environment(home) | (environment or {}))
        except CellExecutionError as error:
            raise NotebookFailed(str(error).strip()) from None
        except (CellTimeoutError, DeadKernelError) as error:
            raise NotebookFailed(f"{type(error).__name__}: {str(error).strip()}") from None
    return tidy(notebook)


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Takes out what differs between two runs of one notebook: times, widget ids, the kernel's version."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata["kernelspec"] = dict(KERNELSPEC)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        for key in ("execution", "scrolled", "collapsed", "jupyter", "colab", "outputId", "ExecuteTime"):
            cell.metadata.pop(key, None)
        if cell.cell_type != "code":
            continue
        kept = []
        for output in cell.outputs:
            # A view of a widget is a random id, and nothing to look at without its kernel; a picture beside it is.
            data = output.get("data", {})
            if data.pop(WIDGET_VIEW, None) is not None and "image/png" not in data:
                continue
            output.get("metadata", {}).pop("needs_background", None)
            kept.append(output)
        cell.outputs = kept
    return notebook


def execute_file(path: Path, progress: Callable[[int, int], None] | None = None, **options: Any) -> None:
    """Executes a notebook in place; a notebook that fails is left as it was."""
    notebook = execute(read(path), path.resolve().parent, progress=progress, **options)
    write_text(path, as_text(notebook))


# Exercises in notebooks


def exercises() -> dict[str, Exercise]:
    """Every exercise of the syllabus by name."""
    from course_lib.exercises import SYLLABUS

    return {exercise.name: exercise for lesson in SYLLABUS for exercise in lesson.exercises}


def defined_names(source: str) -> set[str]:
    """Names that a cell defines at its top level; none if it is not Python."""
    try:
        body = ast.parse(without_magics(source)).body
    except (SyntaxError, ValueError):
        return set()
    names = set()
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Assign):
            names.update(target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in statement.names)
    return names


def exercise_cells(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, str]]:
    """Each cell that holds an exercise's answer, with the exercise's name: by metadata, else by the marker line."""
    known = exercises()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        nbgrader = cell.metadata.get("nbgrader", {})
        name = nbgrader.get("grade_id") if nbgrader.get("solution") and not nbgrader.get("grade") else None
        if name not in known:
            marker = MARKER.search(cell.source)
            name = marker.group(1) if marker else None
        if name in known:
            yield cell, name


def answer_names(exercise: Exercise) -> tuple[str, ...]:
    """The names that an exercise asks the learner to define."""
    return tuple(exercise.functions) or (exercise.name,)


def reference_import(exercise: Exercise) -> str:
    """The line that answers an exercise with the course's own solution."""
    reference = exercise.reference[0] if isinstance(exercise.reference, tuple) else exercise.reference
    module = reference.__module__
    names = answer_names(exercise)
    for name in names:
        getattr(importlib.import_module(module), name)
    return f"from {module} import {', '.join(names)}"


def solve(notebook: NotebookNode, answers: dict[str, str] | None = None) -> NotebookNode:
    """The solved edition: every exercise cell answered by the reference, or by the source given; outputs cleared."""
    known = exercises()
    for cell, name in exercise_cells(notebook):
        answer = (answers or {}).get(name) or reference_import(known[name])
        cell.source = f"# exercise: {name}\n{answer}"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
            cell.execution_count = None
    return notebook


# Verifying what is committed


def problems(path: Path) -> list[str]:
    """What is wrong with a committed notebook, one sentence each; empty when all is well."""
    notebook = read(path)
    return list(_problems(path, notebook))


def _problems(path: Path, notebook: NotebookNode) -> Iterable[str]:
    size = path.stat().st_size
    if size > MAX_NOTEBOOK_BYTES:
        yield f"the notebook must have at most {MAX_NOTEBOOK_BYTES} bytes; got {size}. Draw fewer or smaller figures."
    ids = [cell.get("id", "") for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    for identity in sorted({identity for identity in ids if ids.count(identity) > 1}):
        yield f"cell ids must be unique; got {identity!r} {ids.count(identity)} times."
    if all(cell.cell_type != "code" or cell.execution_count is None for cell in notebook.cells):
        yield "the notebook must be executed; got no execution at all. Run: course notebooks execute PATH"
        return
    expected = 0
    for cell in notebook.cells:
        where = f"cell {cell.get('id', '?')}"
        if cell.cell_type != "code":
            continue
        if not cell.source.strip():
            yield f"{where} is empty. Delete it."
            continue
        expected += 1
        if cell.execution_count != expected:
            yield f"{where} must be the {expected}. executed; got {cell.execution_count}. Execute the notebook."
            expected = cell.execution_count or expected
        for output in cell.outputs:
            if output.output_type == "error":
                yield f"{where} shows a traceback: {output.ename}: {output.evalue}"
            if output.output_type == "stream" and output.name == "stderr":
                yield f"{where} writes to stderr: {output.text.strip()[:80]!r}"
            text = output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
            if re.search(r" at 0x[0-9a-f]{6,}", text):
                yield f"{where} shows an address in memory, which changes at each run: {text.strip()[:80]!r}"
            image = output.get("data", {}).get("image/png")
            if image is None:
                continue
            if len(image) * 3 // 4 > MAX_IMAGE_BYTES:
                yield f"{where} has an image of {len(image) * 3 // 4} bytes; at most {MAX_IMAGE_BYTES} are allowed."
            if len(output.metadata.get("image/png", {}).get("alt", "")) < 15:
                yield f"{where} has an image without an alt text. Use figures.show(figure, alt=...)."

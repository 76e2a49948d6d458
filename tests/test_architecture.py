"""Who may import whom: read from the source, so that a lazy import inside a function counts too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "course_lib"
MODULES = sorted(path.relative_to(ROOT.parent) for path in ROOT.rglob("*.py") if "data" not in path.parts)

# Everything in the package that is not listed here is a subject.
NOT_SUBJECTS = {
    "",  # the package itself
    "cli",
    "commands",
    "data_files",
    "exercises",
    "figures",
    "grading",
    "machine",
    "memory",
    "notebooks",
    "recorded",
    "widgets",
}


def part(module: str) -> str:
    """`grading` for `course_lib.grading.exercise`, and "" for the package itself."""
    return module.removeprefix("course_lib").lstrip(".").split(".")[0]


SUBJECTS = {part(".".join(path.with_suffix("").parts).removesuffix(".__init__")) for path in MODULES} - NOT_SUBJECTS


def imports(path: Path) -> set[str]:
    """Full names of what a module imports, `from a import b` counted as `a.b`."""
    found = set()
    package = list(path.with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse((ROOT.parent / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if name == "course_lib" or name.startswith("course_lib.")}


def of(*parts: str) -> list[Path]:
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in MODULES]
    return [path for path, name in zip(MODULES, names, strict=True) if part(name) in parts]


def test_the_rules_look_at_something():
    assert {"formats", "nanogpt"} <= SUBJECTS
    assert len(of("grading")) > 5
    assert "course_lib.grading.exercise.Case" in imports(Path("course_lib/grading/assess.py"))


@pytest.mark.parametrize("path", of(*SUBJECTS), ids=str)
def test_subjects_import_no_grading(path: Path):
    forbidden = {"grading", "exercises", "notebooks", "cli", "commands", "widgets"}
    assert not {name for name in ours(path) if part(name) in forbidden}


@pytest.mark.parametrize("path", of("exercises"), ids=str)
def test_exercises_import_subjects_and_the_exercise_alone(path: Path):
    for name in ours(path):
        if part(name) == "grading":
            assert name.startswith(("course_lib.grading.exercise", "course_lib.grading.compare")), name
        else:
            assert part(name) in SUBJECTS | {"exercises", "memory", "data_files"}, name


@pytest.mark.parametrize("path", of("grading"), ids=str)
def test_grading_knows_exercises_through_the_syllabus_only(path: Path):
    for name in ours(path):
        assert part(name) not in SUBJECTS | {"memory"}, name
        if part(name) == "exercises":
            assert name in {"course_lib.exercises", "course_lib.exercises.SYLLABUS"}, name


@pytest.mark.parametrize("path", of("memory", "figures", "recorded", "data_files", "machine"), ids=str)
def test_foundations_import_nothing_above_them(path: Path):
    foundations = {"memory", "figures", "recorded", "data_files", "machine"}
    assert not {name for name in ours(path) if part(name) not in foundations}


@pytest.mark.parametrize("path", [path for path in MODULES if path not in of("memory")], ids=str)
def test_private_torch_modules_stay_in_memory(path: Path):
    def is_private(name: str) -> bool:
        pieces = name.split(".")
        return pieces[0] == "torch" and any(
            piece.startswith("_") and not piece.startswith("__") for piece in pieces[1:]
        )

    used = {name for name in imports(path) if is_private(name)}
    for node in ast.walk(ast.parse((ROOT.parent / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if is_private(dotted) and dotted.replace(".", "").replace("_", "").isalnum():
                pieces = dotted.split(".")
                # Some public functions begin with an underscore (torch._foreach_add_): modules are what is private.
                if pieces[1] in {"_dynamo", "_inductor", "_subclasses", "_prims", "_refs", "_functorch"}:
                    used.add(dotted)
    assert not used


def test_public_words_are_sorted_and_there():
    import course_lib

    assert sorted(course_lib.__all__) == course_lib.__all__
    assert {"check", "hint", "progress", "solution", "solved_or_reference"} <= set(course_lib.__all__)
    for name in course_lib.__all__:
        assert getattr(course_lib, name).__doc__, name

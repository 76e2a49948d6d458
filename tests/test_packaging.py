"""What someone gets who installs the repository alone, as Colab does; and that the README tells the truth."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from course_lib import notebooks
from course_lib.exercises import SYLLABUS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    wheels, target = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", str(wheels), str(ROOT)], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", *offline, "--target", str(target), str(wheel)], check=True)
    return target


def test_an_installed_course_carries_its_data(installed: Path):
    code = (
        "import course_lib.data_files as d, course_lib.notebooks as n;"
        "print(d.data_path('corpus.txt')); print(d.data_path('gpus.csv')); print(n.address())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=installed, env={"PYTHONPATH": str(installed)}
    )
    assert done.returncode == 0, done.stderr
    corpus, gpus, address = done.stdout.split()
    assert Path(corpus).parent == Path(gpus).parent == installed / "course_lib" / "data"
    assert address == PROJECT["urls"]["Repository"]
    for path in (ROOT / "data").rglob("*"):
        assert (installed / "course_lib" / "data" / path.relative_to(ROOT / "data")).exists(), path


def test_an_installed_course_still_has_the_questions_of_its_quiz(installed: Path):
    code = "from course_lib.toolbox.review import questions; print(*sorted({q.lesson for q in questions()}))"
    line = [sys.executable, "-c", code]
    paths = {"PYTHONPATH": str(installed)}
    found = subprocess.run(line, env=paths, cwd=installed, capture_output=True, text=True)
    assert found.stdout.split() == [f"{number:02}" for number in range(1, 8)], found.stderr


def test_constraints_pin_every_dependency_in_its_range():
    from packaging.requirements import Requirement

    pinned = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            (exact,) = requirement.specifier
            assert exact.operator == "==" and "+" not in exact.version, line
            pinned[requirement.name.lower().replace("_", "-")] = exact.version
    wanted = [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    for line in wanted:
        requirement = Requirement(line)
        version = pinned[requirement.name.lower().replace("_", "-")]
        assert requirement.specifier.contains(version), f"{line} against {version}"


def test_the_readme_lists_every_lesson_with_its_points():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for lesson in SYLLABUS:
        row = re.search(
            rf"^\| {lesson.number} \| \[(.+?)\]\(notebooks/{lesson.slug}\.ipynb\) \|.*\| (\d+) \|$", text, re.M
        )
        assert row, lesson.slug
        assert (row[1], int(row[2])) == (lesson.title, lesson.max_points)
    assert notebooks.badges("00_start_here") in text
    for link in re.findall(r"\]\((?!https?://)([^)#]+)\)", text):
        assert (ROOT / link).exists(), link


def test_the_instructors_page_gives_every_lessons_minutes_and_points():
    text = (ROOT / "INSTRUCTORS.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (0\d) [^|]+\| +(\d+) \| +(\d+) \|", text, flags=re.MULTILINE)
    minutes = {lesson.number: sum(ex.minutes for ex in lesson.exercises if not ex.bonus) for lesson in SYLLABUS}
    assert rows == [(lesson.number, str(minutes[lesson.number]), str(lesson.max_points)) for lesson in SYLLABUS]


def test_data_is_described():
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "data").iterdir():
        assert path.name in text or path.name == "README.md", path.name


def test_shell_scripts_can_run():
    for path in (ROOT / ".ci" / "run", ROOT / "binder" / "postBuild"):
        assert path.stat().st_mode & 0o111, path

"""The `course` command as people use it: quick help, clear errors, nothing written half."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib import machine, notebooks
from course_lib.cli import COMMANDS, main
from course_lib.commands import check_worker
from course_lib.exercises import SYLLABUS
from course_lib.grading.batch.reading import read
from course_lib.grading.batch.selection import select

ROOT = Path(__file__).resolve().parents[1]
# The first lesson's toy is the smallest whole path through `course check`.
LESSON = SYLLABUS[0]
TOY = LESSON.exercises[0]


def course(*arguments: object):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def submission(folder: Path, *sources: str, name: str = "mine.ipynb") -> Path:
    path = folder / name
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources]), path)
    return path


def test_help_lists_the_commands_without_importing_torch():
    code = "import sys; from course_lib.cli import main; main(['-h'], standalone_mode=False); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("lab", "doctor", "check", "notebooks", "record"):
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str):
    result = course(name, "--help")
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_unknown_command_and_missing_file_are_errors():
    assert course("nonsense").exit_code != 0
    result = course("check", "nowhere.ipynb")
    assert result.exit_code != 0
    assert "nowhere.ipynb" in result.output


def test_doctor_says_what_the_machine_can_do():
    facts = json.loads(course("doctor", "--json").output)
    assert facts["where"] in ("local", "colab", "binder")
    assert facts["versions"]["torch"]
    assert facts["sandbox"] in ("works", "blocked", "missing")
    text = course("doctor").output
    assert "Python" in text and "GPU" in text


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (None, "no CUDA GPU"),
        (
            {"name": "Tesla T4", "capability": [7, 5], "memory_bytes": 2**34, "bf16": "emulated"},
            "float16 with a loss scaler",
        ),
        ({"name": "A100", "capability": [8, 0], "memory_bytes": 2**36, "bf16": "real"}, "runs live"),
    ],
)
def test_doctor_gives_advice_for_each_kind_of_gpu(gpu, said):
    facts = machine.report() | {"gpu": gpu}
    assert said in machine.describe(facts)
    assert said in " ".join(machine.advice(facts))


def test_check_gives_points_for_a_right_answer(tmp_path: Path):
    path = submission(tmp_path, notebooks.bootstrap(), f"# exercise: {TOY.name}\n{notebooks.reference_import(TOY)}")
    result = course("check", path, "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)["notebooks"]
    assert found["path"] == str(path)
    assert (found["points"], found["max_points"]) == (TOY.points, LESSON.max_points)
    row = found["exercises"][0]
    assert (row["name"], row["status"], row["points"], row["max_points"]) == (
        TOY.name,
        "passed",
        TOY.points,
        TOY.points,
    )
    assert f"{TOY.points} of {TOY.points}" in course("check", path).output


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (f"def {TOY.name}(*arguments):\n    raise NotImplementedError", "not_attempted"),
        (f"# exercise: {TOY.name}\n", "not_attempted"),
        (f"def {TOY.name}(*arguments):\n    return None", "failed"),
        (f"def {TOY.name}(*arguments):\n    return 1 / 0", "crashed"),
        (f"# exercise: {TOY.name}\ndef {TOY.name}(*arguments:\n", "crashed"),
        (f"raise SystemExit\ndef {TOY.name}(*arguments):\n    return 0.0", "crashed"),
    ],
)
def test_check_tells_a_wrong_answer_from_a_missing_one(source: str, status: str, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    path = submission(tmp_path, notebooks.bootstrap(), source)
    selection = select(read(path.read_bytes()), SYLLABUS)
    notebook, errors = check_worker.run_cells(list(selection.cells))
    places = list(selection.answers[TOY.name].cells)
    row = check_worker.judge(TOY.name, list(TOY.functions), places, notebook.names, errors, seed=1)
    assert row["status"] == status
    assert row["points"] == 0
    assert row["feedback"]


def test_check_survives_an_answer_that_ends_the_process(tmp_path: Path):
    path = submission(tmp_path, notebooks.bootstrap(), f"# exercise: {TOY.name}\nimport os\nos._exit(3)")
    (found,) = json.loads(course("check", path, "--json").output)["notebooks"]
    assert found["exercises"][0]["status"] == "crashed"
    assert found["points"] == 0


def test_check_runs_the_learners_own_cells_and_survives_noise(tmp_path: Path):
    path = submission(
        tmp_path,
        "%pip list\n!ls\nprint('noise')",
        notebooks.bootstrap(),
        "def helper(x):\n    import warnings\n    warnings.warn('noise')\n    return x",
        "raise RuntimeError('an experiment that went wrong')",
        f"{notebooks.reference_import(TOY)} as original\ndef {TOY.name}(*arguments):\n"
        "    print('noise')\n    return helper(original(*arguments))",
    )
    (found,) = json.loads(course("check", path, "--json").output)["notebooks"]
    assert found["exercises"][0]["status"] == "passed", found


def test_check_refuses_what_is_no_notebook_of_the_course(tmp_path: Path):
    broken = tmp_path / "broken.ipynb"
    broken.write_text("{not json", encoding="utf-8")
    for path in (broken, submission(tmp_path, "x = 1", name="other.ipynb")):
        result = course("check", path)
        assert result.exit_code != 0
        assert path.name in result.output and "Traceback" not in result.output


def test_execute_writes_whole_and_twice_the_same(tmp_path: Path):
    path = submission(tmp_path, "print(6 * 7)", "import warnings", "6 * 7")
    assert course("notebooks", "execute", path).exit_code == 0
    once = path.read_bytes()
    notebook = notebooks.read(path)
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3]
    assert notebook.cells[0].outputs[0].text == "42\n"
    assert course("notebooks", "execute", path).exit_code == 0
    assert path.read_bytes() == once
    assert notebooks.problems(path) == []


def test_execute_leaves_a_failing_notebook_alone(tmp_path: Path):
    path = submission(tmp_path, "print(1)", "1 / 0")
    before = path.read_bytes()
    result = course("notebooks", "execute", path)
    assert result.exit_code != 0
    assert "ZeroDivisionError" in result.output
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_verify_finds_each_fault(tmp_path: Path):
    cells = [new_code_cell("1", execution_count=2), new_code_cell("2"), new_markdown_cell("text")]
    cells[0].outputs = [nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])]
    cells[1].outputs = [
        nbformat.v4.new_output("display_data", {"image/png": "A" * 100_000}),
        nbformat.v4.new_output("stream", name="stdout", text="<object at 0x7f0000000000>"),
    ]
    cells[0].id, cells[2].id = "first-one", "third-one"
    path = tmp_path / "bad.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    path.write_text(path.read_text(encoding="utf-8").replace("third-one", "first-one"), encoding="utf-8")
    found = "\n".join(notebooks.problems(path))
    for fault in ("unique", "executed", "traceback", "bytes", "alt text", "memory"):
        assert fault in found, fault
    assert course("notebooks", "verify", path).exit_code == 1


def test_solve_needs_somewhere_else_to_write(tmp_path: Path):
    path = submission(tmp_path, f"# exercise: {TOY.name}\n...")
    before = path.read_bytes()
    assert course("notebooks", "solve", path).exit_code != 0
    assert course("notebooks", "solve", path, "-o", path).exit_code != 0
    assert path.read_bytes() == before
    target = tmp_path / "out" / "solved.ipynb"
    assert course("notebooks", "solve", path, "-o", target).exit_code == 0
    assert notebooks.reference_import(TOY) in target.read_text(encoding="utf-8")


def test_an_address_is_stamped_everywhere(tmp_path: Path):
    (tmp_path / "notebooks").mkdir()
    for name in ("pyproject.toml", "README.md"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    path = tmp_path / "notebooks" / "00_start_here.ipynb"
    cells = [
        new_markdown_cell(notebooks.badges(path.stem) + "\n\n# Title"),
        new_code_cell(notebooks.bootstrap() + "\nx = 1"),
    ]
    nbformat.write(new_notebook(cells=cells), path)
    new = "https://github.com/someone/sixteen-bytes-2"
    changed = notebooks.stamp_address(new + ".git", tmp_path)
    assert {path.name for path in changed} == {"pyproject.toml", "README.md", "00_start_here.ipynb"}
    old = notebooks.address()
    for path in changed:
        text = path.read_text(encoding="utf-8")
        assert new in text
        assert old + '"' not in text and old.removeprefix("https://github.com") + "/" not in text
    notebook = notebooks.read(tmp_path / "notebooks" / "00_start_here.ipynb")
    assert notebook.cells[0].source.startswith(notebooks.badges("00_start_here", new))
    assert notebook.cells[1].source.startswith(notebooks.bootstrap(new))
    assert notebooks.stamp_address(new, tmp_path) == []


@pytest.mark.parametrize(
    "url", ["", "github.com/a/b", "http://github.com/a/b", "https://github.com/a", 'https://x/a/b"c']
)
def test_an_address_must_be_one(url: str, tmp_path: Path):
    with pytest.raises(ValueError, match="https://HOST/OWNER/NAME"):
        notebooks.stamp_address(url, tmp_path)


def test_badges_follow_the_host():
    assert "colab" in notebooks.badges("x", "https://github.com/a/b")
    assert "/gl/a%2Fb%2Fc/main" in notebooks.badges("x", "https://gitlab.com/a/b/c")
    other = notebooks.badges("x", "https://git.example.org/a/b")
    assert "colab" not in other and "/git/https%3A%2F%2Fgit.example.org%2Fa%2Fb/main" in other


def test_magics_become_pass_and_arithmetic_does_not():
    assert notebooks.without_magics("if True:\n    %pip install x\n!ls\n%%time") == "if True:\n    pass\npass\npass"
    assert notebooks.without_magics("x = (7\n  % 4)") == "x = (7\n  % 4)"

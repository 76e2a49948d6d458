"""Into the gradebooks of schools: Canvas, Moodle, Gradescope, and the real nbgrader."""

import csv
import io
import json
import os
import stat
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from course_lib.commands.export import command as export
from course_lib.grading.batch.results import grades_csv, grades_text, write_whole

NAMES = {"halve": (2, False), "scale_rows": (3, False), "extra": (2, True)}
LESSON = {
    "number": "90",
    "title": "Toys",
    "max_points": 5,
    "exercises": [{"name": name, "points": points, "bonus": bonus} for name, (points, bonus) in NAMES.items()],
}


def row(student: str, points: tuple[float, ...], number: str = "", **more: Any) -> dict[str, Any]:
    exercises = [
        {
            "name": name, "status": "passed" if got == most else "failed", "points": got, "max_points": most,
            "bonus": bonus, "misconception": None, "feedback": [f"Checked: {name} <b>.", "expected 1, got 2."],
            "notes": [], "flags": [], "measured_in_process": False, "cell": 1,
        }
        for (name, (most, bonus)), got in zip(NAMES.items(), points, strict=True)
    ]  # fmt: skip
    return {
        "id": student.replace(",", "_"), "student": student, "number": number, "source": f"s/{student}.ipynb",
        "sha256": "0", "status": "graded", "lesson": "90", "seed": 1, "points": points[0] + points[1], "max_points": 5,
        "bonus_points": points[2], "problems": [], "notes": [], "exercises": exercises, **more,
    }  # fmt: skip


ROWS = [
    row("doejane", (2, 3, 0), "11"),
    row('Ö"Neil, Åsa', (2, 0, 2), "12"),
    row("陈 小明", (0, 1.5, 0)),
    row("nobody", (1, 1, 0)),
    row("doejane", (0, 0, 0), "11", id="again"),
]
UNREAD = {**row("lost", (0, 0, 0)), "lesson": None, "exercises": [], "problems": ["the file is empty."]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    document = {
        "schema": 1, "course": "Sixteen Bytes", "seed": 1, "sandbox": "user", "torch": "2", "lessons": [LESSON],
        "submissions": [*ROWS, UNREAD],
    }  # fmt: skip
    write_whole(tmp_path / "out" / "grades.json", grades_text(document))
    return tmp_path / "out"


def run(*arguments: Any) -> tuple[int, str]:
    result = CliRunner().invoke(export, [str(argument) for argument in arguments])
    return result.exit_code, result.output


CANVAS = (
    "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,Essay (7),Toys (8),Final Score (read only)\r\n"
    "    Points Possible,,,,,10,5,\r\n"
    '"Doe, Jane",11,s1,jane@x.edu,A,9,,88\r\n'
    '"Ö""Neil, Åsa",99,s2,asa,A,8,,77\r\n'
    '"小明, 陈",98,s3,ming,B,7,,66\r\n'
    '"Quiet, One",97,s4,one,B,,3,\r\n'
    '"Student, Test",,,,,,,\r\n'
)


def test_canvas_fills_one_column_and_leaves_the_rest(folder: Path, tmp_path: Path) -> None:
    gradebook = tmp_path / "canvas.csv"
    gradebook.write_bytes(CANVAS.encode())
    code, said = run(folder, "--for", "canvas", "--gradebook", gradebook, "--column", "Toys")
    assert code == 0, said
    text = (folder / "canvas-90.csv").read_bytes().decode()
    before = list(csv.reader(io.StringIO(CANVAS)))
    after = list(csv.reader(io.StringIO(text)))
    assert [line[6] for line in after] == ["Toys (8)", "5", "5", "2", "1.5", "3", ""]
    assert [line[:6] + line[7:] for line in after] == [line[:6] + line[7:] for line in before]
    assert "nobody" in said and "lost" in said and "empty" in said


def test_canvas_says_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    gradebook = tmp_path / "canvas.csv"
    gradebook.write_bytes(CANVAS.encode())
    assert "Toys (8)" in run(folder, "--for", "canvas", "--gradebook", gradebook)[1]
    code, said = run(folder, "--for", "canvas", "--gradebook", gradebook, "--column", "Quiz")
    assert code != 0 and "fits no column" in said
    assert "--gradebook must" in run(folder, "--for", "canvas")[1]
    gradebook.write_text("a,b\n1,2\n")
    assert "column Student" in run(folder, "--for", "canvas", "--gradebook", gradebook, "--column", "b")[1]
    assert not (folder / "canvas-90.csv").exists()


def test_canvas_scales_when_asked(folder: Path, tmp_path: Path) -> None:
    gradebook = tmp_path / "canvas.csv"
    gradebook.write_bytes(CANVAS.replace(",10,5,", ",10,100,").encode())
    _, said = run(folder, "--for", "canvas", "--gradebook", gradebook, "--column", "Toys")
    assert "counts 100 points, the lesson 5" in said
    run(folder, "--for", "canvas", "--gradebook", gradebook, "--column", "Toys", "--scale", "--with-bonus")
    after = list(csv.reader(io.StringIO((folder / "canvas-90.csv").read_bytes().decode())))
    assert [line[6] for line in after[2:5]] == ["100", "80", "30"]


def test_moodle_gets_grade_and_feedback_in_one_file(folder: Path, tmp_path: Path) -> None:
    code, said = run(folder, "--for", "moodle", "--with-bonus")
    assert code == 0, said
    lines = list(csv.DictReader(io.StringIO((folder / "moodle-90.csv").read_bytes().decode())))
    assert [(line["Identifier"], line["Grade"], line["Maximum grade"]) for line in lines] == [
        ("Participant 11", "5", "5"),
        ("Participant 12", "4", "5"),
    ]
    assert "<p>" in lines[0]["Feedback comments"] and "&lt;b&gt;" in lines[0]["Feedback comments"]
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(
        "Identifier,Full name,Email address,Status,Grade,Maximum grade,Feedback comments\n"
        'Participant 11,Jane Doe,jane@x.edu,Submitted,,5.00,\nParticipant 55,小明 陈,m@x.edu,Submitted,,5.00,"old"\n'
    )
    code, said = run(folder, "--for", "moodle", "--gradebook", sheet, "--output", tmp_path / "filled.csv")
    assert code == 0, said
    lines = list(csv.DictReader(io.StringIO((tmp_path / "filled.csv").read_bytes().decode())))
    assert [line["Grade"] for line in lines] == ["5", "1.5"]
    assert all("halve" in line["Feedback comments"] for line in lines)


def test_nbgrader_gets_scores_through_its_own_gradebook(folder: Path, tmp_path: Path) -> None:
    from course_lib.grading.exports.nbgrader import into_gradebook

    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    for _ in (1, 2):  # the second time changes nothing
        assert run(folder, "--for", "nbgrader", "--db", url)[0] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nbgrader.api import Gradebook

        with Gradebook(url) as gradebook:
            scores = {s.student.id: (s.score, s.max_score) for s in gradebook.assignment_submissions("90")}
            assert scores == {
                "doejane": (5.0, 5.0), 'Ö"Neil, Åsa': (4.0, 5.0), "陈 小明": (1.5, 5.0), "nobody": (2.0, 5.0),
            }  # fmt: skip
            grade = gradebook.find_grade("check_scale_rows", "90", "90", "陈 小明")
            assert (grade.auto_score, grade.max_score, grade.needs_manual_grade) == (1.5, 3.0, False)
    assert callable(into_gradebook)


def test_gradescope_results(folder: Path) -> None:
    assert run(folder, "--for", "gradescope")[0] == 0
    results = json.loads((folder / "results.json").read_text())
    assert results["score"] == 5 and results["output_format"] == "text"
    assert [test["name"] for test in results["tests"]] == ["halve", "scale_rows", "extra (bonus)"]
    assert sum(test["score"] for test in results["tests"]) == results["score"]
    assert "cannot start bubblewrap" in results["output"]


def test_export_says_when_there_is_nothing(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--for", "moodle")
    assert code != 0 and "course grade" in said


def test_grades_csv_is_rfc_4180_and_no_formula_runs(folder: Path) -> None:
    document = json.loads((folder / "grades.json").read_text())
    document["submissions"].append(row("=cmd|' /C calc'!A0", (0, 0, 0)))
    document["submissions"].append(row("two\nlines", (0, 0, 0)))
    text = grades_csv(document)
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [line["student"] for line in lines][1:3] == ['Ö"Neil, Åsa', "陈 小明"]
    assert lines[-2]["student"].startswith("'=") and lines[-1]["student"] == "two\nlines"
    assert text.splitlines(keepends=True)[0].endswith("\r\n")
    assert lines[2]["scale_rows"] == "1.5"


def test_the_gradescope_archive_runs(tmp_path: Path) -> None:
    """The archive as Gradescope unpacks it, the container's root folder put elsewhere."""
    if os.geteuid() != 0:
        pytest.skip("Gradescope's containers run as root")
    from course_lib.grading.exports.gradescope import archive
    from tests.batch.bank import code, notebook

    packed = archive("--seed 3")
    assert packed == archive("--seed 3")
    root = tmp_path / "autograder"
    with zipfile.ZipFile(io.BytesIO(packed)) as zipped:
        names = set(zipped.namelist())
        zipped.extractall(root / "source")
        modes = {info.filename: stat.S_IMODE(info.external_attr >> 16) for info in zipped.infolist()}
    assert {"setup.sh", "run_autograder", "course/pyproject.toml", "course/course_lib/cli.py"} <= names
    assert modes["run_autograder"] == modes["setup.sh"] == 0o755
    assert not any("tests/" in name or "/." in name for name in names)
    for script in ("setup.sh", "run_autograder"):
        subprocess.run(["bash", "-n", root / "source" / script], check=True)
    (root / "submission").mkdir()
    answer = "# exercise: to_gib\ndef to_gib(num_bytes):\n    return num_bytes / 2**30\n"
    (root / "submission" / "00_start_here.ipynb").write_bytes(notebook([code(answer)]))
    environment = {
        **os.environ, "AUTOGRADER_ROOT": str(root), "COURSE_COMMAND": str(Path(sys.executable).parent / "course"),
        "PYTHONPATH": str(root / "source" / "course"),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", root / "source" / "run_autograder"], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((root / "results" / "results.json").read_text())
    assert results["score"] == 1 and results["tests"][0]["status"] == "passed"
    assert "separate user" in results["output"]

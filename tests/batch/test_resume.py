"""A run that is killed goes on where it stopped; nothing is lost, nothing is recorded twice, nobody is left behind."""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner

from course_lib.commands.grade import command
from course_lib.grading.batch.collect import collect
from course_lib.grading.batch.run import Plan, on_processes, run
from tests.batch.bank import GOOD, code, notebook
from tests.batch.damaged import PLAIN

SYLLABUS = "tests.batch.toys:SYLLABUS"
pytestmark = pytest.mark.xdist_group("resume")  # one process, so that it is graded once


def start(*arguments: Any) -> subprocess.Popen:
    line = [sys.executable, "-m", "course_lib.cli", "grade", *map(str, arguments), "--syllabus", SYLLABUS]
    return subprocess.Popen(
        line, cwd=Path(__file__).resolve().parents[2], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> str:
    said, _ = process.communicate(timeout=250)
    assert process.returncode == 0, said
    return str(said)


@pytest.fixture(scope="module")
def submissions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume") / "submissions"
    folder.mkdir()
    for number in range(24):
        wrong = notebook([code("def halve(x): return 1.0"), *[code(text) for text in list(GOOD.values())[1:]]])
        (folder / f"student{number:02d}.ipynb").write_bytes(wrong if number % 3 else PLAIN)
    (folder / "empty.ipynb").write_bytes(b"")
    return folder


def grade(submissions: Path, out: Path) -> dict[str, Any]:
    return run(
        collect([submissions]), out, lambda todo, plan: on_processes(todo, plan, 2), seed=11, hidden=(submissions,),
        syllabus=SYLLABUS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(submissions: Path) -> Path:
    out = submissions.parent / "undisturbed"
    grade(submissions, out)
    return out


def same(path: Path) -> str:
    """The file without the course's fingerprint, which changes when someone edits the course meanwhile."""
    return re.sub(r'"fingerprint": "\w+"', "", path.read_text(encoding="utf-8"))


def processes_of(session: int) -> list[int]:
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z" and int(fields[3]) == session:
                found.append(int(pid))
    return found


def warm_parents() -> set[int]:
    found = set()
    for pid in os.listdir("/proc"):
        try:
            line = Path("/proc", pid, "cmdline").read_bytes() if pid.isdigit() else b""
        except OSError:
            continue
        if b"sandbox.zygote" in line and SYLLABUS.encode() in line:
            found.add(int(pid))
    return found


def test_killed_and_resumed_is_the_same_to_the_byte(submissions: Path, undisturbed: Path) -> None:
    out = submissions.parent / "killed"
    before = warm_parents()
    process = start(submissions, "--out", out, "--jobs", 2, "--seed", 11)
    while len(list(out.glob("results/*.json"))) < 6:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = {path: path.stat().st_mtime_ns for path in out.glob("results/*.json")}
    assert 6 <= len(done) < 25
    until = time.monotonic() + 60
    while (processes_of(process.pid) or warm_parents() - before) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes_of(process.pid) == [] and warm_parents() - before == set()

    finish(start(submissions, "--out", out, "--jobs", 1))  # the seed is the folder's own
    for path, written in done.items():
        assert path.stat().st_mtime_ns == written  # not graded again
    for name in ("grades.json", "grades.csv", "class.html"):
        assert same(out / name) == same(undisturbed / name)
    assert len(list(out.glob("results/*.json"))) == len(list(out.glob("reports/*.html"))) == 25
    assert not list(out.rglob("*.part"))


def test_a_killed_process_of_the_pool_costs_nothing(submissions: Path, undisturbed: Path) -> None:
    out = submissions.parent / "pool"
    process = start(submissions, "--out", out, "--jobs", 2, "--seed", 11)
    while len(list(out.glob("results/*.json"))) < 3:
        assert process.poll() is None
        time.sleep(0.02)
    spawned = [pid for pid in processes_of(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(spawned[0], signal.SIGKILL)
    finish(process)
    assert same(out / "grades.json") == same(undisturbed / "grades.json")


def test_bad_input_is_a_clear_error(submissions: Path, undisturbed: Path, tmp_path: Path) -> None:
    def fails(*arguments: Any) -> str:
        result = CliRunner().invoke(command, [*map(str, arguments), "--syllabus", SYLLABUS])
        assert result.exit_code != 0 and isinstance(result.exception, SystemExit)
        return result.output

    assert "does not exist" in fails(tmp_path / "nowhere", "--out", tmp_path / "out")
    assert "found none" in fails(tmp_path, "--out", tmp_path.parent / "elsewhere")
    assert "graded with seed 11" in fails(submissions, "--out", undisturbed, "--seed", 12)
    assert "lie outside" in fails(submissions, "--out", submissions / "out")
    assert "more than 0" in fails(submissions, "--out", tmp_path / "out", "--memory-mib", 0)
    assert not (tmp_path / "out").exists()


def test_without_bubblewrap_the_command_refuses(submissions: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(command, [str(submissions), "--out", str(tmp_path / "out"), "--syllabus", SYLLABUS])
    said = result.output
    assert result.exit_code != 0 and "bubblewrap" in said and "apt install" in said and "--no-sandbox" in said
    assert not (tmp_path / "out").exists()
    process = start(submissions / "student00.ipynb", "--out", tmp_path / "out", "--no-sandbox", "--seed", 1)
    said = finish(process)
    assert "WARNING" in said and "your files" in said
    document = json.loads((tmp_path / "out" / "grades.json").read_text())
    assert document["sandbox"] == "none" and document["submissions"][0]["points"] == 9


def test_a_second_run_grades_only_what_changed_or_was_damaged(submissions: Path, undisturbed: Path) -> None:
    times = {path.name: path.stat().st_mtime_ns for path in undisturbed.glob("results/*.json")}
    good = json.loads((undisturbed / "grades.json").read_text())
    (undisturbed / "results" / "student02.json").write_text('{"key": "x"')
    changed = submissions / "student01.ipynb"
    old = changed.read_bytes()
    changed.write_bytes(PLAIN)
    try:
        document = grade(submissions, undisturbed)
    finally:
        changed.write_bytes(old)
    after = {path.name: path.stat().st_mtime_ns for path in undisturbed.glob("results/*.json")}
    assert {name for name in times if times[name] != after[name]} == {"student01.json", "student02.json"}
    rows = {row["id"]: row for row in document["submissions"]}
    assert rows.pop("student01")["points"] == 9
    assert list(rows.values()) == [row for row in good["submissions"] if row["id"] != "student01"]


def test_no_submission_is_lost_when_a_pool_is_found_broken_while_it_gets_one(
    submissions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BreaksOnce(concurrent.futures.ThreadPoolExecutor):
        made = 0
        _processes: ClassVar[dict] = {}

        def __init__(self, jobs: int, *_: Any) -> None:
            super().__init__(jobs)
            BreaksOnce.made += 1
            self.left = 3 if BreaksOnce.made == 1 else 10**6

        def submit(self, *arguments: Any) -> concurrent.futures.Future:
            self.left -= 1
            if self.left < 0:
                raise BrokenProcessPool
            return super().submit(*arguments)

    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", BreaksOnce)
    monkeypatch.setattr("course_lib.grading.batch.run._grade_here", lambda submission: submission.id)
    found = collect([submissions])
    assert sorted(on_processes(found, Plan(1), 2)) == sorted(submission.id for submission in found)
    assert BreaksOnce.made == 2

"""No forged point, no honest point lost, the machine and the neighbours unharmed: the whole bank, graded for real."""

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from course_lib.grading.batch.collect import collect
from course_lib.grading.batch.run import on_processes, run
from course_lib.grading.sandbox import box
from course_lib.grading.sandbox.quotas import Limits
from tests.batch.bank import POINTS, Entry
from tests.batch.damaged import DAMAGED
from tests.batch.honest import HONEST
from tests.batch.hostile import CANARY, HOSTILE

BANK = [*HOSTILE, *HONEST, *DAMAGED]
SYLLABUS = "tests.batch.toys:SYLLABUS"
pytestmark = pytest.mark.xdist_group("bank")  # one process, so that it is graded once
LIMITS = Limits(cell_cpu_s=3.0, cpu_factor=1.0, memory_mib=1024, wall_factor=3.0, wall_slack_s=4.0, disk_mib=64)
NEIGHBOUR = "plain"


def write_bank(folder: Path, entries: list[Entry], **replaced: str) -> None:
    folder.mkdir()
    for number, entry in enumerate(entries):
        data = entry.data
        for mark, value in replaced.items():
            data = data.replace(f"@{mark}@".encode(), value.encode())
        (folder / f"{number:03d}-{entry.name}.ipynb").write_bytes(data)


def grade(folder: Path, out: Path, jobs: int, seed: int = 7, limits: Limits = LIMITS) -> dict[str, Any]:
    submissions = collect([folder])
    return run(
        submissions, out, lambda todo, plan: on_processes(todo, plan, jobs), seed=seed, limits=limits,
        hidden=(folder,), syllabus=SYLLABUS,
    )  # fmt: skip


def rows_by_name(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["student"].partition("-")[2]: row for row in document["submissions"]}


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What a submission must not reach: a server, an abstract socket, a folder, the environment."""
    folder = tmp_path_factory.mktemp("outside")
    folder.chmod(0o777)
    server = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0{CANARY}-{os.getpid()}")
    abstract.listen()
    for listener in (server, abstract):
        listener.setblocking(False)
    os.environ["SIXTEEN_SECRET"] = CANARY
    yield {"folder": folder, "server": server, "abstract": abstract}
    del os.environ["SIXTEEN_SECRET"]
    server.close()
    abstract.close()


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory, outside: dict[str, Any]) -> dict[str, Any]:
    top = tmp_path_factory.mktemp("bank")
    write_bank(
        top / "submissions", BANK, PORT=str(outside["server"].getsockname()[1]), FOLDER=str(outside["folder"]),
        SOCKET=f"{CANARY}-{os.getpid()}",
    )  # fmt: skip
    document = grade(top / "submissions", top / "out", jobs=2)
    return {"document": document, "rows": rows_by_name(document), "out": top / "out"}


def test_the_bank_is_large_enough() -> None:
    assert len(BANK) >= 120
    assert len({entry.name for entry in BANK}) == len(BANK)
    assert min(len(HOSTILE), len(HONEST), len(DAMAGED)) >= 40


@pytest.mark.parametrize("entry", BANK, ids=lambda entry: entry.name)
def test_every_exercise_gets_the_expected_points(entry: Entry, graded: dict[str, Any]) -> None:
    row = graded["rows"][entry.name]
    points = {exercise["name"]: exercise["points"] for exercise in row["exercises"]}
    assert points == entry.points, json.dumps(row, indent=1)
    assert row["points"] == sum(worth for name, worth in entry.points.items() if name != "pack_digits")


@pytest.mark.parametrize("entry", BANK, ids=lambda entry: entry.name)
def test_nothing_is_a_silent_zero(entry: Entry, graded: dict[str, Any]) -> None:
    row = graded["rows"][entry.name]
    if entry.problem:
        assert row["status"] == "needs_repair"
        assert entry.problem in "; ".join(row["problems"])
    else:
        assert (row["status"], row["problems"]) == ("graded", [])
    for exercise in row["exercises"]:
        assert exercise["status"] != "grader_error", exercise
        assert exercise["feedback"]


@pytest.mark.parametrize("entry", BANK, ids=lambda entry: entry.name)
def test_answers_of_the_course_are_flagged_and_no_others(entry: Entry, graded: dict[str, Any]) -> None:
    flags = [f"{ex['name']}: {flag}" for ex in graded["rows"][entry.name]["exercises"] for flag in ex["flags"]]
    if entry.flag:
        assert any(entry.flag in flag for flag in flags), flags
    else:
        assert flags == []


def test_no_submission_saw_what_it_must_not_see(graded: dict[str, Any], outside: dict[str, Any]) -> None:
    leaks = {name: row["exercises"] for name, row in graded["rows"].items() if "LEAK" in json.dumps(row)}
    assert leaks == {}
    looked = [row for row in graded["rows"].values() if "saw nothing" in json.dumps(row)]
    assert len(looked) == sum(b'saw nothing' in entry.data for entry in HOSTILE)  # they did look


def test_the_machine_is_unharmed(graded: dict[str, Any], outside: dict[str, Any]) -> None:
    assert list(outside["folder"].iterdir()) == []
    for listener in (outside["server"], outside["abstract"]):
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert left_behind() == set()


def left_behind() -> set[str]:
    """What does not end: workers of tests that run beside this one come and go, and a killed process takes a moment."""
    left = set(living_workers())
    for _ in range(300):
        if not left:
            break
        time.sleep(0.2)
        left &= set(living_workers())
    return left


def living_workers() -> list[str]:
    """Processes that a run may have left behind: warm parents, walls, and what runs as a worker's user."""
    found = []
    for pid in os.listdir("/proc"):
        if not pid.isdigit():
            continue
        try:
            line = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
            parent, started = fields[1], fields[19]
            user = os.stat(f"/proc/{pid}").st_uid
        except OSError:
            continue
        is_ours = SYLLABUS in line and "sandbox.zygote" in line
        if (is_ours and parent in ("1", str(os.getpid()))) or user >= 1_000_000_000:
            found.append(f"{pid} since {started}: {line}")
    return found


@pytest.mark.parametrize("jobs", [1, 4])
def test_results_are_the_same_again_whatever_runs_beside(jobs: int, graded: dict[str, Any], tmp_path: Path) -> None:
    calm = [entry for entry in BANK if not any(word in entry.data for word in (b"while True", b"sleep", b"1 << "))]
    folder = tmp_path / "submissions"
    folder.mkdir()
    for entry in calm[::3]:
        (name,) = (graded["out"].parent / "submissions").glob(f"[0-9]*-{entry.name}.ipynb")
        (folder / name.name).write_bytes(name.read_bytes())
    again = rows_by_name(grade(folder, tmp_path / "out", jobs=jobs))
    assert len(again) > 35
    for name, row in again.items():
        assert row == graded["rows"][name]


def test_another_seed_draws_other_inputs_and_gives_the_same_points(tmp_path: Path, graded: dict[str, Any]) -> None:
    write_bank(tmp_path / "submissions", HONEST[:6])
    rows = rows_by_name(grade(tmp_path / "submissions", tmp_path / "out", jobs=1, seed=8))
    for name, row in rows.items():
        assert row["points"] == graded["rows"][name]["points"]
        assert row["seed"] != graded["rows"][name]["seed"]


def test_bubblewrap_is_here() -> None:
    """Everything above would be skipped in silence otherwise."""
    box.check_walls(LIMITS)
    assert POINTS

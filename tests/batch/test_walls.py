"""The walls as an ordinary user builds them, what stands when they cannot be built, and other ways to run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.grading.sandbox import box
from course_lib.grading.sandbox.quotas import Limits
from course_lib.grading.sandbox.session import Sandbox
from tests.batch.bank import Entry
from tests.batch.damaged import PLAIN
from tests.batch.hostile import HOSTILE

SYLLABUS = "tests.batch.toys:SYLLABUS"
ROOT = Path(__file__).resolve().parents[2]
USER = 1234
TRIED = ("fork_bomb", "os_exit", "reads_the_graders_files", "makes_namespaces", "becomes_root", "writes_outside",
         "forged_on_every_descriptor", "kills_its_group_and_parents", "calls_out")  # fmt: skip


def as_ordinary_user(*line: str) -> list[str]:
    """The command as another user; where Python lies in a folder of root's, that folder is opened in a copy of `/`."""
    laid = ["bwrap", "--dev-bind", "/", "/"]
    for path in {Path(sys.base_prefix).resolve(), ROOT, Path(sys.prefix).resolve()}:
        closed = next((parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001), None)
        if closed is not None:
            laid += ["--perms", "0755", "--tmpfs", str(closed)]
            for parent in reversed(path.parents):
                laid += ["--dir", str(parent)] if closed in parent.parents else []
            laid += ["--ro-bind", str(path), str(path)]
    drop = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    return [*laid, "--", *drop, *line]


def test_an_ordinary_user_has_the_same_walls(tmp_path_factory: pytest.TempPathFactory) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root to become somebody else; as an ordinary user the whole bank tests this")
    top = Path("/tmp") / f"sixteen-bytes-walls-{os.getpid()}"
    entries = [Entry("plain", PLAIN, {}), *[entry for entry in HOSTILE if entry.name in TRIED]]
    assert len(entries) == len(TRIED) + 1
    try:
        (top / "in").mkdir(parents=True)
        for entry in entries:
            (top / "in" / f"{entry.name}.ipynb").write_bytes(entry.data)
        os.chown(top, USER, USER)
        (top / "in").chmod(0o755)
        line = [sys.executable, "-m", "course_lib.cli", "grade", str(top / "in"), "--out", str(top / "out"), "--syllabus",
                SYLLABUS, "--jobs", "2", "--cpu-factor", "1"]  # fmt: skip
        environment = {**os.environ, "HOME": str(top), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            as_ordinary_user(*line), env=environment, cwd="/", capture_output=True, text=True, timeout=250
        )
        assert done.returncode == 0, done.stdout + done.stderr
        text = (top / "out" / "grades.json").read_text()
        document = json.loads(text)
        assert document["sandbox"] == "bubblewrap" and "LEAK" not in text
        for row in document["submissions"]:
            points = {exercise["name"]: exercise["points"] for exercise in row["exercises"]}
            due = 2 if row["student"] == "plain" else 0
            assert points == {"halve": due, "scale_rows": 3, "describe_sizes": 2, "Counter": 2, "pack_digits": 2}, row
    finally:
        shutil.rmtree(top, ignore_errors=True)


def test_walls_that_cannot_be_built_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(box.SandboxUnavailable, match=r"Permission denied.*AppArmor.*Docker"):
        box.check_walls(Limits())
    broken.unlink()
    with pytest.raises(box.SandboxUnavailable, match="apt install bubblewrap"):
        box.check_walls(Limits())


def test_a_course_that_cannot_be_imported_is_our_fault() -> None:
    with pytest.raises(box.SandboxUnavailable, match="no_such_module"), Sandbox(syllabus="no_such_module:X"):
        pass


def test_a_submission_inside_something_visible_is_covered(tmp_path: Path) -> None:
    folder = Path(sys.prefix) / "submissions-of-a-test"
    folder.mkdir()
    try:
        line = box.bubblewrap_command(Limits(), (folder, tmp_path), as_root=os.geteuid() == 0)
        assert line[line.index(str(folder)) - 1] == "--tmpfs"
        assert str(tmp_path) not in line
    finally:
        folder.rmdir()


@pytest.mark.parametrize("field", ["memory_mib", "processes", "submission_s"])
def test_limits_must_be_more_than_nothing(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be more than 0; got -1"):
        Limits(**{field: -1})

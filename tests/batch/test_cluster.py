"""A real Dask cluster of several processes, one of them killed in the middle: the same grades, to the byte."""

import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from course_lib.grading.batch.collect import collect
from course_lib.grading.batch.run import RunError, on_processes, run
from tests.batch.bank import GOOD, code, notebook
from tests.batch.damaged import PLAIN

SYLLABUS = "tests.batch.toys:SYLLABUS"
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Dask's own, of ports and clean-up
    pytest.mark.xdist_group("cluster"),
]


def write(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        slow = [code(f"import time\ntime.sleep(0.{1 + number % 3})\n"), *[code(text) for text in GOOD.values()]]
        (folder / f"student{number:02d}.ipynb").write_bytes(notebook(slow) if number % 4 else PLAIN)
    (folder / "killer.ipynb").write_bytes(notebook([code("import os\ndef halve(x): os._exit(1)")]))
    (folder / "lost.ipynb").write_bytes(b"{")


@pytest.fixture(autouse=True)
def _one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever edits the course while the test runs does not make it fail."""
    monkeypatch.setattr("course_lib.grading.batch.run.course_fingerprint", lambda: "the same")


@pytest.fixture
def cluster() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dask.distributed import LocalCluster

        with LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster:
            yield cluster


def grade(folder: Path, out: Path, engine: Any, progress: Any = None) -> dict[str, Any]:
    more = {"progress": progress} if progress else {}
    return run(collect([folder]), out, engine, seed=21, hidden=(folder,), syllabus=SYLLABUS, **more)


def test_a_cluster_gives_the_same_bytes_though_a_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    from course_lib.grading.batch.cluster import on_dask

    write(tmp_path / "submissions", 20)
    here = tmp_path / "here"
    grade(tmp_path / "submissions", here, lambda todo, plan: on_processes(todo, plan, 2))
    killed = []
    recorded: list[str] = []

    def progress(done: int, total: int, name: str) -> None:
        if name:
            recorded.append(name)
        if done == 5 and not killed:
            worker = next(iter(cluster.workers.values()))
            killed.append(worker.process.pid if hasattr(worker.process, "pid") else worker.pid)
            os.kill(killed[0], signal.SIGKILL)

    there = tmp_path / "there"
    grade(tmp_path / "submissions", there, lambda todo, plan: on_dask(todo, plan, cluster.scheduler_address), progress)
    assert killed
    assert len(recorded) == len(set(recorded)) == 22
    for name in ("grades.json", "grades.csv", "class.html"):
        assert (there / name).read_bytes() == (here / name).read_bytes()


def test_no_cluster_is_a_clear_error(tmp_path: Path) -> None:
    from course_lib.grading.batch import cluster as module

    write(tmp_path / "submissions", 1)
    old, module.CONNECT_S = module.CONNECT_S, 1
    try:
        with pytest.raises(RunError, match="running scheduler"):
            engine = lambda todo, plan: module.on_dask(todo, plan, "tcp://127.0.0.1:1")  # noqa: E731
            grade(tmp_path / "submissions", tmp_path / "out", engine)
    finally:
        module.CONNECT_S = old

"""Batch grading measured: beside nbgrader, over twenty reruns, and on a thousand submissions.

    python tests/benchmarks/grading.py nbgrader [--lesson 03] [--copies 40] [--jobs 1]
    python tests/benchmarks/grading.py reruns [--count 20]
    python tests/benchmarks/grading.py thousand [--count 1000]
    python tests/benchmarks/grading.py lessons

`nbgrader`: the same answered notebook graded by `nbgrader autograde` (which runs every cell, without walls) and by
`course grade` (which runs the answers, in the sandbox); aim: 40 times as many submissions a minute.
`reruns`: the bank of hostile and honest submissions again and again with one seed, with 1, 2 and 4 jobs; aim: one result.
`thousand`: copies of a mixed set, killed half-way and resumed, beside an undisturbed run; aim: the same bytes, memory flat.
`lessons`: every right and wrong answer of every lesson through the sandbox.
These are measurements, not tests: no test has a clock.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
TOYS = "tests.batch.toys:SYLLABUS"


def shell(*line: object, cwd: Path = ROOT) -> float:
    """Runs a command; seconds."""
    started = time.monotonic()
    done = subprocess.run([str(part) for part in line], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{line}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return time.monotonic() - started


def grade_command(folder: Path, out: Path, *more: object) -> list[str]:
    return [str(BIN / "course"), "grade", str(folder), "--out", str(out), "--seed", "1", *map(str, more)]


def answered(number: str) -> tuple[str, str]:
    """A lesson's slug and its notebook with the first accepted answer to every exercise."""
    from course_lib import notebooks
    from course_lib.exercises import SYLLABUS
    from course_lib.grading.batch.selection import released_notebook
    from tests.test_submissions import submissions_of

    lesson = next(one for one in SYLLABUS if one.number == number)
    answers = {
        exercise.name: next(one.source for one in submissions_of(lesson, exercise) if one.is_accepted).strip()
        for exercise in lesson.exercises
    }
    notebook = notebooks.solve(notebooks.read(released_notebook(lesson)), answers)
    return lesson.slug, notebooks.as_text(notebook)


def beside_nbgrader(top: Path, number: str, copies: int, jobs: int, slow_copies: int = 2) -> None:
    slug, text = answered(number)
    shell(BIN / "course", "release", "--for", "nbgrader", "--out", top / "course")
    shell(BIN / "nbgrader", "generate_assignment", slug, "--create", cwd=top / "course")
    for count, folder in ((slow_copies, top / "course" / "submitted"), (copies, top / "ours"), (1, top / "one")):
        for copy in range(count):
            path = folder / f"student{copy:04d}" / slug / f"{slug}.ipynb"
            path.parent.mkdir(parents=True)
            path.write_text(text)
    theirs = shell(BIN / "nbgrader", "autograde", slug, "--create", cwd=top / "course") / slow_copies
    alone = shell(*grade_command(top / "one", top / "out1"))
    whole = shell(*grade_command(top / "ours", top / "out", "--jobs", jobs))
    rows = json.loads((top / "out" / "grades.json").read_text())["submissions"]
    points = {(row["points"], row["max_points"]) for row in rows}
    graded = [json.loads(path.read_text())["result"]["seconds"] for path in (top / "out" / "results").glob("*.json")]
    print(f"{slug}: {points} points")
    print(f"nbgrader autograde   {60 / theirs:8.1f} submissions a minute ({theirs:.2f} s each, {slow_copies} copies)")
    print(f"course grade         {60 * copies / whole:8.1f} submissions a minute ({whole / copies:.3f} s each, {copies} "
          f"copies, {jobs} jobs, start of {alone:.1f} s included; {sum(graded) / copies:.3f} s in the grader)")  # fmt: skip
    print(f"ratio                {theirs * copies / whole:8.1f}")


def reruns(top: Path, count: int) -> None:
    from tests.batch.test_bank import BANK, grade, rows_by_name, write_bank

    write_bank(top / "submissions", BANK, PORT="1", FOLDER=str(top / "nowhere"), SOCKET="none")
    first: dict[str, list] = {}
    for number in range(count):
        jobs = (1, 2, 4)[number % 3]
        started = time.monotonic()
        rows = rows_by_name(grade(top / "submissions", top / f"out{number}", jobs=jobs))
        points = {name: [(ex["points"], ex["status"]) for ex in row["exercises"]] for name, row in rows.items()}
        first = first or points
        differing = [name for name in points if [p for p, _ in points[name]] != [p for p, _ in first[name]]]
        worded = [name for name in points if points[name] != first[name]]
        print(f"{number + 1:3d}: {jobs} jobs, {time.monotonic() - started:6.1f} s, other points: {differing}, "
              f"other status: {worded}", flush=True)  # fmt: skip
        if differing:
            raise SystemExit("points differ")


def _mixed(folder: Path, count: int) -> None:
    from tests.batch.damaged import DAMAGED
    from tests.batch.honest import HONEST
    from tests.batch.hostile import HOSTILE

    quick = [e for e in HOSTILE if not re.search(rb"while True|sleep|1 << |range\(10_", e.data)]
    mixed = [e for e in (*quick, *HONEST, *DAMAGED) if len(e.data) < 1_000_000]
    folder.mkdir()
    for number in range(count):
        entry = mixed[number % len(mixed)]
        (folder / f"{number:04d}-{entry.name}.ipynb").write_bytes(entry.data)


def _resident_mib(session: int) -> float:
    """Memory of a session's processes, shared pages divided among those that share them."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[3]) == session:
                text = Path("/proc", pid, "smaps_rollup").read_text()
                total += int(re.search(r"^Pss: +(\d+)", text, re.MULTILINE)[1])  # type: ignore[index]
        except (OSError, TypeError):
            continue
    return total / 1024


def _watched(line: list[str], out: Path, kill_at: int | None) -> tuple[float, list[float]]:
    started, seen = time.monotonic(), []
    process = subprocess.Popen(
        line, cwd=ROOT, env=ENVIRONMENT, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None:
        time.sleep(0.5)
        done = len(list(out.glob("results/*.json")))
        if done:
            seen.append(_resident_mib(process.pid))
        if kill_at is not None and done >= kill_at:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return time.monotonic() - started, seen
    if process.returncode:
        raise SystemExit(f"course grade ended with {process.returncode}")
    return time.monotonic() - started, seen


def thousand(top: Path, count: int) -> None:
    _mixed(top / "submissions", count)
    more = ("--jobs", 2, "--syllabus", TOYS)
    whole, seen = _watched(grade_command(top / "submissions", top / "whole", *more), top / "whole", None)
    half = len(seen) // 2
    print(f"undisturbed: {count} submissions in {whole:.0f} s, {count * 60 / whole:.0f} a minute on 2 jobs")
    print(f"memory of all its processes: at most {max(seen[:half]):.0f} MiB in the first half of the time, "
          f"{max(seen[half:]):.0f} in the second")  # fmt: skip
    first, _ = _watched(grade_command(top / "submissions", top / "killed", *more), top / "killed", count // 2)
    kept = len(list((top / "killed" / "results").glob("*.json")))
    second, _ = _watched(grade_command(top / "submissions", top / "killed", *more), top / "killed", None)
    print(f"killed after {first:.0f} s with {kept} results, resumed for {second:.0f} s")
    for name in ("grades.json", "grades.csv", "class.html"):
        # The fingerprint changes when someone edits the course meanwhile.
        a, b = (re.sub(r'"fingerprint": .*', "", (top / run / name).read_text()) for run in ("whole", "killed"))
        print(f"{name}: {'the same' if a == b else 'DIFFERS'}")
        for one, other in zip(a.splitlines(), b.splitlines(), strict=False):
            if one != other:
                print(f"  {one[:200]}\n  {other[:200]}")
                break


def lessons(top: Path) -> None:
    from course_lib import notebooks
    from course_lib.exercises import SYLLABUS
    from course_lib.grading.batch.collect import collect
    from course_lib.grading.batch.run import on_processes, run
    from course_lib.grading.batch.selection import released_notebook
    from tests.test_submissions import submissions_of

    expected: dict[tuple[str, str], bool] = {}
    (top / "in").mkdir()
    for lesson in SYLLABUS:
        if not released_notebook(lesson).exists():
            continue
        found = {exercise.name: submissions_of(lesson, exercise) for exercise in lesson.exercises}
        for number in range(max(len(some) for some in found.values())):
            chosen = {name: some[number] for name, some in found.items() if number < len(some)}
            answers = {name: one.source.strip() for name, one in chosen.items()}
            notebook = notebooks.read(released_notebook(lesson))
            for cell, name in notebooks.exercise_cells(notebook):
                cell.source = f"# exercise: {name}\n{answers[name]}" if name in answers else cell.source
            (top / "in" / f"{lesson.number}x{number:02d}.ipynb").write_text(notebooks.as_text(notebook))
            expected |= {(f"{lesson.number}x{number:02d}", name): one.is_accepted for name, one in chosen.items()}
    document = run(collect([top / "in"]), top / "out", functools.partial(on_processes, jobs=2), seed=2, hidden=(top / "in",))
    wrong = 0
    for row in document["submissions"]:
        for exercise in row["exercises"]:
            due = expected.get((row["student"], exercise["name"]))
            if due is not None and (exercise["status"] == "passed") != due:
                wrong += 1
                print(row["student"], exercise["name"], "must pass" if due else "must not pass", exercise["feedback"])
    print(f"{len(expected)} answers through the sandbox, {wrong} judged otherwise than in process")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["nbgrader", "reruns", "thousand", "lessons"])
    parser.add_argument("--lesson", default="03")
    parser.add_argument("--copies", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--count", type=int)
    chosen = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="sixteen-bytes-benchmark-"))
    try:
        if chosen.what == "nbgrader":
            beside_nbgrader(top, chosen.lesson, chosen.copies, chosen.jobs)
        elif chosen.what == "reruns":
            reruns(top, chosen.count or 20)
        elif chosen.what == "thousand":
            thousand(top, chosen.count or 1000)
        else:
            lessons(top)
    finally:
        shutil.rmtree(top, ignore_errors=True)
    print(f"this process used at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()

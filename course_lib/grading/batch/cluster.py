"""The same grading on a Dask cluster: submissions are read here, graded there, and recorded here, once each.

Each worker of the cluster has a warm parent, started by a plugin. A worker that is killed takes nothing with it but
what it was grading, which Dask gives to another.
"""

import threading
from asyncio import CancelledError
from collections.abc import Iterable, Iterator
from typing import Any

from course_lib.grading.batch.collect import Submission
from course_lib.grading.batch.grader import Grader, Prepared, prepare
from course_lib.grading.batch.run import Plan, RunError, ungraded

CONNECT_S = 20
_ATTEMPTS = 3
_graders: dict[str, Grader] = {}  # of this process, when it is a cluster's worker; by plan
_lock = threading.Lock()


def _grader(plan: Plan) -> Grader:
    key = repr(plan)
    if key not in _graders:
        _graders[key] = plan.grader()
    return _graders[key]


def _start_there(plan: Plan) -> None:
    with _lock:
        _grader(plan).sandbox.start()


def _stop_there() -> None:
    with _lock:
        for grader in _graders.values():
            grader.sandbox.close()
        _graders.clear()


def _grade_there(plan: Plan, prepared: Prepared) -> dict[str, Any]:
    # One at a time in a process: references may use the process's one random state.
    with _lock:
        return _grader(plan).grade(prepared)


def on_dask(todo: Iterable[Submission], plan: Plan, address: str) -> Iterator[dict[str, Any]]:
    """Results in the order in which they are ready, from the workers of the cluster at `address`.

    Raises:
        RunError: Dask is not installed, or the cluster is not there.
    """
    try:
        from dask.distributed import Client, WorkerPlugin, as_completed
    except ImportError:
        raise RunError("--dask needs Dask; found none. Run: pip install 'sixteen-bytes[workshop]'") from None

    class WarmParent(WorkerPlugin):
        name = "sixteen-bytes-warm-parent"

        # This class travels by value, so it only calls functions of the module, which travel by name.
        def setup(self, worker: Any) -> None:
            _start_there(plan)

        def teardown(self, worker: Any) -> None:
            _stop_there()

    try:
        client = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError, TimeoutError) as error:
        raise RunError(f"--dask must be the address of a running scheduler; got {address}: {error}") from None
    with client:
        client.register_plugin(WarmParent())
        waiting = iter(todo)
        running: dict[Any, Submission] = {}
        attempts: dict[str, int] = {}
        finished = as_completed()

        def submit(submission: Submission) -> None:
            attempt = attempts[submission.id] = attempts.get(submission.id, 0) + 1
            name = f"grade-{plan.run_seed}-{submission.id}-{attempt}"
            future = client.submit(_grade_there, plan, prepare(submission), key=name, pure=False, retries=2)
            running[future] = submission
            finished.add(future)

        def top_up() -> None:
            threads = sum(client.nthreads().values()) or 1
            while len(running) < 2 * threads + 2:
                submission = next(waiting, None)
                if submission is None:
                    return
                submit(submission)

        top_up()
        try:
            for future in finished:
                submission = running.pop(future)
                try:
                    result = future.result()  # waits where the result died with its worker and is made again
                except (Exception, CancelledError) as error:
                    if attempts[submission.id] < _ATTEMPTS:
                        submit(submission)
                        continue
                    result = ungraded(submission, f"{type(error).__name__}: {str(error)[:300]}")
                yield result
                future.release()
                top_up()
        finally:
            client.cancel(list(running))
            client.unregister_worker_plugin(WarmParent.name)

"""Code that does not end is stopped, however hard it resists, and nothing of the limit stays behind."""

import signal
import sys
import threading
import time

import pytest

from course_lib.grading import assess
from course_lib.grading.limits import TimeLimitExceeded, run_limited


def busy():
    while True:
        pass


def sleeping():
    time.sleep(60)


def swallowing():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def finally_continues():
    while True:
        try:
            time.sleep(0.01)
        finally:
            continue


def locked():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def generator_in_a_loop():
    def numbers():
        while True:
            try:
                yield 1
            except BaseException:
                pass

    while True:
        try:
            for _ in numbers():
                pass
        except BaseException:
            pass


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("endless", [busy, sleeping, swallowing, finally_continues, locked, generator_in_a_loop])
def test_endless_code_is_stopped(endless):
    with pytest.raises(TimeLimitExceeded):
        run_limited(endless, 0.1)
    assert sys.gettrace() is None or "limits" not in repr(sys.gettrace())


def test_results_and_errors_pass_through():
    assert run_limited(lambda: 5, 10) == 5
    with pytest.raises(ZeroDivisionError):
        run_limited(lambda: 1 // 0, 10)


def test_the_old_timer_and_handler_come_back():
    seen = []
    old = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    before = signal.setitimer(signal.ITIMER_REAL, 50)
    try:
        with pytest.raises(TimeLimitExceeded):
            run_limited(busy, 0.1)
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left < 50
        signal.raise_signal(signal.SIGALRM)
        assert seen == [1]
    finally:
        signal.signal(signal.SIGALRM, old)
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_other_threads_run_without_a_limit():
    results = []
    thread = threading.Thread(target=lambda: results.append(run_limited(lambda: 7, 0.01)))
    thread.start()
    thread.join()
    assert results == [7]


def test_a_verdict_says_that_the_code_did_not_end(syllabus):
    syllabus(time_limit_s=0.2)

    def forever(x):
        while True:
            pass

    verdict = assess("double_it", forever)
    assert verdict.status == "failed" and "no end within 0.2 seconds" in verdict.feedback

"""Stops a learner's code that does not end, and leaves the process, or the notebook's kernel, usable."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")
_REPEAT_S = 0.05


class TimeLimitExceeded(BaseException):
    """The code ran longer than it may. No `Exception`, so that an ordinary handler does not swallow it."""


def run_limited(function: Callable[[], Result], limit_s: float) -> Result:
    """Calls `function`, and raises TimeLimitExceeded in it after `limit_s` seconds of wall time.

    A signal interrupts sleeps and locks; from then on a trace raises again on each line that the code still
    runs, which ends loops that swallow every exception. A long call into a library ends when it returns.
    Elsewhere than in the main thread, and where there is no such signal, the limit is a request: the main
    thread is interrupted once.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    if not hasattr(signal, "setitimer"):
        return _run_interrupted(function, limit_s)
    old_trace = sys.gettrace()
    old_handler = signal.signal(signal.SIGALRM, _stop)
    started = time.monotonic()
    old_left, old_repeat = signal.setitimer(signal.ITIMER_REAL, limit_s, _REPEAT_S)
    try:
        return function()
    finally:
        # `_stop` never raises in this frame, so nothing can come between these lines.
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.settrace(old_trace)
        signal.signal(signal.SIGALRM, old_handler)
        if old_left:  # someone else's timer, such as a test runner's: it goes on where it would be now
            left = max(old_left - (time.monotonic() - started), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left, old_repeat)


def _trace(frame: FrameType, event: str, argument: Any) -> Any:
    if event == "line":  # raising on any other event would only switch the trace off, inside the handler that swallows
        raise TimeLimitExceeded
    return _trace


def _stop(signal_number: int, frame: FrameType | None) -> None:
    inside = []
    while frame is not None and frame.f_code is not run_limited.__code__:
        inside.append(frame)
        frame = frame.f_back
    if frame is None or not inside:
        return
    for entered in inside:
        entered.f_trace = _trace
    sys.settrace(_trace)
    raise TimeLimitExceeded


def _run_interrupted(function: Callable[[], Result], limit_s: float) -> Result:
    is_over = threading.Event()

    def interrupt() -> None:
        is_over.set()
        signal.raise_signal(signal.SIGINT)

    timer = threading.Timer(limit_s, interrupt)
    timer.daemon = True
    timer.start()
    try:
        return function()
    except KeyboardInterrupt:
        if is_over.is_set():
            raise TimeLimitExceeded from None
        raise
    finally:
        timer.cancel()
        with contextlib.suppress(RuntimeError):
            timer.join(0.1)

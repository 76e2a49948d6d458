"""The grader's end: a warm parent for all submissions, a worker for each, questions and answers.

Nothing that a worker sends is trusted: a message is bounded, must answer the last question, and is decoded into
plain data. However a worker ends, `WorkerDied` says it in words for the learner.
"""

import concurrent.futures
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_lib.grading.observation import MalformedObservation, decode, encode
from course_lib.grading.sandbox import box, watch, wire
from course_lib.grading.sandbox.quotas import MIB, Limits

WARM_UP_S = 180.0
_MEMORY_EVERY_S = 0.1
_FIRST_USER = 1_000_000_000  # no account of any system


class WorkerDied(Exception):
    """The worker ended, or was ended; the text says why.

    Attributes:
        is_time: it ran out of time.
    """

    def __init__(self, reason: str, *, is_time: bool = False) -> None:
        super().__init__(reason)
        self.is_time = is_time


class Sandbox:
    """A warm parent, and the way to get workers from it. Not for several threads at once.

    Args:
        limits: of each submission.
        mode: `box.BUBBLEWRAP`, `box.OTHER_USER` (root only) or `box.NO_SANDBOX`.
        hidden: folders that no worker may see wherever they lie.
        syllabus: where the exercises are.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        mode: str = box.BUBBLEWRAP,
        hidden: tuple[Path, ...] = (),
        syllabus: str = "course_lib.exercises:SYLLABUS",
    ) -> None:
        self.limits = limits or Limits()
        self.mode = mode
        self._syllabus = syllabus
        self._command: list[str] = []
        self._is_root = os.geteuid() == 0
        self._user: int | None = None
        if mode == box.BUBBLEWRAP:
            package = Path(__file__).resolve().parents[2]
            covered = (package / "grading", package / "exercises", *hidden)
            self._command = box.bubblewrap_command(self.limits, covered, as_root=self._is_root)
        elif mode == box.OTHER_USER and not self._is_root:
            raise box.SandboxUnavailable("a separate user for workers needs root; run as root, or use bubblewrap.")
        if self._is_root and mode != box.NO_SANDBOX:
            self._user = _free_user()
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        # The next worker is made while this one works. In a thread that lives as long as the sandbox does:
        # bubblewrap dies with the thread that started it.
        self._maker: concurrent.futures.ThreadPoolExecutor | None = None
        self._next: concurrent.futures.Future | None = None

    def __enter__(self) -> "Sandbox":
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def start(self) -> None:
        """Starts the warm parent, unless it runs already.

        Raises:
            SandboxUnavailable: it, or the walls, cannot be had.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        box.Box(self._command).close()  # fail early, and with a good message
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "MPLBACKEND": "Agg",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": "/nonexistent",
            "MPLCONFIGDIR": box.shared_cache_folder(),
            "IPYTHONDIR": box.shared_cache_folder(),
        }
        line = [sys.executable, "-m", "course_lib.grading.sandbox.zygote", str(theirs.fileno()), self._syllabus]
        self._process = subprocess.Popen(
            line, pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, cwd="/", start_new_session=True,
        )  # fmt: skip
        theirs.close()
        ours.settimeout(WARM_UP_S)
        try:
            answer = ours.recv(16)
        except OSError:
            answer = b""
        if answer != b"ready":
            ours.close()
            self._process.kill()
            problem = self._process.communicate()[1].decode(errors="replace").strip()[-1500:]
            self._process = None
            raise box.SandboxUnavailable(f"the warm parent must be able to import the course; it said: {problem}")
        assert self._process.stderr
        self._process.stderr.close()
        ours.settimeout(None)
        self._control = ours

    def close(self) -> None:
        """Ends the warm parent, and the worker that nobody has asked for yet."""
        if self._maker is not None:
            if self._next is not None:
                with contextlib.suppress(Exception):
                    self._next.result().close()
                self._next = None
            self._maker.shutdown()
            self._maker = None
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def worker(self) -> "Session":
        """A fresh worker; close it."""
        self.start()
        if self.mode != box.BUBBLEWRAP:  # without walls of its own the next one would be ended with this one
            return self._make()
        if self._maker is None:
            self._maker = concurrent.futures.ThreadPoolExecutor(1)
        made = self._next or self._maker.submit(self._make)
        self._next = None
        session: Session = made.result()
        if not session.is_alive():
            session.close()
            session = self._maker.submit(self._make).result()
        self._next = self._maker.submit(self._make)
        return session

    def retire(self, session: "Session") -> None:
        """Closes a worker while the next one works already; its processes end at once all the same."""
        if self._maker is not None:
            self._maker.submit(session.close)
        else:
            session.close()

    def _make(self) -> "Session":
        assert self._control is not None
        return Session(self, self._control, self._user)

    def walls(self) -> box.Box:
        return box.Box(self._command)


def _free_user() -> int:
    """A user that has no process: with one a grader, limits on processes do not add up over graders."""
    candidate = _FIRST_USER + os.getpid()
    with open("/proc/self/uid_map") as file:
        mapped = [line.split() for line in file]
    is_mapped = any(int(first) <= candidate < int(first) + int(count) for first, _, count in mapped)
    return candidate if is_mapped else 60_000 + os.getpid() % 5_000


class Session:
    """One worker's life: `ask`, then read its replies, then `close`."""

    def __init__(self, sandbox: Sandbox, control: socket.socket, user: int | None) -> None:
        limits = self._limits = sandbox.limits
        self._user, self._mode = user, sandbox.mode
        self._folder = "/tmp"
        self._walls = sandbox.walls()
        self._remove = None
        if sandbox.mode != box.BUBBLEWRAP:
            self._folder = self._remove = box.private_folder()
        questions_out, self._questions = os.pipe()
        self._answers, answers_in = os.pipe()
        self._status, status_in = os.pipe()
        message = {
            "cpu_s": limits.submission_s,
            "user": user,
            "is_enclosed": sandbox.mode == box.BUBBLEWRAP,
            "folder": self._folder,
            "memory_mib": limits.memory_mib,
            "disk_mib": limits.disk_mib,
            "file_mib": limits.file_mib,
            "open_files": limits.open_files,
            "reply_mib": limits.reply_mib,
            # Without walls an ordinary user's limit would count everything that the user runs.
            "processes": limits.processes if sandbox.mode != box.NO_SANDBOX else 0,
        }
        handed = [questions_out, answers_in, status_in]
        namespaces = [] if self._walls.pidfd is None else [self._walls.pidfd]
        try:
            socket.send_fds(control, [json.dumps(message).encode()], [*handed, *namespaces])
        finally:
            for fd in handed:
                os.close(fd)
        os.set_blocking(self._questions, False)
        os.set_blocking(self._answers, False)
        self._pid = self._read_pid()
        self._started = time.monotonic()
        self._nonce, self._number = b"", 0
        self._next_look = 0.0
        self._wall_deadline = self._cpu_deadline = float("inf")
        self._limit_s = 0.0
        self._wait_for_hello()

    def _wait_for_hello(self) -> None:
        """The worker's first words come before any learner's code: without them the fault is ours."""
        self.allow(30.0)
        try:
            problem = wire.read_message(self._answers, bytes(wire.NONCE_BYTES), 0, 10_000, self._look).decode()
        except (wire.WireError, WorkerDied) as error:
            problem = str(error) or "nothing"
        if problem:
            self.close()
            raise box.SandboxUnavailable(f"a worker must be able to start; it said: {problem}")

    def _read_pid(self) -> int:
        line = _line(self._status, 20.0)
        if not line.isdigit():
            self.close()
            raise box.SandboxUnavailable(f"a worker must be able to enter its walls; it said: {line or 'nothing'}")
        return int(line)

    def is_alive(self) -> bool:
        """Whether nothing has been heard of its death."""
        return not _has_line(self._status)

    def ask(self, question: dict[str, Any]) -> None:
        """Sends a question; its replies are then read with `reply`."""
        self._nonce, self._number = secrets.token_bytes(wire.NONCE_BYTES), 0
        self.allow(60.0)
        try:
            wire.write_message(self._questions, wire.pack(self._nonce, 0, encode(question)), self._look)
        except wire.EndOfStream:
            raise WorkerDied(self._epitaph()) from None

    def allow(self, cpu_s: float) -> None:
        """From now on the worker may use so many seconds of processor time, and wall time in proportion."""
        self._limit_s = cpu_s
        self._cpu_deadline = watch.cpu_s(self._everyone()) + cpu_s
        self._wall_deadline = self._clock() + self._limits.wall_s(cpu_s)

    def _clock(self) -> float:
        """Wall time without the time that the worker stood in line: a busy machine costs nobody points."""
        return time.monotonic() - watch.waiting_s(self._pid)

    def reply(self) -> Any:
        """The next reply, decoded.

        Raises:
            WorkerDied: it died, ran out of something, or sent what is no reply.
        """
        return self._decoded(self.reply_bytes())

    def reply_bytes(self) -> bytes:
        """The next reply as it came."""
        try:
            body = wire.read_message(
                self._answers, self._nonce, self._number, self._limits.reply_mib * MIB + 4096, self._look
            )
        except wire.EndOfStream:
            raise WorkerDied(self._epitaph()) from None
        except wire.WireError as error:
            raise WorkerDied(f"your code wrote into the grader's channel: {error}") from None
        self._number += 1
        return body

    @staticmethod
    def _decoded(body: bytes) -> Any:
        try:
            return decode(body)
        except MalformedObservation as error:
            raise WorkerDied(f"your code wrote into the grader's channel: {error}") from None

    def _look(self) -> None:
        """Ends the worker when it has used up what it may use."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _MEMORY_EVERY_S
        if self._clock() > self._wall_deadline:
            raise WorkerDied(f"no end within {self._limits.wall_s(self._limit_s):g} seconds", is_time=True)
        if _has_line(self._status):
            raise WorkerDied(self._epitaph())
        everyone = self._everyone()
        if watch.cpu_s(everyone) > self._cpu_deadline:
            raise WorkerDied(f"no end within {self._limit_s:g} seconds of computing", is_time=True)
        allowed = self._limits.memory_mib * MIB + 512 * MIB  # what the warm parent shares with a worker
        if watch.resident_bytes(everyone) > allowed and watch.proportional_bytes(everyone) > allowed:
            raise WorkerDied(f"your code used more than {self._limits.memory_mib} MiB of memory")

    def _everyone(self) -> list[int]:
        """The worker and all that it started, orphans too."""
        roots = [self._pid] if self._walls.root_pid is None else [self._pid, self._walls.root_pid]
        return watch.descendants(roots)

    def _epitaph(self) -> str:
        line = _line(self._status, 2.0)
        if not line.lstrip("-").isdigit():
            return "your code closed the connection to the grader"
        status = int(line)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGXCPU:
                return "your code used up its processor time"
            name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
            words = {
                "SIGSEGV": "a segmentation fault",
                "SIGKILL": "killed, perhaps for lack of memory",
                "SIGABRT": "an abort in a library",
                "SIGBUS": "a bus error, perhaps a full disk",
            }
            return f"your code ended its process: {words.get(name, f'signal {name}')}"
        return f"your code ended its process with exit status {os.WEXITSTATUS(status)}"

    def close(self) -> None:
        """Ends the worker and everything that it started."""
        for fd in (self._questions, self._answers):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._walls.close()
        if self._mode == box.OTHER_USER and self._user is not None:
            box.end_processes_of(self._user)
        elif self._mode == box.NO_SANDBOX and hasattr(self, "_pid"):
            for pid in watch.descendants([self._pid]):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        if not _drained(self._status, 5.0):
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
        os.close(self._status)
        if self._remove:
            box.remove_folder(self._remove)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _bytes_until(fd: int, deadline: float) -> Iterator[bytes]:
    import select

    while (left := deadline - time.monotonic()) > 0 and select.select([fd], [], [], left)[0]:
        byte = os.read(fd, 1)
        if not byte:
            return
        yield byte


def _line(fd: int, timeout_s: float) -> str:
    """A line from the warm parent's child, which no learner's code can write to; empty when none comes."""
    data = b""
    for byte in _bytes_until(fd, time.monotonic() + timeout_s):
        if byte == b"\n":
            break
        data += byte
    return data.decode(errors="replace")


def _has_line(fd: int) -> bool:
    import select

    return bool(select.select([fd], [], [], 0)[0])


def _drained(fd: int, timeout_s: float) -> bool:
    """Whether the other side closed within the time: then the worker has been collected."""
    deadline = time.monotonic() + timeout_s
    for _ in _bytes_until(fd, deadline):
        pass
    return time.monotonic() < deadline

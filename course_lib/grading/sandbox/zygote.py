"""The warm parent: a program of its own that has imported everything, knows no secret, and forks workers.

Started as ``python -m course_lib.grading.sandbox.zygote SOCKET_FD SYLLABUS``. Over the socket come one message and
three or four file descriptors a worker: where its questions come from, where its answers go, where its death is
told, and the namespaces to enter. Nothing goes back but "ready", once.
"""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import warnings
from typing import Any

from course_lib.grading.sandbox import kernel
from course_lib.grading.sandbox.quotas import MIB

MESSAGE_BYTES = 1 << 16


def load_syllabus(place: str) -> Any:
    """The syllabus at ``module:attribute``."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def warm_up(place: str) -> Any:
    """Imports and runs once what workers would otherwise each import and run; returns the syllabus."""
    import torch

    # Before anything runs: a parent that ever ran a region of two threads makes its children hang in the next.
    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot
        import numpy
        from IPython.core.inputtransformer2 import TransformerManager

        import course_lib
        import course_lib.exercises
        import course_lib.grading

        TransformerManager().transform_cell("%pip install x\n1 + 1")
        numpy.random.default_rng(0)
        for package in (course_lib.grading, course_lib.exercises):
            # Their files cannot be read inside: whatever will be needed of them must be here already.
            for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                if not info.name.startswith(("course_lib.grading.batch", "course_lib.grading.exports")):
                    with contextlib.suppress(ImportError):  # an extra that is not installed
                        importlib.import_module(info.name)
        for word in course_lib.__all__:
            getattr(course_lib, word)
        syllabus = course_lib.exercises.SYLLABUS = load_syllabus(place)

        layer = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(layer.parameters())  # its first use imports a compiler: a second, 150 MB
        query = layer(torch.randn(1, 1, 8, 4))
        torch.nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
        optimizer.step()
        torch.linalg.norm(torch.randn(64, 64) @ torch.randn(64, 64).bfloat16().float())
    return syllabus


def _size_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _fork_worker(message: dict[str, Any], fds: list[int], syllabus: Any, size_bytes: int) -> None:
    """Runs in the warm parent's child, which enters the walls and tells how its own child, the worker, ends."""
    from course_lib.grading.sandbox import worker

    questions, answers, status, *namespaces = fds
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kernel.die_with_parent()
    os.setsid()
    if namespaces:
        kinds = kernel.ALL_BUT_USER | (0 if os.geteuid() == 0 else kernel.CLONE_NEWUSER)
        kernel.setns(namespaces[0], kinds)
        os.close(namespaces[0])
        os.chdir("/tmp")
        with contextlib.suppress(OSError):
            for folder in ("/tmp", "/dev/shm"):
                kernel.remount_tmpfs(folder, message["disk_mib"] * MIB, 16 * message["disk_mib"])
    child = os.fork()
    if child == 0:
        os.close(status)
        worker.main(questions, answers, message, syllabus, size_bytes)
        os._exit(0)
    os.close(questions)
    os.close(answers)
    os.write(status, f"{child}\n".encode())
    _, how = os.waitpid(child, 0)
    os.write(status, f"{how}\n".encode())
    os._exit(0)


def serve(control: socket.socket, syllabus: Any) -> None:
    """Forks a worker for each message until the other side closes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are collected by the kernel
    size_bytes = _size_bytes()
    while True:
        data, fds, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 4)
        if not data:
            return
        if os.fork() == 0:
            try:
                control.close()
                _fork_worker(json.loads(data), list(fds), syllabus, size_bytes)
            except BaseException as error:
                with contextlib.suppress(OSError):
                    os.write(fds[2], f"failed {type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)


def main() -> None:
    kernel.die_with_parent()
    control = socket.socket(fileno=int(sys.argv[1]))
    syllabus = warm_up(sys.argv[2])
    gc.collect()
    gc.freeze()  # children then do not copy the pages of what was imported by counting it
    control.send(b"ready")
    serve(control, syllabus)


if __name__ == "__main__":
    main()

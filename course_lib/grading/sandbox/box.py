"""The walls around one worker: a bubblewrap of its own, or less where that cannot be had.

Bubblewrap does all the mounting and then runs `cat`, which waits until the grader closes its input. The worker is
forked elsewhere, from the warm parent, and enters the namespaces of that `cat`. When `cat` ends, the kernel
kills everything inside.
"""

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from course_lib.data_files import PACKAGE, data_directories
from course_lib.grading.sandbox.quotas import MIB, Limits

BUBBLEWRAP, OTHER_USER, NO_SANDBOX = "bubblewrap", "user", "none"
MODES = (BUBBLEWRAP, OTHER_USER, NO_SANDBOX)

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "fonts", "alternatives", "mime.types")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_INSIDE_USER = 65534
_START_S = 20.0

HOW_TO_INSTALL = (
    "Install it: `apt install bubblewrap` (Debian, Ubuntu), `dnf install bubblewrap` (Fedora), "
    "`pacman -S bubblewrap` (Arch). It exists for Linux only; on Windows use WSL 2."
)
HOW_TO_ALLOW = (
    "Ubuntu from 23.10 on keeps ordinary users from it until an AppArmor profile allows it: "
    "`sudo apt install apparmor-profiles && sudo ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict "
    "/etc/apparmor.d/ && sudo systemctl reload apparmor`. A Docker container must be started with "
    "`--security-opt seccomp=unconfined --security-opt apparmor=unconfined` or with `--privileged`."
)


class SandboxUnavailable(RuntimeError):
    """The sandbox cannot be built here; the message says why and what to do."""


def _parents(path: Path) -> list[Path]:
    return [parent for parent in reversed(path.parents) if parent != Path("/")]


def visible_paths() -> list[Path]:
    """What a worker may read: the system's programs, Python, its libraries, and the course's package and data."""
    wanted = [Path(name) for name in _SYSTEM]
    wanted += [Path("/etc") / name for name in _SETTINGS]
    wanted += [Path(prefix) for prefix in (sys.base_prefix, sys.base_exec_prefix, sys.prefix)]
    wanted += [Path(sys.executable).resolve().parent.parent, PACKAGE, *data_directories()]
    if site.ENABLE_USER_SITE:
        wanted.append(Path(site.getusersitepackages()))
    kept: list[Path] = []
    for path in wanted:
        if path.exists() and path != Path("/") and not any(path == k or k in path.parents for k in kept):
            kept.append(path)
    return kept


def bubblewrap_command(limits: Limits, hidden: tuple[Path, ...] = (), *, as_root: bool) -> list[str]:
    """The command line of the walls.

    Args:
        hidden: folders that are covered by empty ones where they lie inside something visible.
        as_root: the grader runs as root; then the worker becomes another user, and needs no user namespace.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxUnavailable(f"grading needs bubblewrap (the program `bwrap`); found none. {HOW_TO_INSTALL}")
    size = str(limits.disk_mib * MIB)
    line = [program, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if as_root:
        line += ["--cap-drop", "ALL"]
    else:
        line += ["--unshare-user", "--uid", str(_INSIDE_USER), "--gid", str(_INSIDE_USER)]
    line += ["--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"]
    made: set[Path] = set()

    def make_parents(path: Path) -> None:
        # A parent that bubblewrap makes by itself has mode 0700, and is a wall for another user.
        for parent in _parents(path):
            if parent not in made:
                made.add(parent)
                line.extend(["--dir", str(parent)])

    visible = visible_paths()
    for path in visible:
        make_parents(path)
        if path.is_symlink() and path.parent == Path("/"):
            line += ["--symlink", os.readlink(path), str(path)]
        else:
            line += ["--ro-bind", str(path), str(path)]
            made.add(path)
    line += ["--proc", "/proc", "--dir", "/dev"]
    for name in _DEVICES:
        line += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for link, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1")):
        line += ["--symlink", target, f"/dev/{link}"]
    for writable in ("/tmp", "/dev/shm"):
        line += ["--perms", "1777", "--size", size, "--tmpfs", writable]
    # What lies below a covered /tmp must be mounted again: a virtual environment, for example.
    for path in visible:
        if Path("/tmp") in path.parents:
            for parent in _parents(path)[1:]:
                line += ["--dir", str(parent)]
            line += ["--ro-bind", str(path), str(path)]
    for path in hidden:
        if path.is_dir() and any(path == seen or seen in path.parents for seen in visible):
            line += ["--perms", "0755", "--tmpfs", str(path), "--remount-ro", str(path)]
    return [*line, "--remount-ro", "/", "--chdir", "/tmp", "--", "/bin/cat"]


class Box:
    """The walls around one worker, standing until `close`.

    Attributes:
        pidfd: of a process whose namespaces the worker must enter, or None.
        root_pid: that process's parent inside, to which orphans fall, or None.
    """

    def __init__(self, command: list[str]) -> None:
        self.pidfd: int | None = None
        self.root_pid: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if not command:
            return
        status_out, status_in = os.pipe()
        try:
            self._process = subprocess.Popen(
                [command[0], "--json-status-fd", str(status_in), *command[1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[status_in],
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
            )
            os.close(status_in)
            self._wait_until_ready(status_out)
        finally:
            os.close(status_out)

    def _wait_until_ready(self, status: int) -> None:
        process = self._process
        assert process and process.stdin and process.stdout and process.stderr
        try:
            process.stdin.write(b"\n")
            process.stdin.flush()
            ready = process.stdout.read(1)
        except OSError:
            ready = b""
        if ready != b"\n":
            problem = process.stderr.read(2000).decode(errors="replace").strip()
            self.close()
            raise SandboxUnavailable(f"bubblewrap must be able to start here; it said: {problem} {HOW_TO_ALLOW}")
        self.root_pid = int(json.loads(os.read(status, 4096).splitlines()[0])["child-pid"])
        self.pidfd = os.pidfd_open(self.root_pid)

    def close(self) -> None:
        """Ends everything inside."""
        process = self._process
        if process is None:
            return
        if self.pidfd is not None:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.close(self.pidfd)
            self.pidfd = None
        for stream in (process.stdin, process.stdout, process.stderr):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass
        try:
            process.wait(_START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None


def end_processes_of(user: int) -> None:
    """Kills every process of a user that only a worker has; for `OTHER_USER`, where no kernel does it for us."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        subprocess.run(["/bin/sh", "-c", "kill -9 -1"], user=user, group=user, extra_groups=[], env={}, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")  # fmt: skip
        if not any(_owner(pid) == user for pid in os.listdir("/proc") if pid.isdigit()):
            return
        time.sleep(0.01)


def _owner(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/status") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
        return None if lines["State"].split()[0] == "Z" else int(lines["Uid"].split()[0])
    except (OSError, KeyError, ValueError):
        return None


def private_folder() -> str:
    """A folder for a worker that has no `/tmp` of its own."""
    path = tempfile.mkdtemp(prefix="sixteen-bytes-")
    os.chmod(path, 0o1777)
    return path


def remove_folder(path: str) -> None:
    """Removes a worker's folder, whatever it made of it."""
    shutil.rmtree(path, ignore_errors=True)


def shared_cache_folder() -> str:
    """Where the warm parent's libraries may keep caches, such as the list of fonts."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(base, "sixteen-bytes")
    try:
        os.makedirs(path, exist_ok=True)
        return path
    except OSError:
        return tempfile.gettempdir()


def check_walls(limits: Limits) -> None:
    """Builds the walls once and takes them down.

    Raises:
        SandboxUnavailable: they cannot be built here.
    """
    Box(bubblewrap_command(limits, as_root=os.geteuid() == 0)).close()

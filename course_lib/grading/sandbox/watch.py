"""How much processor time and memory a worker and all its descendants use, read from `/proc`."""

import os

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pids: list[int]) -> float:
    """Processor seconds of the processes so far, with those of children that have ended; 0 for what is gone."""
    total = 0.0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15]) / _TICKS
    return total


def waiting_s(pid: int) -> float:
    """Seconds that a process was ready to run while others had the processor."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def descendants(pids: list[int]) -> list[int]:
    """The processes and all that they started."""
    found: list[int] = []
    todo = list(pids)
    while todo and len(found) < 10_000:
        pid = todo.pop()
        found.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children") as file:
                    todo.extend(int(child) for child in file.read().split())
        except OSError:
            continue
    return found


def resident_bytes(pids: list[int]) -> int:
    """Resident memory of the processes together, pages that several share counted for each."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as file:
                total += int(file.read().split()[1]) * _PAGE
        except (OSError, IndexError):
            continue
    return total


def proportional_bytes(pids: list[int]) -> int:
    """Memory of the processes together, shared pages divided among those that share them; slower to read."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
        except OSError:
            total += resident_bytes([pid])
    return total

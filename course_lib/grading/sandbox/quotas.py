"""What one submission may use. Every field is an option of `course grade`."""

import dataclasses
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """Hard limits on one submission's processes.

    Attributes:
        cell_cpu_s: processor time of one cell of the notebook.
        cpu_factor: an exercise may use its own time limit, in processor seconds, times this.
        wall_factor, wall_slack_s: wall time allowed for so much processor time, since machines are shared.
        submission_s: wall time of a whole submission.
        memory_mib: what a process may allocate beyond the warm parent, and what all together may hold.
        processes: processes and threads.
        disk_mib: each of the two writable folders, `/tmp` and `/dev/shm`.
        file_mib: one file.
        open_files: open files of one process.
        reply_mib: one reply to the grader.
    """

    cell_cpu_s: float = 20.0
    cpu_factor: float = 1.5
    wall_factor: float = 4.0
    wall_slack_s: float = 5.0
    submission_s: float = 600.0
    memory_mib: int = 3072
    processes: int = 64
    disk_mib: int = 256
    file_mib: int = 256
    open_files: int = 256
    reply_mib: int = 64

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ValueError(f"{field.name} must be more than 0; got {value!r}.")

    def wall_s(self, cpu_s: float) -> float:
        """Wall time after which code that may use `cpu_s` processor seconds is stopped, even if it only waits."""
        return cpu_s * self.wall_factor + self.wall_slack_s

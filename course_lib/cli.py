"""The `course` command. Each command lives in its own module of `course_lib.commands` and is imported when called."""

from __future__ import annotations

import importlib
import importlib.util

import click

# name: (module in course_lib.commands, the line that `course --help` shows)
COMMANDS = {
    "lab": ("lab", "Open the course in JupyterLab."),
    "doctor": ("doctor", "Say what this machine can do, and what to do about it."),
    "check": ("check", "Grade your own notebooks and print the points."),
    "memory": ("memory", "Predict the memory of a training step, without a GPU."),
    "grade": ("grade", "Grade many submissions in a sandbox."),
    "export": ("export", "Turn grades into a gradebook's format."),
    "release": ("release", "Make the edition that learners or a grading system get."),
    "notebooks": ("notebooks", "Execute, solve and verify the course's notebooks."),
    "record": ("record", "Measure on this machine's GPU what others can only look up."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, so that `course --help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (module, _) in COMMANDS.items() if _exists(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS or not _exists(COMMANDS[cmd_name][0]):
            return None
        module = importlib.import_module(f"course_lib.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _exists(module: str) -> bool:
    return importlib.util.find_spec(f"course_lib.commands.{module}") is not None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sixteen-bytes", prog_name="course")
def main() -> None:
    """Sixteen Bytes: where the bytes go when you train a neural network."""


if __name__ == "__main__":
    main()

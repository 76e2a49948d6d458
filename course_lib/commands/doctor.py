"""`course doctor`: what this machine can do."""

from __future__ import annotations

import json

import click


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
def command(as_json: bool) -> None:
    """Say what this machine can do (GPU, bfloat16, memory, versions) and what to do about it."""
    from course_lib import machine

    facts = machine.report()
    if as_json:
        click.echo(json.dumps(facts | {"advice": machine.advice(facts)}, indent=1))
    else:
        click.echo(machine.describe(facts))

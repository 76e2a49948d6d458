"""`course memory`: will a training step fit on a GPU, and what to try next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from course_lib.memory.forecast import Forecast


@click.command("memory")
@click.argument("model")
@click.option("--gpu", default="T4", show_default=True, help="A row of data/gpus.csv.")
@click.option("--batch", default=1, show_default=True, type=click.IntRange(min=1), help="Sequences in a micro-batch.")
@click.option("--seq", default=1024, show_default=True, type=click.IntRange(min=1), help="Tokens in a sequence.")
@click.option(
    "--precision",
    default="fp32",
    show_default=True,
    type=click.Choice(["fp32", "fp16", "bf16"]),
    help="fp16 and bf16: autocast over float32 weights.",
)
@click.option("--checkpoint", default="none", show_default=True, type=click.Choice(["none", "blocks"]))
@click.option("--attention", default="sdpa", show_default=True, type=click.Choice(["naive", "sdpa"]))
@click.option("--optimizer", default="adamw", show_default=True, type=click.Choice(["adamw", "adamw8bit", "sgd"]))
@click.option(
    "--micro-batches", default=1, show_default=True, type=click.IntRange(min=1), help="Accumulated for a step."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(model: str, gpu: str, batch: int, seq: int, micro_batches: int, as_json: bool, **choices: str) -> None:
    """Predict the memory of one training step, without a GPU.

    MODEL is a row of data/models.csv (gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-3-8b, qwen3-8b, gpt3) or the path of a
    Hugging Face config.json.
    """
    from course_lib.memory.forecast import Setup, forecast
    from course_lib.memory.gpus import find_gpu
    from course_lib.memory.models import find_model

    try:
        setup = Setup(find_model(model), find_gpu(gpu), batch=batch, seq=seq, micro_batches=micro_batches, **choices)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    result = forecast(setup)
    if as_json:
        click.echo(json.dumps(to_json(result), indent=1))
    else:
        click.echo("\n".join(to_text(result)))


def settings(setup: Any) -> dict[str, Any]:
    """The options of a setup, as on the command line."""
    names = ("batch", "seq", "precision", "checkpoint", "attention", "optimizer", "micro_batches")
    return {"model": setup.model.name, "gpu": setup.gpu.name, **{name: getattr(setup, name) for name in names}}


def to_json(result: Forecast) -> dict[str, Any]:
    """Plain data: the setup, its bytes, where it fails, and the advice with bytes of its own."""
    from course_lib.memory.table import as_json

    error = result.error
    return {
        "setup": settings(result.setup),
        "parameters": result.setup.model.parameters,
        **as_json(result.report),
        "out_of_memory": error
        and {
            "operation": error.operation,
            "phase": error.phase,
            "module": error.module,
            "requested_bytes": error.requested_bytes,
            "free_bytes": error.free_bytes,
            "message": str(error),
        },
        "advice": [
            {
                "change": advice.change,
                "cost": advice.cost,
                "setup": settings(advice.setup),
                "peak_bytes": advice.report.peak_bytes,
                "fits": advice.report.fits,
            }
            for advice in result.advice
        ],
    }


def to_text(result: Forecast) -> list[str]:
    """Lines for the terminal."""
    from course_lib.memory.errors import describe_bytes
    from course_lib.memory.table import describe

    setup, report = result.setup, result.report
    lines = [
        f"{setup.model.name}: {setup.model.parameters / 1e6:,.1f} million parameters, "
        f"{setup.micro_batches} x batch {setup.batch} x {setup.seq} tokens, {setup.precision}, "
        f"checkpoint {setup.checkpoint}, attention {setup.attention}, {setup.optimizer}",
        *describe(report),
    ]
    if report.fits:
        spare = (report.capacity_bytes or 0) - report.peak_bytes
        barely = ", which the CUDA context and fragmentation may need" if spare < 0.05 * report.peak_bytes else ""
        lines.append(f"fits {setup.gpu.name}: {describe_bytes(spare)} to spare{barely}.")
    else:
        assert result.error is not None
        where = f" in {result.error.module}" if result.error.module else ""
        lines += [
            f"does not fit {setup.gpu.name}: {result.error.operation}{where} ({result.error.phase}) asks for "
            f"{describe_bytes(result.error.requested_bytes)}, {describe_bytes(result.error.free_bytes)} is free.",
            "what to try, cheapest first, each on top of the ones before:",
        ]
        for advice in result.advice:
            verdict = "fits" if advice.report.fits else "still too much"
            peak = describe_bytes(advice.report.peak_bytes)
            lines.append(f"  {advice.change:<34}{peak:>12}  {verdict:<15} cost: {advice.cost}")
        if not result.advice or not result.advice[-1].report.fits:
            lines.append("  then: a chunked loss, sharding over several GPUs (FSDP), offload, or a larger GPU")
    lines.append("Bytes of tensor storage. Not counted: the CUDA context, kernels' workspaces, fragmentation.")
    return lines

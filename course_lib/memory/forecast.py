"""Will it fit? One training step of a model by name, and what to try next when it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional as F

from course_lib.memory.decoder import Decoder
from course_lib.memory.dry_run import dry_run
from course_lib.memory.errors import SimulatedOutOfMemoryError
from course_lib.memory.gpus import Gpu, find_gpu
from course_lib.memory.models import ModelConfig
from course_lib.memory.report import MemoryReport

PRECISIONS = ("fp32", "fp16", "bf16")
CHECKPOINTS = ("none", "blocks")
ATTENTIONS = ("naive", "sdpa")
OPTIMIZERS = ("adamw", "adamw8bit", "sgd")
MAX_ELEMENTS = 2**59  # of one tensor: PyTorch counts its bytes in 63 bits


@dataclass(frozen=True)
class Setup:
    """One configuration of a training step.

    Attributes:
        model: its shape.
        gpu: where it should fit.
        batch, seq: sequences of a micro-batch, tokens of a sequence.
        precision: "fp32", or autocast to "fp16" (with a GradScaler) or "bf16" over float32 weights.
        checkpoint: "none" or "blocks" (each block recomputed in backward).
        attention: "naive" (every score stored) or "sdpa".
        optimizer: "adamw", "adamw8bit" or "sgd" (no momentum).
        micro_batches: of `batch` sequences each, whose gradients add up before a step.
    """

    model: ModelConfig
    gpu: Gpu
    batch: int = 1
    seq: int = 1024
    precision: str = "fp32"
    checkpoint: str = "none"
    attention: str = "sdpa"
    optimizer: str = "adamw"
    micro_batches: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpu", find_gpu(self.gpu))
        for name, allowed in (
            ("precision", PRECISIONS),
            ("checkpoint", CHECKPOINTS),
            ("attention", ATTENTIONS),
            ("optimizer", OPTIMIZERS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}.")
        for name in ("batch", "seq", "micro_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more; got {getattr(self, name)}.")
        if self.seq > self.model.positions:
            raise ValueError(
                f"seq must be at most {self.model.positions}, what {self.model.name} was made for; got {self.seq}."
            )
        model = self.model
        widest = max(model.vocab, 3 * model.heads * model.head_dim, model.mlp_hidden, model.heads * self.seq)
        largest = MAX_ELEMENTS // (self.seq * widest)
        if self.batch > largest:
            raise ValueError(f"batch must be at most {largest:,} for {self.seq} tokens; got {self.batch}.")
        if self.precision == "bf16" and not self.gpu.has_bf16:
            raise ValueError(
                f"precision bf16 needs compute capability 8.0; {self.gpu.name} has "
                f"{'.'.join(map(str, self.gpu.capability))}. Use fp16."
            )


class BlockwiseAdamW(torch.optim.Optimizer):
    """Bytes of an 8-bit AdamW: two moments of one byte each, and a float32 scale for each block of 256 entries.

    Works parameter by parameter, as bitsandbytes does. Tensors below 4,096 entries keep float32 moments.
    Source: Dettmers et al. 2022 (arXiv 2110.02861), section 2; bitsandbytes 0.50.1, `min_8bit_size` 4096.
    """

    BLOCK, MIN_SIZE = 256, 4096

    def __init__(self, params: Any, lr: float = 1e-4) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update, in bytes only."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    size = parameter.numel()
                    is_small = size < self.MIN_SIZE
                    for name in ("exp_avg", "exp_avg_sq"):
                        state[name] = torch.zeros_like(parameter, dtype=torch.float32 if is_small else torch.uint8)
                        if not is_small:
                            blocks = -(-size // self.BLOCK)
                            state[name + "_scale"] = torch.zeros(blocks, device=parameter.device)
                parameter.add_(parameter.grad, alpha=-group["lr"])


def _make_optimizer(name: str, parameters: Any) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-4)
    if name == "adamw8bit":
        return BlockwiseAdamW(parameters)
    return torch.optim.SGD(parameters, lr=1e-4)


def measure(setup: Setup, *, stop_when_full: bool = False) -> MemoryReport:
    """Dry run of one step of `setup`."""
    low = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(setup.precision)

    def build() -> tuple[Any, ...]:
        model = Decoder(
            setup.model, attention=setup.attention, is_checkpointed=setup.checkpoint == "blocks", dtype=torch.float32
        )
        scaler = torch.amp.GradScaler("cuda", enabled=setup.precision == "fp16")
        tokens = torch.zeros(setup.batch, setup.seq + 1, dtype=torch.long, device="cuda")
        return model, _make_optimizer(setup.optimizer, model.parameters()), scaler, tokens

    def step(model: Any, optimizer: Any, scaler: Any, tokens: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        # Gradients are alive during the second forward pass; a third changes nothing.
        for _ in range(min(2, setup.micro_batches)):
            with torch.autocast("cuda", low or torch.float16, enabled=low is not None):
                loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            scaler.scale(loss).backward()
            del loss
        scaler.step(optimizer)
        scaler.update()

    return dry_run(build, step, gpu=setup.gpu, stop_when_full=stop_when_full)


@dataclass(frozen=True)
class Forecast:
    """What one setup needs, and, if it does not fit, where it fails and what was tried.

    Attributes:
        setup: what was asked.
        report: the whole step, measured without a limit.
        error: the operation that does not fit; None when everything fits.
        advice: changes in order of cost, each with its own report; empty when it fits.
    """

    setup: Setup
    report: MemoryReport
    error: SimulatedOutOfMemoryError | None
    advice: list[Advice]


@dataclass(frozen=True)
class Advice:
    """One change on top of the earlier ones, and the bytes after it."""

    change: str
    cost: str
    setup: Setup
    report: MemoryReport


def forecast(setup: Setup) -> Forecast:
    """Measure `setup`; where it does not fit, add one tool after another, cheapest first, until it does."""
    report = measure(setup)
    if report.fits:
        return Forecast(setup, report, None, [])
    error = None
    try:
        measure(setup, stop_when_full=True)
    except SimulatedOutOfMemoryError as caught:
        error = caught
    return Forecast(setup, report, error, _advise(setup))


def _advise(setup: Setup) -> list[Advice]:
    advice: list[Advice] = []
    low = "bf16" if setup.gpu.has_bf16 else "fp16"
    cheaper_steps: list[tuple[str, Setup]] = []

    def then(cost: str, **changes: Any) -> None:
        changed = replace(cheaper_steps[-1][1] if cheaper_steps else setup, **changes)
        if changed != (cheaper_steps[-1][1] if cheaper_steps else setup):
            cheaper_steps.append((cost, changed))

    def split(batch: int) -> dict[str, int]:
        return {"batch": batch, "micro_batches": -(-setup.batch * setup.micro_batches // batch)}

    if setup.precision == "fp32":
        then("none: it is faster", precision=low)
    then("none: it is faster", attention="sdpa")
    then("smaller matrix products", **split(max(1, setup.batch // 2)))
    then("a quarter to a third more FLOPs", checkpoint="blocks")
    then("smaller matrix products", **split(1))
    if setup.optimizer == "adamw":
        then("rounded optimizer state", optimizer="adamw8bit")

    before = setup
    for cost, changed in cheaper_steps:
        report = measure(changed)
        advice.append(Advice(_options_that_differ(before, changed), cost, changed, report))
        before = changed
        if report.fits:
            break
    return advice


def _options_that_differ(before: Setup, after: Setup) -> str:
    names = ("precision", "attention", "batch", "micro_batches", "checkpoint", "optimizer")
    return " ".join(
        f"--{name.replace('_', '-')} {getattr(after, name)}"
        for name in names
        if getattr(before, name) != getattr(after, name)
    )

"""A plan for making a training step fit, and the judge: a dry run for its memory, a roofline model for its time."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from course_lib.memory import GPUS, SimulatedOutOfMemoryError, dry_run
from course_lib.nanogpt import GPT, GPTConfig

from .capstone import capstone_step
from .eight_bit import AdamW8bit

if TYPE_CHECKING:
    from course_lib.memory import MemoryReport

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
OPTIMIZERS = ("adamw", "adamw8bit")
PCIE_BYTES_PER_S = 12e9  # PCIe 3.0 x16 carries 15.75 GB/s on paper; a constant of the model, not a measurement


@dataclass(frozen=True)
class Plan:
    """How one training step is to be run.

    Attributes:
        precision: "fp32", or autocast to "fp16" (with a loss scaler) or "bf16"; the weights stay fp32.
        attention: "naive" stores the T×T scores, "sdpa" does not.
        micro_batch, accumulation: sequences in one forward pass, and how many such passes make a step.
        checkpoint_blocks: the first so many blocks are computed again in backward.
        chunk_tokens: tokens whose logits exist at the same time; 0 means all of them.
        optimizer: "adamw" or "adamw8bit".
        offload: "none", or "activations": what autograd keeps waits in the CPU's memory.
        weight_cast_cache: autocast keeps its 16-bit copies of the weights from forward to backward (PyTorch's default).
    """

    precision: str = "fp32"
    attention: str = "naive"
    micro_batch: int = 1
    accumulation: int = 1
    checkpoint_blocks: int = 0
    chunk_tokens: int = 0
    optimizer: str = "adamw"
    offload: str = "none"
    weight_cast_cache: bool = True


@dataclass(frozen=True)
class Level:
    """One task of `fit_on_gpu`: a model, a GPU, a global batch, and the switches that may be turned.

    Attributes:
        name, title, lesson: how it is called, and the tool that it teaches, in a sentence.
        config: the model; sequences are `config.block_size` tokens long.
        gpu: a name of `course_lib.memory.GPUS`.
        global_batch: sequences in one optimizer step; a plan has to keep it.
        choices: for each field of `Plan`, the values allowed here; a field that is not named keeps its default.
        without_tool: fields and values of a plan that leaves out the level's tool.
        par: the slowdown of the best plan that fits.
    """

    name: str
    title: str
    lesson: str
    config: GPTConfig
    gpu: str
    global_batch: int
    choices: dict[str, tuple] = field(hash=False)
    without_tool: dict[str, Any] = field(hash=False)
    par: float

    def plans(self) -> Iterator[Plan]:
        """All plans of this level that keep the global batch."""
        names = [name for name in self.choices if name != "accumulation"]
        for values in itertools.product(*(self.choices[name] for name in names)):
            plan = Plan(**dict(zip(names, values, strict=True)))
            if self.global_batch % plan.micro_batch == 0:
                yield replace(plan, accumulation=self.global_batch // plan.micro_batch)


@dataclass(frozen=True)
class Trial:
    """What became of a plan.

    Attributes:
        plan: the plan.
        problem: why it does not work, in a sentence; "" when it fits.
        kind: "" or one of "not_a_plan", "not_allowed", "global_batch", "no_bf16", "out_of_memory".
        report: bytes over the step (None when there was nothing to run).
        seconds: the step's predicted time by part (a model, see `predicted_seconds`).
        slowdown: predicted time over that of a GPU with endless memory.
        score: par / slowdown, at most 1; 0 when it does not fit.
    """

    plan: Plan
    problem: str = ""
    kind: str = ""
    report: MemoryReport | None = None
    seconds: dict[str, float] = field(default_factory=dict, hash=False)
    slowdown: float = 0.0
    score: float = 0.0

    @property
    def fits(self) -> bool:
        return not self.problem


def make_optimizer(model: torch.nn.Module, plan: Plan, lr: float = 3e-4) -> torch.optim.Optimizer:
    """The plan's optimizer."""
    if plan.optimizer == "adamw8bit":
        return AdamW8bit(model.parameters(), lr=lr)
    return torch.optim.AdamW(model.parameters(), lr=lr)


def step_report(
    config: GPTConfig, plan: Plan, gpu: str | None, step: Any = capstone_step, *, stop_when_full: bool = True
) -> MemoryReport:
    """Dry run of one step under a plan: two micro-batches stand for any larger number of them.

    From the second micro-batch on the gradients are there during forward; a third changes nothing more.
    """
    sequences = plan.micro_batch * min(2, plan.accumulation)

    def build() -> tuple:
        model = GPT(replace(config, attention=plan.attention))
        tokens = torch.randint(config.vocab_size, (sequences, config.block_size))
        scaler = torch.amp.GradScaler("cpu", enabled=plan.precision == "fp16")
        return model, make_optimizer(model, plan), scaler, tokens, tokens.clone()

    def run(model: Any, optimizer: Any, scaler: Any, tokens: Any, targets: Any) -> None:
        step(model, optimizer, scaler, tokens, targets, replace(plan, accumulation=min(2, plan.accumulation)))

    return dry_run(build, run, gpu=gpu, stop_when_full=stop_when_full)


def block_parameters(config: GPTConfig) -> int:
    """Weights of the blocks' matrices: 12 L h^2."""
    return 12 * config.n_layer * config.n_embd**2


def predicted_seconds(level: Level, plan: Plan) -> dict[str, float]:
    """A step's time by a roofline model, part by part: never a measurement, good for comparing plans.

    Each part takes the longer of its FLOPs at the GPU's peak rate and its traffic at the GPU's bandwidth; parts add up.
    L layers, h width, a heads, s tokens a sequence, T tokens a step, V vocabulary, w bytes an activation (2 or 4):

    - blocks: 72 L h^2 T FLOPs (2 a weight and token forward, 4 backward), a third more for recomputed blocks; each kept
      byte (about 17 w h a token and block) is written and read once;
    - attention: 12 L h s T FLOPs, half of it where a fused kernel skips the masked half; the naive scores travel 10 times
      (4 forward, 6 backward), w a s bytes a token and block; a recomputed block runs attention forward again;
    - head: 6 V h T FLOPs, 2 V h T more when chunks are computed twice; 24 V bytes a token;
    - weights: for each micro-batch, casts (6 bytes a parameter under autocast) and gradients added up (14 or 16 bytes);
      without autocast's cache, recomputed blocks cast once more;
    - optimizer: 28 bytes a parameter for AdamW (four read, three written), 16 with 8-bit moments;
    - offload: what the blocks keep goes over PCIe and comes back.
    """
    c, gpu, dtype = level.config, GPUS[level.gpu], DTYPES[plan.precision]
    w = dtype.itemsize
    tokens = level.global_batch * c.block_size
    micro_batches = tokens // (plan.micro_batch * c.block_size)
    again = plan.checkpoint_blocks / c.n_layer  # share of the blocks that run forward twice
    n = block_parameters(c) + c.vocab_size * c.n_embd + c.block_size * c.n_embd

    def roofline(flops: float, n_bytes: float) -> float:
        return max(flops / gpu.peak_flops(dtype), n_bytes / gpu.bandwidth_bytes_per_s)

    kept = 17 * w * c.n_embd * c.n_layer * tokens
    scores = w * c.n_head * c.block_size * c.n_layer * tokens if plan.attention == "naive" else 0
    masked = 1.0 if plan.attention == "naive" else 0.5
    attention_flops = 12 * c.n_layer * c.n_embd * c.block_size * tokens * masked
    offloaded = kept * (1 - again) + 2 * scores * (1 - again) + again * w * c.n_embd * c.n_layer * tokens
    casts = 0 if plan.precision == "fp32" else 6 * (1 if plan.weight_cast_cache else 1 + again)
    return {
        "blocks": roofline(6 * block_parameters(c) * tokens * (1 + again / 3), 2 * kept),
        "attention": roofline(attention_flops * (1 + again / 3), scores * (10 + 4 * again)),
        "head": roofline(
            (8 if plan.chunk_tokens else 6) * c.vocab_size * c.n_embd * tokens, 24 * c.vocab_size * tokens
        ),
        "weights": micro_batches * n * (casts + 12 + w) / gpu.bandwidth_bytes_per_s,
        "optimizer": n * (16 if plan.optimizer == "adamw8bit" else 28) / gpu.bandwidth_bytes_per_s,
        "offload": 2 * offloaded / PCIE_BYTES_PER_S if plan.offload == "activations" else 0.0,
    }


def fastest_seconds(level: Level) -> float:
    """The step's predicted time on this GPU if memory had no end: one pass, nothing computed twice."""
    precision = "bf16" if GPUS[level.gpu].has_bf16 else "fp16"
    return sum(predicted_seconds(level, Plan(precision, "sdpa", level.global_batch, 1)).values())


def plan_problem(level: Level, plan: object) -> tuple[str, str]:
    """(kind, sentence) when the plan is none of this level's, else two empty strings."""
    if not isinstance(plan, Plan):
        return "not_a_plan", f"fit_on_gpu must return a Plan; got {type(plan).__name__}. Write `return Plan(...)`."
    for entry in fields(Plan):
        value: Any = getattr(plan, entry.name)
        default: Any = entry.default
        if type(value) is not type(default):
            return "not_a_plan", f"{entry.name} must be {type(default).__name__}; got {value!r}."
        if entry.name == "precision" and value == "bf16" and not GPUS[level.gpu].has_bf16:
            return (
                "no_bf16",
                f'precision must be "fp32" or "fp16" on a {level.gpu}, which has no bf16 units; got "bf16".',
            )
        if entry.name == "accumulation":
            if value < 1:
                return "not_a_plan", f"accumulation must be at least 1; got {value}."
        elif value not in level.choices.get(entry.name, (default,)):
            allowed = ", ".join(repr(choice) for choice in level.choices.get(entry.name, (default,)))
            return "not_allowed", f"{entry.name} must be one of {allowed} on this level; got {value!r}."
    if plan.micro_batch * plan.accumulation != level.global_batch:
        got = plan.micro_batch * plan.accumulation
        return "global_batch", (
            f"micro_batch × accumulation must be {level.global_batch} sequences, the global batch; got "
            f"{plan.micro_batch} × {plan.accumulation} = {got}."
        )
    return "", ""


def try_plan(level: Level, plan: object) -> Trial:
    """Judges a plan: allowed, then memory by dry run, then time by the model."""
    kind, problem = plan_problem(level, plan)
    if kind or not isinstance(plan, Plan):
        return Trial(plan if isinstance(plan, Plan) else Plan(), problem, kind)
    return _dry_trial(level, plan)


@functools.lru_cache(maxsize=512)
def _dry_trial(level: Level, plan: Plan) -> Trial:
    seconds = predicted_seconds(level, plan)
    slowdown = sum(seconds.values()) / fastest_seconds(level)
    try:
        report = step_report(level.config, plan, level.gpu)
    except SimulatedOutOfMemoryError as error:
        where = f" in {error.module}" if error.module else ""
        problem = (
            f"It does not fit: {error.operation}{where} ({error.phase}) asks for {error.requested_bytes / 2**30:.2f} GiB "
            f"and {error.free_bytes / 2**30:.2f} of {error.capacity_bytes / 2**30:.2f} GiB are free."
        )
        return Trial(plan, problem, "out_of_memory", error.report, seconds, slowdown, 0.0)
    return Trial(plan, "", "", report, seconds, slowdown, min(1.0, level.par / slowdown))

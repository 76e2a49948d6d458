"""A step's peak from its configuration, against the dry run."""

import functools
import random
from collections.abc import Callable
from typing import Any

from course_lib.grading.compare import as_float, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.toolbox import StepConfig, predict_step_bytes

ALLOWED = (
    0.05  # of the dry run's peak: the rules leave out LayerNorm's odds and ends and what backward holds for a moment
)
KEYS = ("at_loss", "end_of_backward", "at_step", "peak")


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)

    def case(n_layer: int, n_embd: int, n_head: int, vocab: int, seq: int, batch: int, gpu: str = "T4") -> Case:
        sizes = {
            "n_layer": n_layer,
            "n_embd": n_embd,
            "n_head": n_head,
            "vocab_size": vocab,
            "block_size": seq,
            "batch_size": batch,
        }
        return Case(f"L={n_layer}, h={n_embd}, a={n_head}, V={vocab}, s={seq}, b={batch} on a {gpu}", (sizes, gpu))

    return [
        case(4, 256, 4, 1000, 128, 1),  # small batch: the optimizer's step is the peak
        case(2, 256, 4, 50257, 256, 8),  # large vocabulary: the loss
        case(6, 512, 8, 256, 512, 16, "A100-40GB"),  # small vocabulary: the blocks
        case(draw.randint(2, 4), 64 * draw.randint(4, 9), 4, draw.randint(20_000, 60_000), 256, draw.randint(4, 16)),
        case(draw.randint(7, 9), 128 * draw.randint(3, 5), 8, draw.randint(100, 500), 512, draw.randint(6, 20), "H100"),
    ]


def observe(solution: Callable, case: Case) -> Any:
    sizes, gpu = case.args
    return solution(StepConfig(**sizes), gpu)


@functools.lru_cache(maxsize=256)
def _dry_peak(sizes: tuple, gpu: str) -> int:
    from course_lib.toolbox import Plan, step_report

    config = StepConfig(**dict(sizes))
    plan = Plan("fp16" if gpu == "T4" else "bf16", "sdpa", config.batch_size, 1)
    return step_report(config, plan, gpu, stop_when_full=False).peak_bytes


def dry_peak(case: Case) -> int:
    return _dry_peak(tuple(sorted(case.args[0].items())), case.args[1])


def gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.3f} GiB"


def grade(case: Case, got: Any, expected: dict[str, int]) -> Mismatch | None:
    if not isinstance(got, dict) or any(as_float(got.get(key)) is None for key in KEYS):
        missing = [key for key in KEYS if not isinstance(got, dict) or as_float(got.get(key)) is None]
        return Mismatch("numbers for " + ", ".join(KEYS), describe(got), f"Missing: {', '.join(missing)}.")
    peak, measured = as_float(got["peak"]), dry_peak(case)
    if peak is not None and abs(peak - measured) <= ALLOWED * measured:
        return None
    note = (
        f"`peak` is {peak / measured - 1:+.0%} off the dry run's."
        if peak and abs(peak) < 1e30
        else "`peak` is no byte count."
    )
    return Mismatch(f"{gib(measured)} within {ALLOWED:.0%}", gib(peak or 0), note)


def _peak_of(
    config: StepConfig, *, casts: float = 2, head: float = 12, step: float = 20, block: float = 36, state: float = 12
) -> float:
    b, s = config.batch_size, config.block_size
    blocks = config.n_layer * (block * s * b * config.n_embd + (4 * config.n_head + 16) * b * s)
    return max((state + casts) * config.n_params + blocks + head * b * s * config.vocab_size, step * config.n_params)


def _is(**changed: float) -> Callable[[Case, Any, Any], bool]:
    def matches(case: Case, got: Any, expected: Any) -> bool:
        peak = as_float(got.get("peak")) if isinstance(got, dict) else None
        other = _peak_of(StepConfig(**case.args[0]), **changed)
        return peak is not None and abs(peak - other) <= 0.003 * other and abs(other - expected["peak"]) > 0.01 * other

    return matches


def _is_a_sum(case: Case, got: Any, expected: Any) -> bool:
    config = StepConfig(**case.args[0])
    peak = as_float(got.get("peak")) if isinstance(got, dict) else None
    total = _peak_of(config, step=0) + 8 * config.n_params
    alternatives = (total, total - 4 * config.n_params, total - 2 * config.n_params)
    return peak is not None and any(abs(peak - other) <= 0.003 * other for other in alternatives)


EXERCISE = Exercise(
    name="predict_step_bytes",
    points=4,
    minutes=20,
    difficulty=2,
    checks="the peak of a training step, predicted from the configuration, against a dry run",
    reference=predict_step_bytes,
    cases=cases,
    observe=observe,
    grade=grade,
    time_limit_s=20.0,
    hints=(
        "Walk through the step and write down what is alive at three moments: when backward enters the loss, when it "
        "ends, and "
        "inside the optimizer's step.",
        "At the loss there is no gradient of a parameter yet, but there are 12 bytes for each token and vocabulary "
        "entry. At "
        "the step there are no activations, but AdamW makes one more fp32 tensor for each parameter.",
        "at_loss = 14 n + L (36 s b h + 4 a b s + 16 b s) + 12 b s V; end_of_backward = 16 n; at_step = 20 n; peak is "
        "the "
        "largest of the three.",
    ),
    explanation=(
        "The three moments never add up: gradients and activations replace each other. Small batches peak in the "
        "optimizer, "
        "large vocabularies at the loss, deep models in between. 12 bytes at the head: log-probabilities, their "
        "gradient and "
        "the logits' gradient, each in fp32, meet for one moment."
    ),
    next_step="Compute your three moments for the failing configuration and compare the largest with the dry run's.",
    misconceptions=(
        Misconception(
            "forgets_the_loss",
            "The logits and the loss are missing. How many bytes are there for each token and vocabulary entry when "
            "backward enters the loss?",
            matches=_is(head=0),
        ),
        Misconception(
            "forgets_adamw_temporaries",
            "At the step you count weights, gradients and moments. Which tensor does AdamW's `foreach` path make for "
            "each parameter while it updates?",
            matches=_is(step=16),
        ),
        Misconception(
            "forgets_loss_and_temporaries",
            "Both the loss's bytes and AdamW's temporaries are missing. What is alive when backward enters the loss, "
            "and what inside the step?",
            matches=_is(head=0, step=16),
        ),
        Misconception(
            "adds_moments_that_never_meet",
            "Activations and AdamW's temporaries are never alive together. Which of your moments is the largest by "
            "itself?",
            matches=_is_a_sum,
        ),
        Misconception(
            "logits_once",
            "The head counts the logits once. Which three tensors of that size meet when the loss's backward runs?",
            matches=_is(head=4),
        ),
        Misconception(
            "logits_in_two_bytes",
            "The head is counted in 16 bits. In which precision is the loss taken?",
            matches=_is(head=6),
        ),
        Misconception(
            "forgets_optimizer_state",
            "The moments of AdamW are there from the first step on, during forward too. Which state is alive at the "
            "loss?",
            matches=_is(state=4),
        ),
    ),
)

"""ZeRO's arithmetic: bytes of model state on each GPU, by stage."""

import random
from dataclasses import replace
from typing import Any

from course_lib.grading.compare import as_float, float_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.toolbox import zero_bytes_per_gpu


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    sizes = [
        (1_000_000, 4),
        (1000, 7),
        (7_500_000_000, 64),
        (draw.randrange(10**8, 10**11), draw.randint(3, 1000)),
        (123_457, 1),
    ]
    return [
        Case(f"zero_bytes_per_gpu({n_params:_}, {n_gpus}, {stage})", (n_params, n_gpus, stage))
        for n_params, n_gpus in sizes
        for stage in (0, 1, 2, 3)
    ]


def grade(case: Case, got: Any, expected: float) -> Mismatch | None:
    # a handful of float operations, in any order
    wrong = float_mismatch(got, expected, rel=1e-9)
    value = as_float(got)
    if wrong and value is not None and abs(value - expected) < 3:
        return replace(wrong, note="Nearly: a share is a float here.", next_step="Look for `//`, `int` and `round`.")
    return wrong


def whole_weights_at_stage_3(n_params: int, n_gpus: int, stage: int) -> float:
    return zero_bytes_per_gpu(n_params, n_gpus, stage) if stage < 3 else n_params * (2 + 14 / n_gpus)


def whole_division(n_params: int, n_gpus: int, stage: int) -> float:
    return n_params * 16 / n_gpus if stage else n_params * 16.0


def optimizer_without_master(n_params: int, n_gpus: int, stage: int) -> float:
    shards = [1 if stage < first else n_gpus for first in (3, 2, 1)]
    return n_params * (2 / shards[0] + 2 / shards[1] + 8 / shards[2])


def total_of_all(n_params: int, n_gpus: int, stage: int) -> float:
    return zero_bytes_per_gpu(n_params, n_gpus, stage) * n_gpus


def one_stage_off(n_params: int, n_gpus: int, stage: int) -> float:
    return zero_bytes_per_gpu(n_params, n_gpus, max(0, stage - 1))


def gradients_first(n_params: int, n_gpus: int, stage: int) -> float:
    shards = [1 if stage < first else n_gpus for first in (3, 1, 2)]
    return n_params * (2 / shards[0] + 2 / shards[1] + 12 / shards[2])


EXERCISE = Exercise(
    name="zero_bytes_per_gpu",
    points=2,
    minutes=8,
    difficulty=1,
    checks="bytes of model state on each GPU, in four stages",
    reference=zero_bytes_per_gpu,
    cases=cases,
    grade=grade,
    hints=(
        "Three kinds of state: 2 bytes of parameters, 2 of gradients, 12 of the optimizer (with the master copy).",
        "Stage 1 divides the 12 among the GPUs, stage 2 the gradients too, stage 3 everything.",
        "optimizer = 12 / n_gpus from stage 1 on, gradients = 2 / n_gpus from stage 2 on, parameters = 2 / n_gpus at "
        "stage 3; "
        "add them and multiply by n_params.",
    ),
    explanation=(
        "16Ψ, 4Ψ + 12Ψ/N, 2Ψ + 14Ψ/N, 16Ψ/N (Rajbhandari et al. 2020, section 5). Activations are not in it: they "
        "stay local at "
        "every stage. FSDP2 in fp32 keeps 4 + 4 + 8 instead of 2 + 2 + 12; the sums agree at stage 0 and at stage 3 "
        "alone."
    ),
    next_step=(
        "Write what one GPU keeps of parameters, gradients and optimizer state at this stage, each on its own line."
    ),
    misconceptions=(
        Misconception(
            "stage_3_keeps_whole_weights",
            "At stage 3 you still keep all parameters on each GPU. What does each layer do before it runs, and "
            "afterwards?",
            whole_weights_at_stage_3,
        ),
        Misconception(
            "everything_divided",
            "All sixteen bytes are divided from stage 1 on. Which kinds of state does each stage divide?",
            whole_division,
        ),
        Misconception(
            "forgets_the_master_copy",
            "Eight bytes of optimizer state are m and v alone. What else is kept in fp32 where the weights have two "
            "bytes?",
            optimizer_without_master,
        ),
        Misconception("sum_over_gpus", "That is the sum over all GPUs. How much is on one of them?", total_of_all),
        Misconception(
            "one_stage_off",
            "Each stage gives the bytes of the one before it. What does stage 1 divide already?",
            one_stage_off,
        ),
        Misconception(
            "gradients_first",
            "Stage 1 divides the gradients in your formula. Which kind of state is the largest, and goes first?",
            gradients_first,
        ),
    ),
)

"""Which dtype for which GPU, on every capability that matters, whatever machine the check runs on."""

from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from course_lib.formats import choose_compute_dtype
from course_lib.grading.compare import describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch

GPUS = (
    (None, "no GPU"),
    ((7, 5), "T4"),
    ((8, 0), "A100"),
    ((7, 0), "V100"),
    ((8, 6), "RTX 3090"),
    ((8, 9), "L4, RTX 4090"),
    ((9, 0), "H100"),
    ((10, 0), "B200"),
    ((12, 0), "RTX 5090"),
    ((6, 1), "GTX 1080"),
    ((6, 0), "P100"),
    ((3, 7), "K80"),
    ((7, 2), "Xavier"),
    ((8, 7), "Orin"),
)


def cases(seed: int) -> list[Case]:
    return [Case(f"choose_compute_dtype({capability}), {gpu}", (capability,)) for capability, gpu in GPUS]


@contextmanager
def _machine_with_a_t4() -> Any:
    """Whatever a solution asks torch, a T4 answers: the argument decides, not the machine."""

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return including_emulation

    with (
        mock.patch.object(torch.cuda, "is_bf16_supported", is_bf16_supported),
        mock.patch.object(torch.cuda, "get_device_capability", lambda device=None: (7, 5)),
        mock.patch.object(torch.cuda, "is_available", lambda: True),
    ):
        yield


def observe(solution: Any, case: Case) -> Any:
    with _machine_with_a_t4():
        return solution(*case.args)


def grade(case: Case, observation: Any, expected: torch.dtype) -> Mismatch | None:
    if isinstance(observation, torch.dtype) and observation == expected:
        return None
    note = "Did you forget `return`?" if observation is None else ""
    if isinstance(observation, str):
        note = "A torch.dtype is due, not its name."
    return Mismatch(str(expected), describe(observation), note)


def _permissive(capability: tuple[int, int] | None) -> torch.dtype:
    if capability is None:
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


EXERCISE = Exercise(
    name="choose_compute_dtype",
    points=1,
    minutes=5,
    difficulty=1,
    checks="the training dtype for fourteen kinds of machine, from none to the newest",
    reference=choose_compute_dtype,
    cases=cases,
    grade=grade,
    observe=observe,
    hints=(
        "The table above lists from which compute capability on the hardware multiplies each dtype.",
        "Tuples compare element by element: (7, 5) < (8, 0) and (8, 6) < (10, 0). Do not forget None.",
        "float32 for None and below (7, 0); bfloat16 from (8, 0); float16 between. Ask the argument, not torch.",
    ),
    explanation="Tensor Cores came with 7.0 and take float16; bfloat16 came with 8.0. On a T4 (7.5) "
    "`torch.cuda.is_bf16_supported()` answers True because torch can emulate bfloat16 there, slowly; "
    "`including_emulation=False` tells the truth.",
    next_step="Find this capability in the table of the lesson.",
    misconceptions=(
        Misconception(
            "bf16_from_7_5",
            "7.5 is Turing, the T4: it has float16 Tensor Cores but no bfloat16.",
            matches=lambda case, got, expected: case.args[0] == (7, 5) and got == torch.bfloat16,
        ),
        Misconception(
            "asks_the_emulating_function",
            "`torch.cuda.is_bf16_supported()` says True where bfloat16 is only emulated, as on a T4, and it asks this machine "
            "instead of the argument. Decide from the capability.",
            matches=lambda case, got, expected: (
                got == torch.bfloat16 and case.args[0] is not None and expected != torch.bfloat16
            ),
        ),
        Misconception(
            "fp16_on_every_gpu",
            "Before 7.0 there are no Tensor Cores, and float16 arithmetic is slow on most of those GPUs: float32 is the choice.",
            matches=lambda case, got, expected: (
                case.args[0] is not None and case.args[0] < (7, 0) and got == torch.float16
            ),
        ),
        Misconception(
            "no_bf16_on_rtx_30",
            "The RTX 30 series is 8.6, and it does have bfloat16: everything from 8.0 has.",
            matches=lambda case, got, expected: expected == torch.bfloat16 and got == torch.float16,
        ),
        Misconception(
            "compares_capability_wrongly",
            "The newest GPUs fare worse than older ones in your function. As text, 10.0 comes before 8.0; as tuples, (10, 0) "
            "comes after (8, 0).",
            matches=lambda case, got, expected: case.args[0] is not None and case.args[0] >= (10, 0),
        ),
    ),
)

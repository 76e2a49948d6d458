"""One case that asks a function about many numbers: thousands of cases would cost more than the answers do.

A case's arguments are (format name, tensor of inputs). What is seen is one integer a number, so that two answers are
alike only if they are equal: the 64 bits of a float, or the code itself.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.formats import FORMATS, FloatFormat, bit_width, bits_text, decode_bits
from course_lib.grading.exercise import Case

# A format that torch has no dtype for: float32 is only where it is kept, so only its fields describe it.
TF32 = FloatFormat("TF32", exponent_bits=8, fraction_bits=10, bias=127, has_infinity=True, dtype=torch.float32)
ASKED = {**FORMATS, TF32.name: TF32}

DTYPE = {int: torch.int64, float: torch.float64}
NAN_BITS = torch.tensor(math.nan, dtype=torch.float64).view(torch.int64).item()


def case(label: str, fmt: FloatFormat, inputs: Any) -> Case:
    """A case about several ints (codes) or floats (values), listed or in a tensor."""
    inputs = torch.as_tensor(inputs, dtype=None if isinstance(inputs, torch.Tensor) else DTYPE[type(inputs[0])])
    return Case(label, (fmt.name, inputs))


def all_values(fmt: FloatFormat) -> torch.Tensor:
    """The value of every code of a small format, float64, by torch's own table (NaN included)."""
    codes = torch.arange(1 << bit_width(fmt))
    return codes.to(torch.uint8 if bit_width(fmt) == 8 else torch.uint16).view(fmt.dtype).double()


def positive_values(fmt: FloatFormat) -> torch.Tensor:
    """Every finite value of a small format from 0 up, in order, float64."""
    values = all_values(fmt)[: 1 << (bit_width(fmt) - 1)]
    return values[values.isfinite()]


def answers(solution: Callable, case: Case) -> list:
    """What the solution says about each input, in order."""
    fmt = FORMATS[case.args[0]]
    return [solution(x, fmt) for x in case.args[1].tolist()]


def _plain(answer: Any) -> int | float | None:
    if isinstance(answer, np.generic) or (isinstance(answer, torch.Tensor | np.ndarray) and answer.ndim == 0):
        answer = answer.item()
    return answer if isinstance(answer, int | float) and not isinstance(answer, bool) else None


def observe_floats(solution: Callable, case: Case) -> Any:
    """The 64 bits of each answer (one pattern for all NaNs), or {"at", "value"} of the first that is no number."""
    numbers = []
    for at, answer in enumerate(answers(solution, case)):
        if type(answer) is not float:
            plain = _plain(answer)
            if plain is None:
                return {"at": at, "value": answer}
            answer = float(plain)
        numbers.append(answer)
    bits = torch.tensor(numbers, dtype=torch.float64)
    return torch.where(bits.isnan(), NAN_BITS, bits.view(torch.int64))


def observe_codes(solution: Callable, case: Case) -> Any:
    """Each answer as an integer, or {"at", "value"} of the first that is none (or is too long for a code)."""
    codes = []
    for at, answer in enumerate(answers(solution, case)):
        plain = answer if type(answer) is int else _plain(answer)
        if plain is None or not abs(plain) < 2**62 or plain != int(plain):
            return {"at": at, "value": answer}
        codes.append(int(plain))
    return torch.tensor(codes, dtype=torch.int64)


def as_floats(bits: torch.Tensor) -> list[float]:
    """The floats behind `observe_floats`."""
    return bits.view(torch.float64).tolist()


def is_whole(observation: Any, expected: torch.Tensor) -> bool:
    """Whether an observation is one integer a number, as due."""
    return (
        isinstance(observation, torch.Tensor)
        and observation.dtype == torch.int64
        and observation.shape == expected.shape
    )


def wrong_at(case: Case, observation: torch.Tensor, expected: torch.Tensor) -> list[int]:
    """Indices of the wrong answers; where a code is due for NaN, any NaN's code will do."""
    fmt, inputs = FORMATS[case.args[0]], case.args[1]
    wrong = observation != expected
    if inputs.is_floating_point() and inputs.isnan().any():
        for at in (wrong & inputs.isnan()).nonzero().flatten().tolist():
            wrong[at] = not is_nan(int(observation[at]), fmt)
    return wrong.nonzero().flatten().tolist()


def is_nan(code: int, fmt: FloatFormat) -> bool:
    """Whether `code` is one of the format's NaNs."""
    return 0 <= code < 1 << bit_width(fmt) and math.isnan(decode_bits(code, fmt))


def by_rule(rule: Callable[[Any, Any, Any, FloatFormat], bool], *, floats: bool) -> Callable[[Case, Any, Any], bool]:
    """Recognises a wrong idea by a rule (input, got, right, format) that holds for every wrong answer.

    Args:
        floats: whether the answers are floats (`observe_floats`) or codes (`observe_codes`).
    """

    def matches(case: Case, observation: Any, expected: torch.Tensor) -> bool:
        if not is_whole(observation, expected):
            return False
        inputs, fmt = case.args[1].tolist(), FORMATS[case.args[0]]
        got, right = (as_floats(seen) if floats else seen.tolist() for seen in (observation, expected))
        return all(rule(inputs[at], got[at], right[at], fmt) for at in wrong_at(case, observation, expected))

    return matches


def junk(observation: Any, case: Case) -> tuple[int, Any]:
    """Index and value of what is no number, whatever arrived."""
    if isinstance(observation, dict) and isinstance(observation.get("at"), int):
        return min(max(observation["at"], 0), len(case.args[1]) - 1), observation.get("value")
    return 0, observation


def code_text(code: int, fmt: FloatFormat) -> str:
    """`0x3c00 = 0 01111 0000000000`."""
    return f"{code:#0{2 + bit_width(fmt) // 4}x} = {bits_text(code, fmt)}"


def share_text(wrong: list[int], case: Case) -> str:
    """How many of the case's inputs are wrong, where there are several."""
    count = len(case.args[1])
    return f" {len(wrong):,} of these {count:,} are wrong." if count > 1 else ""

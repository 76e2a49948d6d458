"""Every pattern of every small format, decoded."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from course_lib.exercises.lesson_01 import many
from course_lib.formats import (
    BF16,
    E4M3,
    E5M2,
    FORMATS,
    FP16,
    FP32,
    FloatFormat,
    bit_width,
    decode_bits,
    describe_bits,
    split_bits,
)
from course_lib.grading.compare import describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch

FIRST = {  # the patterns to get right first, one idea each
    FP16: (0x3C00, 0x3E00, 0xC100, 0x0400, 0x0001, 0x0000, 0x8000, 0x03FF, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0xFE00),
    BF16: (0x3F80, 0xBFC0, 0x0001, 0x7F7F, 0x7F80, 0x7FC0),
    E4M3: (0x38, 0x01, 0x80, 0x78, 0x7E, 0x7F, 0xFF),
    E5M2: (0x3C, 0x01, 0x7B, 0x7C, 0x7D),
}


def cases(seed: int) -> list[Case]:
    rng = random.Random(seed)
    digits = {fmt: bit_width(fmt) // 4 for fmt in FORMATS.values()}
    singles = [many.case(f"decode_bits({c:#0{digits[f] + 2}x}, {f.name})", f, [c]) for f in FIRST for c in FIRST[f]]
    every = [
        many.case(f"every {fmt.name} pattern ({1 << bit_width(fmt):,} of them)", fmt, torch.arange(1 << bit_width(fmt)))
        for fmt in (E4M3, E5M2, FP16, BF16)
    ]
    fp32 = [0, 1, 2**23, 2**31, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0xFF800000]
    fp32 += [rng.getrandbits(32) for _ in range(2000)]
    return [*singles, *every, many.case("2,009 FP32 patterns", FP32, fp32)]


def _note(code: int, fmt: FloatFormat) -> str:
    kind = describe_bits(code, fmt)
    if kind == "subnormal":
        return "The exponent field is 0, so this is a subnormal number."
    if kind in ("infinity", "NaN"):
        rest = "all ones" if not fmt.has_infinity else "0" if kind == "infinity" else "not 0"
        return f"The exponent field is all ones and the fraction is {rest}: {kind}."
    if kind == "zero":
        return "This zero has the sign bit set." if code else "Exponent and fraction are 0."
    top = (1 << fmt.exponent_bits) - 1
    is_top = not fmt.has_infinity and (code >> fmt.fraction_bits) & top == top
    return "With has_infinity=False the largest exponent holds ordinary numbers too." if is_top else ""


def grade(case: Case, observation: Any, expected: torch.Tensor) -> Mismatch | None:
    fmt, inputs = FORMATS[case.args[0]], case.args[1]
    if many.is_whole(observation, expected):
        wrong = many.wrong_at(case, observation, expected)
        if not wrong:
            return None
        at = wrong[0]
        got, share = repr(many.as_floats(observation)[at]), many.share_text(wrong, case)
    else:
        at, value = many.junk(observation, case)
        got, share = describe(value), " Did you forget `return`?" if value is None else " A float is due."
    code, right = int(inputs[at]), many.as_floats(expected)[at]
    note = f"Bits {many.code_text(code, fmt)}. {_note(code, fmt)}"
    return Mismatch(repr(right), got, note.rstrip() + share)


# Wrong ideas, as decoders or as what they do to a pattern.


def _fields(bits: int, fmt: FloatFormat) -> tuple[float, int, float]:
    sign, exponent, fraction = split_bits(bits, fmt)
    return (-1.0 if sign else 1.0), exponent, fraction / 2**fmt.fraction_bits


def _no_implicit_bit(bits: int, fmt: FloatFormat) -> float:
    value, (sign, exponent, fraction) = decode_bits(bits, fmt), _fields(bits, fmt)
    is_normal = exponent > 0 and math.isfinite(value)
    return sign * math.ldexp(fraction, exponent - fmt.bias) if is_normal else value


def _subnormal(significand_from: float, exponent_from: int) -> Callable[[int, FloatFormat], float]:
    def decode(bits: int, fmt: FloatFormat) -> float:
        sign, exponent, fraction = _fields(bits, fmt)
        if exponent:
            return decode_bits(bits, fmt)
        return sign * math.ldexp(significand_from + fraction, exponent_from - fmt.bias)

    return decode


def _no_specials(bits: int, fmt: FloatFormat) -> float:
    sign, exponent, fraction = _fields(bits, fmt)
    return sign * math.ldexp(1 + fraction, exponent - fmt.bias) if exponent else decode_bits(bits, fmt)


def _rule(rule: Callable[[int, float, float, FloatFormat], bool]) -> Callable[[Case, Any, Any], bool]:
    return many.by_rule(rule, floats=True)


EXERCISE = Exercise(
    name="decode_bits",
    points=3,
    minutes=20,
    difficulty=2,
    checks="the value of every pattern of FP16, BF16, E4M3 and E5M2, and 2,009 patterns of FP32",
    reference=decode_bits,
    cases=cases,
    grade=grade,
    observe=many.observe_floats,
    hints=(
        "Cut the code into its three fields first: shift right to drop low bits, `& (2**n - 1)` to keep n bits.",
        "Three kinds of exponent field: all ones (infinity or NaN, but see `has_infinity`), zero (subnormal: no leading "
        "one), anything else (normal: leading one).",
        "Normal: (1 + fraction / 2**F) * 2.0**(exponent - bias). Subnormal: (fraction / 2**F) * 2.0**(1 - bias). Apply the "
        "sign by multiplying with -1.0, which keeps -0.0. In a format without infinity only the code of all ones is NaN.",
    ),
    explanation="`split_bits` cuts the fields: `bits >> (E + F)`, `(bits >> F) & (2**E - 1)`, `bits & (2**F - 1)`, with E "
    "exponent and F fraction bits. A normal number has a leading one that is not stored. The subnormals have none, and use "
    "the exponent of the smallest normal number, 1 - bias: so the steps go on evenly down to zero.",
    next_step="Write the three fields of this pattern on paper, then the value, and find where your code differs.",
    misconceptions=(
        Misconception(
            "forgets_implicit_bit",
            "A normal number has a leading one that is not stored. What is the significand of 1.0, whose fraction is 0?",
            _no_implicit_bit,
        ),
        Misconception(
            "subnormal_exponent_minus_bias",
            "Your subnormals use the exponent 0 - bias. Then there is a gap below the smallest normal number: which "
            "exponent makes the steps go on evenly?",
            _subnormal(0.0, 0),
        ),
        Misconception(
            "e4m3_treated_as_ieee",
            "E4M3 has no infinity: its largest exponent holds ordinary numbers up to 448, and only one fraction there is "
            "NaN. Look at `has_infinity`.",
            lambda bits, fmt: decode_bits(bits, replace(fmt, has_infinity=True)),
        ),
        Misconception(
            "subnormal_with_implicit_bit",
            "You give the leading one to every number. With exponent field 0 there is none: else zero could not be written.",
            _subnormal(1.0, 0),
        ),
        Misconception(
            "subnormal_with_implicit_bit_and_shift",
            "Your subnormals have the right exponent and also a leading one. Which value has the pattern of all zeros?",
            _subnormal(1.0, 1),
        ),
        Misconception(
            "loses_sign_of_zero",
            "Minus zero has its own pattern, and its sign must survive: make the sign a float before you multiply.",
            matches=_rule(lambda code, got, right, fmt: got == right == 0),
        ),
        Misconception(
            "flushes_subnormals",
            "You read exponent field 0 as zero whatever the fraction says. Those patterns are the subnormal numbers.",
            matches=_rule(lambda code, got, right, fmt: got == 0 and abs(right) < 2.0 ** (1 - fmt.bias)),
        ),
        Misconception(
            "ignores_specials",
            "The largest exponent field is not an ordinary exponent: it holds infinity and NaN.",
            _no_specials,
        ),
        Misconception(
            "nan_read_as_infinity",
            "With the exponent field all ones, only fraction 0 is infinity. Everything else there is NaN.",
            matches=_rule(lambda code, got, right, fmt: math.isnan(right) and math.isinf(got)),
        ),
        Misconception(
            "bias_off_by_one",
            "Your values are off by a factor of two: the bias is `fmt.bias`, 15 in FP16, not 16 or 14.",
            matches=_rule(lambda code, got, right, fmt: got in (2 * right, right / 2)),
        ),
        Misconception(
            "ignores_sign",
            "Your values never become negative: the first bit is the sign.",
            matches=_rule(lambda code, got, right, fmt: got == -right),
        ),
    ),
)

"""The nearest code of any float64: every value, every midpoint and what lies right beside it."""

import math
import random
import struct
from collections.abc import Callable
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
    encode_float,
    format_limits,
    ulp,
)
from course_lib.grading.compare import describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch

TIE = 2.0**-11  # half a step of FP16 at 1
FIRST = (
    (
        FP16,
        (1.0, -2.5, 0.1, 1 + TIE, 1 + 3 * TIE, 1 + TIE + 2**-52, 2 - TIE, 0.0, -0.0, 65504.0, 65519.0, 65520.0, 1e300),
    ),
    (FP16, (math.inf, -math.inf, math.nan, 2.0**-14, 2.0**-24, 1e-7, -1e-7, 1e-8, 2.0**-25, 2.0**-14 - 2.0**-26)),
    (BF16, (3.14159, 1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40, 3.4e38, 1e-40, math.nan)),
    (E4M3, (1.1, 448.0, 464.0, 1e4, -1e4, math.inf, -math.inf, math.nan, 0.002, 0.0009)),
    (E5M2, (1.1, 57344.0, 61439.0, 61440.0, -math.inf, 1e-5)),
    (FP32, (0.1, 1 + 2.0**-24, 1 + 3 * 2.0**-24, 3.5e38, 1e-45, 7e-46, math.nan)),
)


def cases(seed: int) -> list[Case]:
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    listed = [many.case(f"encode_float({x!r}, {fmt.name})", fmt, [x]) for fmt, xs in FIRST for x in xs]
    for fmt in (E4M3, E5M2, FP16, BF16):
        values = many.all_values(fmt)
        values = values[~values.isnan()]
        listed.append(many.case(f"every value of {fmt.name} ({len(values):,})", fmt, values))
        positive = many.positive_values(fmt)
        beyond = 2 * positive[-1:] - positive[-2:-1]  # the next step, were there one: half way to it is the edge
        ties = (positive + torch.cat([positive[1:], beyond])) / 2
        ties = ties * (1 - 2 * torch.randint(0, 2, ties.shape, generator=generator))
        listed.append(many.case(f"every middle of two {fmt.name} values ({len(ties):,})", fmt, ties))
        some = ties if len(ties) < 1000 else ties[torch.rand(ties.shape, generator=generator) < 0.25]
        beside = torch.cat([some.nextafter(side) for side in torch.tensor([[-math.inf], [math.inf]]).double()])
        listed.append(many.case(f"floats right beside the middles of {fmt.name} ({len(beside):,})", fmt, beside))
    xs = [rng.choice((-1, 1)) * math.ldexp(1 + rng.random(), rng.randint(-152, 128)) for _ in range(1000)]
    middles = [math.ldexp(2 * rng.getrandbits(23) + 2**24 + 1, rng.randint(-149, 104) - 1) for _ in range(500)]
    fp32 = [y for x in middles for y in (x, math.nextafter(x, 0.0), math.nextafter(x, math.inf))]
    return [*listed, many.case("2,500 floats to FP32", FP32, xs + fp32)]


def _text(code: int, fmt: FloatFormat) -> str:
    if not 0 <= code < 1 << bit_width(fmt):
        return f"{code:#x}, which is no code of {bit_width(fmt)} bits"
    return f"{many.code_text(code, fmt)} = {decode_bits(code, fmt)!r}"


def _note(x: float, right: int, fmt: FloatFormat) -> str:
    """Where x lies, for a code that was missed."""
    limit = format_limits(fmt)["max"]
    if math.isnan(x) or x == 0 or math.isinf(x):
        return "Any NaN will do." if math.isnan(x) else ""
    if abs(x) > limit:
        edge = limit + ulp(limit, fmt) / 2
        end = "is nearer to it than to the next step" if abs(x) < edge else "overflows"
        return f"The largest value is {limit:.9g}, half a step above it lies {edge:.9g}: |x| {end}."
    value = decode_bits(right, fmt)
    for other in (right - 1, right + 1):
        if not 0 <= other < 1 << bit_width(fmt) or math.isnan(decode_bits(other, fmt)):
            continue
        neighbour = decode_bits(other, fmt)
        low, high = sorted((value, neighbour))
        if low < x < high and math.isfinite(neighbour):
            middle = (low + high) / 2
            where = "exactly in the middle, so the even code wins" if x == middle else "nearer to the first"
            return f"x lies between {value:.9g} and {neighbour:.9g}, {where}."
    return f"x is itself a {describe_bits(right, fmt)} value." if value == x else ""


def grade(case: Case, observation: Any, expected: torch.Tensor) -> Mismatch | None:
    fmt, inputs = FORMATS[case.args[0]], case.args[1].tolist()
    if not many.is_whole(observation, expected):
        at, value = many.junk(observation, case)
        note = "Did you forget `return`?" if value is None else "An int, the code, is due."
        return Mismatch(_text(int(expected[at]), fmt), describe(value), f"{note} x was {inputs[at]!r}.")
    wrong = many.wrong_at(case, observation, expected)
    if not wrong:
        return None
    at = wrong[0]
    right, got = int(expected[at]), int(observation[at])
    note = f"x = {inputs[at]!r} ({inputs[at].hex()}). " if len(inputs) > 1 else ""
    return Mismatch(
        _text(right, fmt), _text(got, fmt), note + _note(inputs[at], right, fmt) + many.share_text(wrong, case)
    )


# Wrong ideas, by what they do to a number.


def _rule(rule: Callable[[float, int, int, FloatFormat], bool]) -> Callable[[Case, Any, Any], bool]:
    return many.by_rule(rule, floats=False)


def _magnitude(code: int, fmt: FloatFormat) -> float:
    """|value| of a code, with infinity read as the step after the largest value."""
    value = abs(decode_bits(code, fmt)) if 0 <= code < 1 << bit_width(fmt) else math.nan
    largest = format_limits(fmt)["max"]
    return largest + ulp(largest, fmt) if math.isinf(value) else value


def _is_tie(x: float, right: int, other: int, fmt: FloatFormat) -> bool:
    return abs(x) == (_magnitude(right, fmt) + _magnitude(other, fmt)) / 2


def _sign_bit(fmt: FloatFormat) -> int:
    return 1 << (bit_width(fmt) - 1)


def _is_infinite(code: int, fmt: FloatFormat) -> bool:
    return 0 <= code < 1 << bit_width(fmt) and math.isinf(decode_bits(code, fmt))


def _truncates(x: float, got: int, right: int, fmt: FloatFormat) -> bool:
    return got == right - 1 and _magnitude(got, fmt) <= abs(x)


def _loses_carry(x: float, got: int, right: int, fmt: FloatFormat) -> bool:
    is_carry = right % 2**fmt.fraction_bits == 0 and abs(x) < _magnitude(right, fmt)
    return is_carry and got in (right - 1, right - 2**fmt.fraction_bits)


def _flushes(x: float, got: int, right: int, fmt: FloatFormat) -> bool:
    return abs(x) < 2.0 ** (1 - fmt.bias) and got in (0, _sign_bit(fmt))


def _as_ieee(x: float, got: int, right: int, fmt: FloatFormat) -> bool:
    top = (2**fmt.exponent_bits - 1) << fmt.fraction_bits
    return not fmt.has_infinity and right % _sign_bit(fmt) >= top and got % _sign_bit(fmt) >= top - 1


def _rounds_twice(x: float, fmt: FloatFormat) -> int:
    try:
        single = struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        single = math.copysign(math.inf, x)
    return encode_float(single, fmt)


def _gives_value(case: Case, observation: Any, expected: torch.Tensor) -> bool:
    if isinstance(observation, dict):
        return isinstance(observation.get("value"), float)

    def is_value(x: float, got: int, right: int, fmt: FloatFormat) -> bool:
        value = decode_bits(right, fmt)
        return abs(got - value) <= 2.0**-6 * abs(value)

    return many.by_rule(is_value, floats=False)(case, observation, expected)


EXERCISE = Exercise(
    name="encode_float",
    points=4,
    minutes=30,
    difficulty=3,
    checks="the nearest code, ties to even, for every value of the small formats and every middle between two",
    reference=encode_float,
    cases=cases,
    grade=grade,
    observe=many.observe_codes,
    time_limit_s=20.0,
    hints=(
        "Think of the values as marks on a ruler. How long is one step at x? Then x divided by the step, rounded to an "
        "integer, says which mark. Python's `round` takes ties to even.",
        "`math.frexp(x)` gives the exponent without any loss. The step is 2.0**(exponent - F), but never shorter than the "
        "step of the subnormals. A division by a power of two is exact: use `math.ldexp`.",
        "Codes of one sign are consecutive: code = (exponent - (1 - bias)) * 2**F + steps, where steps counts from the "
        "start of the binade for subnormals and includes the leading one for normals. A carry then needs no care, and a "
        "code at or past the infinity's becomes infinity (or, without infinity, the largest value's code).",
    ),
    explanation="`frexp` gives the binade, `ldexp` scales x by a power of two so that one step becomes 1, and `round` does "
    "ties to even. Both scalings are exact, so x is rounded once. Because the fields are ordered as they are, the codes of "
    "one sign count the values from zero up: rounding up past the end of a binade carries into the exponent by itself, "
    "and past the largest value it lands on infinity.",
    next_step="Take this x, write down the two nearest values of the format and which one is nearer.",
    misconceptions=(
        Misconception(
            "loses_sign_of_zero",
            "Minus zero has its own code. `x < 0` does not see its sign; `math.copysign(1.0, x)` does.",
            matches=_rule(lambda x, got, right, fmt: x == got == 0),
        ),
        Misconception(
            "rounds_to_plus_zero",
            "A negative number too small for the format rounds to minus zero: decide the sign before you round.",
            matches=_rule(lambda x, got, right, fmt: got == 0 and right == _sign_bit(fmt)),
        ),
        Misconception(
            "ignores_sign",
            "The code of a negative number has the first bit set; yours never has.",
            matches=_rule(lambda x, got, right, fmt: got == right - _sign_bit(fmt)),
        ),
        Misconception(
            "clamps_at_maximum",
            "What is too large you clamp at the largest value. A format with infinity overflows to infinity; only one "
            "without saturates.",
            matches=_rule(lambda x, got, right, fmt: _is_infinite(right, fmt) and got == right - 1),
        ),
        Misconception(
            "overflows_above_maximum",
            "You send everything above the largest value to infinity. Rounding comes first: up to half a step above it, "
            "the largest value is still the nearest.",
            matches=_rule(lambda x, got, right, fmt: got == right + 1 and _is_infinite(got, fmt)),
        ),
        Misconception(
            "e4m3_overflows_to_nan",
            "E4M3 saturates here: what is too large becomes 448, infinity too, as torch's cast does.",
            matches=_rule(lambda x, got, right, fmt: abs(x) > 448 and not fmt.has_infinity and many.is_nan(got, fmt)),
        ),
        Misconception(
            "e4m3_treated_as_ieee",
            "E4M3 keeps its largest exponent for ordinary numbers up to 448 and has no infinity. Look at `has_infinity`.",
            matches=_rule(_as_ieee),
        ),
        Misconception(
            "nan_becomes_infinity",
            "You give NaN the code of an infinity. NaN needs a fraction that is not 0 (and in E4M3 all ones).",
            matches=_rule(lambda x, got, right, fmt: math.isnan(x) and _is_infinite(got, fmt)),
        ),
        Misconception(
            "flushes_subnormals",
            "Below the smallest normal number you give zero. The subnormals lie there: fewer bits, but not nothing.",
            matches=_rule(_flushes),
        ),
        Misconception(
            "ties_away",
            "Exactly in the middle you go away from zero. IEEE 754 takes the neighbour whose last bit is 0.",
            matches=_rule(lambda x, got, right, fmt: got == right + 1 and _is_tie(x, right, got, fmt)),
        ),
        Misconception(
            "ties_towards_zero",
            "Exactly in the middle you go towards zero. IEEE 754 takes the neighbour whose last bit is 0.",
            matches=_rule(lambda x, got, right, fmt: got == right - 1 and _is_tie(x, right, got, fmt)),
        ),
        Misconception(
            "loses_carry",
            "When rounding up fills the fraction, it must carry into the exponent: just below 2 the nearest value is 2.",
            matches=_rule(_loses_carry),
        ),
        Misconception(
            "truncates",
            "You cut the extra bits off, which rounds towards zero. Which of the two neighbours is nearer to x?",
            matches=_rule(_truncates),
        ),
        Misconception(
            "rounds_twice",
            "You round to float32 first and then again, as torch's cast of a float64 does. A number just above the middle "
            "can land on the middle, and then goes the wrong way.",
            _rounds_twice,
        ),
        Misconception(
            "returns_the_value",
            "You return the rounded value. The code is due: the integer whose bits store it.",
            matches=_gives_value,
        ),
    ),
)

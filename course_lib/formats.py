"""Floating-point formats as data, and what can be done with them: decode, encode, limits, spacing, rounding.

A format is five numbers and a name. Every function here is scalar, short and exact: it is meant to be read.
Words as in IEEE 754: a value is (-1)**sign * significand * 2**exponent, and the stored fields are the sign bit, the
biased exponent and the fraction (the significand without its leading bit).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

__all__ = [
    "BF16",
    "E4M3",
    "E5M2",
    "FORMATS",
    "FP16",
    "FP32",
    "FloatFormat",
    "bit_width",
    "bits_text",
    "choose_compute_dtype",
    "counting_ceiling",
    "decode_bits",
    "describe_bits",
    "dot_product",
    "encode_float",
    "format_limits",
    "round_to",
    "split_bits",
    "stochastic_round",
    "ulp",
]


@dataclass(frozen=True)
class FloatFormat:
    """How a number is laid out in bits: sign, then `exponent_bits`, then `fraction_bits`.

    Args:
        name: what the course calls it.
        exponent_bits, fraction_bits: widths of the two fields; one more bit holds the sign.
        bias: what is subtracted from the stored exponent of a normal number.
        has_infinity: True where the largest exponent is kept for infinity and NaN, as in IEEE 754. False where it
            holds ordinary numbers and only the code of all ones is NaN (E4M3).
        dtype: torch's name for it.
    """

    name: str
    exponent_bits: int
    fraction_bits: int
    bias: int
    has_infinity: bool
    dtype: torch.dtype


# IEEE 754-2019, table 3.5; BF16 keeps FP32's exponent; FP8: Micikevicius et al. 2022, arXiv:2209.05433, table 1.
FP32 = FloatFormat("FP32", 8, 23, 127, True, torch.float32)
FP16 = FloatFormat("FP16", 5, 10, 15, True, torch.float16)
BF16 = FloatFormat("BF16", 8, 7, 127, True, torch.bfloat16)
E4M3 = FloatFormat("E4M3", 4, 3, 7, False, torch.float8_e4m3fn)
E5M2 = FloatFormat("E5M2", 5, 2, 15, True, torch.float8_e5m2)

FORMATS = {fmt.name: fmt for fmt in (FP32, FP16, BF16, E4M3, E5M2)}


def bit_width(fmt: FloatFormat) -> int:
    """Bits that one number takes: 32, 16 or 8."""
    return 1 + fmt.exponent_bits + fmt.fraction_bits


def split_bits(bits: int, fmt: FloatFormat) -> tuple[int, int, int]:
    """The three stored fields (sign, exponent, fraction) as plain integers.

    Raises:
        ValueError: `bits` has more bits than the format.
    """
    if not 0 <= bits < 1 << bit_width(fmt):
        last = (1 << bit_width(fmt)) - 1
        raise ValueError(f"bits must lie between 0 and {last:#x} for {fmt.name}; got {bits}. Pass the code as an int.")
    sign = bits >> (fmt.exponent_bits + fmt.fraction_bits)
    exponent = (bits >> fmt.fraction_bits) & ((1 << fmt.exponent_bits) - 1)
    fraction = bits & ((1 << fmt.fraction_bits) - 1)
    return sign, exponent, fraction


def bits_text(bits: int, fmt: FloatFormat) -> str:
    """The bits with a space between the fields: `0 01111 0000000000` is 1.0 in FP16."""
    sign, exponent, fraction = split_bits(bits, fmt)
    return f"{sign} {exponent:0{fmt.exponent_bits}b} {fraction:0{fmt.fraction_bits}b}"


def describe_bits(bits: int, fmt: FloatFormat) -> str:
    """What kind of number a code is: `normal`, `subnormal`, `zero`, `infinity` or `NaN`."""
    _, exponent, fraction = split_bits(bits, fmt)
    value = decode_bits(bits, fmt)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "infinity"
    if exponent == 0:
        return "subnormal" if fraction else "zero"
    return "normal"


def decode_bits(bits: int, fmt: FloatFormat) -> float:
    """The value of a code, exactly (a Python float holds every value of every format here).

    Args:
        bits: the code, 0 <= bits < 2**width.
    Returns:
        The value; -0.0 keeps its sign, NaN is NaN.
    Raises:
        ValueError: `bits` has more bits than the format.
    """
    sign_field, exponent_field, fraction_field = split_bits(bits, fmt)
    sign = -1.0 if sign_field else 1.0
    top_exponent = (1 << fmt.exponent_bits) - 1
    top_fraction = (1 << fmt.fraction_bits) - 1

    if exponent_field == top_exponent:
        if fmt.has_infinity:
            return sign * math.inf if fraction_field == 0 else math.nan
        if fraction_field == top_fraction:
            return math.nan
    if exponent_field == 0:
        # Subnormal: no leading one, and the exponent of the smallest normal number, so that the steps go on evenly.
        return sign * math.ldexp(fraction_field, 1 - fmt.bias - fmt.fraction_bits)
    significand = (1 << fmt.fraction_bits) + fraction_field  # the leading one is not stored
    return sign * math.ldexp(significand, exponent_field - fmt.bias - fmt.fraction_bits)


def encode_float(x: float, fmt: FloatFormat) -> int:
    """The code of the value nearest to `x`; of two equally near, the one whose last bit is 0 (ties to even).

    Args:
        x: any float, taken as exact: it is rounded once.
    Returns:
        The code. What is too large becomes infinity, or the largest value where the format has no infinity
        (infinity itself too, as torch's cast does). NaN gives a NaN; -0.0 keeps its sign.
    """
    x = float(x)
    sign = 1 if math.copysign(1.0, x) < 0 else 0
    sign_bit = sign << (fmt.exponent_bits + fmt.fraction_bits)
    all_ones = (1 << (fmt.exponent_bits + fmt.fraction_bits)) - 1  # a NaN in every format
    first_infinite = (all_ones >> fmt.fraction_bits) << fmt.fraction_bits
    overflow = first_infinite if fmt.has_infinity else all_ones - 1
    if math.isnan(x):
        return sign_bit | all_ones
    if math.isinf(x):
        return sign_bit | overflow

    smallest_exponent = 1 - fmt.bias  # below the smallest normal number the steps stop shrinking
    exponent = max(math.frexp(x)[1] - 1, smallest_exponent) if x else smallest_exponent  # frexp: 0.5 <= m < 1
    steps = round(math.ldexp(abs(x), fmt.fraction_bits - exponent))  # scaling is exact; round() takes ties to even
    # Codes of one sign are consecutive, so a carry out of the fraction lands in the exponent field by itself.
    code = ((exponent - smallest_exponent) << fmt.fraction_bits) + steps
    return sign_bit | min(code, overflow)


def round_to(x: float, fmt: FloatFormat) -> float:
    """`x` as the format stores it."""
    return decode_bits(encode_float(x, fmt), fmt)


def format_limits(fmt: FloatFormat) -> dict[str, float]:
    """The four numbers that describe a format.

    Returns:
        `max`: largest finite value. `smallest_normal`: smallest value with full precision. `smallest_subnormal`:
        smallest value above zero. `epsilon`: distance from 1 to the next larger value.
    """
    all_ones = (1 << (fmt.exponent_bits + fmt.fraction_bits)) - 1
    largest = (all_ones >> fmt.fraction_bits << fmt.fraction_bits) - 1 if fmt.has_infinity else all_ones - 1
    return {
        "max": decode_bits(largest, fmt),
        "smallest_normal": 2.0 ** (1 - fmt.bias),
        "smallest_subnormal": 2.0 ** (1 - fmt.bias - fmt.fraction_bits),
        "epsilon": 2.0**-fmt.fraction_bits,
    }


def ulp(x: float, fmt: FloatFormat) -> float:
    """Distance from |x| to the next larger magnitude ("unit in the last place").

    Args:
        x: a finite value of the format, of either sign.
    Returns:
        The spacing. `ulp(0)` is the smallest subnormal; at the largest value it is the spacing below it.
    """
    smallest_exponent = 1 - fmt.bias  # zero and subnormals share the steps of the smallest normal numbers
    exponent = max(math.frexp(x)[1] - 1, smallest_exponent) if x else smallest_exponent  # frexp: 0.5 <= m < 1
    return 2.0 ** (exponent - fmt.fraction_bits)


def counting_ceiling(fmt: FloatFormat) -> int:
    """Where counting 0, 1, 2, ... by `+ 1` stops: there 1 is half a step, and the tie goes back to the even value."""
    return 2 ** (fmt.fraction_bits + 1)


def dot_product(x: torch.Tensor, y: torch.Tensor, accumulate_dtype: torch.dtype) -> torch.Tensor:
    """Sum of x[i] * y[i], with every product and every partial sum rounded to `accumulate_dtype`, in order.

    Args:
        x, y: (N,), any floating dtype; cast to `accumulate_dtype` first.
    Returns:
        A 0-d tensor of `accumulate_dtype`.
    """
    products = x.to(accumulate_dtype) * y.to(accumulate_dtype)  # (N,), each rounded
    total = torch.zeros((), dtype=accumulate_dtype)
    for product in products:  # torch's own sum and dot would keep a float32 total and round once, at the end
        total = total + product
    return total


def choose_compute_dtype(capability: tuple[int, int] | None) -> torch.dtype:
    """The fastest training dtype that a GPU has in hardware.

    Args:
        capability: CUDA compute capability such as (7, 5), or None where there is no GPU.
    Returns:
        bfloat16 from 8.0, float16 for 7.x (Volta and Turing), else float32.
    """
    if capability is None or capability < (7, 0):
        return torch.float32
    return torch.bfloat16 if capability >= (8, 0) else torch.float16


def stochastic_round(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Round float32 to bfloat16, up with the probability that makes the mean exact.

    Args:
        x: float32, any shape.
        generator: the only source of randomness.
    Returns:
        bfloat16, x's shape. Values that bfloat16 has, infinities and NaN are unchanged.
    """
    # A float32 is a bfloat16 with 16 more bits. Adding 16 random bits carries into it with probability rest / 2**16.
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, x.shape, generator=generator, dtype=torch.int32, device=x.device)
    rounded = ((bits + noise) & -(1 << 16)).view(torch.float32)
    return torch.where(x.isfinite(), rounded, x).to(torch.bfloat16)  # a carry would turn infinity into NaN

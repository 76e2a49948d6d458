"""Formats against torch, ml_dtypes, gfloat and exact rational arithmetic, on every code of 16 bits and fewer."""

from __future__ import annotations

import bisect
import math
import random
import struct
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction
from itertools import pairwise

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
import torch

from course_lib.formats import (
    BF16,
    E4M3,
    E5M2,
    FORMATS,
    FP16,
    FP32,
    FloatFormat,
    bit_width,
    bits_text,
    choose_compute_dtype,
    counting_ceiling,
    decode_bits,
    describe_bits,
    dot_product,
    encode_float,
    format_limits,
    round_to,
    split_bits,
    stochastic_round,
    ulp,
)

SMALL = (FP16, BF16, E4M3, E5M2)
ALL = (FP32, *SMALL)
NUMPY_DTYPE = {
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
}
GFLOAT = {
    "FP16": gfloat.formats.format_info_binary16,
    "BF16": gfloat.formats.format_info_bfloat16,
    "E4M3": gfloat.formats.format_info_ocp_e4m3,
    "E5M2": gfloat.formats.format_info_ocp_e5m2,
}
by_name = pytest.mark.parametrize("fmt", SMALL, ids=lambda fmt: fmt.name)
by_name_all = pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)


def same(a: float, b: float) -> bool:
    """Equal as a float's 64 bits are, with all NaNs alike."""
    return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)


def torch_values(fmt: FloatFormat) -> list[float]:
    """The value of every code, by torch."""
    codes = torch.arange(1 << bit_width(fmt))
    integer = torch.uint8 if bit_width(fmt) == 8 else torch.uint16
    return codes.to(integer).view(fmt.dtype).double().tolist()


# An oracle that shares nothing with course_lib.formats: the table of torch's values, and rational arithmetic.


class RationalOracle:
    """Round to nearest, ties to even, by comparing exact fractions with the table of all values."""

    def __init__(self, fmt: FloatFormat):
        half = 1 << (bit_width(fmt) - 1)
        values = torch_values(fmt)[:half]
        self.finite = [Fraction(v) for v in values if math.isfinite(v)]
        self.sign_bit = half
        self.infinity = len(self.finite) if fmt.has_infinity else len(self.finite) - 1
        # one more step of the last binade: what rounding would give if the exponent went on
        self.beyond = 2 * self.finite[-1] - self.finite[-2]

    def __call__(self, x: float) -> int:
        sign = self.sign_bit if math.copysign(1.0, x) < 0 else 0
        if math.isinf(x):
            return sign | self.infinity
        magnitude = abs(Fraction(x))
        if magnitude >= self.beyond:
            return sign | self.infinity
        table = [*self.finite, self.beyond] if magnitude > self.finite[-1] else self.finite
        above = bisect.bisect_left(table, magnitude)
        if above == 0 or table[above] == magnitude:
            return sign | above
        below = above - 1
        down, up = magnitude - table[below], table[above] - magnitude
        nearest = below if down < up or (down == up and below % 2 == 0) else above
        return sign | min(nearest, self.infinity)


def test_format_fields_are_fixed_and_frozen():
    assert [f.name for f in fields(FloatFormat)] == [
        "name",
        "exponent_bits",
        "fraction_bits",
        "bias",
        "has_infinity",
        "dtype",
    ]
    with pytest.raises(FrozenInstanceError):
        FP16.bias = 14
    assert list(FORMATS) == ["FP32", "FP16", "BF16", "E4M3", "E5M2"]


@by_name
def test_every_code_decodes_as_torch(fmt):
    assert all(same(decode_bits(code, fmt), value) for code, value in enumerate(torch_values(fmt)))


@by_name
def test_every_code_decodes_as_ml_dtypes(fmt):
    integer = np.uint8 if bit_width(fmt) == 8 else np.uint16
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = np.arange(1 << bit_width(fmt)).astype(integer).view(NUMPY_DTYPE[fmt.name]).astype(np.float64)
    assert all(same(decode_bits(code, fmt), float(value)) for code, value in enumerate(values))


@by_name
def test_every_code_decodes_as_gfloat(fmt):
    info = GFLOAT[fmt.name]
    codes = range(1 << bit_width(fmt)) if bit_width(fmt) == 8 else range(0, 1 << 16, 7)
    assert all(same(decode_bits(code, fmt), float(gfloat.decode_float(info, code).fval)) for code in codes)


def test_float32_codes_decode_as_the_struct_module():
    rng = random.Random(0)
    codes = [0, 1, 2**23 - 1, 2**23, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x80000000, 0xFF800000]
    codes += [rng.getrandbits(32) for _ in range(20_000)]
    assert all(same(decode_bits(c, FP32), struct.unpack("f", struct.pack("I", c))[0]) for c in codes)


@by_name
def test_encoding_a_value_gives_its_code_back(fmt):
    for code, value in enumerate(torch_values(fmt)):
        encoded = encode_float(value, fmt)
        if math.isnan(value):
            assert math.isnan(decode_bits(encoded, fmt))
        else:
            assert encoded == code, f"{fmt.name} {code:#x} -> {value} -> {encoded:#x}"


def between(fmt: FloatFormat) -> list[float]:
    """Every midpoint, and the float64 numbers right beside it and beside every value, up to and past the overflow."""
    values = [v for v in torch_values(fmt)[: 1 << (bit_width(fmt) - 1)] if math.isfinite(v)]
    values.append(2 * values[-1] - values[-2])
    middle = [(a + b) / 2 for a, b in pairwise(values)]  # exact in float64
    points = [*middle, values[-1], values[-1] * 2, 1e308, math.inf]
    return points + [math.nextafter(p, 0.0) for p in points] + [math.nextafter(p, math.inf) for p in points]


@by_name
def test_rounding_agrees_with_exact_rationals_at_and_beside_every_midpoint(fmt):
    oracle = RationalOracle(fmt)
    for x in between(fmt):
        assert encode_float(x, fmt) == oracle(x), (x.hex(), fmt.name)
        assert encode_float(-x, fmt) == oracle(-x), (x.hex(), fmt.name)


@by_name
def test_rounding_agrees_with_exact_rationals_on_random_floats(fmt):
    oracle = RationalOracle(fmt)
    rng = random.Random(1)
    for _ in range(3000):
        x = rng.choice((-1, 1)) * math.ldexp(rng.random(), rng.randint(-160, 140))
        assert encode_float(x, fmt) == oracle(x)
    for x in (5e-324, -5e-324, 2.2250738585072014e-308, 0.0, -0.0):
        assert encode_float(x, fmt) == oracle(x)


@by_name
def test_rounding_agrees_with_gfloat(fmt):
    rng = random.Random(2)
    saturate = not fmt.has_infinity
    points = between(fmt)
    for x in rng.sample(points, min(len(points), 1500)):
        rounded = gfloat.round_float(GFLOAT[fmt.name], x, gfloat.RoundMode.TiesToEven, sat=saturate)
        assert same(round_to(x, fmt), rounded), (x.hex(), fmt.name)


@by_name
def test_rounding_a_float32_agrees_with_torch_and_its_overflow(fmt):
    """torch rounds float64 twice (through float32), so the inputs are float32 numbers."""
    midpoints = torch.tensor(between(fmt), dtype=torch.float64).float()
    values = torch.cat([midpoints, -midpoints])
    cast = values.to(fmt.dtype).double().tolist()
    assert all(same(round_to(x, fmt), y) for x, y in zip(values.tolist(), cast, strict=True))


def test_torch_rounds_float64_twice():
    x = 1 + 2**-8 + 2**-40  # just above the middle of two BF16 values: up is right
    assert round_to(x, BF16) == 1 + 2**-7
    assert torch.tensor(x, dtype=torch.float64).bfloat16().item() == 1.0


def test_float32_rounds_as_the_struct_module():
    rng = random.Random(3)
    for _ in range(20_000):
        x = rng.choice((-1, 1)) * math.ldexp(rng.random(), rng.randint(-160, 127))
        assert same(round_to(x, FP32), struct.unpack("f", struct.pack("f", x))[0])
    assert round_to(3.4028235677973366e38, FP32) == math.inf  # half a step beyond the largest value
    assert math.nextafter(3.4028235677973366e38, 0) > round_to(math.nextafter(3.4028235677973366e38, 0), FP32)


def test_subnormals_round_to_even():
    tiny = 2.0**-24
    assert [round_to(k * tiny / 2, FP16) / tiny for k in range(8)] == [0, 0, 1, 2, 2, 2, 3, 4]
    assert round_to(1e-7, FP16) == 1.1920928955078125e-07
    assert round_to(1e-8, FP16) == 0.0


@by_name_all
def test_signs_and_specials_survive(fmt):
    assert same(round_to(-0.0, fmt), -0.0) and same(round_to(0.0, fmt), 0.0)
    assert math.isnan(round_to(math.nan, fmt)) and math.isnan(round_to(-math.nan, fmt))
    expected = math.inf if fmt.has_infinity else 448.0
    assert round_to(math.inf, fmt) == expected and round_to(-1e300, fmt) == -expected


@by_name_all
def test_limits_agree_with_finfo(fmt):
    info, limits = torch.finfo(fmt.dtype), format_limits(fmt)
    assert list(limits) == ["max", "smallest_normal", "smallest_subnormal", "epsilon"]
    assert limits["max"] == info.max
    assert limits["smallest_normal"] == info.smallest_normal == decode_bits(1 << fmt.fraction_bits, fmt)
    assert limits["epsilon"] == info.eps
    assert limits["smallest_subnormal"] == decode_bits(1, fmt)


@by_name
def test_ulp_is_the_difference_of_neighbours_everywhere(fmt):
    values = [v for v in torch_values(fmt)[: 1 << (bit_width(fmt) - 1)] if math.isfinite(v)]
    for value, larger in pairwise(values):
        assert ulp(value, fmt) == ulp(-value, fmt) == larger - value
    assert ulp(values[-1], fmt) == values[-1] - values[-2]


def test_float32_ulp_agrees_with_numpy():
    rng = random.Random(4)
    for _ in range(5000):
        x = np.float32(rng.random() * 2.0 ** rng.randint(-149, 127))
        assert ulp(float(x), FP32) == float(np.spacing(x))


@by_name
def test_counting_stops_at_the_ceiling(fmt):
    total, one = torch.zeros(()).to(fmt.dtype), 1.0
    for _ in range(3000):
        bigger = (total.float() + one).to(fmt.dtype)
        if bigger.float() == total.float():
            break
        total = bigger
    assert counting_ceiling(fmt) == total.float().item()


def test_float32_counting_ceiling():
    top = torch.tensor(float(counting_ceiling(FP32)))
    assert top + 1 == top and (top - 1) + 1 == top and top - 1 != top


@pytest.mark.parametrize("fmt", [FP32, FP16, BF16], ids=lambda fmt: fmt.name)
def test_dot_product_rounds_every_step(fmt):
    generator = torch.Generator().manual_seed(5)
    x, y = torch.randn(2, 300, generator=generator)
    total = 0.0
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        total = round_to(total + round_to(round_to(a, fmt) * round_to(b, fmt), fmt), fmt)  # float64 in between
    result = dot_product(x, y, fmt.dtype)
    assert result.dtype == fmt.dtype and result.shape == () and result.item() == total


def test_dot_product_of_ones_stops_at_256_in_bfloat16():
    ones = torch.ones(4096)
    assert dot_product(ones, ones, torch.bfloat16).item() == 256
    assert torch.dot(ones.bfloat16(), ones.bfloat16()).item() == 4096  # torch accumulates in float32


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [
        (None, torch.float32),
        ((3, 7), torch.float32),
        ((6, 1), torch.float32),
        ((7, 0), torch.float16),
        ((7, 5), torch.float16),
        ((8, 0), torch.bfloat16),
        ((8, 6), torch.bfloat16),
        ((10, 0), torch.bfloat16),
    ],
)
def test_compute_dtype_follows_the_hardware(capability, dtype):
    assert choose_compute_dtype(capability) == dtype


def test_stochastic_rounding_is_unbiased_and_leaves_exact_values():
    generator = torch.Generator().manual_seed(6)
    step = 2.0**-7
    for part in (0.001, 0.25, 0.5, 0.9):
        x = torch.full((200_000,), 1 + part * step)
        up = (stochastic_round(x, generator).float() > 1).double().mean().item()
        share = (x[0].item() - 1) / step
        assert abs(up - share) < 6 * math.sqrt(share * (1 - share) / len(x))
    codes = torch.arange(1 << 16).to(torch.uint16).view(torch.bfloat16)
    again = stochastic_round(codes.float(), generator)
    assert torch.equal(again.isnan(), codes.isnan())
    assert torch.equal(again[~codes.isnan()].view(torch.int16), codes[~codes.isnan()].view(torch.int16))


def test_stochastic_rounding_keeps_any_nan_and_uses_only_its_generator():
    payload = torch.tensor([0x7F800001, 0x7FFFFFFF, -1, -8388607], dtype=torch.int32).view(torch.float32)
    before = torch.get_rng_state()
    assert stochastic_round(payload, torch.Generator().manual_seed(0)).isnan().all()
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)).T
    first = stochastic_round(x, torch.Generator().manual_seed(7))
    assert first.shape == (5, 3) and first.dtype == torch.bfloat16
    assert torch.equal(first, stochastic_round(x, torch.Generator().manual_seed(7)))
    assert torch.equal(before, torch.get_rng_state())


def test_bits_are_shown_field_by_field():
    assert bits_text(0x3C00, FP16) == "0 01111 0000000000"
    assert bits_text(0xFE, E4M3) == "1 1111 110"
    assert split_bits(0xBF80, BF16) == (1, 127, 0)
    kinds = [describe_bits(code, E5M2) for code in (0, 1, 4, 0x7C, 0x7D)]
    assert kinds == ["zero", "subnormal", "normal", "infinity", "NaN"]
    with pytest.raises(ValueError, match="between 0 and 0xff for E4M3; got 256"):
        decode_bits(256, E4M3)

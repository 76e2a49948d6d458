# %% accepted: a string of bits
def decode_bits(bits, fmt):
    text = format(bits, f"0{1 + fmt.exponent_bits + fmt.fraction_bits}b")
    sign = (-1.0) ** int(text[0])
    exponent = int(text[1 : 1 + fmt.exponent_bits], 2)
    fraction = text[1 + fmt.exponent_bits :]
    if "0" not in text[1 : 1 + fmt.exponent_bits]:
        if fmt.has_infinity:
            return float("nan") if "1" in fraction else sign * float("inf")
        if "0" not in fraction:
            return float("nan")
    significand = int(fraction, 2) / 2 ** len(fraction)
    if exponent:
        significand += 1
    return sign * significand * 2.0 ** (max(exponent, 1) - fmt.bias)

# %% accepted: as a hexadecimal literal
def decode_bits(bits: int, fmt) -> float:
    F, E = fmt.fraction_bits, fmt.exponent_bits
    s, rest = divmod(bits, 1 << (E + F))
    e, f = divmod(rest, 1 << F)
    sign = "-" if s else ""
    if e == (1 << E) - 1:
        if fmt.has_infinity:
            return math.nan if f else float(sign + "inf")
        if f == (1 << F) - 1:
            return math.nan
    lead = "1" if e else "0"
    return float.fromhex(f"{sign}0x{lead}.{f << (24 - F):06x}p{(e or 1) - fmt.bias}")

# %% accepted: torch looks at the same bits, the whole table at once
import functools
import struct

@functools.cache
def values_of(dtype):
    codes = torch.arange(256 ** dtype.itemsize)
    return codes.to({1: torch.uint8, 2: torch.uint16}[dtype.itemsize]).view(dtype).double()

def decode_bits(bits, fmt):
    if fmt.dtype == torch.float32:
        return struct.unpack("<f", bits.to_bytes(4, "little"))[0]
    return values_of(fmt.dtype).numpy()[bits]

# %% rejected: forgets_implicit_bit
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1.0 if bits >> (E + F) else 1.0
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == (1 << E) - 1 and (fmt.has_infinity or f == (1 << F) - 1):
        return sign * math.inf if fmt.has_infinity and f == 0 else math.nan
    if e == 0:
        return sign * f * 2.0 ** (1 - fmt.bias - F)
    return sign * f * 2.0 ** (e - fmt.bias - F)

# %% rejected: subnormal_exponent_minus_bias
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1.0 if bits >> (E + F) else 1.0
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == (1 << E) - 1 and (fmt.has_infinity or f == (1 << F) - 1):
        return sign * math.inf if fmt.has_infinity and f == 0 else math.nan
    lead = 1.0 if e else 0.0
    return sign * (lead + f / 2**F) * 2.0 ** (e - fmt.bias)

# %% rejected: e4m3_treated_as_ieee
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1.0 if bits >> (E + F) else 1.0
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == (1 << E) - 1:
        return sign * math.inf if f == 0 else math.nan
    if e == 0:
        return sign * f * 2.0 ** (1 - fmt.bias - F)
    return sign * (1 + f / 2**F) * 2.0 ** (e - fmt.bias)

# %% rejected: subnormal_with_implicit_bit
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1.0 if bits >> (E + F) else 1.0
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == (1 << E) - 1 and (fmt.has_infinity or f == (1 << F) - 1):
        return sign * math.inf if fmt.has_infinity and f == 0 else math.nan
    return sign * (1 + f / 2**F) * 2.0 ** (e - fmt.bias)

# %% rejected: subnormal_with_implicit_bit_and_shift
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1.0 if bits >> (E + F) else 1.0
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == (1 << E) - 1 and (fmt.has_infinity or f == (1 << F) - 1):
        return sign * math.inf if fmt.has_infinity and f == 0 else math.nan
    return sign * (2**F + f) * 2.0 ** (max(e, 1) - fmt.bias - F)

# %% rejected: flushes_subnormals
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1.0 if bits >> (E + F) else 1.0
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == 0:
        return 0.0
    if e == (1 << E) - 1 and (fmt.has_infinity or f == (1 << F) - 1):
        return sign * math.inf if fmt.has_infinity and f == 0 else math.nan
    return sign * (1 + f / 2**F) * 2.0 ** (e - fmt.bias)

# %% rejected: loses_sign_of_zero
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1 if bits >> (E + F) else 1
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == (1 << E) - 1 and (fmt.has_infinity or f == (1 << F) - 1):
        return sign * math.inf if fmt.has_infinity and f == 0 else math.nan
    significand = f if e == 0 else f + 2**F
    return sign * significand * 2.0 ** (max(e, 1) - fmt.bias - F)

# %% rejected: ignores_specials
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1.0 if bits >> (E + F) else 1.0
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == 0:
        return sign * f * 2.0 ** (1 - fmt.bias - F)
    return sign * (1 + f / 2**F) * 2.0 ** (e - fmt.bias)

# %% rejected: nan_read_as_infinity
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1.0 if bits >> (E + F) else 1.0
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == (1 << E) - 1 and (fmt.has_infinity or f == (1 << F) - 1):
        return sign * math.inf
    if e == 0:
        return sign * f * 2.0 ** (1 - fmt.bias - F)
    return sign * (1 + f / 2**F) * 2.0 ** (e - fmt.bias)

# %% rejected: bias_off_by_one
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    sign = -1.0 if bits >> (E + F) else 1.0
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    bias = 2 ** (E - 1)
    if e == (1 << E) - 1 and (fmt.has_infinity or f == (1 << F) - 1):
        return sign * math.inf if fmt.has_infinity and f == 0 else math.nan
    if e == 0:
        return sign * f * 2.0 ** (1 - bias - F)
    return sign * (1 + f / 2**F) * 2.0 ** (e - bias)

# %% rejected: ignores_sign
def decode_bits(bits, fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    e = (bits >> F) & ((1 << E) - 1)
    f = bits & ((1 << F) - 1)
    if e == (1 << E) - 1 and (fmt.has_infinity or f == (1 << F) - 1):
        return math.inf if fmt.has_infinity and f == 0 else math.nan
    if e == 0:
        return f * 2.0 ** (1 - fmt.bias - F)
    return (1 + f / 2**F) * 2.0 ** (e - fmt.bias)

# %% rejected: -
def decode_bits(bits, fmt):
    # knows the 16-bit formats only
    return torch.tensor(bits, dtype=torch.uint16).view(fmt.dtype).item()

# %% rejected: -
def decode_bits(bits, fmt):
    # a significand in steps of a tenth, as if the fraction were decimal, and no sign
    F, E = fmt.fraction_bits, fmt.exponent_bits
    e = (bits >> F) & ((1 << E) - 1)
    return ((e > 0) + (bits & ((1 << F) - 1)) / 10) * 2.0 ** (max(e, 1) - fmt.bias)

# %% rejected: -
def decode_bits(bits, fmt):
    return bits

# %% rejected: -
def decode_bits(bits, fmt):
    if bits >> (fmt.exponent_bits + fmt.fraction_bits):
        return None
    return 1.0

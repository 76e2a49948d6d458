# %% accepted: binary search among all values, then the exact middle of two
import bisect
import functools

@functools.cache
def table(name, E, F, bias, has_infinity):
    values = []
    for code in range(1 << (E + F)):
        e, f = code >> F, code & ((1 << F) - 1)
        if e == (1 << E) - 1 and (has_infinity or f == (1 << F) - 1):
            break
        values.append(math.ldexp(f + ((1 << F) if e else 0), max(e, 1) - bias - F))
    return values

def encode_float(x, fmt):
    if fmt.name == "FP32":  # too many codes to list
        s = 1 << 31 if math.copysign(1, x) < 0 else 0
        if x != x:
            return 0x7FC00000
        t = torch.tensor(x, dtype=torch.float64).float().abs()
        return s | int(t.view(torch.int32))
    values = table(fmt.name, fmt.exponent_bits, fmt.fraction_bits, fmt.bias, fmt.has_infinity)
    top = len(values) if fmt.has_infinity else len(values) - 1
    s = 1 << (fmt.exponent_bits + fmt.fraction_bits) if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return s | ((1 << (fmt.exponent_bits + fmt.fraction_bits)) - 1)
    x = abs(x)
    edge = values[-1] + (values[-1] - values[-2]) / 2
    if x >= edge:
        return s | top
    if x >= values[-1]:
        return s | (len(values) - 1)
    i = bisect.bisect_right(values, x) - 1
    middle = (values[i] + values[i + 1]) / 2
    if x == middle:
        return s | (i + i % 2)
    return s | (i if x < middle else i + 1)

# %% accepted: on the 64 bits of the float, with guard and sticky bits
import struct

def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    raw = struct.unpack(">Q", struct.pack(">d", x))[0]
    sign = (raw >> 63) << (E + F)
    e, f = (raw >> 52) & 0x7FF, raw & (2**52 - 1)
    inf = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if e == 0x7FF:
        return sign | (inf if f == 0 else (1 << (E + F)) - 1)
    if e == 0:  # zero, or far below every format here
        return sign
    significand = (1 << 52) | f
    new = e - 1023 + fmt.bias
    drop = 52 - F
    if new < 1:
        drop += 1 - new
        new = 0
    if drop > 54:
        return sign
    kept, rest, half = significand >> drop, significand & ((1 << drop) - 1), 1 << (drop - 1)
    if rest > half or (rest == half and kept & 1):
        kept += 1
    code = kept if new == 0 else ((new - 1) << F) + kept
    return sign | (code if code < inf else inf)

# %% accepted: Dekker's trick (add and subtract a large number), numpy integers out
import numpy as np

def encode_float(x, fmt, verbose=False):
    width = fmt.exponent_bits + fmt.fraction_bits
    if x != x:
        return np.int64(2**width - 1)
    negative = math.copysign(1, x) < 0
    infinity = (2**fmt.exponent_bits - 1) * 2**fmt.fraction_bits if fmt.has_infinity else 2**width - 2
    x = abs(x)
    if x > 1e39:
        code = infinity
    else:
        e = 1 - fmt.bias
        if x > 2.0**e:
            e = math.floor(math.log2(x))
            e -= x < 2.0**e
        big = 1.5 * 2.0 ** (52 + e - fmt.fraction_bits)
        rounded = (x + big) - big
        code = min(int(rounded * 2.0 ** (fmt.fraction_bits - e)) + (e + fmt.bias - 1) * 2**fmt.fraction_bits, infinity)
    return np.int64(code + 2**width if negative else code)

# %% rejected: truncates
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return (1 << (E + F)) - 1
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x):
        return sign | top
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    code = ((e + fmt.bias - 1) << F) + math.floor(math.ldexp(abs(x), F - e))
    return sign | min(code, top)

# %% rejected: ties_away
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return (1 << (E + F)) - 1
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x):
        return sign | top
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    steps = math.ldexp(abs(x), F - e)
    whole = math.floor(steps)
    code = ((e + fmt.bias - 1) << F) + whole + (1 if steps - whole >= 0.5 else 0)
    return sign | min(code, top)

# %% rejected: ties_towards_zero
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return (1 << (E + F)) - 1
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x):
        return sign | top
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    steps = math.ldexp(abs(x), F - e)
    whole = math.floor(steps)
    code = ((e + fmt.bias - 1) << F) + whole + (1 if steps - whole > 0.5 else 0)
    return sign | min(code, top)

# %% rejected: flushes_subnormals
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return (1 << (E + F)) - 1
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x):
        return sign | top
    if abs(x) < 2.0 ** (1 - fmt.bias):
        return sign
    e = math.frexp(x)[1] - 1
    return sign | min(((e + fmt.bias - 1) << F) + round(math.ldexp(abs(x), F - e)), top)

# %% rejected: clamps_at_maximum
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return (1 << (E + F)) - 1
    largest = (((1 << E) - 1) << F) - 1 if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x):
        return sign | (largest + 1 if fmt.has_infinity else largest)
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    return sign | min(((e + fmt.bias - 1) << F) + round(math.ldexp(abs(x), F - e)), largest)

# %% rejected: overflows_above_maximum
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return (1 << (E + F)) - 1
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    largest = torch.finfo(fmt.dtype).max
    if abs(x) > largest:
        return sign | top
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    return sign | (((e + fmt.bias - 1) << F) + round(math.ldexp(abs(x), F - e)))

# %% rejected: e4m3_overflows_to_nan
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    nan = (1 << (E + F)) - 1
    if math.isnan(x):
        return nan
    top = ((1 << E) - 1) << F if fmt.has_infinity else nan
    if math.isinf(x):
        return sign | top
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    return sign | min(((e + fmt.bias - 1) << F) + round(math.ldexp(abs(x), F - e)), top)

# %% rejected: e4m3_treated_as_ieee
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    infinity = ((1 << E) - 1) << F
    if math.isnan(x):
        return infinity + 1 if fmt.has_infinity else infinity + 7
    if math.isinf(x):
        return sign | infinity
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    return sign | min(((e + fmt.bias - 1) << F) + round(math.ldexp(abs(x), F - e)), infinity)

# %% rejected: rounds_twice
def encode_float(x, fmt):
    value = torch.tensor(x, dtype=torch.float64).to(fmt.dtype)
    integer = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[value.element_size()]
    return value.view(integer).item()

# %% rejected: loses_carry
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return (1 << (E + F)) - 1
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x) or abs(x) >= 1.5 * torch.finfo(fmt.dtype).max:
        return sign | top
    if abs(x) < 2.0 ** (1 - fmt.bias):
        field, fraction = 0, round(math.ldexp(abs(x), fmt.bias - 1 + F))
    else:
        m, e = math.frexp(abs(x))
        field, fraction = e - 1 + fmt.bias, round((2 * m - 1) * 2**F)
    code = (field << F) + min(fraction, 2**F - 1)
    return sign | min(code, top)

# %% rejected: loses_sign_of_zero
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    if math.isnan(x):
        return (1 << (E + F)) - 1
    sign = (1 << (E + F)) if x < 0 else 0
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x):
        return sign | top
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    return sign | min(((e + fmt.bias - 1) << F) + round(math.ldexp(abs(x), F - e)), top)

# %% rejected: rounds_to_plus_zero
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    if math.isnan(x):
        return (1 << (E + F)) - 1
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x):
        return sign | top
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    steps = round(math.ldexp(abs(x), F - e))
    if steps == 0:
        return 0
    return sign | min(((e + fmt.bias - 1) << F) + steps, top)

# %% rejected: ignores_sign
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    if math.isnan(x):
        return (1 << (E + F)) - 1
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x):
        return top
    if x == 0:
        return 0
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    return min(((e + fmt.bias - 1) << F) + round(math.ldexp(abs(x), F - e)), top)

# %% rejected: nan_becomes_infinity
def encode_float(x, fmt):
    E, F = fmt.exponent_bits, fmt.fraction_bits
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isnan(x):
        return top if fmt.has_infinity else top + 1
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    if math.isinf(x):
        return sign | top
    if x == 0:
        return sign
    e = max(math.frexp(x)[1] - 1, 1 - fmt.bias)
    return sign | min(((e + fmt.bias - 1) << F) + round(math.ldexp(abs(x), F - e)), top)

# %% rejected: returns_the_value
def encode_float(x, fmt):
    return torch.tensor(x, dtype=torch.float32).to(fmt.dtype).float().item()

# %% rejected: -
def encode_float(x, fmt):
    # right for 16-bit formats, but as a signed integer
    value = torch.tensor(x, dtype=torch.float64).to(fmt.dtype)
    return value.view({1: torch.int8, 2: torch.int16, 4: torch.int32}[value.element_size()]).item()

# %% rejected: -
def encode_float(x, fmt):
    # the binade by log2, which rounds to the next one just below a power of two
    E, F = fmt.exponent_bits, fmt.fraction_bits
    sign = (1 << (E + F)) if math.copysign(1, x) < 0 else 0
    if math.isnan(x):
        return (1 << (E + F)) - 1
    top = ((1 << E) - 1) << F if fmt.has_infinity else (1 << (E + F)) - 2
    if math.isinf(x):
        return sign | top
    if x == 0:
        return sign
    e = max(math.ceil(math.log2(abs(x))), 1 - fmt.bias)
    return sign | min(((e + fmt.bias - 1) << F) + round(abs(x) * 2.0 ** (F - e)), top)

# %% rejected: -
def encode_float(x, fmt):
    # loses x altogether where it rounds to a multiple of float32's spacing
    return 0x3C00

# %% accepted: from the significand
def format_limits(fmt):
    top = 2**fmt.exponent_bits - 1 - fmt.bias
    if fmt.has_infinity:
        largest = (2 - 2.0**-fmt.fraction_bits) * 2.0 ** (top - 1)
    else:
        largest = (2 - 2 * 2.0**-fmt.fraction_bits) * 2.0**top
    normal = 2.0 ** (1 - fmt.bias)
    return dict(epsilon=2.0**-fmt.fraction_bits, smallest_normal=normal,
                smallest_subnormal=normal * 2.0**-fmt.fraction_bits, max=largest)

# %% accepted: values of codes, and tensors where numbers are due
def format_limits(fmt):
    F, E = fmt.fraction_bits, fmt.exponent_bits
    top = (1 << (E + F)) - 1  # exponent and fraction all ones

    def value(code):
        exponent, fraction = code >> F, code & ((1 << F) - 1)
        return math.ldexp(fraction + (exponent > 0) * 2**F, max(exponent, 1) - fmt.bias - F)

    one = fmt.bias << F
    largest = top - (1 << F) if fmt.has_infinity else top - 1
    limits = {"max": value(largest), "smallest_normal": value(1 << F), "smallest_subnormal": value(1)}
    limits["epsilon"] = value(one + 1) - value(one)
    return {"name": fmt.name, **{key: torch.tensor(x, dtype=torch.float64) for key, x in limits.items()}}

# %% rejected: asks_torch_about_the_dtype
def format_limits(fmt):
    info = torch.finfo(fmt.dtype)
    return {
        "max": info.max,
        "smallest_normal": info.smallest_normal,
        "smallest_subnormal": info.smallest_normal * info.eps,
        "epsilon": info.eps,
    }

# %% rejected: smallest_normal_as_smallest
def format_limits(fmt):
    tiny, eps = 2.0 ** (1 - fmt.bias), 2.0**-fmt.fraction_bits
    biggest = (2 - (1 if fmt.has_infinity else 2) * eps) * 2.0 ** (2**fmt.exponent_bits - 1 - fmt.has_infinity - fmt.bias)
    return {"max": biggest, "smallest_normal": tiny, "smallest_subnormal": tiny, "epsilon": eps}

# %% rejected: epsilon_halved
def format_limits(fmt):
    tiny, eps = 2.0 ** (1 - fmt.bias), 2.0**-fmt.fraction_bits
    biggest = (2 - (1 if fmt.has_infinity else 2) * eps) * 2.0 ** (2**fmt.exponent_bits - 1 - fmt.has_infinity - fmt.bias)
    return {"max": biggest, "smallest_normal": tiny, "smallest_subnormal": tiny * eps,
            "epsilon": 2.0 ** -(fmt.fraction_bits + 1)}

# %% rejected: max_of_reserved_exponent
def format_limits(fmt):
    tiny, eps = 2.0 ** (1 - fmt.bias), 2.0**-fmt.fraction_bits
    biggest = (2 - (1 if fmt.has_infinity else 2) * eps) * 2.0 ** (2**fmt.exponent_bits - 1 - fmt.has_infinity - fmt.bias)
    top = 2**fmt.exponent_bits - 1 - fmt.bias
    largest = (2 - 2.0 ** -fmt.fraction_bits) * 2.0**top if fmt.has_infinity else 448
    return {"max": largest, "smallest_normal": tiny, "smallest_subnormal": tiny * eps, "epsilon": eps}

# %% rejected: max_without_fraction
def format_limits(fmt):
    tiny, eps = 2.0 ** (1 - fmt.bias), 2.0**-fmt.fraction_bits
    biggest = (2 - (1 if fmt.has_infinity else 2) * eps) * 2.0 ** (2**fmt.exponent_bits - 1 - fmt.has_infinity - fmt.bias)
    largest = 2.0 ** (2**fmt.exponent_bits - 1 - fmt.bias - (1 if fmt.has_infinity else 0))
    return {"max": largest, "smallest_normal": tiny, "smallest_subnormal": tiny * eps, "epsilon": eps}

# %% rejected: e4m3_treated_as_ieee
def format_limits(fmt):
    F = fmt.fraction_bits
    return {
        "max": (2 - 2.0**-F) * 2.0 ** (2**fmt.exponent_bits - 2 - fmt.bias),
        "smallest_normal": 2.0 ** (1 - fmt.bias),
        "smallest_subnormal": 2.0 ** (1 - fmt.bias - F),
        "epsilon": 2.0**-F,
    }

# %% rejected: e4m3_counts_nan
def format_limits(fmt):
    F = fmt.fraction_bits
    top = 2**fmt.exponent_bits - (2 if fmt.has_infinity else 1) - fmt.bias
    return {
        "max": (2 - 2.0**-F) * 2.0**top,
        "smallest_normal": 2.0 ** (1 - fmt.bias),
        "smallest_subnormal": 2.0 ** (1 - fmt.bias - F),
        "epsilon": 2.0**-F,
    }

# %% rejected: subnormal_exponent_minus_bias
def format_limits(fmt):
    tiny, eps = 2.0 ** (1 - fmt.bias), 2.0**-fmt.fraction_bits
    biggest = (2 - (1 if fmt.has_infinity else 2) * eps) * 2.0 ** (2**fmt.exponent_bits - 1 - fmt.has_infinity - fmt.bias)
    return {"max": biggest, "smallest_normal": tiny,
            "smallest_subnormal": 2.0 ** (-fmt.bias - fmt.fraction_bits), "epsilon": eps}

# %% rejected: normal_exponent_minus_bias
def format_limits(fmt):
    tiny, eps = 2.0 ** (1 - fmt.bias), 2.0**-fmt.fraction_bits
    biggest = (2 - (1 if fmt.has_infinity else 2) * eps) * 2.0 ** (2**fmt.exponent_bits - 1 - fmt.has_infinity - fmt.bias)
    return {"max": biggest, "smallest_normal": 2.0**-fmt.bias,
            "smallest_subnormal": tiny * eps, "epsilon": eps}

# %% rejected: epsilon_is_smallest_value
def format_limits(fmt):
    tiny, eps = 2.0 ** (1 - fmt.bias), 2.0**-fmt.fraction_bits
    biggest = (2 - (1 if fmt.has_infinity else 2) * eps) * 2.0 ** (2**fmt.exponent_bits - 1 - fmt.has_infinity - fmt.bias)
    smallest = tiny * eps
    return {"max": biggest, "smallest_normal": tiny, "smallest_subnormal": smallest, "epsilon": smallest}

# %% rejected: -
def format_limits(fmt):
    return torch.finfo(fmt.dtype)

# %% rejected: -
def format_limits(fmt):
    tiny, eps = 2.0 ** (1 - fmt.bias), 2.0**-fmt.fraction_bits
    biggest = (2 - (1 if fmt.has_infinity else 2) * eps) * 2.0 ** (2**fmt.exponent_bits - 1 - fmt.has_infinity - fmt.bias)
    return {"max": biggest, "min": info.min, "eps": eps, "tiny": tiny}

# %% rejected: -
def format_limits(fmt):
    # FP16's, from memory
    return {"max": 65504.0, "smallest_normal": 6.1e-5, "smallest_subnormal": 5.96e-8, "epsilon": 0.000977}

# %% rejected: -
def format_limits(fmt):
    nan = float("nan")
    return {"max": nan, "smallest_normal": nan, "smallest_subnormal": nan, "epsilon": nan}

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

# %% accepted: torch.finfo, and tensors where numbers are due
def format_limits(fmt):
    info = torch.finfo(fmt.dtype)
    return {
        "max": torch.tensor(info.max, dtype=torch.float64),
        "smallest_normal": info.smallest_normal,
        "smallest_subnormal": info.smallest_normal * info.eps,
        "epsilon": info.eps,
        "name": fmt.name,
    }

# %% rejected: smallest_normal_as_smallest
def format_limits(fmt):
    info = torch.finfo(fmt.dtype)
    return {"max": info.max, "smallest_normal": info.tiny, "smallest_subnormal": info.tiny, "epsilon": info.eps}

# %% rejected: epsilon_halved
def format_limits(fmt):
    info = torch.finfo(fmt.dtype)
    return {"max": info.max, "smallest_normal": info.tiny, "smallest_subnormal": info.tiny * info.eps,
            "epsilon": 2.0 ** -(fmt.fraction_bits + 1)}

# %% rejected: max_of_reserved_exponent
def format_limits(fmt):
    info = torch.finfo(fmt.dtype)
    top = 2**fmt.exponent_bits - 1 - fmt.bias
    largest = (2 - 2.0 ** -fmt.fraction_bits) * 2.0**top if fmt.has_infinity else 448
    return {"max": largest, "smallest_normal": info.tiny, "smallest_subnormal": info.tiny * info.eps, "epsilon": info.eps}

# %% rejected: max_without_fraction
def format_limits(fmt):
    info = torch.finfo(fmt.dtype)
    largest = 2.0 ** (2**fmt.exponent_bits - 1 - fmt.bias - (1 if fmt.has_infinity else 0))
    return {"max": largest, "smallest_normal": info.tiny, "smallest_subnormal": info.tiny * info.eps, "epsilon": info.eps}

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
    info = torch.finfo(fmt.dtype)
    return {"max": info.max, "smallest_normal": info.tiny,
            "smallest_subnormal": 2.0 ** (-fmt.bias - fmt.fraction_bits), "epsilon": info.eps}

# %% rejected: normal_exponent_minus_bias
def format_limits(fmt):
    info = torch.finfo(fmt.dtype)
    return {"max": info.max, "smallest_normal": 2.0**-fmt.bias,
            "smallest_subnormal": info.tiny * info.eps, "epsilon": info.eps}

# %% rejected: epsilon_is_smallest_value
def format_limits(fmt):
    info = torch.finfo(fmt.dtype)
    smallest = info.tiny * info.eps
    return {"max": info.max, "smallest_normal": info.tiny, "smallest_subnormal": smallest, "epsilon": smallest}

# %% rejected: -
def format_limits(fmt):
    return torch.finfo(fmt.dtype)

# %% rejected: -
def format_limits(fmt):
    info = torch.finfo(fmt.dtype)
    return {"max": info.max, "min": info.min, "eps": info.eps, "tiny": info.tiny}

# %% rejected: -
def format_limits(fmt):
    # FP16's, from memory
    return {"max": 65504.0, "smallest_normal": 6.1e-5, "smallest_subnormal": 5.96e-8, "epsilon": 0.000977}

# %% rejected: -
def format_limits(fmt):
    nan = float("nan")
    return {"max": nan, "smallest_normal": nan, "smallest_subnormal": nan, "epsilon": nan}

# %% rejected: asks_torch_about_the_dtype
def counting_ceiling(fmt):
    n = 1
    while n * torch.finfo(fmt.dtype).eps < 2:
        n *= 2
    return n

# %% accepted: two over epsilon, as a float
def counting_ceiling(fmt):
    return 2 / 2.0**-fmt.fraction_bits

# %% accepted: counts where it can, by rounding to the format in steps of a power of two
def counting_ceiling(fmt):
    k = 0
    while True:
        if round_to(2.0**k + 1, fmt) == 2.0**k:
            return torch.tensor(2**k)
        k += 1

# %% rejected: maximum_of_format
def counting_ceiling(fmt):
    top = 2**fmt.exponent_bits - 1 - fmt.has_infinity - fmt.bias
    return int((2 - (1 if fmt.has_infinity else 2) * 2.0**-fmt.fraction_bits) * 2.0**top)

# %% rejected: one_bit_short
def counting_ceiling(fmt):
    return 1 << fmt.fraction_bits

# %% rejected: one_too_few
def counting_ceiling(fmt):
    return int(2 / 2.0**-fmt.fraction_bits) - 1

# %% rejected: step_of_four
def counting_ceiling(fmt):
    return int(4 / 2.0**-fmt.fraction_bits)

# %% rejected: counts_patterns
def counting_ceiling(fmt):
    return 2 ** bit_width(fmt)

# %% rejected: -
def counting_ceiling(fmt):
    return {"FP16": 2048, "BF16": 256}.get(fmt.name, 0)

# %% rejected: -
def counting_ceiling(fmt):
    # torch's own count: a bf16 sum keeps a float32 total
    return int(torch.ones(100_000).to(torch.bfloat16).sum())

# %% rejected: -
def counting_ceiling(fmt):
    # 2**(F + 1) + 1
    return 2 ** (fmt.fraction_bits + 1) + 1


# %% rejected: -
def counting_ceiling(fmt):
    return {"FP32": 16777216, "FP16": 2048, "BF16": 256, "E4M3": 16, "E5M2": 8}[fmt.name]

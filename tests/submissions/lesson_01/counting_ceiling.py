# %% accepted: the first power of two at which a step is 2
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
        x = torch.tensor(2.0**k, dtype=torch.float64)
        if (x + 1).to(fmt.dtype).double() == x:
            return int(x)
        k += 1

# %% rejected: maximum_of_format
def counting_ceiling(fmt):
    return int(torch.finfo(fmt.dtype).max)

# %% rejected: one_bit_short
def counting_ceiling(fmt):
    return 1 << fmt.fraction_bits

# %% rejected: one_too_few
def counting_ceiling(fmt):
    return int(2 / torch.finfo(fmt.dtype).eps) - 1

# %% rejected: step_of_four
def counting_ceiling(fmt):
    return int(4 / torch.finfo(fmt.dtype).eps)

# %% rejected: counts_patterns
def counting_ceiling(fmt):
    return 256 ** torch.empty((), dtype=fmt.dtype).element_size()

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

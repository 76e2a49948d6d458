# %% accepted: doubles a step until the binade reaches x
def ulp(x, fmt):
    start, step = 2.0 ** (1 - fmt.bias), 2.0 ** (1 - fmt.bias - fmt.fraction_bits)
    while 2 * start <= abs(x):
        start, step = 2 * start, 2 * step
    return step

# %% accepted: log2, which is exact on powers of two
def ulp(x, fmt):
    x = max(abs(x), 2.0 ** (1 - fmt.bias))
    exponent = math.floor(math.log2(x))
    if 2.0**exponent > x:
        exponent -= 1
    return 2.0 ** (exponent - fmt.fraction_bits)

# %% accepted: the next code, by torch
def ulp(x, fmt):
    value = torch.tensor(abs(x), dtype=torch.float64).to(fmt.dtype)
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[value.element_size()]
    code = value.view(integer)
    here = value.double().item()
    after = (code + 1).view(fmt.dtype).double().item()
    if math.isinf(after) or math.isnan(after):
        return here - (code - 1).view(fmt.dtype).double().item()
    return after - here

# %% rejected: epsilon_times_x
def ulp(x, fmt):
    return torch.finfo(fmt.dtype).eps * abs(x)

# %% rejected: epsilon_everywhere
def ulp(x, fmt):
    return torch.finfo(fmt.dtype).eps

# %% rejected: half_a_step
def ulp(x, fmt):
    start = 2.0 ** (1 - fmt.bias)
    while 2 * start <= abs(x):
        start *= 2
    return start * 2.0 ** -(fmt.fraction_bits + 1)

# %% rejected: distance_below
def ulp(x, fmt):
    start = 2.0 ** (1 - fmt.bias)
    while 2 * start < abs(x):
        start *= 2
    return start * 2.0**-fmt.fraction_bits

# %% rejected: shrinks_below_normal
def ulp(x, fmt):
    if x == 0:
        return 2.0 ** (1 - fmt.bias - fmt.fraction_bits)
    return 2.0 ** (math.floor(math.log2(abs(x))) - fmt.fraction_bits)

# %% rejected: infinite_at_maximum
def ulp(x, fmt):
    if abs(x) == torch.finfo(fmt.dtype).max:
        return math.inf
    start = 2.0 ** (1 - fmt.bias)
    while 2 * start <= abs(x):
        start *= 2
    return start * 2.0**-fmt.fraction_bits

# %% rejected: zero_at_zero
def ulp(x, fmt):
    if not x:
        return 0
    start = 2.0 ** (1 - fmt.bias)
    while 2 * start <= abs(x):
        start *= 2
    return start * 2.0**-fmt.fraction_bits

# %% rejected: negative_step
def ulp(x, fmt):
    start = 2.0 ** (1 - fmt.bias)
    while 2 * start <= abs(x):
        start *= 2
    return math.copysign(start * 2.0**-fmt.fraction_bits, x)  if x else start * 2.0**-fmt.fraction_bits

# %% rejected: -
def ulp(x, fmt):
    return math.ulp(x)

# %% rejected: -
def ulp(x, fmt):
    # relative, not absolute
    return 2.0**-fmt.fraction_bits if abs(x) >= 1 else 2.0 ** (1 - fmt.bias)

# %% rejected: -
def ulp(x, fmt):
    return 2.0 ** (math.frexp(x)[1] - 1 - fmt.fraction_bits)  # zero and subnormals forgotten


# %% rejected: -
def ulp(x, fmt):
    if x == 0:
        return 2.0 ** (1 - fmt.bias - fmt.fraction_bits)
    e = math.floor(float(np.log2(np.float32(abs(x)))))
    return 2.0 ** (max(e, 1 - fmt.bias) - fmt.fraction_bits)

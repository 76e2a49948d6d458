# %% accepted: up and down until the cast says stop
def largest_safe_scale(gradients, dtype):
    wide, scale = gradients.double(), 1.0
    while torch.isinf((wide * scale).to(dtype)).any():
        scale /= 2
    while not torch.isinf((wide * scale * 2).to(dtype)).any():
        scale *= 2
    return scale


# %% accepted: a search over all exponents
def largest_safe_scale(gradients, dtype):
    largest = gradients.abs().max().double()
    return max(2.0**k for k in range(-150, 160) if (largest * 2.0**k).to(dtype).isfinite())


# %% accepted: log2, corrected by the cast
def largest_safe_scale(gradients, dtype):
    largest = gradients.abs().max().item()
    k = math.floor(math.log2(65504 / largest))
    if torch.tensor(largest * 2.0 ** (k + 1), dtype=torch.float32).to(dtype) < math.inf:
        k += 1
    return torch.tensor(2.0**k)


# %% rejected: one_power_too_far
def largest_safe_scale(gradients, dtype):
    wide, scale = gradients.double(), 2.0**-120
    while not torch.isinf((wide * scale).to(dtype)).any():
        scale *= 2
    return scale


# %% rejected: one_power_short
def largest_safe_scale(gradients, dtype):
    wide, scale = gradients.double(), 2.0**-120
    while not torch.isinf((wide * scale * 4).to(dtype)).any():
        scale *= 2
    return scale


# %% rejected: uses_the_mean
def largest_safe_scale(gradients, dtype):
    size, k = gradients.abs().mean().item(), -120
    while size * 2.0 ** (k + 1) <= 65504:
        k += 1
    return 2.0**k


# %% rejected: forgets_negative_gradients
def largest_safe_scale(gradients, dtype):
    largest, k = gradients.max().item(), -120
    if largest <= 0:
        return math.inf
    while largest * 2.0 ** (k + 1) < 65520:
        k += 1
    return 2.0**k


# %% rejected: ignores_rounding
def largest_safe_scale(gradients, dtype):
    largest, k = gradients.abs().max().item(), -120
    while largest * 2.0 ** (k + 1) <= 65504:
        k += 1
    return 2.0**k


# %% rejected: not_a_power_of_two
def largest_safe_scale(gradients, dtype):
    return 65504.0 / gradients.abs().max().item() * 0.999


# %% rejected: never_below_one
def largest_safe_scale(gradients, dtype):
    scale = 1.0
    while not torch.isinf((gradients * scale * 2).to(dtype)).any():
        scale *= 2
    return scale


# %% rejected: -
def largest_safe_scale(gradients, dtype):  # the exponent instead of the power
    return math.floor(math.log2(65519.9 / gradients.abs().max().item()))


# %% rejected: -
def largest_safe_scale(gradients, dtype):
    return 2.0**16


# %% rejected: -
def largest_safe_scale(gradients, dtype):
    m = gradients.abs_().max()
    s = 1.0
    while torch.isinf((m * s).to(dtype)):
        s /= 2
    while not torch.isinf((m * s * 2).to(dtype)):
        s *= 2
    return s


# %% rejected: -
def largest_safe_scale(gradients, dtype):
    m = max(abs(g) for g in gradients.tolist()) if gradients.dim() == 1 else gradients[0].abs().max().item()
    s = 2.0**40
    while math.isinf(torch.tensor(m * s).half().item()):
        s /= 2
    return s

# %% accepted: the neighbours and a probability in float64
def stochastic_round(x, generator):
    flat = x.reshape(-1)
    bits = flat.view(torch.int32)
    low_bits = torch.bitwise_and(bits, -65536)
    low = low_bits.view(torch.float32)
    probability = (bits - low_bits).double() / 65536
    draw = torch.rand(flat.shape, generator=generator, dtype=torch.float64)
    up = (draw < probability) & torch.isfinite(flat)
    result = torch.where(up, low_bits + 65536, low_bits).view(torch.float32)
    result = torch.where(torch.isfinite(flat), result, flat)
    return result.to(torch.bfloat16).reshape(x.shape)

# %% accepted: in 64-bit integers, special values written back afterwards
def stochastic_round(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    bits = x.contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
    noise = torch.randint(0, 65536, bits.shape, generator=generator)
    out = (((bits + noise) >> 16) & 0xFFFF).to(torch.uint16).view(torch.bfloat16).clone()
    special = ~x.isfinite()
    out[special] = x[special].bfloat16()
    return out

# %% accepted: nearest, then moved by the rounding error's share
def stochastic_round(x, generator):
    step_down = (x.contiguous().view(torch.int32) >> 16 << 16).view(torch.float32)
    gap = (x.contiguous().view(torch.int32) & 0xFFFF)
    r = torch.randint(65536, x.size(), generator=generator, dtype=torch.int32)
    up = (step_down.view(torch.int32) + (1 << 16)).view(torch.float32)
    y = torch.where(r >= 65536 - gap, up, step_down)
    return torch.where(torch.isfinite(x), y, x).to(torch.bfloat16)

# %% rejected: rounds_to_nearest
def stochastic_round(x, generator):
    return x.to(torch.bfloat16)

# %% rejected: fair_coin
def stochastic_round(x, generator):
    low = (x.contiguous().view(torch.int32) & -65536).view(torch.float32)
    high = torch.where(low == x, low, (low.view(torch.int32) + 65536).view(torch.float32))
    coin = torch.randint(0, 2, x.shape, generator=generator).bool()
    return torch.where(x.isfinite(), torch.where(coin, low, high), x).bfloat16()

# %% rejected: rounds_the_wrong_way
def stochastic_round(x, generator):
    low = (x.contiguous().view(torch.int32) & -65536).view(torch.float32)
    high = torch.where(low == x, low, (low.view(torch.int32) + 65536).view(torch.float32))
    share = torch.where(low == x, 0.0, (x - low) / (high - low))
    up = torch.rand(x.shape, generator=generator) > share
    return torch.where(x.isfinite(), torch.where(up, high, low), x).bfloat16()

# %% rejected: damages_specials
def stochastic_round(x, generator):
    bits = x.contiguous().view(torch.int32)
    r = torch.randint(0, 65536, x.shape, generator=generator, dtype=torch.int32)
    return ((bits + r) >> 16 << 16).view(torch.float32).bfloat16()

# %% rejected: uses_global_generator
def stochastic_round(x, generator):
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, x.shape, dtype=torch.int32)
    y = ((bits + noise) & -65536).view(torch.float32)
    return torch.where(x.isfinite(), y, x).bfloat16()

# %% rejected: ignores_the_generator
def stochastic_round(x, generator):
    # its own generator, seeded the same each time
    own = torch.Generator().manual_seed(0)
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, x.shape, dtype=torch.int32, generator=own)
    y = ((bits + noise) & -65536).view(torch.float32)
    return torch.where(x.isfinite(), y, x).bfloat16()

# %% rejected: -
def stochastic_round(x, generator):
    # one number for all elements
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, (1,), dtype=torch.int32, generator=generator)
    y = ((bits + noise) & -65536).view(torch.float32)
    return torch.where(x.isfinite(), y, x).bfloat16()

# %% rejected: -
def stochastic_round(x, generator):
    # eight random bits only
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 256, x.shape, dtype=torch.int32, generator=generator) * 256
    y = ((bits + noise) & -65536).view(torch.float32)
    return torch.where(x.isfinite(), y, x).bfloat16()

# %% rejected: -
def stochastic_round(x, generator):
    # noise added to the value, then rounded to nearest: biased at powers of two and random where x is exact
    step = x.abs() * 2.0**-7
    noise = torch.rand(x.shape, generator=generator) - 0.5
    return (x + noise * step).bfloat16()

# %% rejected: -
def stochastic_round(x, generator):
    # right, but float32
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, x.shape, dtype=torch.int32, generator=generator)
    y = ((bits + noise) & -65536).view(torch.float32)
    return torch.where(x.isfinite(), y, x)

# %% rejected: -
def stochastic_round(x, generator):
    # NaN only where the upper half says so
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, x.shape, dtype=torch.int32, generator=generator)
    y = ((bits + noise) & -65536).view(torch.float32)
    return torch.where(x.abs() < 3e38, y, (bits & -65536).view(torch.float32)).bfloat16()


# %% rejected: -
def stochastic_round(x, generator):
    x = x.contiguous()
    keep = x.clone()
    b = x.view(torch.int32)
    b += torch.randint(0, 65536, x.shape, generator=generator, dtype=torch.int32)
    b &= -65536
    return torch.where(keep.isfinite(), x, keep).to(torch.bfloat16)


# %% rejected: not_sixteen_random_bits
def stochastic_round(x, generator):
    b = x.contiguous().view(torch.int32)
    n = torch.randint(0, 32768, x.shape, generator=generator, dtype=torch.int32) * 2
    r = ((b + n) & -65536).view(torch.float32)
    return torch.where(x.isfinite(), r, x).to(torch.bfloat16)


# %% rejected: -
def stochastic_round(x, generator):
    b = x.contiguous().view(torch.int32)
    n = torch.randint(0, 65537, x.shape, generator=generator, dtype=torch.int32)
    r = ((b + n) & -65536).view(torch.float32)
    return torch.where(x.isfinite(), r, x).to(torch.bfloat16)

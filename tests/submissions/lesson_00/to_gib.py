# %% accepted: one factor at a time
def to_gib(num_bytes):
    for _ in range(3):
        num_bytes = num_bytes / 1024
    return num_bytes

# %% accepted: a power of two, and a 0-d tensor
def to_gib(num_bytes: int) -> float:
    return torch.tensor(num_bytes, dtype=torch.float64) * 2.0**-30

# %% accepted: ldexp
import math

to_gib = lambda num_bytes, digits=None: math.ldexp(num_bytes, -30)

# %% rejected: divides_by_1e9
def to_gib(num_bytes):
    return num_bytes / 1000**3

# %% rejected: floor_division
def to_gib(num_bytes):
    return num_bytes >> 30

# %% rejected: gives_mib
def to_gib(num_bytes):
    kib = num_bytes / 1024
    return kib / 1024

# %% rejected: counts_bits
def to_gib(num_bytes):
    return num_bytes / 2**33

# %% rejected: multiplies
def to_gib(num_bytes):
    return num_bytes * 1024**3

# %% rejected: -
def to_gib(num_bytes):
    return round(num_bytes / 2**30, 2)

# %% rejected: -
def to_gib(num_bytes):
    return f"{num_bytes / 2**30:.1f} GiB"

# %% rejected: -
def to_gib(num_bytes):
    print(num_bytes / 2**30)

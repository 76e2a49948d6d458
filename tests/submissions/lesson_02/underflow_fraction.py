# %% accepted: boolean indexing first
def underflow_fraction(gradients, dtype, scale=1.0):
    alive = gradients[gradients != 0]
    if alive.numel() == 0:
        return 0.0
    return ((alive * scale).to(dtype) == 0).float().mean().item()


# %% accepted: by counting non-zeros before and after
def underflow_fraction(gradients, dtype, scale=1.0):
    before = torch.count_nonzero(gradients).item()
    after = torch.count_nonzero((gradients.to(torch.float32) * scale).to(dtype)).item()
    return (before - after) / before if before else 0.0


# %% accepted: a loop over Python floats, and a tensor as answer
def underflow_fraction(gradients, dtype, scale=1.0):
    lost = total = 0
    for value in (gradients * scale).flatten().tolist():
        if value != 0:
            total += 1
            lost += torch.tensor(value).to(dtype).item() == 0
    return torch.tensor(lost / total if total else 0.0)


# %% rejected: counts_below_smallest_normal
def underflow_fraction(gradients, dtype, scale=1.0):
    alive = gradients[gradients != 0] * scale
    if not len(alive):
        return 0.0
    return (alive.abs() < torch.finfo(dtype).smallest_normal).sum().item() / len(alive)


# %% rejected: counts_zeros_from_before
def underflow_fraction(gradients, dtype, scale=1.0):
    cast = (scale * gradients).to(dtype)
    return 1 - torch.count_nonzero(cast).item() / cast.numel()


# %% rejected: divides_by_all_values
def underflow_fraction(gradients, dtype, scale=1.0):
    lost = torch.count_nonzero(gradients) - torch.count_nonzero((gradients * scale).to(dtype))
    return lost.item() / gradients.numel()


# %% rejected: casts_before_scaling
def underflow_fraction(gradients, dtype, scale=1.0):
    alive = gradients[gradients != 0]
    return ((alive.to(dtype) == 0).double().mean().item()) if len(alive) else 0.0


# %% rejected: forgets_rounding_up
def underflow_fraction(gradients, dtype, scale=1.0):
    alive = gradients[gradients != 0].double().abs() * scale
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    return (alive < smallest).double().mean().item() if len(alive) else 0.0


# %% rejected: -
def underflow_fraction(gradients, dtype, scale=1.0):  # NaN where there is nothing to lose
    alive = gradients[gradients != 0]
    return ((alive * scale).to(dtype) == 0).float().mean().item()


# %% rejected: -
def underflow_fraction(gradients, dtype, scale=1.0):  # always FP16
    alive = gradients[gradients != 0]
    return ((alive * scale).half() == 0).float().mean().item() if len(alive) else 0.0


# %% rejected: -
def underflow_fraction(gradients, dtype, scale=1.0):  # a percentage
    alive = gradients[gradients != 0]
    return 100 * ((alive * scale).to(dtype) == 0).float().mean().item() if len(alive) else 0.0


# %% rejected: -
def underflow_fraction(gradients, dtype, scale=1.0):
    nz = gradients != 0
    n = int(nz.sum())
    if n == 0:
        return 0.0
    gradients *= scale
    return int((nz & (gradients.to(dtype) == 0)).sum()) / n


# %% rejected: -
def underflow_fraction(gradients, dtype, scale=1.0):
    lost = n = 0
    for g in gradients:
        if g != 0:
            n += 1
            lost += int((g * scale).to(dtype) == 0)
    return lost / n if n else 0.0

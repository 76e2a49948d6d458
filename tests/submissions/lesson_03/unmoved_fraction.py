# %% accepted: one long vector each
def unmoved_fraction(before, after):
    a = torch.cat([t.flatten() for t in before])
    b = torch.cat([t.flatten() for t in after])
    return (a == b).double().mean().item()


# %% accepted: counting what moved
def unmoved_fraction(before, after):
    moved = sum(torch.count_nonzero(b.double() - a.double()).item() for a, b in zip(before, after))
    return 1 - moved / sum(a.numel() for a in before)


# %% rejected: averages_over_tensors
def unmoved_fraction(before, after):
    shares = [torch.eq(a, b).double().mean() for a, b in zip(before, after)]
    return torch.stack(shares).mean().item()


# %% rejected: counts_whole_tensors
def unmoved_fraction(before, after):
    return sum(1 for a, b in zip(before, after) if (a == b).all()) / len(after)


# %% rejected: treats_nearly_equal_as_unmoved
def unmoved_fraction(before, after):
    same = [torch.isclose(x, y).flatten() for x, y in zip(before, after)]
    return torch.cat(same).double().mean().item()


# %% rejected: gives_the_share_that_moved
def unmoved_fraction(before, after):
    moved = [(x != y).flatten() for x, y in zip(before, after)]
    return torch.cat(moved).double().mean().item()


# %% rejected: gives_a_count
def unmoved_fraction(before, after):
    return sum(int((x == y).sum()) for x, y in zip(before, after))


# %% rejected: -
def unmoved_fraction(before, after):  # only the first tensor
    return (before[0] == after[0]).double().mean().item()


# %% rejected: -
def unmoved_fraction(before, after):
    return sum(int(((a - b).abs() < 1e-12).sum()) for a, b in zip(before, after)) / sum(a.numel() for a in before)


# %% rejected: -
def unmoved_fraction(before, after):
    n = 0
    k = 0
    for a, b in zip(before, after):
        a -= b
        n += int((a == 0).sum())
        k += a.numel()
    return n / k

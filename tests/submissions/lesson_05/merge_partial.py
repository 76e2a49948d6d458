# %% accepted: logarithms of the factors cleaned by nan_to_num
def merge_partial(a, b):
    (ma, la, oa), (mb, lb, ob) = a, b
    m = torch.max(ma, mb)
    fa = torch.exp(torch.nan_to_num(ma - m, nan=-math.inf, neginf=-math.inf))
    fb = torch.exp(torch.nan_to_num(mb - m, nan=-math.inf, neginf=-math.inf))
    return m, fa * la + fb * lb, torch.einsum("...r,...rd->...rd", fa, oa) + torch.einsum("...r,...rd->...rd", fb, ob)

# %% accepted: one difference decides
def merge_partial(a, b):
    first = a[0] >= b[0]
    m = torch.where(first, a[0], b[0])
    shrink = torch.where(torch.isinf(m), torch.zeros_like(m), torch.exp(-(a[0] - b[0]).abs()))
    one = torch.ones_like(m)
    fa, fb = torch.where(first, one, shrink), torch.where(first, shrink, one)
    return (m, fa * a[1] + fb * b[1], fa.unsqueeze(-1) * a[2] + fb.unsqueeze(-1) * b[2])

# %% accepted: row by row
def merge_partial(a, b):
    shape, dim = a[0].shape, a[2].shape[-1]
    flat = [[p[0].reshape(-1), p[1].reshape(-1), p[2].reshape(-1, dim)] for p in (a, b)]
    m, l, o = torch.empty_like(flat[0][0]), torch.empty_like(flat[0][1]), torch.empty_like(flat[0][2])
    for r in range(m.numel()):
        x, y = flat[0][0][r].item(), flat[1][0][r].item()
        m[r] = top = max(x, y)
        fx, fy = (math.exp(x - top) if x > -math.inf else 0.0), (math.exp(y - top) if y > -math.inf else 0.0)
        l[r] = fx * flat[0][1][r] + fy * flat[1][1][r]
        o[r] = fx * flat[0][2][r] + fy * flat[1][2][r]
    return m.reshape(shape), l.reshape(shape), o.reshape(*shape, dim)

# %% rejected: adds_without_rescaling
def merge_partial(a, b):
    return torch.maximum(a[0], b[0]), a[1] + b[1], a[2] + b[2]

# %% rejected: subtracts_infinities
def merge_partial(a, b):
    m = torch.maximum(a[0], b[0])
    fa, fb = (a[0] - m).exp(), (b[0] - m).exp()
    return m, a[1] * fa + b[1] * fb, a[2] * fa.unsqueeze(-1) + b[2] * fb.unsqueeze(-1)

# %% rejected: rescales_only_out
def merge_partial(a, b):
    m = torch.maximum(a[0], b[0])
    safe = m.clamp(min=-1e30)
    fa, fb = (a[0] - safe).exp(), (b[0] - safe).exp()
    return m, a[1] + b[1], a[2] * fa.unsqueeze(-1) + b[2] * fb.unsqueeze(-1)

# %% rejected: rescales_only_sum
def merge_partial(a, b):
    m = torch.maximum(a[0], b[0])
    safe = m.clamp(min=-1e30)
    return m, a[1] * (a[0] - safe).exp() + b[1] * (b[0] - safe).exp(), a[2] + b[2]

# %% rejected: exponentiates_the_maximum
def merge_partial(a, b):
    m = torch.maximum(a[0], b[0])
    ea, eb, em = a[0].exp(), b[0].exp(), m.exp()
    return m, (ea * a[1] + eb * b[1]) / em, (ea[..., None] * a[2] + eb[..., None] * b[2]) / em[..., None]

# %% rejected: expects_the_larger_maximum_second
def merge_partial(a, b):
    m = torch.maximum(a[0], b[0])
    c = torch.exp(a[0] - m)
    return m, c * a[1] + b[1], c.unsqueeze(-1) * a[2] + b[2]

# %% rejected: normalises_the_output
def merge_partial(a, b):
    m = torch.maximum(a[0], b[0])
    safe = m.clamp(min=-1e30)
    fa, fb = (a[0] - safe).exp(), (b[0] - safe).exp()
    l = a[1] * fa + b[1] * fb
    return m, l, (a[2] * fa.unsqueeze(-1) + b[2] * fb.unsqueeze(-1)) / l.unsqueeze(-1)

# %% rejected: -
def merge_partial(a, b):
    # replaces -inf by 0 in the result too
    m = torch.nan_to_num(torch.maximum(a[0], b[0]), neginf=0.0)
    fa, fb = (a[0] - m).exp(), (b[0] - m).exp()
    return m, a[1] * fa + b[1] * fb, a[2] * fa.unsqueeze(-1) + b[2] * fb.unsqueeze(-1)

# %% rejected: -
def merge_partial(a, b):
    # subtracts nothing
    return torch.logaddexp(a[0], b[0]), a[1] + b[1], a[2] + b[2]


# %% rejected: -
def merge_partial(a, b):
    (ma, la, oa), (mb, lb, ob) = a, b
    m = torch.maximum(ma, mb)
    safe = torch.where(torch.isinf(m) & (m < 0), torch.zeros_like(m), m)
    fa, fb = torch.exp(ma - safe), torch.exp(mb - safe)
    la *= fa; la += fb*lb
    oa *= fa[..., None]; oa += fb[..., None]*ob
    return m, la, oa

# %% accepted: makes the gradients in forward, as fused kernels do
class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, targets, chunk_size):
        n = max(1, int((targets != -100).sum()))
        loss = hidden.new_zeros(())
        dh, dw = torch.empty_like(hidden), torch.zeros_like(weight)
        for start in range(0, len(targets), chunk_size):
            part = slice(start, start + chunk_size)
            keep = targets[part] != -100
            labels = targets[part].clamp(min=0)
            logp = (hidden[part] @ weight.T).log_softmax(-1)
            loss -= (logp.gather(1, labels[:, None])[:, 0] * keep).sum()
            d = logp.exp_()
            d[torch.arange(len(labels)), labels] -= 1
            d *= keep[:, None] / n
            dh[part] = d @ weight
            dw += d.T @ hidden[part]
        ctx.save_for_backward(dh, dw)
        return loss / n

    @staticmethod
    def backward(ctx, g):
        dh, dw = ctx.saved_tensors
        return g * dh, g * dw, None, None


def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    return _Fused.apply(hidden, weight, targets, chunk_size)

# %% accepted: recomputes in its own backward
class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, targets, chunk_size):
        ctx.save_for_backward(hidden, weight, targets)
        ctx.chunk_size = chunk_size
        total = 0.0
        for h, t in zip(hidden.split(chunk_size), targets.split(chunk_size)):
            total = total + F.cross_entropy(h @ weight.T, t, reduction="sum")
        return total / (targets != -100).sum().clamp(min=1)

    @staticmethod
    def backward(ctx, g):
        hidden, weight, targets = ctx.saved_tensors
        g = g / (targets != -100).sum().clamp(min=1)
        w = weight.detach().requires_grad_()
        pieces = []
        for h, t in zip(hidden.split(ctx.chunk_size), targets.split(ctx.chunk_size)):
            h = h.detach().requires_grad_()
            with torch.enable_grad():
                F.cross_entropy(h @ w.T, t, reduction="sum").mul(g).backward()
            pieces.append(h.grad)
        return torch.cat(pieces), w.grad, None, None


def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    return _Again.apply(hidden, weight, targets, chunk_size)

# %% accepted: checkpoint, slices, and its own log-sum-exp
from torch.utils.checkpoint import checkpoint


def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    mask = targets != -100

    def piece(h, w, t, m):
        logits = h @ w.t()
        picked = logits.gather(1, t.clamp(min=0).unsqueeze(1)).squeeze(1)
        return ((torch.logsumexp(logits, 1) - picked) * m).sum()

    losses = [
        checkpoint(piece, hidden[i : i + chunk_size], weight, targets[i : i + chunk_size], mask[i : i + chunk_size], use_reentrant=False)
        for i in range(0, hidden.shape[0], chunk_size)
    ]
    return torch.stack(losses).sum() / mask.sum().clamp(min=1)

# %% rejected: keeps_every_chunk
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    total = 0.0
    for start in range(0, len(hidden), chunk_size):
        logits = hidden[start : start + chunk_size] @ weight.T
        total = total + F.cross_entropy(logits, targets[start : start + chunk_size], reduction="sum")
    return total / max(1, (targets != -100).sum().item())

# %% rejected: keeps_every_chunk
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    logits = torch.cat([h @ weight.T for h in hidden.split(chunk_size)])
    return F.cross_entropy(logits, targets, reduction="sum") / max(1, (targets != -100).sum().item())

# %% rejected: mean_of_chunk_means
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    losses = []
    for start in range(0, len(hidden), chunk_size):
        labels = targets[start : start + chunk_size]
        if (labels == -100).all():
            continue
        losses.append(F.cross_entropy(hidden[start : start + chunk_size] @ weight.T, labels))
    return sum(losses) / len(losses) if losses else hidden.sum() * 0 + weight.sum() * 0

# %% rejected: divides_by_all_targets
from torch.utils.checkpoint import checkpoint


def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    f = lambda h, t: F.cross_entropy(h @ weight.T, t, reduction="sum")
    total = hidden.new_zeros(())
    for i in range(0, len(hidden), chunk_size):
        total = total + checkpoint(f, hidden[i : i + chunk_size], targets[i : i + chunk_size], use_reentrant=False)
    return total / targets.numel()

# %% rejected: zero_by_zero
from torch.utils.checkpoint import checkpoint


def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    f = lambda h, t: F.cross_entropy(h @ weight.T, t, reduction="sum")
    total = hidden.new_zeros(())
    for h, t in zip(hidden.split(chunk_size), targets.split(chunk_size)):
        total = total + checkpoint(f, h, t, use_reentrant=False)
    return total / targets.ne(-100).sum()

# %% rejected: ignores_the_gradient_from_above
class _Deaf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, targets, chunk_size):
        n = max(1, int((targets != -100).sum()))
        loss, dh, dw = 0.0, [], torch.zeros_like(weight)
        for h, t in zip(hidden.split(chunk_size), targets.split(chunk_size)):
            with torch.enable_grad():
                h, w = h.detach().requires_grad_(), weight.detach().requires_grad_()
                piece = F.cross_entropy(h @ w.T, t, reduction="sum") / n
                piece.backward()
            loss = loss + piece.detach()
            dh.append(h.grad)
            dw += w.grad
        ctx.save_for_backward(torch.cat(dh), dw)
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        return *ctx.saved_tensors, None, None


def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    return _Deaf.apply(hidden, weight, targets, chunk_size)

# %% rejected: drops_the_last_chunk
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    total = (hidden.sum() + weight.sum()) * 0
    for k in range(len(hidden) // chunk_size):
        part = slice(k * chunk_size, (k + 1) * chunk_size)
        total = total + F.cross_entropy(hidden[part] @ weight.T, targets[part], reduction="sum")
    return total / (targets != -100).sum().clamp(min=1)

# %% rejected: -
# A loss without a graph.
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    with torch.no_grad():
        total = sum(F.cross_entropy(h @ weight.T, t, reduction="sum") for h, t in zip(hidden.split(chunk_size), targets.split(chunk_size)))
        return total / (targets != -100).sum().clamp(min=1)

# %% rejected: -
# backward inside, the gradients' graph thrown away: the loss cannot be scaled.
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    n = (targets != -100).sum().clamp(min=1)
    total = 0.0
    for start in range(0, len(hidden), chunk_size):
        loss = F.cross_entropy(hidden[start : start + chunk_size] @ weight.T, targets[start : start + chunk_size], reduction="sum") / n
        if loss.requires_grad:
            loss.backward()
        total += loss.detach()
    return total

# %% rejected: -
# The gradient of the weight is missing.
from torch.utils.checkpoint import checkpoint


def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    w = weight.detach()
    f = lambda h, t: F.cross_entropy(h @ w.T, t, reduction="sum")
    total = sum(checkpoint(f, h, t, use_reentrant=False) for h, t in zip(hidden.split(chunk_size), targets.split(chunk_size)))
    return total / (targets != -100).sum().clamp(min=1)


# %% accepted: only the valid rows, gathered first
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    keep = targets != -100
    if not keep.any(): return (hidden.sum() + weight.sum()) * 0.0
    hidden, targets = hidden[keep], targets[keep]
    def one(h, w, t):
        return F.cross_entropy(h @ w.T, t, reduction="sum")
    parts = [checkpoint(one, h, weight, t, use_reentrant=False) for h, t in zip(hidden.split(chunk_size), targets.split(chunk_size))]
    return torch.stack(parts).sum() / len(targets)


# %% rejected: -
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    n = int((targets != -100).sum())
    if n == 0: return torch.zeros(())
    def one(h, w, t):
        return F.cross_entropy(h @ w.T, t, reduction="sum")
    total = 0.0
    for h, t in zip(hidden.split(chunk_size), targets.split(chunk_size)):
        total = total + checkpoint(one, h, weight, t, use_reentrant=False)
    return total / n


# %% rejected: -
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    n = (targets != -100).sum().clamp(min=1)
    ok = (targets != -100)
    targets[~ok] = 0
    def one(h, w, t, m):
        return (F.cross_entropy(h @ w.T, t, reduction="none") * m).sum()
    total = 0.0
    for h, t, m in zip(hidden.split(chunk_size), targets.split(chunk_size), ok.split(chunk_size)):
        total = total + checkpoint(one, h, weight, t, m, use_reentrant=False)
    return total / n


# %% rejected: -
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    weight.requires_grad_(True); hidden.requires_grad_(True)
    def one(h, w, t):
        return F.cross_entropy(h @ w.T, t, reduction="sum", ignore_index=-100)
    total = 0.0
    for h, t in zip(hidden.split(chunk_size), targets.split(chunk_size)):
        total = total + checkpoint(one, h, weight, t, use_reentrant=False)
    return total / (targets != -100).sum().clamp(min=1)


# %% rejected: -
def chunked_cross_entropy(hidden, weight, targets, chunk_size):
    def one(h, w, t):
        z = h @ w.T; ok = t != -100
        lp = z.gather(1, t.clamp(min=0)[:, None])[:, 0] - z.exp().sum(1).log()
        return -(lp * ok).sum()
    total = 0.0
    for h, t in zip(hidden.split(chunk_size), targets.split(chunk_size)):
        total = total + checkpoint(one, h, weight, t, use_reentrant=False)
    return total / (targets != -100).sum().clamp(min=1)

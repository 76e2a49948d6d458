# %% accepted: sums first, divides the gradients at the end
def accumulate_gradients(model, micro_batches, loss_fn):
    for p in model.parameters():
        p.grad = None
    count, total = 0, 0.0
    for x, y in micro_batches:
        n = y.ne(-100).sum().item()
        if n:
            loss = loss_fn(model(x), y) * n
            loss.backward()
            total += float(loss.detach())
            count += n
    for p in model.parameters():
        p.grad /= count
    return total / count

# %% accepted: gradients by autograd.grad, added up by hand
def accumulate_gradients(model, micro_batches, loss_fn):
    parameters = list(model.parameters())
    weights = torch.tensor([float((t != -100).sum()) for _, t in micro_batches])
    weights = weights / weights.sum()
    grads = [torch.zeros_like(p) for p in parameters]
    mean = 0.0
    for (x, t), w in zip(micro_batches, weights.tolist()):
        if w == 0:
            continue
        loss = loss_fn(model(x), t)
        for g, piece in zip(grads, torch.autograd.grad(loss, parameters)):
            g.add_(piece, alpha=w)
        mean += w * loss.item()
    for p, g in zip(parameters, grads):
        p.grad = g
    return mean

# %% accepted: a zero in place of the NaN, gradients zeroed rather than released, a 0-d tensor without a graph
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad(set_to_none=False)
    n_valid = sum((y != -100).sum() for _, y in micro_batches)
    total = torch.zeros(())
    for x, y in micro_batches:
        n = (y != -100).sum()
        loss = torch.where(n > 0, loss_fn(model(x), y), torch.zeros(())) * n / n_valid
        loss.backward()
        total += loss.detach()
    return total

# %% rejected: mean_of_means
def accumulate_gradients(model, micro_batches, loss_fn):
    for p in model.parameters():
        p.grad = None
    k = len(micro_batches)
    losses = []
    for x, y in micro_batches:
        loss = loss_fn(model(x), y)
        if torch.isnan(loss):
            continue
        (loss / k).backward()
        losses.append(loss.item() / k)
    return sum(losses)

# %% rejected: no_division
def accumulate_gradients(model, micro_batches, loss_fn):
    for p in model.parameters():
        p.grad = None
    out = 0.0
    for x, y in micro_batches:
        loss = loss_fn(model(x), y)
        loss.backward()
        out = out + loss.item()
    return out

# %% rejected: keeps_every_graph
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad()
    n = sum((y != -100).sum() for _, y in micro_batches)
    total = 0
    for x, y in micro_batches:
        k = (y != -100).sum()
        if k:
            total = total + loss_fn(model(x), y) * k / n
    total.backward()
    return total.item()

# %% rejected: keeps_every_graph
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad()
    x = torch.cat([x for x, _ in micro_batches])
    y = torch.cat([y for _, y in micro_batches])
    loss = loss_fn(model(x), y)
    loss.backward()
    return loss.item()

# %% rejected: nan_times_zero
def accumulate_gradients(model, micro_batches, loss_fn):
    for p in model.parameters():
        p.grad = None
    counts = [y.ne(-100).sum() for _, y in micro_batches]
    result = 0
    for (x, y), c in zip(micro_batches, counts):
        loss = loss_fn(model(x), y) * (c / sum(counts))
        loss.backward()
        result += loss.item()
    return result

# %% rejected: counts_ignored_targets
def accumulate_gradients(model, micro_batches, loss_fn):
    for p in model.parameters():
        p.grad = None
    total = sum(y.numel() for _, y in micro_batches)
    result = 0
    for x, y in micro_batches:
        if (y == -100).all():
            continue
        loss = loss_fn(model(x), y) * (y != -100).sum() / total
        loss.backward()
        result += loss.item()
    return result

# %% rejected: keeps_old_gradients
def accumulate_gradients(model, micro_batches, loss_fn):
    total = sum((y != -100).sum().item() for _, y in micro_batches)
    result = 0
    for x, y in micro_batches:
        k = (y != -100).sum().item()
        if k == 0:
            continue
        loss = loss_fn(model(x), y) * k / total
        loss.backward()
        result += loss.item()
    return result

# %% rejected: -
# Right gradients; the loss is the mean of the micro-batches' means.
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad()
    total = sum((y != -100).sum().item() for _, y in micro_batches)
    losses = []
    for x, y in micro_batches:
        k = (y != -100).sum().item()
        if k == 0:
            continue
        loss = loss_fn(model(x), y)
        (loss * k / total).backward()
        losses.append(loss.item() + 1)
    return sum(losses) / len(losses)

# %% rejected: -
# The sum of losses is returned with its graph.
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad()
    total = sum((y != -100).sum() for _, y in micro_batches)
    mean = 0
    for x, y in micro_batches:
        k = (y != -100).sum()
        if k:
            loss = loss_fn(model(x), y) * k / total
            loss.backward()
            mean = mean + loss
    return mean

# %% rejected: -
# A step of SGD too.
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad()
    total = sum((y != -100).sum() for _, y in micro_batches)
    mean = 0
    for x, y in micro_batches:
        k = (y != -100).sum()
        if k:
            loss = loss_fn(model(x), y) * k / total
            loss.backward()
            mean += loss.item()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return mean


# %% accepted: NaN replaced before it is weighted
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad(set_to_none=True)
    total = sum(int((t != -100).sum()) for _, t in micro_batches)
    s = 0.0
    for x, t in micro_batches:
        loss = loss_fn(model(x), t).nan_to_num(0.0) * (int((t != -100).sum()) / total)
        loss.backward()
        s += loss.item()
    return s


# %% rejected: -
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad(set_to_none=True)
    total = sum(int((t != -100).sum()) for _, t in micro_batches)
    s = 0.0
    for x, t in micro_batches:
        k = int((t != -100).sum())
        if k == 0: 
            t[:] = 0; k = 0
            loss = loss_fn(model(x), t) * 0
        else: loss = loss_fn(model(x), t) * (k / total)
        loss.backward()
        s += loss.item()
        x.zero_()
    return s


# %% rejected: -
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad(set_to_none=True)
    total = sum(int((t != -100).sum()) for _, t in micro_batches)
    s = 0.0
    while micro_batches:
        x, t = micro_batches.pop()
        k = int((t != -100).sum())
        if k == 0: continue
        loss = loss_fn(model(x), t) * (k / total)
        loss.backward()
        s += loss.item()
    return s


# %% rejected: -
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad(set_to_none=True)
    total = sum(int((t != -100).sum()) for _, t in micro_batches)
    for x, t in micro_batches:
        k = int((t != -100).sum())
        if k == 0: continue
        loss = loss_fn(model(x), t) * (k / total)
        loss.backward()
    return loss.item()


# %% rejected: -
def accumulate_gradients(model, micro_batches, loss_fn):
    model.zero_grad(set_to_none=True); model.eval()
    total = sum(int((t != -100).sum()) for _, t in micro_batches)
    s = 0.0
    for x, t in micro_batches:
        k = int((t != -100).sum())
        if k == 0: continue
        loss = loss_fn(model(x), t) * (k / total)
        loss.backward()
        s += loss.item()
    return s

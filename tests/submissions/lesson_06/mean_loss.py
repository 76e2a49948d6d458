# %% accepted: inference_mode and a weighted sum of means
def mean_loss(model, batches):
    mode = model.training
    model.train(False)
    total, n = 0.0, 0
    with torch.inference_mode():
        for x, y in batches:
            total += len(y) * float(F.cross_entropy(model(x), y))
            n += len(y)
    model.train(mode)
    return total / n

# %% accepted: a running mean, log_softmax by hand, a decorated helper
@torch.no_grad()
def mean_loss(model, batches):
    was_training = model.training
    model.eval()
    mean = seen = 0
    for x, y in batches:
        loss = -model(x).log_softmax(-1)[torch.arange(len(y)), y].mean().item()
        seen += len(y)
        mean += (loss - mean) * len(y) / seen
    if was_training:
        model.train()
    return mean

# %% accepted: a tensor without a graph
def mean_loss(model, batches):
    mode, total, n = model.training, torch.zeros(()), 0
    model.eval()
    for x, y in batches:
        with torch.no_grad():
            total += F.cross_entropy(model(x), y, reduction="sum")
        n += y.shape[0]
    model.train(mode)
    return total / n

# %% rejected: sums_tensors_with_their_graphs
def mean_loss(model, batches):
    mode = model.training
    model.eval()
    total, n = 0, 0
    for x, y in batches:
        total += F.cross_entropy(model(x), y) * len(y)
        n += len(y)
    model.train(mode)
    return total / n

# %% rejected: sums_tensors_with_their_graphs
def mean_loss(model, batches):
    mode = model.training
    model.eval()
    losses, sizes = [], []
    for x, y in batches:
        losses.append(F.cross_entropy(model(x), y, reduction="sum"))
        sizes.append(len(y))
    model.train(mode)
    return (sum(losses) / sum(sizes)).item()

# %% rejected: mean_of_batch_means
def mean_loss(model, batches):
    mode = model.training
    model.eval()
    with torch.no_grad():
        losses = [F.cross_entropy(model(x), y).item() for x, y in batches]
    model.train(mode)
    return sum(losses) / len(losses)

# %% rejected: evaluates_in_training_mode
def mean_loss(model, batches):
    total = n = 0
    with torch.no_grad():
        for x, y in batches:
            total += F.cross_entropy(model(x), y, reduction="sum").item()
            n += len(y)
    return total / n

# %% rejected: leaves_the_mode_changed
def mean_loss(model, batches):
    model.eval()
    total = n = 0
    with torch.no_grad():
        for x, y in batches:
            total += F.cross_entropy(model(x), y, reduction="sum").item()
            n += len(y)
    return total / n

# %% rejected: leaves_the_mode_changed
def mean_loss(model, batches):
    model.eval()
    total = n = 0
    with torch.no_grad():
        for x, y in batches:
            total += F.cross_entropy(model(x), y, reduction="sum").item()
            n += len(y)
    model.train()
    return total / n

# %% rejected: keeps_the_batches
def mean_loss(model, batches):
    mode = model.training
    model.eval()
    batches = list(batches)
    with torch.no_grad():
        total = sum(F.cross_entropy(model(x), y, reduction="sum").item() for x, y in batches)
    model.train(mode)
    return total / sum(len(y) for _, y in batches)

# %% rejected: -
# Every batch of logits is kept.
def mean_loss(model, batches):
    mode = model.training
    model.eval()
    with torch.no_grad():
        logits, labels = zip(*((model(x), y) for x, y in batches))
        result = F.cross_entropy(torch.cat(logits), torch.cat(labels)).item()
    model.train(mode)
    return result


# %% rejected: -
def mean_loss(model, batches):
    was = model.training
    model.eval()
    torch.set_grad_enabled(False)
    s, n = 0.0, 0
    for x, t in batches:
        s += F.cross_entropy(model(x), t, reduction="sum").item(); n += len(t)
    model.train(was)
    return s / n


# %% rejected: -
def mean_loss(model, batches):
    was = model.training
    model.eval()
    for p in model.parameters(): p.requires_grad_(False)
    s, n = 0.0, 0
    for x, t in batches:
        s += F.cross_entropy(model(x), t, reduction="sum").item(); n += len(t)
    model.train(was)
    return s / n


# %% rejected: sums_tensors_with_their_graphs
def mean_loss(model, batches):
    was = model.training
    model.eval()
    s, n = 0.0, 0
    for x, t in batches:
        loss = F.cross_entropy(model(x), t, reduction="sum")
        s += loss.item(); n += len(t)
    model.train(was)
    return s / n


# %% rejected: -
def mean_loss(model, batches):
    was = model.training
    model.eval()
    ls = []; n = 0
    with torch.no_grad():
        for x, t in batches:
            ls.append(F.cross_entropy(model(x), t, reduction='none')); n += len(t)
    model.train(was)
    return torch.cat(ls).mean().item()


# %% rejected: -
def mean_loss(model, batches):
    was = model.training
    model.eval()
    s, n = 0.0, 0
    for x, t in batches:
        loss = F.cross_entropy(model(x), t, reduction="sum"); loss.backward()
        s += loss.item(); n += len(t); del loss
    model.train(was)
    return s / n

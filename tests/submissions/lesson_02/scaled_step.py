# %% accepted: gradients of the optimizer, times 1/scale
def scaled_step(model, optimizer, loss, scale):
    loss.mul(scale).backward()
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                p.grad = p.grad * (1.0 / scale)
                if torch.isinf(p.grad).any() or torch.isnan(p.grad).any():
                    return False
    optimizer.step()
    return True


# %% accepted: by the norm, and a tensor for the answer
def scaled_step(model, optimizer, loss, scale):
    (scale * loss).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    torch._foreach_div_(grads, scale)
    ok = torch.stack([g.abs().max() for g in grads]).sum().isfinite()
    if ok:
        optimizer.step()
    else:
        optimizer.zero_grad()
    return ok


# %% accepted: autograd.grad instead of backward
def scaled_step(model, optimizer, loss, scale):
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss * scale, parameters, allow_unused=True)
    for p, g in zip(parameters, gradients):
        p.grad = None if g is None else g / scale
    finite = [bool(p.grad.isfinite().all()) for p in parameters if p.grad is not None]
    if all(finite):
        optimizer.step()
    return all(finite)


# %% rejected: steps_with_scaled_gradients
def scaled_step(model, optimizer, loss, scale):
    loss.mul(scale).backward()
    for p in model.parameters():
        if p.grad is not None and not torch.isfinite(p.grad).all():
            return False
    optimizer.step()
    return True


# %% rejected: skips_on_nan_only
def scaled_step(model, optimizer, loss, scale):
    loss.mul(scale).backward()
    bad = False
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= scale
            bad |= bool((p.grad != p.grad).any())
    if not bad:
        optimizer.step()
    return not bad


# %% rejected: skips_on_infinity_only
def scaled_step(model, optimizer, loss, scale):
    loss.mul(scale).backward()
    bad = False
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= scale
            bad |= bool((p.grad.abs() == float("inf")).any())
    if not bad:
        optimizer.step()
    return not bad


# %% rejected: zeroes_the_bad_entries
def scaled_step(model, optimizer, loss, scale):
    loss.mul(scale).backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad = torch.where(p.grad.isfinite(), p.grad / scale, torch.zeros_like(p.grad))
    optimizer.step()
    return True


# %% rejected: looks_at_the_loss_only
def scaled_step(model, optimizer, loss, scale):
    scaled = loss * scale
    scaled.backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= scale
    if math.isinf(scaled.item()) or math.isnan(scaled.item()):
        return False
    optimizer.step()
    return True


# %% rejected: steps_with_zero_gradients
def scaled_step(model, optimizer, loss, scale):
    loss.mul(scale).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    ok = all(bool(g.isfinite().all()) for g in grads)
    for p in model.parameters():
        if p.grad is not None:
            p.grad = p.grad / scale if ok else torch.zeros_like(p.grad)
    optimizer.step()
    return ok


# %% rejected: does_not_say_whether_it_stepped
def scaled_step(model, optimizer, loss, scale):
    loss.mul(scale).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    for g in grads:
        g /= scale
    if all(bool(g.isfinite().all()) for g in grads):
        optimizer.step()


# %% rejected: says_the_opposite
def scaled_step(model, optimizer, loss, scale):
    loss.mul(scale).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    for g in grads:
        g /= scale
    skipped = not all(bool(g.isfinite().all()) for g in grads)
    if not skipped:
        optimizer.step()
    return skipped


# %% rejected: unscales_without_scaling
def scaled_step(model, optimizer, loss, scale):
    loss.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    for g in grads:
        g /= scale
    if not all(bool(g.isfinite().all()) for g in grads):
        return False
    optimizer.step()
    return True


# %% rejected: ignores_scale
def scaled_step(model, optimizer, loss, scale):
    loss.backward()
    if not all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None):
        return False
    optimizer.step()
    return True


# %% rejected: -
def scaled_step(model, optimizer, loss, scale):  # steps and then tries to undo
    before = [p.detach().clone() for p in model.parameters()]
    loss.mul(scale).backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= scale
    optimizer.step()
    ok = all(bool(p.isfinite().all()) for p in model.parameters())
    if not ok:
        with torch.no_grad():
            for p, old in zip(model.parameters(), before):
                p.copy_(old)
    return ok


# %% rejected: -
def scaled_step(model, optimizer, loss, scale):  # looks at the first gradient only
    loss.mul(scale).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    for g in grads:
        g /= scale
    if not grads[0].isfinite().all():
        return False
    optimizer.step()
    return True

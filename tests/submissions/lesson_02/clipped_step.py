# %% accepted: clipping by hand
def clipped_step(model, optimizer, scaler, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm = sum(float((g.double() ** 2).sum()) for g in grads) ** 0.5
    if norm > max_norm:
        for g in grads:
            g.mul_(max_norm / norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


# %% accepted: the limit scaled instead of the gradients
def clipped_step(model, optimizer, scaler, loss, max_norm):
    scale = scaler.get_scale()
    scaler.scale(loss).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm * scale)
    scaler.step(optimizer)
    scaler.update()
    return float(norm / scale)


# %% accepted: clears first, returns a tensor
def clipped_step(model, optimizer, scaler, loss, max_norm):
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_norm=max_norm, norm_type=2.0, error_if_nonfinite=False)
    scaler.step(optimizer)
    scaler.update()
    return norm


# %% rejected: clips_scaled_gradients
def clipped_step(model, optimizer, scaler, loss, max_norm):
    scaler.scale(loss).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return float(norm)


# %% rejected: clips_scaled_gradients
def clipped_step(model, optimizer, scaler, loss, max_norm):
    scale = scaler.get_scale()
    scaler.scale(loss).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return float(norm) / scale if math.isfinite(float(norm)) else math.inf


# %% rejected: returns_the_clipped_norm
def clipped_step(model, optimizer, scaler, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    norm = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    scaler.step(optimizer)
    scaler.update()
    return norm.item()


# %% rejected: steps_past_the_scaler
def clipped_step(model, optimizer, scaler, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    scaler.update()
    return norm.item()


# %% rejected: clips_each_tensor
def clipped_step(model, optimizer, scaler, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    for p in model.parameters():
        if p.grad is not None:
            p.grad *= min(1.0, max_norm / (p.grad.norm().item() + 1e-6))
    scaler.step(optimizer)
    scaler.update()
    return norm.item()


# %% rejected: does_not_clip
def clipped_step(model, optimizer, scaler, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    scaler.step(optimizer)
    scaler.update()
    return norm.item()


# %% rejected: -
def clipped_step(model, optimizer, scaler, loss, max_norm):  # forgets update
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    return norm.item()


# %% rejected: leaves_out_the_scaler
def clipped_step(model, optimizer, scaler, loss, max_norm):
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return norm.item()

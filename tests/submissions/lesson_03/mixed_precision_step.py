# %% accepted: foreach copies, clearing both sides
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    params = list(model.parameters())
    for p in params:
        p.grad = None
    optimizer.zero_grad()
    loss = loss_fn(model(batch[0]), batch[1])
    loss.backward()
    for p, m in zip(params, master):
        if p.grad is not None:
            m.grad = p.grad.to(torch.float32)
    optimizer.step()
    for p, m in zip(params, master):
        p.data.copy_(m.data)
    return float(loss)


# %% accepted: autograd.grad, and the loss in float32
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    inputs, targets = batch
    params = list(model.parameters())
    loss = loss_fn(model(inputs).float(), targets.float())
    grads = torch.autograd.grad(loss, params, allow_unused=True)
    for m, g in zip(master, grads):
        m.grad = None if g is None else g.float()
    optimizer.step()
    model.load_state_dict({name: m.detach().bfloat16() for (name, _), m in zip(model.named_parameters(), master)})
    return loss.detach()


# %% accepted: zeros where there is no gradient
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    inputs, targets = batch
    model.zero_grad(set_to_none=False)
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = torch.zeros_like(m) if p.grad is None else p.grad.float()
    optimizer.step()
    with torch.no_grad():
        for p, m in zip(model.parameters(), master):
            p.set_(m.bfloat16())
    return loss.item()


# %% rejected: updates_the_bf16_copy
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    inputs, targets = batch
    model.zero_grad()
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    lr = optimizer.param_groups[0]["lr"]
    with torch.no_grad():
        for p, m in zip(model.parameters(), master):
            if p.grad is not None:
                p -= lr * p.grad
            m.copy_(p)
    return loss.item()


# %% rejected: updates_the_bf16_copy
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    inputs, targets = batch
    model.zero_grad()
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = None if p.grad is None else p.grad.float()
    optimizer.step()
    with torch.no_grad():
        for p, m in zip(model.parameters(), master):
            m.copy_(m.bfloat16())
            p.copy_(m)
    return loss.item()


# %% rejected: forgets_to_copy_down
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    inputs, targets = batch
    model.zero_grad()
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = None if p.grad is None else p.grad.float()
    optimizer.step()
    return loss.item()


# %% rejected: keeps_old_gradients
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    optimizer.zero_grad()  # clears the master's, not the model's
    loss = loss_fn(model(batch[0]), batch[1])
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = p.grad.float() if p.grad is not None else None
    optimizer.step()
    for p, m in zip(model.parameters(), master):
        p.data = m.detach().bfloat16()
    return loss.item()


# %% rejected: copies_down_too_early
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    for p, m in zip(model.parameters(), master):
        p.data = m.detach().bfloat16()
    model.zero_grad()
    loss = loss_fn(model(batch[0]), batch[1])
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = p.grad.float() if p.grad is not None else None
        p.data = m.detach().bfloat16()
    optimizer.step()
    return loss.item()


# %% rejected: model_becomes_float32
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    model.zero_grad()
    inputs, targets = batch
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = p.grad.float() if p.grad is not None else None
    optimizer.step()
    for p, m in zip(model.parameters(), master):
        p.data = m.detach()
    return loss.item()


# %% rejected: never_steps
def mixed_precision_step(master, model, optimizer, loss_fn, batch):
    model.zero_grad()
    loss = loss_fn(model(batch[0]), batch[1])
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = p.grad.float() if p.grad is not None else None
    for p, m in zip(model.parameters(), master):
        p.data = m.detach().bfloat16()
    return loss.item()


# %% rejected: -
def mixed_precision_step(master, model, optimizer, loss_fn, batch):  # all in float32, rounded at the end
    model.float()
    with torch.no_grad():
        for p, m in zip(model.parameters(), master):
            p.copy_(m)
    model.zero_grad()
    loss = loss_fn(model(batch[0].float()), batch[1].float())
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = p.grad
    optimizer.step()
    model.bfloat16()
    with torch.no_grad():
        for p, m in zip(model.parameters(), master):
            p.copy_(m)
    return loss.item()


# %% rejected: -
def mixed_precision_step(master, model, optimizer, loss_fn, batch):  # returns no loss
    model.zero_grad()
    loss = loss_fn(model(batch[0]), batch[1])
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = p.grad.float() if p.grad is not None else None
    optimizer.step()
    for p, m in zip(model.parameters(), master):
        p.data = m.detach().bfloat16()


# %% rejected: -
def mixed_precision_step(master, model, optimizer, loss_fn, batch):  # steps twice
    model.zero_grad()
    loss = loss_fn(model(batch[0]), batch[1])
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = p.grad.float() if p.grad is not None else None
    optimizer.step()
    optimizer.step()
    for p, m in zip(model.parameters(), master):
        p.data = m.detach().bfloat16()
    return loss.item()

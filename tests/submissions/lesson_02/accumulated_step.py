# %% accepted: divides the gradients once at the end
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    optimizer.zero_grad()
    for x, y in micro_batches:
        scaler.scale(loss_fn(model(x), y)).backward()
    scaler.unscale_(optimizer)
    for p in model.parameters():
        if p.grad is not None:
            p.grad.div_(len(micro_batches))
    scaler.step(optimizer)
    scaler.update()


# %% accepted: one sum of losses, one backward
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    model.zero_grad(set_to_none=True)
    total = sum(loss_fn(model(x), y) for x, y in micro_batches) / len(micro_batches)
    scaler.scale(total).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


# %% accepted: weights the gradient given to backward
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    for p in model.parameters():
        p.grad = None
    n = len(micro_batches)
    for i in range(n):
        inputs, targets = micro_batches[i]
        loss = scaler.scale(loss_fn(model(inputs), targets))
        loss.backward(gradient=torch.full_like(loss, 1 / n))
    scaler.step(optimizer)
    scaler.update()


# %% rejected: updates_per_micro_batch
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(micro_batches):
        scaler.scale(loss_fn(model(x), y) / len(micro_batches)).backward()
        scaler.unscale_(optimizer)
        scaler.update()
    scaler.step(optimizer)
    scaler.update()


# %% rejected: steps_per_micro_batch
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    for x, y in micro_batches:
        optimizer.zero_grad()
        scaler.scale(loss_fn(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()


# %% rejected: unscales_per_micro_batch
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    optimizer.zero_grad()
    for x, y in micro_batches:
        (scaler.scale(loss_fn(model(x), y)) / len(micro_batches)).backward()
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


# %% rejected: forgets_to_divide
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    optimizer.zero_grad()
    for x, y in micro_batches:
        scaler.scale(loss_fn(model(x), y)).backward()
    scaler.step(optimizer)
    scaler.update()


# %% rejected: divides_twice
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    optimizer.zero_grad()
    n = len(micro_batches)
    for x, y in micro_batches:
        scaler.scale(loss_fn(model(x), y) / n / n).backward()
    scaler.step(optimizer)
    scaler.update()


# %% rejected: forgets_to_clear
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    for x, y in micro_batches:
        scaler.scale(loss_fn(model(x), y) / len(micro_batches)).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


# %% rejected: -
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):  # clears at the end, not at the start
    for x, y in micro_batches:
        scaler.scale(loss_fn(model(x), y) / len(micro_batches)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


# %% rejected: clears_per_micro_batch
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    for x, y in micro_batches:
        model.zero_grad()
        scaler.scale(loss_fn(model(x), y) / len(micro_batches)).backward()
    scaler.step(optimizer)
    scaler.update()


# %% rejected: forgets_update
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    model.zero_grad()
    total = sum(loss_fn(model(x), y) for x, y in micro_batches) / len(micro_batches)
    scaler.scale(total).backward()
    scaler.step(optimizer)


# %% rejected: leaves_out_the_scaler
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    model.zero_grad()
    (sum(loss_fn(model(x), y) for x, y in micro_batches) / len(micro_batches)).backward()
    optimizer.step()


# %% rejected: -
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):  # only the first micro-batch
    optimizer.zero_grad()
    x, y = micro_batches[0]
    scaler.scale(loss_fn(model(x), y)).backward()
    scaler.step(optimizer)
    scaler.update()


# %% rejected: joins_the_micro_batches
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    optimizer.zero_grad()
    x = torch.cat([a for a, _ in micro_batches])
    y = torch.cat([b for _, b in micro_batches])
    scaler.scale(loss_fn(model(x), y)).backward()
    scaler.step(optimizer)
    scaler.update()


# %% rejected: forgets_to_clear
def accumulated_step(model, optimizer, scaler, micro_batches, loss_fn):
    for x, y in micro_batches:
        scaler.scale(loss_fn(model(x), y) / len(micro_batches)).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()

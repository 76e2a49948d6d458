# %% accepted: a scaler that is switched off for bfloat16
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    use = scaler if dtype == torch.float16 else torch.amp.GradScaler(device_type, enabled=False)
    with torch.autocast(device_type=device_type, dtype=dtype):
        loss = loss_fn(model(batch[0]), batch[1])
    optimizer.zero_grad(set_to_none=True)
    use.scale(loss).backward()
    use.step(optimizer)
    use.update()
    return loss.detach().float().item()


# %% accepted: unscale_ by hand, clearing afterwards too
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    for p in model.parameters():
        p.grad = None
    x, y = batch
    with torch.amp.autocast(device_type, dtype):
        loss = loss_fn(model(x), y)
    if dtype is not torch.bfloat16:
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
    return float(loss)


# %% accepted: a decorated forward, and a tensor
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    @torch.autocast(device_type, dtype=dtype)
    def forward():
        return loss_fn(model(batch[0]), batch[1])

    model.zero_grad()
    loss = forward()
    is_half = dtype == torch.half
    (scaler.scale(loss) if is_half else loss).backward()
    scaler.step(optimizer) if is_half else optimizer.step()
    if is_half:
        scaler.update()
    return loss.detach()


# %% rejected: backward_inside_autocast
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(batch[0]), batch[1])
        if dtype == torch.float16:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
    return loss.item()


# %% rejected: scaler_for_bf16
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(batch[0]), batch[1])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


# %% rejected: halves_the_model
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    model = model.half() if dtype == torch.float16 else model.bfloat16()
    optimizer.zero_grad()
    loss = loss_fn(model(batch[0].to(dtype)), batch[1].to(dtype))
    loss.backward()
    optimizer.step()
    return loss.item()


# %% rejected: loss_outside_autocast
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        outputs = model(batch[0])
    loss = loss_fn(outputs, batch[1])
    if dtype == torch.float16:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    return loss.item()


# %% rejected: forgets_to_clear
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    x, y = batch
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(x), y)
    if dtype == torch.float16:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    return loss.item()


# %% rejected: no_scaler_for_fp16
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss.item()


# %% rejected: forgets_update
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    model.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(batch[0]), batch[1])
    if dtype == torch.float16:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
    else:
        loss.backward()
        optimizer.step()
    return loss.item()


# %% rejected: forgets_the_dtype
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    model.zero_grad()
    with torch.autocast(device_type):
        loss = loss_fn(model(batch[0]), batch[1])
    if dtype == torch.float16:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    return loss.item()


# %% rejected: -
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):  # the policy of CUDA, which is not there
    model.zero_grad()
    with torch.autocast("cuda", dtype=dtype):
        loss = loss_fn(model(batch[0]), batch[1])
    if dtype == torch.float16:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    return loss.item()


# %% rejected: -
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):  # no loss returned
    model.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(batch[0]), batch[1])
    if dtype == torch.float16:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()


# %% rejected: -
def amp_step(model, optimizer, scaler, batch, loss_fn, dtype, device_type):
    x, y = batch
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=dtype):
        loss = loss_fn(model(x), y)
    if dtype == torch.float16:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        optimizer.step()
    return loss.item()

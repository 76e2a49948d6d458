# %% accepted: a table of sums in words
def model_state_bytes(n_params, recipe):
    weights, master, gradients, optimizer = {
        "fp32": (4, 0, 4, 8),
        "autocast": (4, 0, 4, 8),
        "master_weights": (2, 4, 2, 8),
        "fp32_gradients": (2, 4, 4, 8),
        "pure_bf16": (2, 0, 2, 4),
    }[recipe]
    return dict(
        weights=weights * n_params, master=master * n_params, gradients=gradients * n_params, optimizer=optimizer * n_params
    )


# %% accepted: reasoned from dtypes
def model_state_bytes(n_params, recipe):
    compute = torch.float32 if recipe in ("fp32", "autocast") else torch.bfloat16
    has_master = recipe in ("master_weights", "fp32_gradients")
    updated = torch.float32 if has_master else compute
    gradient = torch.float32 if recipe == "fp32_gradients" else compute
    return {
        "optimizer": 2 * updated.itemsize * n_params,
        "gradients": gradient.itemsize * n_params,
        "weights": compute.itemsize * n_params,
        "master": 4 * n_params if has_master else 0,
    }


# %% accepted: measured on one parameter
def model_state_bytes(n_params, recipe):
    low = recipe not in ("fp32", "autocast")
    weight = torch.zeros(1, dtype=torch.bfloat16 if low else torch.float32, requires_grad=True)
    master = weight.detach().float().requires_grad_() if recipe in ("master_weights", "fp32_gradients") else None
    weight.sum().backward()
    gradient = weight.grad.float() if recipe == "fp32_gradients" else weight.grad
    target = weight if master is None else master
    target.grad = torch.ones_like(target)
    optimizer = torch.optim.AdamW([target])
    optimizer.step()
    moments = [t for k, t in optimizer.state[target].items() if k.startswith("exp_avg")]
    return {
        "weights": n_params * weight.nbytes,
        "master": 0 if master is None else n_params * master.nbytes,
        "gradients": n_params * gradient.nbytes,
        "optimizer": n_params * sum(t.nbytes for t in moments),
    }


# %% rejected: halves_everything
def model_state_bytes(n_params, recipe):
    half = 1 if recipe == "fp32" else 2
    return {"weights": 4 * n_params // half, "master": 0, "gradients": 4 * n_params // half, "optimizer": 8 * n_params // half}


# %% rejected: drops_the_master
def model_state_bytes(n_params, recipe):
    w = 4 if recipe in ("fp32", "autocast") else 2
    g = 4 if recipe in ("fp32", "autocast", "fp32_gradients") else 2
    o = 4 if recipe == "pure_bf16" else 8
    return {"weights": w * n_params, "master": 0, "gradients": g * n_params, "optimizer": o * n_params}


# %% rejected: autocast_keeps_two_copies
def model_state_bytes(n_params, recipe):
    sizes = {
        "fp32": [4, 0, 4, 8],
        "autocast": [2, 4, 2, 8],
        "master_weights": [2, 4, 2, 8],
        "fp32_gradients": [2, 4, 4, 8],
        "pure_bf16": [2, 0, 2, 4],
    }[recipe]
    return dict(zip(("weights", "master", "gradients", "optimizer"), [n_params * s for s in sizes]))


# %% rejected: master_is_optimizer_state
def model_state_bytes(n_params, recipe):
    sizes = {
        "fp32": [4, 0, 4, 8],
        "autocast": [4, 0, 4, 8],
        "master_weights": [2, 0, 2, 12],
        "fp32_gradients": [2, 0, 4, 12],
        "pure_bf16": [2, 0, 2, 4],
    }[recipe]
    return dict(zip(("weights", "master", "gradients", "optimizer"), [n_params * s for s in sizes]))


# %% rejected: one_moment
def model_state_bytes(n_params, recipe):
    sizes = {
        "fp32": [4, 0, 4, 4],
        "autocast": [4, 0, 4, 4],
        "master_weights": [2, 4, 2, 4],
        "fp32_gradients": [2, 4, 4, 4],
        "pure_bf16": [2, 0, 2, 2],
    }[recipe]
    return dict(zip(("weights", "master", "gradients", "optimizer"), [n_params * s for s in sizes]))


# %% rejected: bytes_for_one_parameter
def model_state_bytes(n_params, recipe):
    sizes = {
        "fp32": [4, 0, 4, 8],
        "autocast": [4, 0, 4, 8],
        "master_weights": [2, 4, 2, 8],
        "fp32_gradients": [2, 4, 4, 8],
        "pure_bf16": [2, 0, 2, 4],
    }[recipe]
    return dict(zip(("weights", "master", "gradients", "optimizer"), sizes))


# %% rejected: -
def model_state_bytes(n_params, recipe):  # the sum alone
    return n_params * {"fp32_gradients": 18, "pure_bf16": 8}.get(recipe, 16)


# %% rejected: -
def model_state_bytes(n_params, recipe):  # floats that lose the last digits
    sizes = {"fp32": (4, 0, 4, 8), "autocast": (4, 0, 4, 8), "master_weights": (2, 4, 2, 8)}
    sizes |= {"fp32_gradients": (2, 4, 4, 8), "pure_bf16": (2, 0, 2, 4)}
    gb = [round(n_params * s / 1e9, 1) for s in sizes[recipe]]
    return dict(zip(("weights", "master", "gradients", "optimizer"), gb))

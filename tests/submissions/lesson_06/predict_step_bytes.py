# %% accepted: counted from the shapes
def predict_step_bytes(config, gpu):
    L, h, a, V = config.n_layer, config.n_embd, config.n_head, config.vocab_size
    tokens = config.batch_size * config.block_size
    n = 12 * L * h * h + 13 * L * h + 2 * h + V * h + config.block_size * h
    weights, gradients, moments, casts, temporaries = 4 * n, 4 * n, 8 * n, 2 * n, 4 * n
    saved = tokens * L * (36 * h + 4 * a + 16)
    moments_of_the_step = {
        "at_loss": weights + moments + casts + saved + 3 * 4 * tokens * V,
        "end_of_backward": weights + moments + gradients,
        "at_step": weights + moments + gradients + temporaries,
    }
    return {**moments_of_the_step, "peak": max(moments_of_the_step.values())}

# %% accepted: floats, and LayerNorm's gradient added
def predict_step_bytes(config, gpu):
    n = float(config.n_params)
    bs = config.batch_size * config.block_size
    kept = config.n_layer * bs * (36.0 * config.n_embd + 4 * config.n_head + 16) + bs * 8 * config.n_embd
    loss = 14 * n + kept + 12 * bs * config.vocab_size
    return dict(at_loss=loss, end_of_backward=16 * n, at_step=20 * n, peak=max(loss, 20 * n))

# %% rejected: forgets_the_loss
def predict_step_bytes(config, gpu):
    n, bs = config.n_params, config.batch_size * config.block_size
    at_loss = 14 * n + config.n_layer * bs * (36 * config.n_embd + 4 * config.n_head + 16)
    return {"at_loss": at_loss, "end_of_backward": 16 * n, "at_step": 20 * n, "peak": max(at_loss, 20 * n)}

# %% rejected: forgets_adamw_temporaries
def predict_step_bytes(config, gpu):
    n, bs = config.n_params, config.batch_size * config.block_size
    at_loss = 14 * n + config.n_layer * bs * (36 * config.n_embd + 4 * config.n_head + 16) + 12 * bs * config.vocab_size
    return {"at_loss": at_loss, "end_of_backward": 16 * n, "at_step": 16 * n, "peak": max(at_loss, 16 * n)}

# %% rejected: forgets_loss_and_temporaries
def predict_step_bytes(config, gpu):
    n, bs = config.n_params, config.batch_size * config.block_size
    at_loss = 14 * n + config.n_layer * bs * (36 * config.n_embd + 4 * config.n_head + 16)
    return {"at_loss": at_loss, "end_of_backward": 16 * n, "at_step": 16 * n, "peak": max(at_loss, 16 * n)}

# %% rejected: adds_moments_that_never_meet
def predict_step_bytes(config, gpu):
    n, bs = config.n_params, config.batch_size * config.block_size
    kept = config.n_layer * bs * (36 * config.n_embd + 4 * config.n_head + 16)
    head = 12 * bs * config.vocab_size
    return {"at_loss": 14 * n + kept + head, "end_of_backward": 16 * n, "at_step": 20 * n, "peak": 22 * n + kept + head}

# %% rejected: logits_once
def predict_step_bytes(config, gpu):
    n, bs = config.n_params, config.batch_size * config.block_size
    at_loss = 14 * n + config.n_layer * bs * (36 * config.n_embd + 4 * config.n_head + 16) + 4 * bs * config.vocab_size
    return {"at_loss": at_loss, "end_of_backward": 16 * n, "at_step": 20 * n, "peak": max(at_loss, 20 * n)}

# %% rejected: logits_in_two_bytes
def predict_step_bytes(config, gpu):
    n, bs = config.n_params, config.batch_size * config.block_size
    at_loss = 14 * n + config.n_layer * bs * (36 * config.n_embd + 4 * config.n_head + 16) + 6 * bs * config.vocab_size
    return {"at_loss": at_loss, "end_of_backward": 16 * n, "at_step": 20 * n, "peak": max(at_loss, 20 * n)}

# %% rejected: forgets_optimizer_state
def predict_step_bytes(config, gpu):
    n, bs = config.n_params, config.batch_size * config.block_size
    at_loss = 6 * n + config.n_layer * bs * (36 * config.n_embd + 4 * config.n_head + 16) + 12 * bs * config.vocab_size
    return {"at_loss": at_loss, "end_of_backward": 8 * n, "at_step": 20 * n, "peak": max(at_loss, 20 * n)}

# %% rejected: -
# The answer of one GPU's memory for every configuration.
def predict_step_bytes(config, gpu):
    return {"at_loss": 1e9, "end_of_backward": 1e9, "at_step": 1e9, "peak": 1e9}

# %% rejected: -
# Only the peak.
def predict_step_bytes(config, gpu):
    n, bs = config.n_params, config.batch_size * config.block_size
    at_loss = 14 * n + config.n_layer * bs * (36 * config.n_embd + 4 * config.n_head + 16) + 12 * bs * config.vocab_size
    return max(at_loss, 20 * n)

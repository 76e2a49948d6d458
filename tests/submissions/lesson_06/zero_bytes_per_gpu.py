# %% accepted: a table of formulas
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    return {
        0: 16 * n_params,
        1: 4 * n_params + 12 * n_params / n_gpus,
        2: 2 * n_params + 14 * n_params / n_gpus,
        3: 16 * n_params / n_gpus,
    }[stage]

# %% accepted: what is sharded, counted
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    sharded = [0, 12, 14, 16][stage]
    return float(n_params * (16 - sharded)) + n_params * sharded / n_gpus

# %% rejected: stage_3_keeps_whole_weights
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    if stage == 0:
        return 16.0 * n_params
    if stage == 1:
        return 4 * n_params + 12 * n_params / n_gpus
    return 2 * n_params + 14 * n_params / n_gpus

# %% rejected: everything_divided
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    return 16 * n_params / (n_gpus if stage > 0 else 1)

# %% rejected: forgets_the_master_copy
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    kept = [12, 4, 2, 0][stage]
    return n_params * (kept + (12 - kept) / n_gpus)

# %% rejected: sum_over_gpus
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    sharded = [0, 12, 14, 16][stage]
    return n_params * ((16 - sharded) * n_gpus + sharded)

# %% rejected: one_stage_off
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    sharded = [0, 0, 12, 14][stage]
    return n_params * ((16 - sharded) + sharded / n_gpus)

# %% rejected: gradients_first
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    sharded = [0, 2, 14, 16][stage]
    return n_params * ((16 - sharded) + sharded / n_gpus)

# %% rejected: -
# Rounded to whole bytes.
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    sharded = [0, 12, 14, 16][stage]
    return n_params * (16 - sharded) + n_params // n_gpus * sharded


# %% rejected: -
def zero_bytes_per_gpu(n_params, n_gpus, stage):
    p, g, o = 2*n_params, 2*n_params, 12*n_params
    if stage >= 1: o //= n_gpus
    if stage >= 2: g //= n_gpus
    if stage >= 3: p //= n_gpus
    return float(p+g+o)

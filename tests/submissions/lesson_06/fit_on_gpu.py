# %% accepted: by level, with keywords
def fit_on_gpu(level):
    from course_lib.toolbox import Plan

    common = dict(precision="fp16", attention="sdpa")
    if level.name == "the batch":
        return Plan(micro_batch=8, accumulation=level.global_batch // 8, **common)
    if level.name == "the context":
        return Plan(micro_batch=1, accumulation=level.global_batch, checkpoint_blocks=8, **common)
    return Plan(micro_batch=2, accumulation=8, chunk_tokens=512, optimizer="adamw8bit", **common)

# %% accepted: a search among the plans that compute in fp16
def fit_on_gpu(level):
    from course_lib.toolbox import predicted_seconds, try_plan

    candidates = [p for p in level.plans() if p.precision == "fp16" and p.attention == "sdpa" and p.offload == "none"]
    candidates = [p for p in candidates if level.name != "the state" or p.optimizer == "adamw8bit"]
    for plan in sorted(candidates, key=lambda p: sum(predicted_seconds(level, p).values())):
        if try_plan(level, plan).fits:
            return plan

# %% rejected: shrinks_the_global_batch
def fit_on_gpu(level):
    from course_lib.toolbox import Plan

    if level.name == "the batch":
        return Plan("fp16", "sdpa", micro_batch=8, accumulation=1)
    if level.name == "the context":
        return Plan("fp16", "sdpa", micro_batch=1, accumulation=1, checkpoint_blocks=12)
    return Plan("fp16", "sdpa", micro_batch=1, accumulation=1, optimizer="adamw8bit")

# %% rejected: grows_the_global_batch
def fit_on_gpu(level):
    from course_lib.toolbox import Plan

    more = {"optimizer": "adamw8bit"} if level.name == "the state" else {}
    return Plan("fp16", "sdpa", micro_batch=1, accumulation=4 * level.global_batch, **more)

# %% rejected: bf16_on_a_t4
def fit_on_gpu(level):
    from course_lib.toolbox import Plan

    return Plan("bf16", "sdpa", micro_batch=1, accumulation=level.global_batch)

# %% rejected: leaves_out_the_tool
def fit_on_gpu(level):
    from course_lib.toolbox import Plan

    if level.name == "the batch":
        return Plan("fp16", "sdpa", micro_batch=32, accumulation=1)
    if level.name == "the context":
        return Plan("fp16", "sdpa", micro_batch=1, accumulation=8)
    return Plan("fp16", "sdpa", micro_batch=1, accumulation=16, checkpoint_blocks=12, chunk_tokens=512, offload="activations")

# %% rejected: too_much_at_once
def fit_on_gpu(level):
    from course_lib.toolbox import Plan

    if level.name == "the batch":
        return Plan("fp16", "sdpa", micro_batch=16, accumulation=2)
    if level.name == "the context":
        return Plan("fp16", "sdpa", micro_batch=1, accumulation=8, checkpoint_blocks=4)
    return Plan("fp16", "sdpa", micro_batch=4, accumulation=4, optimizer="adamw8bit")

# %% rejected: fits_but_slow
def fit_on_gpu(level):
    from course_lib.toolbox import Plan

    if level.name == "the batch":
        return Plan("fp16", "sdpa", micro_batch=1, accumulation=32)
    if level.name == "the context":
        return Plan("fp16", "sdpa", micro_batch=1, accumulation=8, checkpoint_blocks=12)
    return Plan("fp16", "sdpa", micro_batch=1, accumulation=16, checkpoint_blocks=12, optimizer="adamw8bit")

# %% rejected: -
# A dict, not a Plan.
def fit_on_gpu(level):
    return {"precision": "fp16", "attention": "sdpa", "micro_batch": 1, "accumulation": level.global_batch}

# %% rejected: -
# Values that no level allows.
def fit_on_gpu(level):
    from course_lib.toolbox import Plan

    return Plan("fp16", "sdpa", micro_batch=1, accumulation=level.global_batch, chunk_tokens=1, checkpoint_blocks=level.config.n_layer)

# %% rejected: -
# Two negative numbers keep the product.
def fit_on_gpu(level):
    from course_lib.toolbox import Plan

    return Plan("fp16", "sdpa", micro_batch=-1, accumulation=-level.global_batch)

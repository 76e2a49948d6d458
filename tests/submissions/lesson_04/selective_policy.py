# %% accepted: a bool
def selective_policy(ctx, op, *args, **kwargs):
    return op in {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}


# %% accepted: PREFER, by packet
def selective_policy(ctx, op, *args, **kwargs):
    packet = getattr(op, "overloadpacket", op)
    if packet is torch.ops.aten.mm or packet is torch.ops.aten.addmm:
        return CheckpointPolicy.PREFER_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


# %% accepted: by name, MUST on both sides
def selective_policy(ctx, op, *args, **kwargs):
    name = str(op)
    if name in ("aten.mm.default", "aten.addmm.default"):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.MUST_RECOMPUTE


# %% rejected: saves_everything
def selective_policy(ctx, op, *args, **kwargs):
    return True


# %% rejected: saves_everything
def selective_policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE


# %% rejected: saves_nothing
def selective_policy(ctx, op, *args, **kwargs):
    if op in (torch.ops.aten.mm, torch.ops.aten.addmm):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


# %% rejected: saves_nothing
def selective_policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_RECOMPUTE


# %% rejected: keeps_bmm_too
def selective_policy(ctx, op, *args, **kwargs):
    if "mm" in str(op):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


# %% rejected: the_other_way_round
def selective_policy(ctx, op, *args, **kwargs):
    if op in [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]:
        return CheckpointPolicy.PREFER_RECOMPUTE
    return CheckpointPolicy.PREFER_SAVE


# %% rejected: forgets_addmm
def selective_policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.MUST_RECOMPUTE


# %% rejected: forgets_mm
def selective_policy(ctx, op, *args, **kwargs):
    return str(op) == "aten.addmm.default"


# %% rejected: keeps_attention_only
def selective_policy(ctx, op, *args, **kwargs):
    return str(op) == "aten.bmm.default"


# %% rejected: -
def selective_policy(ctx, op, *args, **kwargs):
    # the activation function's output too
    return str(op) in ("aten.mm.default", "aten.addmm.default", "aten.gelu.default")


# %% rejected: -
def selective_policy(ctx, op, *args, **kwargs):
    # every second product
    ctx.__dict__["n"] = ctx.__dict__.get("n", 0) + 1
    return str(op) in ("aten.mm.default", "aten.addmm.default") and args[0].shape[-1] <= args[1].shape[-1]


# %% rejected: keeps_dropout_too
def selective_policy(ctx, op, *args, **kwargs):
    kept = ("mm", "addmm", "native_dropout", "bernoulli_")
    return CheckpointPolicy.MUST_SAVE if op.__name__.split(".")[0] in kept else CheckpointPolicy.PREFER_RECOMPUTE

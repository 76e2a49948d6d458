# %% accepted: a set
def cuda_autocast_dtype(op):
    wide = {"softmax", "layer_norm", "exp", "sum", "cross_entropy", "embedding"}
    return torch.float32 if op in wide else torch.float16


# %% accepted: a table
def cuda_autocast_dtype(op):
    half, single = torch.half, torch.float
    return dict(
        linear=half, matmul=half, scaled_dot_product_attention=half, gelu=half, softmax=single,
        layer_norm=single, exp=single, sum=single, cross_entropy=single, embedding=single,
    )[op]


# %% rejected: uses_the_cpu_policy
def cuda_autocast_dtype(op):
    return torch.float32 if op in ("cross_entropy", "embedding") else torch.float16


# %% rejected: everything_in_float16
def cuda_autocast_dtype(op):
    return torch.half


# %% rejected: everything_in_float32
def cuda_autocast_dtype(op):
    return torch.float


# %% rejected: embedding_in_float16
def cuda_autocast_dtype(op):
    return torch.float32 if op in {"softmax", "layer_norm", "exp", "sum", "cross_entropy"} else torch.half


# %% rejected: -
def cuda_autocast_dtype(op):
    return "float16" if op in ("linear", "matmul", "gelu", "scaled_dot_product_attention") else "float32"


# %% rejected: -
def cuda_autocast_dtype(op):
    wide = {"softmax", "layer_norm", "exp", "sum", "cross_entropy", "embedding"}
    return torch.float32 if op in wide else torch.bfloat16

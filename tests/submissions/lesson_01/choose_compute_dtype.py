# %% accepted: by the major number
def choose_compute_dtype(capability):
    major = capability[0] if capability else 0
    if major >= 8:
        return torch.bfloat16
    return torch.half if major == 7 else torch.float

# %% accepted: a table from the newest down
def choose_compute_dtype(capability, table=(((8, 0), torch.bfloat16), ((7, 0), torch.float16))):
    for first, dtype in table:
        if capability is not None and tuple(capability) >= first:
            return dtype
    return torch.float32

# %% rejected: asks_the_emulating_function
def choose_compute_dtype(capability):
    if capability is None:
        return torch.float32
    if torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return torch.float16 if capability >= (7, 0) else torch.float32

# %% rejected: asks_the_emulating_function
def choose_compute_dtype(capability):
    if capability is None or capability < (7, 0):
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16

# %% rejected: bf16_from_7_5
def choose_compute_dtype(capability):
    if capability is None or capability[0] < 7:
        return torch.float32
    return torch.float16 if capability < (7, 5) else torch.bfloat16

# %% rejected: fp16_on_every_gpu
def choose_compute_dtype(capability):
    if capability is None:
        return torch.float32
    return torch.bfloat16 if capability[0] >= 8 else torch.float16

# %% rejected: no_bf16_on_rtx_30
def choose_compute_dtype(capability):
    if capability is None or capability[0] < 7:
        return torch.float32
    return torch.bfloat16 if capability[1] == 0 and capability[0] > 7 else torch.float16

# %% rejected: compares_capability_wrongly
def choose_compute_dtype(capability):
    if capability is None:
        return torch.float32
    text = f"{capability[0]}.{capability[1]}"
    return torch.bfloat16 if text >= "8.0" else torch.float16 if text >= "7.0" else torch.float32

# %% rejected: -
def choose_compute_dtype(capability):
    # asks the machine
    if not torch.cuda.is_available():
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16

# %% rejected: -
def choose_compute_dtype(capability):
    # forgets None
    return torch.bfloat16 if capability >= (8, 0) else torch.float16 if capability >= (7, 0) else torch.float32

# %% rejected: -
def choose_compute_dtype(capability):
    return "bfloat16" if capability and capability >= (8, 0) else "float16"

# %% rejected: -
def choose_compute_dtype(capability):
    # fp16 for 7.5 only
    if capability == (7, 5):
        return torch.float16
    return torch.bfloat16 if capability and capability >= (8, 0) else torch.float32

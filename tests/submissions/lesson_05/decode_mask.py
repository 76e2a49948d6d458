# %% accepted: tril with an offset
def decode_mask(q_len, k_len):
    return torch.ones(q_len, k_len).tril(k_len - q_len).bool()

# %% accepted: the last rows of the square mask
def decode_mask(q_len, k_len):
    i = torch.arange(k_len)
    return (i[None, :] <= i[:, None])[k_len - q_len :]

# %% accepted: a list
def decode_mask(q_len, k_len):
    return torch.tensor([[j - i <= k_len - q_len for j in range(k_len)] for i in range(q_len)])

# %% rejected: inverts_mask
def decode_mask(q_len, k_len):
    return torch.ones(q_len, k_len).triu(k_len - q_len + 1) == 1

# %% rejected: aligns_mask_to_start
def decode_mask(q_len, k_len):
    return torch.arange(k_len)[None, :] <= torch.arange(q_len)[:, None]

# %% rejected: inverts_mask_and_aligns_to_start
def decode_mask(q_len, k_len):
    return torch.arange(k_len)[None, :] > torch.arange(q_len)[:, None]

# %% rejected: hides_own_position
def decode_mask(q_len, k_len):
    return torch.arange(k_len)[None, :] < torch.arange(k_len - q_len, k_len)[:, None]

# %% rejected: hides_nothing
def decode_mask(q_len, k_len):
    return torch.full((q_len, k_len), True)

# %% rejected: -
def decode_mask(q_len, k_len):
    # a mask to be added, of the right shape
    return torch.zeros(q_len, k_len).masked_fill(torch.ones(q_len, k_len).triu(k_len - q_len + 1) == 1, -math.inf)

# %% rejected: -
def decode_mask(q_len, k_len):
    return torch.ones(k_len, k_len).tril().bool()

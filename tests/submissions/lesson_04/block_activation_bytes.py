# %% accepted: r = as/h in floating point
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    r = heads * seq / hidden
    if attention == "naive":
        per = 34 + 5 * r if dropout else 32 + 2 * r
    elif attention == "fp32_softmax":
        per = 34 + 7 * r if dropout else 32 + 6 * r
    else:
        per = (34 if dropout else 32) + 4 * heads / hidden
    return round(seq * batch * hidden * per)


# %% accepted: a list of tensors
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    tokens = batch * seq
    saved = {
        "input of ln_1": tokens * hidden * 2,
        "input of qkv": tokens * hidden * 2,
        "q, k, v": tokens * hidden * 2 * 3,
        "input of proj": tokens * hidden * 2,
        "input of ln_2": tokens * hidden * 2,
        "input of fc": tokens * hidden * 2,
        "input of gelu": tokens * 4 * hidden * 2,
        "input of fc2": tokens * 4 * hidden * 2,
    }
    if dropout:
        saved["masks"] = 2 * tokens * hidden
    pairs = tokens * seq * heads
    match attention:
        case "flash":
            saved["logsumexp"] = tokens * heads * 4
        case "fp32_softmax":
            saved["softmax"] = pairs * (4 + 2)
            if dropout:
                saved["score mask"] = pairs
        case "naive":
            saved["softmax"] = pairs * 2
            if dropout:
                saved["score mask and output"] = pairs * 3
    return sum(saved.values())


# %% rejected: one_vector_a_layer
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    return 2 * seq * batch * hidden


# %% rejected: forgets_the_masks
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    r = heads * seq / hidden
    extra = {"naive": 4 * r if dropout else 2 * r, "fp32_softmax": 6 * r, "flash": 4 * heads / hidden}[attention]
    return int(batch * seq * hidden * (32 + extra) + 0.5)


# %% rejected: two_byte_masks
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    n, p = batch * seq * hidden, batch * heads * seq**2
    total = 36 * n if dropout else 32 * n
    if attention == "flash":
        return total + 4 * batch * heads * seq
    return total + {("naive", True): 6, ("naive", False): 2, ("fp32_softmax", True): 8, ("fp32_softmax", False): 6}[attention, dropout] * p


# %% rejected: keeps_the_raw_scores
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    n, p = batch * seq * hidden, batch * heads * seq**2
    per_pair = {"naive": 4 + 3 * dropout, "fp32_softmax": 8 + dropout, "flash": 0}[attention]
    return (32 + 2 * dropout) * n + per_pair * p + (4 * batch * heads * seq if attention == "flash" else 0)


# %% rejected: always_dropout
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    n = batch * seq * hidden
    r = heads * seq / hidden
    return round(n * (34 + {"naive": 5 * r, "fp32_softmax": 7 * r, "flash": 4 * heads / hidden}[attention]))


# %% rejected: forgets_the_log_sum_exp
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    n, p = batch * seq * hidden, batch * heads * seq**2
    if attention == "flash":
        return n * (34 if dropout else 32)
    if attention == "naive":
        return 34 * n + 5 * p if dropout else 32 * n + 2 * p
    return 34 * n + 7 * p if dropout else 32 * n + 6 * p


# %% rejected: softmax_stays_in_bfloat16
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    n, p = batch * seq * hidden, batch * heads * seq**2
    base = 34 * n if dropout else 32 * n
    if attention == "flash":
        return base + 4 * batch * heads * seq
    return base + (5 * p if dropout else 2 * p)


# %% rejected: counts_elements
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    n, p = batch * seq * hidden, batch * heads * seq**2
    base = (17 if dropout else 16) * n
    if attention == "flash":
        return base + 2 * batch * heads * seq
    if attention == "naive":
        return base + (2.5 if dropout else 1) * p
    return base + (3.5 if dropout else 3) * p


# %% rejected: -
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    # batch forgotten
    return seq * hidden * (34 if dropout else 32) + 5 * heads * seq * seq


# %% rejected: -
def block_activation_bytes(batch, seq, hidden, heads, *, attention, dropout):
    return float("nan")

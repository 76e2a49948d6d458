# %% accepted: torch's softmax in float32
def stable_softmax(x):
    return torch.softmax(x, dim=-1, dtype=torch.float32).half()


# %% accepted: through the logarithm, in float64
def stable_softmax(x):
    wide = x.double()
    return torch.exp(wide - torch.logsumexp(wide, dim=-1, keepdim=True)).to(torch.float16)


# %% accepted: torch's own half kernel, which is float32 inside
def stable_softmax(x):
    return F.softmax(x, -1)


# %% accepted: subtract in float16, everything else wide
def stable_softmax(x):
    top = x.max(dim=-1, keepdim=True).values
    weights = torch.exp(x.float() - top)
    return weights.div(weights.sum(-1, keepdim=True)).half()


# %% rejected: no_maximum_subtracted
def stable_softmax(x):
    e = torch.exp(x.float())
    return (e / e.sum(-1, keepdim=True)).half()


# %% rejected: no_maximum_subtracted
def stable_softmax(x):
    e = torch.exp(x)
    return e / e.sum(dim=-1, keepdim=True)


# %% rejected: reduced_in_fp16
def stable_softmax(x):
    e = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


# %% rejected: subtracts_the_overall_maximum
def stable_softmax(x):
    e = torch.exp(x.float() - x.max())
    return (e / e.sum(dim=-1, keepdim=True)).half()


# %% rejected: returns_float32
def stable_softmax(x):
    return torch.softmax(x.to(torch.float32), dim=-1)


# %% rejected: clamps_the_logits
def stable_softmax(x):
    return torch.softmax(torch.clamp(x, -80, 80).float(), dim=-1).half()


# %% rejected: -
def stable_softmax(x):  # bfloat16 in between
    return torch.softmax(x.bfloat16(), dim=-1).half()


# %% rejected: -
def stable_softmax(x):  # log-softmax rounded to float16 on the way
    return torch.log_softmax(x, dim=-1).exp()


# %% rejected: -
def stable_softmax(x):  # over everything
    return torch.softmax(x.float().flatten(), 0).reshape(x.shape).half()


# %% rejected: -
def stable_softmax(x):
    w = x.float()
    return torch.exp(w - torch.logsumexp(w, -1, keepdim=True)).half()

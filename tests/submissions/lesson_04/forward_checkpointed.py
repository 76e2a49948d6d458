# %% accepted: embeddings and head are segments of their own too
def forward_checkpointed(model, tokens):
    def embed(tokens):
        position = torch.arange(tokens.size(1), device=tokens.device)
        return model.drop(model.wte(tokens) + model.wpe(position))

    def head(x):
        return model.lm_head(model.ln_f(x))

    x = checkpoint(embed, tokens, use_reentrant=False)
    for i in range(len(model.blocks)):
        x = checkpoint(model.blocks[i], x, use_reentrant=False)
    return checkpoint(head, x, use_reentrant=False)


# %% accepted: wraps the blocks' forward and runs the model's own
def forward_checkpointed(model, tokens):
    originals = [block.forward for block in model.blocks]
    try:
        for block, original in zip(model.blocks, originals):
            block.forward = lambda x, original=original: checkpoint(original, x, use_reentrant=False, preserve_rng_state=True)
        return model(tokens)
    finally:
        for block in model.blocks:
            del block.forward


# %% accepted: without early stop, by a lambda
def forward_checkpointed(model, tokens):
    T = tokens.shape[-1]
    x = model.wte(tokens) + model.wpe(torch.arange(T))
    x = model.drop(x)
    for block in model.blocks:
        with torch.utils.checkpoint.set_checkpoint_early_stop(False):
            x = checkpoint(lambda h, b=block: b(h), x, use_reentrant=False)
    x = model.ln_f(x)
    return model.lm_head(x)


# %% rejected: nothing_is_recomputed
def forward_checkpointed(model, tokens):
    return model(tokens)


# %% rejected: whole_model_as_one_segment
def forward_checkpointed(model, tokens):
    return checkpoint(model, tokens, use_reentrant=False)


# %% rejected: whole_model_as_one_segment
def forward_checkpointed(model, tokens):
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))

    def all_blocks(x):
        for block in model.blocks:
            x = block(x)
        return x

    x = checkpoint(all_blocks, x, use_reentrant=False)
    return model.lm_head(model.ln_f(x))


# %% rejected: each_operation_alone
def forward_checkpointed(model, tokens):
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    for block in model.blocks:
        x = x + checkpoint(block.attn, checkpoint(block.ln_1, x, use_reentrant=False), use_reentrant=False)
        x = x + checkpoint(block.mlp, checkpoint(block.ln_2, x, use_reentrant=False), use_reentrant=False)
    return model.lm_head(model.ln_f(x))


# %% rejected: each_operation_alone
def forward_checkpointed(model, tokens):
    def c(f, *args):
        return checkpoint(f, *args, use_reentrant=False)

    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    for block in model.blocks:
        attn, mlp = block.attn, block.mlp
        B, T, C = x.shape
        h = c(block.ln_1, x)
        qkv = c(attn.c_attn, h)
        q, k, v = qkv.view(B, T, 3, attn.config.n_head, -1).permute(2, 0, 3, 1, 4)
        o = c(attn.attend, q, k, v).transpose(1, 2).reshape(B, T, C)
        x = x + c(attn.resid_dropout, c(attn.c_proj, o))
        h = c(block.ln_2, x)
        h = c(mlp.c_fc, h)
        h = c(lambda t: F.gelu(t, approximate="tanh"), h)
        x = x + c(mlp.dropout, c(mlp.c_proj, h))
    return model.lm_head(model.ln_f(x))


# %% rejected: several_blocks_a_segment
def forward_checkpointed(model, tokens):
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    blocks = list(model.blocks)
    for i in range(0, len(blocks), 2):
        x = checkpoint(nn.Sequential(*blocks[i : i + 2]), x, use_reentrant=False)
    return model.lm_head(model.ln_f(x))


# %% rejected: some_blocks_not_checkpointed
def forward_checkpointed(model, tokens):
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    x = torch.utils.checkpoint.checkpoint_sequential(list(model.blocks), max(1, round(math.sqrt(len(model.blocks)))), x, use_reentrant=False)
    return model.lm_head(model.ln_f(x))


# %% rejected: other_random_numbers
def forward_checkpointed(model, tokens):
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
    return model.lm_head(model.ln_f(x))


# %% rejected: reentrant_without_gradients
def forward_checkpointed(model, tokens):
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return model.lm_head(model.ln_f(x))


# %% rejected: some_blocks_not_checkpointed
def forward_checkpointed(model, tokens):
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    for i, block in enumerate(model.blocks):
        x = checkpoint(block, x, use_reentrant=False) if i % 2 else block(x)
    return model.lm_head(model.ln_f(x))


# %% rejected: -
def forward_checkpointed(model, tokens):
    # positions and the last LayerNorm are gone
    x = model.wte(tokens)
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return model.lm_head(x)


# %% rejected: -
def forward_checkpointed(model, tokens):
    # no gradients at all: little memory
    with torch.no_grad():
        return model(tokens)


# %% rejected: -
def forward_checkpointed(model, tokens):
    # dropout is switched off
    model.eval()
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return model.lm_head(model.ln_f(x))


# %% accepted: two segments a block, whose peak is as low
def forward_checkpointed(model, tokens):
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    for block in model.blocks:
        x = checkpoint(lambda x, b=block: x + b.attn(b.ln_1(x)), x, use_reentrant=False)
        x = checkpoint(lambda x, b=block: x + b.mlp(b.ln_2(x)), x, use_reentrant=False)
    return model.lm_head(model.ln_f(x))


# %% accepted: all blocks but the last, which is open at the peak anyway
def forward_checkpointed(model, tokens):
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    *most, last = model.blocks
    for block in most:
        x = checkpoint(block, x, use_reentrant=False)
    return model.lm_head(model.ln_f(last(x)))


# %% rejected: each_operation_alone
def forward_checkpointed(model, tokens):
    # the MLP only: attention keeps everything
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    for block in model.blocks:
        x = x + block.attn(block.ln_1(x))
        x = checkpoint(lambda x, b=block: x + b.mlp(b.ln_2(x)), x, use_reentrant=False)
    return model.lm_head(model.ln_f(x))


# %% rejected: several_blocks_a_segment
def forward_checkpointed(model, tokens):
    # one segment a block, but for the last two
    x = model.drop(model.wte(tokens) + model.wpe(torch.arange(tokens.shape[1])))
    for block in model.blocks[:-2]:
        x = checkpoint(block, x, use_reentrant=False)
    x = checkpoint(nn.Sequential(*model.blocks[-2:]), x, use_reentrant=False)
    return model.lm_head(model.ln_f(x))

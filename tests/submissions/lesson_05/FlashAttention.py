# %% accepted: keyword settings on ctx, tensors kept as they are
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        memory = OnChipMemory()
        out, logsumexp = attention.tiled_attention(
            q, k, v, block_q=block_q, block_k=block_k, causal=causal, memory=memory
        )
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.causal, ctx.block_q, ctx.block_k = causal, block_q, block_k
        return out

    @staticmethod
    def backward(ctx, grad_out):
        q, k, v, out, logsumexp = ctx.saved_tensors
        dq, dk, dv = attention.tiled_attention_backward(
            q, k, v, out, logsumexp, grad_out, block_q=ctx.block_q, block_k=ctx.block_k, causal=ctx.causal
        )
        return dq, dk, dv, None, None, None

# %% accepted: setup_context, contiguous copies, output computed again in backward
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(q, k, v, causal, block_q, block_k):
        return attention.tiled_attention(
            q.contiguous(), k.contiguous(), v.contiguous(),
            block_q=block_q, block_k=block_k, causal=causal, memory=OnChipMemory(),
        )[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        q, k, v, *ctx.rest = inputs
        ctx.save_for_backward(q, k, v)

    @staticmethod
    def backward(ctx, grad_out):
        causal, block_q, block_k = ctx.rest
        q, k, v = ctx.saved_tensors
        how = {"block_q": block_q, "block_k": block_k, "causal": causal}
        out, logsumexp = attention.tiled_attention(q, k, v, **how, memory=OnChipMemory())
        found = attention.tiled_attention_backward(q, k, v, out, logsumexp, grad_out, **how)
        return tuple(g if need else None for g, need in zip(found, ctx.needs_input_grad)) + (None,) * 3

# %% rejected: saves_the_scores
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        s = q @ k.mT * q.shape[-1] ** -0.5
        if causal:
            s = s.masked_fill(~attention.decode_mask(q.shape[2], k.shape[2]), -math.inf)
        p = s.softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v, p = (t.float() for t in ctx.saved_tensors)
        dp = g.float() @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
        return (ds @ k).to(g.dtype), (ds.mT @ q).to(g.dtype), (p.mT @ g.float()).to(g.dtype), None, None, None

# %% rejected: makes_all_scores_at_once
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        ctx.save_for_backward(q, k, v)
        ctx.causal = causal
        return attention.naive_attention(q, k, v, causal)

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            out = attention.naive_attention(*leaves, ctx.causal)
        return *torch.autograd.grad(out, leaves, g), None, None, None

# %% rejected: returns_too_few_gradients
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        ctx.how = dict(block_q=block_q, block_k=block_k, causal=causal)
        out, lse = attention.tiled_attention(q, k, v, **ctx.how, memory=OnChipMemory())
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, g):
        return attention.tiled_attention_backward(*ctx.saved_tensors, g, **ctx.how)

# %% rejected: returns_gradients_in_another_order
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        ctx.how = dict(block_q=block_q, block_k=block_k, causal=causal)
        out, lse = attention.tiled_attention(q, k, v, **ctx.how, memory=OnChipMemory())
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, g):
        dq, dk, dv = attention.tiled_attention_backward(*ctx.saved_tensors, g, **ctx.how)
        return dq, dv, dk, None, None, None

# %% rejected: ignores_causal
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        ctx.how = dict(block_q=block_q, block_k=block_k, causal=False)
        out, lse = attention.tiled_attention(q, k, v, **ctx.how, memory=OnChipMemory())
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, g):
        return *attention.tiled_attention_backward(*ctx.saved_tensors, g, **ctx.how), None, None, None

# %% rejected: merges_heads_without_transposing
class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        ctx.how = dict(block_q=block_q, block_k=block_k, causal=causal)
        out, lse = attention.tiled_attention(q, k, v, **ctx.how, memory=OnChipMemory())
        ctx.save_for_backward(q, k, v, out, lse)
        return out.transpose(1, 2).reshape(out.shape)

    @staticmethod
    def backward(ctx, g):
        return *attention.tiled_attention_backward(*ctx.saved_tensors, g, **ctx.how), None, None, None

# %% rejected: -
class FlashAttention(torch.autograd.Function):
    # forward and backward disagree about the mask
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        ctx.how = dict(block_q=block_q, block_k=block_k, causal=False)
        out, lse = attention.tiled_attention(q, k, v, block_q=block_q, block_k=block_k, causal=causal, memory=OnChipMemory())
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, g):
        return *attention.tiled_attention_backward(*ctx.saved_tensors, g, **ctx.how), None, None, None

# %% rejected: -
class FlashAttention(torch.autograd.Function):
    # swaps the two block sizes' roles and forgets the gradients of q
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        ctx.how = dict(block_q=block_k, block_k=block_q, causal=causal)
        out, lse = attention.tiled_attention(q, k, v, **ctx.how, memory=OnChipMemory())
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, g):
        dq, dk, dv = attention.tiled_attention_backward(*ctx.saved_tensors, g, **ctx.how)
        return torch.zeros_like(dq), dk, dv, None, None, None

# %% rejected: aligns_mask_to_start
class FlashAttention(torch.autograd.Function):
    # PyTorch's own is_causal, which is aligned to the start
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        ctx.save_for_backward(q, k, v)
        ctx.causal = causal
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            out = F.scaled_dot_product_attention(*leaves, is_causal=ctx.causal)
        return *torch.autograd.grad(out, leaves, g), None, None, None


# %% rejected: -
class FlashAttention(torch.autograd.Function):
    saved = None
    @staticmethod
    def forward(ctx, q, k, v, causal, block_q, block_k):
        out, lse = attention.tiled_attention(q, k, v, block_q=block_q, block_k=block_k, causal=causal, memory=OnChipMemory())
        FlashAttention.saved = (q, k, v, out, lse, causal, block_q, block_k)
        return out
    @staticmethod
    def backward(ctx, g):
        q, k, v, out, lse, c, bq, bk = FlashAttention.saved
        dq, dk, dv = attention.tiled_attention_backward(q, k, v, out, lse, g, block_q=bq, block_k=bk, causal=c)
        return dq, dk, dv, None, None, None

# %% accepted: queries outside, masked by where
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% accepted: one head at a time, einsum
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    B, H, N, d = q.shape
    M = k.shape[2]
    grads = [torch.zeros(t.shape, dtype=torch.float32) for t in (q, k, v)]
    for b in range(B):
        for h in range(H):
            qh, kh, vh, oh, gh = (t[b, h].to(torch.float32) for t in (q, k, v, out, grad_out))
            delta = torch.einsum("nd,nd->n", gh, oh)
            for j in range(0, M, block_k):
                kj, vj = kh[j : j + block_k], vh[j : j + block_k]
                for i in range(0, N, block_q):
                    qi, gi = qh[i : i + block_q], gh[i : i + block_q]
                    s = torch.einsum("nd,md->nm", qi, kj) / math.sqrt(d)
                    if causal:
                        keep = torch.ones(s.shape, dtype=torch.bool).tril(i + M - N - j)
                        s = s.masked_fill(~keep, float("-inf"))
                    p = (s - logsumexp[b, h, i : i + block_q].unsqueeze(1)).exp()
                    ds = p * (torch.einsum("nd,md->nm", gi, vj) - delta[i : i + block_q].unsqueeze(1)) / math.sqrt(d)
                    grads[0][b, h, i : i + block_q] += torch.einsum("nm,md->nd", ds, kj)
                    grads[1][b, h, j : j + block_k] += torch.einsum("nm,nd->md", ds, qi)
                    grads[2][b, h, j : j + block_k] += torch.einsum("nm,nd->md", p, gi)
    return [g.to(q.dtype) for g in grads]

# %% accepted: the row term from its definition in a first sweep, float64 inside
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    dtype, offset = q.dtype, k.shape[2] - q.shape[2]
    q, k, v, grad_out = (t.double() for t in (q, k, v, grad_out))
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    root = math.sqrt(q.shape[-1])
    for i in range(0, q.shape[2], block_q):
        qt, gt = q[:, :, i : i + block_q], grad_out[:, :, i : i + block_q]
        lse = logsumexp[:, :, i : i + block_q].double().unsqueeze(-1)

        def weights(j):
            s = qt @ k[:, :, j : j + block_k].transpose(2, 3) / root
            if causal:
                s = s + torch.full(s.shape[2:], -math.inf, dtype=s.dtype).triu(i + offset - j + 1)
            return torch.exp(s - lse)

        total = sum(
            (weights(j) * (gt @ v[:, :, j : j + block_k].transpose(2, 3))).sum(-1, keepdim=True)
            for j in range(0, k.shape[2], block_k)
        )
        for j in range(0, k.shape[2], block_k):
            w = weights(j)
            g = w * (gt @ v[:, :, j : j + block_k].transpose(2, 3) - total) / root
            dv[:, :, j : j + block_k] += w.transpose(2, 3) @ gt
            dk[:, :, j : j + block_k] += g.transpose(2, 3) @ qt
            dq[:, :, i : i + block_q] += g @ k[:, :, j : j + block_k]
    return dq.to(dtype), dk.to(dtype), dv.to(dtype)

# %% accepted: every number in the dtype of the inputs
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M = q.shape[2], k.shape[2]
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    D = (grad_out * out).sum(-1, keepdim=True)
    for j in range(0, M, block_k):
        for i in range(0, N, block_q):
            r, c = slice(i, i + block_q), slice(j, j + block_k)
            s = q[:, :, r] @ k[:, :, c].mT * q.shape[-1] ** -0.5
            p = torch.exp(s - logsumexp[:, :, r, None].to(q.dtype))
            if causal:
                p = p.masked_fill(torch.ones(p.shape[2:], dtype=torch.bool).triu(i + M - N - j + 1), 0)
            ds = p * (grad_out[:, :, r] @ v[:, :, c].mT - D[:, :, r]) * q.shape[-1] ** -0.5
            dv[:, :, c] += p.mT @ grad_out[:, :, r]
            dk[:, :, c] += ds.mT @ q[:, :, r]
            dq[:, :, r] += ds @ k[:, :, c]
    return dq, dk, dv

# %% rejected: forgets_row_term
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: row_term_without_weights
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO @ v.float().mT).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: forgets_scale_in_dq
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: forgets_scale_in_dk
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: forgets_scale_in_both
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K
            dk[:, :, b] += dS.mT @ Q
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: scales_twice
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D) * scale
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: forgets_scale_in_scores
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: forgets_logsumexp
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S)
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: ignores_causal
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if False:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: aligns_mask_to_start
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None], S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: dv_product_not_transposed
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: dk_product_not_transposed
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: dq_product_transposed
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS.mT @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: drops_last_tile
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M // block_k * block_k, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            S = Q @ K.mT * scale
            if causal:
                S = torch.where(torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N, S, -math.inf)
            P = torch.exp(S - logsumexp[:, :, a, None])
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

# %% rejected: stores_all_scores
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    leaves = [t.detach().float().requires_grad_() for t in (q, k, v)]
    s = leaves[0] @ leaves[1].mT * q.shape[-1] ** -0.5
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:]).triu(k.shape[2] - q.shape[2] + 1) > 0, -math.inf)
    grads = torch.autograd.grad(s.softmax(-1) @ leaves[2], leaves, grad_out.float())
    return tuple(g.to(q.dtype) for g in grads)

# %% rejected: -
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)

# %% rejected: -
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    return None

# %% rejected: masks_after_the_exponential
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    scale = d**-0.5
    dq, dk, dv = torch.zeros(q.shape), torch.zeros(k.shape), torch.zeros(v.shape)
    for i in range(0, N, block_q):
        a = slice(i, min(i + block_q, N))
        Q, dO = q[:, :, a].float(), grad_out[:, :, a].float()
        D = (dO * out[:, :, a].float()).sum(-1, keepdim=True)
        for j in range(0, M, block_k):
            b = slice(j, min(j + block_k, M))
            K, V = k[:, :, b].float(), v[:, :, b].float()
            P = torch.exp(Q @ K.mT * scale - logsumexp[:, :, a, None])
            if causal:
                P = P * (torch.arange(b.start, b.stop) <= torch.arange(a.start, a.stop)[:, None] + M - N)
            dv[:, :, b] += P.mT @ dO
            dS = P * (dO @ V.mT - D)
            dq[:, :, a] += dS @ K * scale
            dk[:, :, b] += dS.mT @ Q * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


# %% rejected: -
def tiled_attention_backward(q, k, v, out, logsumexp, grad_out, *, block_q, block_k, causal):
    Tq, D = q.shape[-2:]; Tk = k.shape[-2]; sc = 1/math.sqrt(D)
    dq = torch.zeros(q.shape); dk = torch.zeros(k.shape); dv = torch.zeros(v.shape)
    Dl = (out.float() * grad_out.float()).sum(-1)
    for i in range(0, Tq, block_q):
        qt = q[:, :, i:i+block_q].float(); g = grad_out[:, :, i:i+block_q].float(); n = qt.shape[2]
        for j in range(0, Tk, block_k):
            if causal and j > i+n-1+Tk-Tq: break
            kt = k[:, :, j:j+block_k].float(); vt = v[:, :, j:j+block_k].float()
            s = qt @ kt.mT * sc
            if causal:
                s = s.masked_fill(torch.arange(j, j+kt.shape[2])[None] > torch.arange(i, i+n)[:, None]+Tk-Tq, -math.inf)
            p = torch.exp(s - logsumexp[:, :, i:i+block_q, None])
            dv[:, :, j:j+block_k] += p.mT @ g
            ds = p * (g @ vt.mT - Dl[:, :, i:i+block_q, None])
            dq[:, :, i:i+block_q] += ds @ kt * sc
            dk[:, :, j:j+block_k] += ds.mT @ qt * sc
    grad_out.zero_(); out.zero_()
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)

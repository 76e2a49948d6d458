# %% accepted: loops over heads, einsum, scope, no skipping
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    B, H, N, d = q.shape
    M = k.shape[2]
    out = torch.zeros_like(q)
    logsumexp = torch.zeros(B, H, N)
    for b in range(B):
        for h in range(H):
            for i in range(0, N, block_q):
                with memory.scope():
                    Q = memory.load(q[b, h, i : i + block_q]).float()
                    m = torch.full((len(Q),), float("-inf"))
                    l = torch.zeros(len(Q))
                    O = torch.zeros(len(Q), d)
                    for j in range(0, M, block_k):
                        with memory.scope():
                            K = memory.load(k[b, h, j : j + block_k])
                            V = memory.load(v[b, h, j : j + block_k])
                            S = torch.einsum("id,jd->ij", Q, K.float()) * d**-0.5
                            if causal:
                                pos = torch.arange(i, i + len(Q)).unsqueeze(1) + M - N
                                S = torch.where(torch.arange(j, j + K.shape[0]) <= pos, S, torch.tensor(float("-inf")))
                            m2 = torch.maximum(m, S.max(dim=1).values)
                            P = torch.exp(S - m2[:, None])
                            a = torch.exp(m - m2)
                            l = a * l + P.sum(dim=1)
                            O = torch.einsum("i,id->id", a, O) + torch.einsum("ij,jd->id", P, V.float())
                            m = m2
                    memory.store((O / l[:, None]).to(q.dtype), out[b, h, i : i + block_q])
                    logsumexp[b, h, i : i + block_q] = m + l.log()
    return out, logsumexp

# %% accepted: keys outside, queries inside, as in the first paper
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M, d = q.shape[-2], k.shape[-2], q.shape[-1]
    O = torch.zeros(q.shape, dtype=torch.float32)
    out = torch.empty_like(q)
    m = torch.full(q.shape[:-1], -torch.inf)
    l = torch.zeros(q.shape[:-1])
    for j in range(0, M, block_k):
        kt = memory.load(k[..., j : j + block_k, :])
        vt = memory.load(v[..., j : j + block_k, :])
        for i in range(0, N, block_q):
            rows = slice(i, min(i + block_q, N))
            if causal and j > rows.stop - 1 + M - N:
                continue
            qt = memory.load(q[..., rows, :])
            ot = memory.load(O[..., rows, :])
            s = qt.float() @ kt.float().mT / d**0.5
            if causal:
                s += torch.zeros(s.shape[-2:]).masked_fill(
                    torch.arange(j, j + s.shape[-1]) > torch.arange(rows.start, rows.stop)[:, None] + (M - N), -torch.inf
                )
            mn = torch.maximum(m[..., rows], s.amax(-1))
            p = (s - mn.unsqueeze(-1)).exp()
            c = (m[..., rows] - mn).exp()
            l[..., rows] = l[..., rows] * c + p.sum(-1)
            m[..., rows] = mn
            memory.store(ot * c.unsqueeze(-1) + p @ vt.float(), O[..., rows, :])
            memory.free(qt, ot)
        memory.free(kt, vt)
    for i in range(0, N, block_q):
        ot = memory.load(O[..., i : i + block_q, :])
        memory.store(ot / l[..., i : i + block_q, None], out[..., i : i + block_q, :])
        memory.free(ot)
    return out, m + l.log()

# %% accepted: every number in the dtype of the inputs
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    N, M = q.shape[2], k.shape[2]
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        o = memory.allocate(qt.shape, q.dtype)
        m = torch.full(qt.shape[:3], float("-inf"), dtype=q.dtype)
        l = torch.zeros(qt.shape[:3], dtype=q.dtype)
        for j in range(0, M, block_k):
            kt = memory.load(k[:, :, j : j + block_k])
            s = torch.matmul(qt, kt.transpose(2, 3)) * q.shape[-1] ** -0.5
            memory.free(kt)
            if causal:
                keep = torch.ones(s.shape[2], s.shape[3], dtype=torch.bool).tril(i + M - N - j)
                s = s.masked_fill(~keep, float("-inf"))
            m_new = torch.maximum(m, s.max(-1)[0])
            p = torch.exp(s - m_new[..., None])
            l = l * torch.exp(m - m_new) + p.sum(-1)
            o *= torch.exp(m - m_new)[..., None]
            vt = memory.load(v[:, :, j : j + block_k])
            o += p @ vt
            memory.free(vt)
            m = m_new
        o /= l[..., None]
        memory.store(o, out[:, :, i : i + block_q])
        memory.free(o)
        memory.free(qt)
        lse[:, :, i : i + block_q] = m.float() + l.float().log()
    return out, lse

# %% accepted: normalised tiles joined by their log-sum-exp, keys from the end
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    n, m = q.shape[-2], k.shape[-2]
    out = torch.empty_like(q)
    logsumexp = torch.empty(q.shape[:-1], dtype=torch.float32)
    for i in range(0, n, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        total = torch.full(qt.shape[:-1], -math.inf)
        mean = torch.zeros(qt.shape)
        for j in reversed(range(0, m, block_k)):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().transpose(-1, -2) / math.sqrt(q.shape[-1])
            if causal:
                s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(i + m - n - j + 1), -math.inf)
            lse = torch.logsumexp(s, -1)
            both = torch.logaddexp(total, lse)
            old = torch.where(total == -math.inf, 0.0, (total - both).exp())
            new = torch.where(lse == -math.inf, 0.0, (lse - both).exp())
            part = torch.nan_to_num(torch.softmax(s, -1)) @ vt.float()
            mean = mean * old[..., None] + part * new[..., None]
            total = both
            memory.free(kt, vt)
        memory.free(qt)
        memory.store(mean.to(q.dtype), out[:, :, i : i + block_q])
        logsumexp[:, :, i : i + block_q] = total
    return out, logsumexp

# %% accepted: powers of two, the scale folded into q, float64 statistics
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M, d = q.shape[2], k.shape[2], q.shape[3]
    out, lse = q.new_zeros(q.shape), torch.zeros(q.shape[:3])
    for start in range(0, N, block_q):
        stop = min(N, start + block_q)
        tile = memory.load(q[:, :, start:stop])
        scaled = tile.double() * (math.log2(math.e) / math.sqrt(d))
        last = stop + M - N if causal else M
        m, l, acc = torch.tensor(-1e30, dtype=torch.float64), 0.0, 0.0
        for j in range(0, last, block_k):
            a, b = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = scaled @ a.double().transpose(-1, -2)
            if causal:
                s = s.masked_fill(torch.arange(j, j + s.shape[-1]) > torch.arange(start, stop)[:, None] + M - N, -1e300)
            new = torch.maximum(m, s.amax(-1))
            p, c = torch.exp2(s - new[..., None]), torch.exp2(m - new)
            l, acc, m = l * c + p.sum(-1), acc * c[..., None] + p @ b.double(), new
            memory.free(a)
            memory.free(b)
        memory.store(acc / l[..., None], out[:, :, start:stop])
        lse[:, :, start:stop] = (m + torch.log2(l)) * math.log(2)
        memory.free(tile)
    return out, lse

# %% rejected: keeps_accumulator_unscaled
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p = torch.exp(s - n[..., None])
            l = l * torch.exp(m - n) + p.sum(-1)
            o = o + p @ vt.float()
            m = n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: keeps_both_unscaled
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            m = torch.maximum(m, s.amax(-1))
            p = torch.exp(s - m[..., None])
            l += p.sum(-1)
            o += p @ vt.float()
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: starts_maximum_at_zero
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.zeros(qt.shape[:3]), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: normalises_twice
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l = l * c + p.sum(-1)
            o = o * c[..., None] + (p / l[..., None]) @ vt.float()
            m = n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: drops_last_tile
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for tile in range(M // block_k):
            j = tile * block_k
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: drops_last_query_tile
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.zeros_like(q), torch.zeros(q.shape[:3])
    for t in range(N // block_q):
        i = t * block_q
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: aligns_mask_to_start
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s = s.masked_fill(~torch.ones(s.shape[-2:]).tril(i - j).bool(), -math.inf)
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: inverts_mask
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -1e30), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                keep = torch.arange(j, j + s.shape[-1]) <= torch.arange(i, i + s.shape[-2])[:, None] + M - N
                s = s.masked_fill(keep, -math.inf)
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: skips_tiles_as_if_square
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, min(M, i + block_q) if causal else M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: forgets_scale
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: merges_heads_without_transposing
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    B, H, N, d = q.shape
    M = k.shape[2]
    rows, lse = torch.empty(B, N, H, d, dtype=q.dtype), torch.empty(B, H, N)
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(d)
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store((o / l[..., None]).transpose(1, 2), rows[:, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return rows.view(B, H, N, d), lse

# %% rejected: loads_all_of_k_and_v
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    kt, vt = memory.load(k).float(), memory.load(v).float()
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, q.shape[2], block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        s = qt.float() @ kt.mT / q.shape[-1] ** 0.5
        if causal:
            s = s.masked_fill(torch.ones(s.shape[-2:]).triu(i + k.shape[2] - q.shape[2] + 1) == 1, -math.inf)
        memory.store(torch.softmax(s, -1) @ vt, out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = torch.logsumexp(s, -1)
        memory.free(qt)
    return out, lse

# %% rejected: never_frees_tiles
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
    return out, lse

# %% rejected: reads_freed_tiles
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    keys = []
    for j in range(0, k.shape[2], block_k):
        tile = memory.load(k[:, :, j : j + block_k])
        keys.append(tile)
        memory.free(tile)
    whole = torch.cat(keys, 2)
    s = q @ whole.mT / q.shape[-1] ** 0.5
    return torch.softmax(s, -1) @ v, torch.logsumexp(s, -1).float()

# %% rejected: reads_around_memory
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    s = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(k.shape[2] - q.shape[2]), -math.inf)
    return s.softmax(-1) @ v, s.float().logsumexp(-1)

# %% rejected: reads_around_memory
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    # loads and frees each tile once for show, and computes on the originals
    s = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(k.shape[2] - q.shape[2]), -math.inf)
    for whole, block in ((q, block_q), (k, block_k), (v, block_k)):
        for i in range(0, whole.shape[2], block):
            memory.free(memory.load(whole[:, :, i : i + block]))
    out = torch.empty_like(q)
    memory.store((s.softmax(-1) @ v.float()).to(q.dtype), out)
    return out, s.logsumexp(-1)

# %% rejected: loads_tiles_again
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        m = torch.full(q[:, :, i : i + block_q].shape[:3], -math.inf)
        l, o = torch.zeros(m.shape), torch.zeros(*m.shape, q.shape[-1])
        for j in range(0, M, block_k):
            qt = memory.load(q[:, :, i : i + block_q])
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(qt, kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
    return out, lse

# %% rejected: stores_all_scores
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    hidden = torch.ones(N, M, dtype=torch.bool).triu(M - N + 1)
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s = s.masked_fill(hidden[i : i + block_q, j : j + block_k], -math.inf)
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: stores_all_scores
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    # whole rows of scores for one tile of queries, then one softmax
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        rows = []
        for j in range(0, M, block_k):
            kt = memory.load(k[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            rows.append(s)
            memory.free(kt)
        s = torch.cat(rows, -1)
        p = s.softmax(-1)
        o = 0
        for j in range(0, M, block_k):
            vt = memory.load(v[:, :, j : j + block_k])
            o = o + p[..., j : j + block_k] @ vt.float()
            memory.free(vt)
        memory.store(o, out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = s.logsumexp(-1)
        memory.free(qt)
    return out, lse

# %% rejected: loads_tiles_again
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    # two sweeps: first the maximum and the sum, then the output
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])

        def scores(j):
            kt = memory.load(k[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            memory.free(kt)
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            return s

        L = torch.full(qt.shape[:3], -math.inf)
        for j in range(0, M, block_k):
            L = torch.logaddexp(L, scores(j).logsumexp(-1))
        o = torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            vt = memory.load(v[:, :, j : j + block_k])
            o += torch.exp(scores(j) - L[..., None]) @ vt.float()
            memory.free(vt)
        memory.store(o, out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = L
        memory.free(qt)
    return out, lse

# %% rejected: logsumexp_without_maximum
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = l.log()
        memory.free(qt)
    return out, lse

# %% rejected: -
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    # fp16 arithmetic whatever comes in
    s = q.half() @ k.half().mT / q.shape[-1] ** 0.5
    return (s.softmax(-1) @ v.half()).to(q.dtype), s.logsumexp(-1).float()

# %% rejected: -
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

# %% rejected: -
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    return torch.full_like(q, float("nan")), torch.full(q.shape[:3], float("nan"))

# %% rejected: keeps_sum_unscaled
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: scales_by_head_dim
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / q.shape[-1]
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: hides_own_position
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -1e30), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) >= torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: ignores_causal
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if not causal and causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: never_normalises
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o, out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = m + l.log()
        memory.free(qt)
    return out, lse

# %% rejected: returns_sum_for_logsumexp
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = l
        memory.free(qt)
    return out, lse

# %% rejected: logsumexp_in_base_two
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    N, M = q.shape[2], k.shape[2]
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    for i in range(0, N, block_q):
        qt = memory.load(q[:, :, i : i + block_q])
        m, l, o = torch.full(qt.shape[:3], -math.inf), torch.zeros(qt.shape[:3]), torch.zeros(qt.shape)
        for j in range(0, M, block_k):
            kt, vt = memory.load(k[:, :, j : j + block_k]), memory.load(v[:, :, j : j + block_k])
            s = qt.float() @ kt.float().mT / math.sqrt(q.shape[-1])
            if causal:
                s[..., torch.arange(j, j + s.shape[-1]) > torch.arange(i, i + s.shape[-2])[:, None] + M - N] = -math.inf
            n = torch.maximum(m, s.amax(-1))
            p, c = torch.exp(s - n[..., None]), torch.exp(m - n)
            l, o, m = l * c + p.sum(-1), o * c[..., None] + p @ vt.float(), n
            memory.free(kt, vt)
        memory.store(o / l[..., None], out[:, :, i : i + block_q])
        lse[:, :, i : i + block_q] = (m + l.log()) / math.log(2)
        memory.free(qt)
    return out, lse


# %% rejected: -
def tiled_attention(q, k, v, *, block_q, block_k, causal, memory):
    B, H, Tq, D = q.shape; Tk = k.shape[2]
    q.div_(math.sqrt(D))
    out = torch.empty_like(q); lse = torch.empty(B, H, Tq, dtype=torch.float32)
    for i in range(0, Tq, block_q):
        qt = memory.load(q[:, :, i:i+block_q]); n = qt.shape[2]
        m = torch.full((B, H, n), -math.inf); l = torch.zeros(B, H, n)
        acc = memory.allocate((B, H, n, D), torch.float32)
        for j in range(0, Tk, block_k):
            if causal and j > i + n - 1 + Tk - Tq: break
            kt = memory.load(k[:, :, j:j+block_k]); vt = memory.load(v[:, :, j:j+block_k])
            s = qt.float() @ kt.float().transpose(-1, -2)
            if causal:
                rows = torch.arange(i, i+n)[:, None] + Tk - Tq; cols = torch.arange(j, j+kt.shape[2])[None]
                s = s.masked_fill(cols > rows, -math.inf)
            new = torch.maximum(m, s.amax(-1))
            c = torch.exp(m - new); p = torch.exp(s - new[..., None])
            l = l*c + p.sum(-1)
            acc.mul_(c[..., None]); acc.add_(p @ vt.float())
            m = new
            memory.free(kt, vt)
        memory.store((acc / l[..., None]).to(q.dtype), out[:, :, i:i+block_q])
        lse[:, :, i:i+block_q] = m + l.log()
        memory.free(qt, acc)
    return out, lse

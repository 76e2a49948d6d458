# %% accepted: columns of keys, three-dimensional grid, base pointers moved
@triton.jit
def my_kernel(Q, K, V, O, N, M, H, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, C: tl.constexpr):
    i, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    Q += (b * H + h) * N * D
    O += (b * H + h) * N * D
    K += (b * H + h) * M * D
    V += (b * H + h) * M * D
    r = i * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    q = tl.load(Q + r[:, None] * D + d[None, :], mask=(r < N)[:, None], other=0.0).to(tl.float32) * scale
    m = tl.zeros([BQ], tl.float32) - 1e30
    l = tl.zeros([BQ], tl.float32)
    o = tl.zeros([BQ, D], tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kt = tl.load(K + c[None, :] * D + d[:, None], mask=(c < M)[None, :], other=0.0).to(tl.float32)
        s = tl.dot(q, kt, input_precision="ieee")
        s = tl.where((c < M)[None, :], s, -1e38)
        if C:
            s = tl.where(c[None, :] - r[:, None] <= M - N, s, -1e38)
        n = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp2((s - n[:, None]) * 1.4426950408889634)
        a = tl.exp2((m - n) * 1.4426950408889634)
        vt = tl.load(V + c[:, None] * D + d[None, :], mask=(c < M)[:, None], other=0.0).to(tl.float32)
        l = l * a + tl.sum(p, axis=1)
        o = o * a[:, None] + tl.dot(p, vt, input_precision="ieee")
        m = n
    tl.store(O + r[:, None] * D + d[None, :], (o / l[:, None]).to(O.dtype.element_ty), mask=(r < N)[:, None])


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.zeros_like(q)
    my_kernel[(triton.cdiv(N, block_q), H, B)](
        q.contiguous(), k.contiguous(), v.contiguous(), out, N, k.shape[2], H, D**-0.5, D=D, BQ=block_q, BK=block_k, C=causal
    )
    return out

# %% accepted: strides instead of contiguous copies
@triton.jit
def strided_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, sqh, sqn, skh, skn, soh, son, N, M, scale,
    D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr,
):
    head = tl.program_id(1)
    rows = tl.program_id(0) * BQ + tl.arange(0, BQ)
    dims = tl.arange(0, D)
    live = rows < N
    q = tl.load(q_ptr + head * sqh + rows[:, None] * sqn + dims[None, :], mask=live[:, None], other=0)
    best = tl.full([BQ], -float("inf"), tl.float32)
    total = tl.full([BQ], 0.0, tl.float32)
    acc = tl.full([BQ, D], 0.0, tl.float32)
    for start in range(0, tl.cdiv(M, BK) * BK, BK):
        cols = start + tl.arange(0, BK)
        k = tl.load(k_ptr + head * skh + cols[:, None] * skn + dims[None, :], mask=cols[:, None] < M, other=0)
        v = tl.load(v_ptr + head * skh + cols[:, None] * skn + dims[None, :], mask=cols[:, None] < M, other=0)
        hidden = cols[None, :] >= M
        if CAUSAL:
            hidden = hidden | (cols[None, :] > rows[:, None] + M - N)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale + tl.where(hidden, -float("inf"), 0.0)
        new = tl.maximum(best, tl.max(score, 1))
        old_share = tl.exp(best - new)
        weight = tl.exp(score - new[:, None])
        total = old_share * total + tl.sum(weight, 1)
        acc = old_share[:, None] * acc + tl.dot(weight, v.to(tl.float32), input_precision="ieee")
        best = new
    acc = acc / total[:, None]
    tl.store(o_ptr + head * soh + rows[:, None] * son + dims[None, :], acc.to(o_ptr.dtype.element_ty), mask=live[:, None])


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    shape = q.shape
    q, k, v = (t.reshape(-1, t.shape[2], t.shape[3]) for t in (q, k, v))
    out = torch.empty_like(q)
    strided_kernel[(-(-q.shape[1] // block_q), q.shape[0])](
        q, k, v, out, *q.stride()[:2], *k.stride()[:2], *out.stride()[:2], q.shape[1], k.shape[1], q.shape[2] ** -0.5,
        D=q.shape[2], BQ=block_q, BK=block_k, CAUSAL=causal,
    )
    return out.view(shape)

# %% rejected: keeps_accumulator_unscaled
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: keeps_both_unscaled
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l + tl.sum(p, 1)
        o = o + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: counts_padding
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: ignores_causal
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: aligns_mask_to_start
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None], s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: forgets_scale
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: never_normalises
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, o.to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: drops_last_tile
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M // BK * BK, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: -
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = missing * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: -
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at * 0, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: computes_without_a_kernel
def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    scores = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(k.shape[2] - q.shape[2] + 1) > 0, -math.inf)
    return (scores.softmax(-1) @ v.float()).to(q.dtype)

# %% rejected: -
def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    return torch.zeros_like(q)

# %% rejected: keeps_sum_unscaled
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: starts_maximum_at_zero
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.zeros((BQ,), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] <= r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: hides_own_position
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] < r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

# %% rejected: inverts_mask
@triton.jit
def kernel(qp, kp, vp, op, N, M, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr):
    h = tl.program_id(1)
    r = tl.program_id(0) * BQ + tl.arange(0, BQ)
    d = tl.arange(0, D)
    at = (h * N + r[:, None]) * D + d[None, :]
    q = tl.load(qp + at, mask=r[:, None] < N, other=0.0)
    m = tl.full((BQ,), -float("inf"), tl.float32)
    l = tl.zeros((BQ,), tl.float32)
    o = tl.zeros((BQ, D), tl.float32)
    for j in range(0, M, BK):
        c = j + tl.arange(0, BK)
        kat = (h * M + c[:, None]) * D + d[None, :]
        k = tl.load(kp + kat, mask=c[:, None] < M, other=0.0)
        v = tl.load(vp + kat, mask=c[:, None] < M, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(c[None, :] < M, s, -float("inf"))
        if CAUSAL:
            s = tl.where(c[None, :] > r[:, None] + M - N, s, -float("inf"))
        n = tl.maximum(m, tl.max(s, 1))
        a = tl.exp(m - n)
        p = tl.exp(s - n[:, None])
        l = l * a + tl.sum(p, 1)
        o = o * a[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = n
    tl.store(op + at, (o / l[:, None]).to(op.dtype.element_ty), mask=r[:, None] < N)


def triton_attention(q, k, v, causal, block_q=16, block_k=16):
    B, H, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, block_q), B * H)
    kernel[grid](q, k, v, out, N, k.shape[2], D**-0.5, D=D, BQ=block_q, BK=block_k, CAUSAL=causal)
    return out

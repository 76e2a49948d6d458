# %% accepted: a loop over blocks
def quantize_blockwise(x, block_size):
    flat = x.flatten()
    codes = torch.zeros(flat.shape, dtype=torch.int8)
    scales = []
    for start in range(0, flat.numel(), block_size):
        block = flat[start : start + block_size]
        scale = block.abs().max() / 127
        scales.append(scale.item())
        if scale > 0:
            codes[start : start + block_size] = torch.round(block / scale).to(torch.int8)
    return codes.view(x.shape), torch.tensor(scales)


def dequantize_blockwise(codes, scales, block_size):
    spread = torch.repeat_interleave(scales, block_size)[: codes.numel()]
    return codes.float() * spread.reshape(codes.shape)

# %% accepted: by the reciprocal, half away from zero, with an index of blocks
def quantize_blockwise(x, block_size):
    v = x.reshape(-1).double()
    block = torch.arange(v.numel()) // block_size
    largest = torch.zeros(int(block[-1]) + 1, dtype=torch.float64).scatter_reduce(0, block, v.abs(), "amax")
    inverse = torch.where(largest == 0, 0.0, 127 / largest)[block]
    codes = (v.abs() * inverse + 0.5).floor() * v.sign()
    return codes.to(torch.int8).reshape(x.shape), (largest / 127).float()


def dequantize_blockwise(codes, scales, block_size):
    block = torch.arange(codes.numel()) // block_size
    return (codes.reshape(-1) * scales[block]).reshape(codes.shape)

# %% rejected: one_scale_for_all
def quantize_blockwise(x, block_size):
    scale = x.abs().max() / 127
    n = -(-x.numel() // block_size)
    codes = torch.round(x / scale) if scale else torch.zeros_like(x)
    return codes.to(torch.int8), torch.full((n,), scale.item())


def dequantize_blockwise(codes, scales, block_size):
    return codes * scales[0] if len(scales) == 1 else (codes.flatten() * scales.repeat_interleave(block_size)[: codes.numel()]).view(codes.shape)

# %% rejected: divides_by_zero
def quantize_blockwise(x, block_size):
    flat = x.reshape(-1)
    padded = F.pad(flat, (0, -len(flat) % block_size)).view(-1, block_size)
    scales = padded.abs().amax(1) / 127
    codes = (padded / scales[:, None]).round().flatten()[: len(flat)]
    return codes.to(torch.int8).reshape(x.shape), scales


def dequantize_blockwise(codes, scales, block_size):
    spread = scales.repeat_interleave(block_size)[: codes.numel()]
    return codes * spread.view(codes.shape)

# %% rejected: truncates
def quantize_blockwise(x, block_size):
    flat = x.reshape(-1)
    padded = F.pad(flat, (0, -len(flat) % block_size)).view(-1, block_size)
    scales = padded.abs().amax(1) / 127
    codes = (padded / scales.clamp(min=1e-30)[:, None]).flatten()[: len(flat)].char()
    return codes.reshape(x.shape), scales


def dequantize_blockwise(codes, scales, block_size):
    spread = scales.repeat_interleave(block_size)[: codes.numel()]
    return codes * spread.view(codes.shape)

# %% rejected: maximum_without_magnitude
def quantize_blockwise(x, block_size):
    flat = x.reshape(-1)
    blocks = flat.split(block_size)
    scales = torch.stack([b.max() / 127 for b in blocks])
    codes = [(b / (s if s > 0 else 1.0)).round().clamp(-128, 127).to(torch.int8) for b, s in zip(blocks, scales)]
    return torch.cat(codes).reshape(x.shape), scales


def dequantize_blockwise(codes, scales, block_size):
    spread = scales.repeat_interleave(block_size)[: codes.numel()]
    return codes * spread.view(codes.shape)

# %% rejected: scale_by_128
def quantize_blockwise(x, block_size):
    flat = x.reshape(-1)
    blocks = flat.split(block_size)
    scales = torch.stack([b.abs().max() / 128 for b in blocks])
    codes = [torch.round(b / s).clamp(-128, 127).to(torch.int8) if s > 0 else b.to(torch.int8) for b, s in zip(blocks, scales)]
    return torch.cat(codes).reshape(x.shape), scales


def dequantize_blockwise(codes, scales, block_size):
    spread = scales.repeat_interleave(block_size)[: codes.numel()]
    return codes * spread.view(codes.shape)

# %% rejected: -
# One scale a row instead of one a block.
def quantize_blockwise(x, block_size):
    scales = x.abs().amax(-1) / 127
    codes = x / scales.clamp(min=1e-30)[..., None]
    return codes.round().to(torch.int8), scales.reshape(-1)


def dequantize_blockwise(codes, scales, block_size):
    return codes * scales.view(*codes.shape[:-1], 1)

# %% rejected: -
# The way back forgets the blocks.
def quantize_blockwise(x, block_size):
    flat = x.reshape(-1)
    padded = F.pad(flat, (0, -len(flat) % block_size)).view(-1, block_size)
    scales = padded.abs().amax(1) / 127
    codes = (padded / torch.where(scales > 0, scales, 1)[:, None]).round().flatten()[: len(flat)].to(torch.int8)
    return codes.reshape(x.shape), scales


def dequantize_blockwise(codes, scales, block_size):
    return codes * scales.mean()

# %% rejected: -
# The tail that fills no block is left at zero.
def quantize_blockwise(x, block_size):
    flat = x.reshape(-1)
    whole = len(flat) // block_size * block_size
    codes = torch.zeros(len(flat), dtype=torch.int8)
    scales = torch.zeros(-(-len(flat) // block_size))
    if whole:
        blocks = flat[:whole].view(-1, block_size)
        s = blocks.abs().amax(1) / 127
        scales[: len(s)] = s
        codes[:whole] = (blocks / s.clamp(min=1e-30)[:, None]).round().flatten().to(torch.int8)
    return codes.reshape(x.shape), scales


def dequantize_blockwise(codes, scales, block_size):
    spread = scales.repeat_interleave(block_size)[: codes.numel()]
    return codes * spread.view(codes.shape)


# %% rejected: -
def dequantize_blockwise(codes, scales, block_size):
    s = scales.repeat_interleave(block_size)[:codes.numel()].view(codes.shape)
    return codes.float() * s


def quantize_blockwise(x, block_size):
    flat = x.reshape(-1); n = flat.numel()
    sc = []
    codes = torch.empty(n, dtype=torch.int8)
    for i, b in enumerate(flat.split(block_size)):
        s = b.abs().max() / 127; sc.append(s)
        if s > 0: b.div_(s)
        codes[i*block_size:i*block_size+len(b)] = b.round().to(torch.int8)
    return codes.view(x.shape), torch.stack(sc)


# %% rejected: -
def dequantize_blockwise(codes, scales, block_size):
    s = scales.repeat_interleave(block_size)[:codes.numel()].view(codes.shape)
    return codes.float() * s


def quantize_blockwise(x, block_size):
    rows = x.reshape(-1, x.shape[-1])
    sc=[]; cs=[]
    for r in rows:
        for b in r.split(block_size):
            s=b.abs().max()/127; sc.append(s); cs.append((b/(s if s>0 else 1)).round().to(torch.int8))
    return torch.cat(cs).view(x.shape), torch.stack(sc)

"""What CUDA would do where the CPU does otherwise. Without these rules a dry run would measure the CPU's memory.

| rule | CPU | CUDA | source |
| --- | --- | --- | --- |
| autocast | its own lists | the lists of autocast.py | ATen/autocast_mode.h, autocast_mode.cpp |
| dropout | a mask in the input's dtype | a mask of one byte (native_dropout) | ATen/native/Dropout.cpp |
| softmax of float16 with dtype=float32 | a float32 copy of the input | one fused kernel | ATen/native/SoftMax.cpp |
| attention | its own flash kernel; math with dropout | see attention_backend | native/transformers/cuda/sdp_utils.cpp |
| optimizers | a loop over parameters | foreach where nothing was chosen | torch/optim/optimizer.py; see dry_run |
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from course_lib.memory import autocast
from course_lib.memory.gpus import Gpu, find_gpu

aten = torch.ops.aten

# A dry run without a GPU follows the rules of an A100.
DEFAULT_CAPABILITY = (8, 0)


def attention_backend(
    gpu: str | Gpu | None,
    dtype: torch.dtype,
    head_dim: int = 64,
    *,
    has_mask: bool = False,
    has_grouped_heads: bool = False,
    is_causal: bool = False,
    q_len: int | None = None,
    k_len: int | None = None,
    dropout: float = 0.0,
) -> str:
    """Which kernel `F.scaled_dot_product_attention` takes on a GPU: "flash", "efficient" or "math".

    Hopper and Blackwell take cuDNN's kernel first where it is recent enough; it keeps what flash keeps (q, k, v, out,
    log-sum-exp), and counts as "flash" here. The switches of `torch.nn.attention.sdpa_kernel` are obeyed.

    Args:
        gpu: a name of `GPUS`, a `Gpu`, or None for compute capability 8.0.
        dtype, head_dim: of q, k and v.
        has_mask: an explicit `attn_mask`.
        has_grouped_heads: fewer heads in k and v (`enable_gqa`).
        is_causal, q_len, k_len: flash wants equal lengths under `is_causal`.
        dropout: probability; matters for head_dim above 192 on 8.6 and 8.9.
    Source: ATen/native/transformers/cuda/sdp_utils.cpp, can_use_flash_attention and can_use_mem_efficient_attention.
    """
    capability = DEFAULT_CAPABILITY if gpu is None else find_gpu(gpu).capability
    is_half = dtype in (torch.float16, torch.bfloat16)
    too_wide = (8, 6) <= capability <= (8, 9) and (192 < head_dim <= 224 or (head_dim > 224 and dropout > 0))
    if (
        torch.backends.cuda.flash_sdp_enabled()
        and capability >= (8, 0)
        and is_half
        and head_dim <= 256
        and not has_mask
        and not too_wide
        and not (is_causal and q_len != k_len)
    ):
        return "flash"
    # minimum_gemm_alignment: tensor cores want 128 bits; they serve half from 7.0 and float32 from 8.0
    uses_tensor_cores = capability >= (8, 0) or (capability >= (7, 0) and is_half)
    alignment = 128 // (16 if is_half else 32) if uses_tensor_cores else 1
    dtypes = (torch.float16, torch.float32) + ((torch.bfloat16,) if capability >= (8, 0) else ())
    if (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and dtype in dtypes
        and head_dim % alignment == 0
        and not has_grouped_heads
    ):
        return "efficient"
    return "math"


@contextmanager
def cuda_rules(gpu: str | Gpu | None = None) -> Iterator[None]:
    """Inside the block, CPU tensors follow CUDA's rules; `gpu` chooses the attention backend.

    Autocast and dropout work on real and fake CPU tensors, the fused softmax and CUDA's attention on fake ones only:
    they have no CPU kernel. The rules hold for the whole process while the block runs.
    """
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")  # replacing is the purpose
            autocast.register(library)
            library.impl("dropout", _dropout, "AutogradCPU")
            for name, kernel in (("softmax.int", torch._softmax), ("log_softmax.int", torch._log_softmax)):
                library.impl(name, _softmax_rule(kernel), "AutogradCPU")
            library.impl("scaled_dot_product_attention", _attention_rule(gpu), "AutogradCPU")
        yield
    finally:
        library._destroy()


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if not train or p == 0 or x.numel() == 0:
        return x
    return torch.native_dropout(x, p, True)[0]


def _softmax_rule(kernel: Any) -> Any:
    def softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        if isinstance(x, FakeTensor) and x.dtype == torch.float16 and dtype == torch.float32:
            return kernel(x, dim, True)  # reads half, writes float: no copy of the input
        return kernel(x if dtype is None else x.to(dtype), dim, False)

    return softmax


def _attention_rule(gpu: str | Gpu | None) -> Any:
    def attention(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        backend = "math"
        if q.dim() == 4 and isinstance(q, FakeTensor):
            backend = attention_backend(
                gpu,
                q.dtype,
                q.shape[-1],
                has_mask=attn_mask is not None,
                has_grouped_heads=q.shape[1] != k.shape[1],
                is_causal=is_causal,
                q_len=q.shape[2],
                k_len=k.shape[2],
                dropout=dropout_p,
            )
        if backend == "flash":
            return _flash(q, k, v, dropout_p, is_causal, scale)
        if backend == "efficient":
            bias = _bias(attn_mask, q, k)
            needs_logsumexp = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
            return aten._scaled_dot_product_efficient_attention(
                q, k, v, bias, needs_logsumexp, dropout_p, is_causal, scale=scale
            )[0]
        return aten._scaled_dot_product_attention_math(
            q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]

    return attention


def _flash(q: Any, k: Any, v: Any, dropout_p: float, is_causal: bool, scale: float | None) -> torch.Tensor:
    head_dim = q.shape[-1]
    scale = 1 / math.sqrt(head_dim) if scale is None else scale
    if head_dim % 8:  # attention.cpp pads to a multiple of eight and cuts the result
        q, k, v = (torch.nn.functional.pad(x, (0, 8 - head_dim % 8)) for x in (q, k, v))
    out = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]
    return out[..., :head_dim]


def _bias(mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """The mask as the memory-efficient kernel takes it: additive, rows padded to a multiple of 16, expanded."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, -math.inf).to(q.dtype)
    if mask.shape[-1] % 16:
        width = mask.shape[-1]
        mask = torch.nn.functional.pad(mask, (0, 16 - width % 16))[..., :width]
    return mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])

"""The forward pass as a Triton kernel: compiled on a GPU that Triton supports, interpreted in Python elsewhere.

Triton decides when it is imported whether its functions are interpreted, so the course imports it here, and only when
somebody asks: `from course_lib.triton_attention import tl, triton`. Where Triton is not installed these are stand-ins
that let a cell with a kernel run without defining anything.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

triton: Any  # no values yet: __getattr__ below gives them to whoever asks first
tl: Any

COMPILED_FROM = (8, 0)  # compute capability that the course compiles kernels for


def can_compile() -> bool:
    """Whether this machine has a GPU that kernels are compiled for; else they are interpreted on the CPU."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= COMPILED_FROM


def missing_reason() -> str | None:
    """Why Triton cannot be used here, or None."""
    if importlib.util.find_spec("triton") is not None:
        return None
    return "Triton is not installed (it exists for Linux alone): pip install 'sixteen-bytes[triton]'."


class _StandIn:
    """Takes Triton's place where it is missing: decorators return their function, annotations evaluate."""

    def jit(self, function: Any) -> Any:
        return function

    def __getattr__(self, name: str) -> Any:
        return _StandIn()


@cache
def load_triton() -> tuple[Any, Any]:
    """(triton, triton.language), interpreted where `can_compile()` is False."""
    if missing_reason():
        return _StandIn(), _StandIn()
    if not can_compile():
        os.environ["TRITON_INTERPRET"] = "1"
        if _was_imported_to_compile():
            # torch.optim imports it by way of torch._dynamo: what was defined then stays compiled for ever.
            for name in [name for name in sys.modules if name == "triton" or name.startswith("triton.")]:
                if not name.startswith("triton._C"):
                    del sys.modules[name]
    return importlib.import_module("triton"), importlib.import_module("triton.language")


def _was_imported_to_compile() -> bool:
    language = sys.modules.get("triton.language")
    return language is not None and "Interpreted" not in type(language.max).__name__


def __getattr__(name: str) -> Any:
    if name in ("triton", "tl"):
        return load_triton()[name == "tl"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def attention_kernel() -> Any:
    """The kernel, defined on first use; see its source for how a program works through one tile of queries."""
    global triton, tl
    triton, tl = load_triton()

    @triton.jit
    def attention_kernel(
        q_ptr, k_ptr, v_ptr, out_ptr, q_len, k_len, scale,
        HEAD_DIM: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, CAUSAL: tl.constexpr,
    ):  # fmt: skip
        head = tl.program_id(1)  # one (batch, head) pair
        rows = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)  # the queries of this program
        dims = tl.arange(0, HEAD_DIM)
        q_at = (head * q_len + rows[:, None]) * HEAD_DIM + dims[None, :]  # (BLOCK_Q, HEAD_DIM)
        q = tl.load(q_ptr + q_at, mask=rows[:, None] < q_len, other=0.0)
        row_max = tl.full((BLOCK_Q,), -float("inf"), tl.float32)
        row_sum = tl.zeros((BLOCK_Q,), tl.float32)
        acc = tl.zeros((BLOCK_Q, HEAD_DIM), tl.float32)
        for start in range(0, k_len, BLOCK_K):
            keys = start + tl.arange(0, BLOCK_K)
            k_at = (head * k_len + keys[:, None]) * HEAD_DIM + dims[None, :]  # (BLOCK_K, HEAD_DIM)
            k = tl.load(k_ptr + k_at, mask=keys[:, None] < k_len, other=0.0)
            v = tl.load(v_ptr + k_at, mask=keys[:, None] < k_len, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # (BLOCK_Q, BLOCK_K)
            visible = keys[None, :] < k_len
            if CAUSAL:
                visible = visible & (keys[None, :] <= rows[:, None] + (k_len - q_len))
            scores = tl.where(visible, scores, -float("inf"))
            new_max = tl.maximum(row_max, tl.max(scores, 1))
            correction = tl.exp(row_max - new_max)
            weights = tl.exp(scores - new_max[:, None])
            row_sum = row_sum * correction + tl.sum(weights, 1)
            acc = acc * correction[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            row_max = new_max
        out = acc / row_sum[:, None]
        tl.store(out_ptr + q_at, out.to(out_ptr.dtype.element_ty), mask=rows[:, None] < q_len)

    return attention_kernel


_kernel = cache(attention_kernel)


def triton_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, block_q: int = 64, block_k: int = 32) -> Tensor:
    """Attention by a Triton kernel, one program for each tile of queries of each head.

    Args:
        q: (B, nh, Tq, hs); k, v: (B, nh, Tk, hs) with Tq <= Tk; float32, float16 or bfloat16; hs a power of two from 16.
        causal: the last query sees the last key.
        block_q, block_k: rows of a tile, powers of two from 16.
    Returns:
        (B, nh, Tq, hs) in q's dtype.
    Raises:
        RuntimeError: Triton is not installed.
    """
    if missing_reason():
        raise RuntimeError(missing_reason())
    batch, heads, q_len, head_dim = q.shape
    k_len = k.shape[2]
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    # NaN, not empty: rows that no program writes must show, also where the interpreter gives up in silence.
    out = torch.full_like(q, float("nan"))
    grid = (math.ceil(q_len / block_q), batch * heads)
    _kernel()[grid](
        q, k, v, out, q_len, k_len, 1 / math.sqrt(head_dim),
        HEAD_DIM=head_dim, BLOCK_Q=block_q, BLOCK_K=block_k, CAUSAL=causal,
    )  # fmt: skip
    return out

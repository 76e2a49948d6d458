"""CUDA's autocast lists on CPU tensors.

CPU autocast is not CUDA autocast: on the CPU softmax, layer_norm, exp, pow, sum and norm stay in the low precision and
`binary_cross_entropy` runs; CUDA computes the first six in float32 and refuses the last.

Source of the lists: ATen/autocast_mode.h of the installed torch (AT_FORALL_FP32 and its neighbours) and
ATen/autocast_mode.cpp; `tests/memory/test_autocast.py` compares them with the kernels that torch has registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

# Inputs are cast to float32 (AT_FORALL_FP32).
FP32 = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim
cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss
smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
_upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d
upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d
_upsample_bicubic2d_aa
""".split()
# The result is float32 unless the caller chose a dtype (AT_FORALL_FP32_SET_OPT_DTYPE).
FP32_RESULT = """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList
""".split()
# norm without a dtype becomes norm with dtype=float32 (AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE).
FP32_NORM = ["norm.Scalar", "norm.ScalarOpt_dim"]
# Inputs are cast to the widest dtype among them (AT_FORALL_PROMOTE).
WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()
# Inputs are cast to the low precision (AT_FORALL_LOWER_PRECISION_FP).
LOW = """
_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm
chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
_scaled_dot_product_flash_attention scaled_dot_product_attention cudnn_convolution cudnn_convolution_transpose
""".split()
BANNED = ["binary_cross_entropy"]

_AUTOCAST_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def has_autocast_kernel(name: str, device: str) -> bool:
    """Whether the installed torch has an autocast rule for `aten::<name>` on "CPU" or "CUDA"."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", f"Autocast{device}"))


def operator(name: str) -> Any:
    """The overload that a name such as "pow.Tensor_Scalar" or "exp" stands for."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _is_eligible(thing: Any) -> bool:
    # Floating tensors other than float64: autocast_mode.h, is_eligible.
    return isinstance(thing, torch.Tensor) and thing.is_floating_point() and thing.dtype != torch.float64


def _cast(things: Any, dtype: torch.dtype) -> Any:
    return tree_map(lambda thing: thing.to(dtype) if _is_eligible(thing) else thing, things)


def _widest(args: Any, kwargs: Any) -> torch.dtype:
    low = torch.get_autocast_dtype("cpu")
    dtypes = {leaf.dtype for leaf in tree_leaves((args, kwargs)) if _is_eligible(leaf)}
    return torch.float32 if torch.float32 in dtypes else low


def _rule(name: str, policy: str) -> Callable[..., Any]:
    op = operator(name)
    names = [argument.name for argument in op._schema.arguments]
    dtype_place = names.index("dtype") if "dtype" in names else 0

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_CPU):
            if policy == "banned":
                raise RuntimeError(
                    f"torch.nn.functional.{name} and torch.nn.BCELoss are unsafe to autocast, and CUDA refuses them. "
                    "Use torch.nn.functional.binary_cross_entropy_with_logits on the logits."
                )
            if policy == "fp32_result":
                chosen = args[dtype_place] if dtype_place < len(args) else kwargs.get("dtype")
                if chosen is None and _is_eligible(args[0]):
                    args, kwargs = args[:dtype_place], {**kwargs, "dtype": torch.float32}
                return op(*args, **kwargs)
            if policy == "fp32_norm":
                args, kwargs = _cast((args, kwargs), torch.float32)
                return op(*args, **kwargs)
            dtype = {
                "fp32": torch.float32,
                "low": torch.get_autocast_dtype("cpu"),
            }.get(policy) or _widest(args, kwargs)
            args, kwargs = _cast((args, kwargs), dtype)
            return op(*args, **kwargs)

    return run


def register(library: torch.library.Library) -> None:
    """Give every operation on CPU tensors the autocast rule that CUDA has, until `library` is destroyed."""
    # Where both have the same rule the CPU's own kernel stays; it also keeps torch's cache of cast weights.
    rules = {name: "fp32" for name in FP32 if not has_autocast_kernel(name, "CPU")}
    rules |= dict.fromkeys(FP32_RESULT, "fp32_result")
    rules |= dict.fromkeys(FP32_NORM, "fp32_norm")
    rules |= dict.fromkeys(WIDEST, "widest")
    rules |= {name: "low" for name in LOW if not has_autocast_kernel(name, "CPU")}
    rules |= dict.fromkeys(BANNED, "banned")
    for name, policy in rules.items():
        if has_autocast_kernel(name, "CUDA"):  # else an older torch, without this rule
            library.impl(name, _rule(name, policy), "AutocastCPU")
    for name in cpu_only():
        library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")


def cpu_only() -> list[str]:
    """Operations with an autocast rule on the CPU and none on CUDA."""
    names = (name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return [name for name in names if has_autocast_kernel(name, "CPU") and not has_autocast_kernel(name, "CUDA")]

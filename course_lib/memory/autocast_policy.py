"""What autocast does to single operations: CUDA's policy and the CPU's, asked of torch itself.

Fake tensors have a dtype and a device but no data, so CUDA's dispatch rules can be run on a machine without a GPU,
even with a build of torch without CUDA. `torch.autocast("cuda")` would switch itself off there with a warning; the
flags that it sets are set here directly. Nothing is looked up in a list that someone typed.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

DEVICE_TYPES = ("cuda", "cpu")


def _scores(new: Callable) -> Tensor:
    return F.cross_entropy(new(4, 8), new(4, dtype=torch.int64))


# Each takes `new(*shape, dtype=...)`; without a dtype it is an activation in the autocast dtype. Weights are float32.
OPERATIONS: dict[str, Callable[[Callable], Tensor]] = {
    "linear": lambda new: F.linear(new(4, 8), new(8, 8, dtype=torch.float32), new(8, dtype=torch.float32)),
    "matmul": lambda new: new(4, 8) @ new(8, 4),
    "scaled_dot_product_attention": lambda new: F.scaled_dot_product_attention(*(new(1, 2, 4, 8) for _ in range(3))),
    "gelu": lambda new: F.gelu(new(4, 8)),
    "softmax": lambda new: F.softmax(new(4, 8), dim=-1),
    "layer_norm": lambda new: F.layer_norm(new(4, 8), (8,), *(new(8, dtype=torch.float32) for _ in range(2))),
    "exp": lambda new: new(4, 8).exp(),
    "sum": lambda new: new(4, 8).sum(),
    "cross_entropy": _scores,
    "embedding": lambda new: F.embedding(new(4, dtype=torch.int64), new(8, 8, dtype=torch.float32)),
}


@contextlib.contextmanager
def autocast_flags(device_type: str, dtype: torch.dtype) -> Iterator[None]:
    """Autocast's flags for a device that need not exist; as before afterwards."""
    was_enabled = torch.is_autocast_enabled(device_type)
    was_dtype = torch.get_autocast_dtype(device_type)
    torch.set_autocast_enabled(device_type, True)
    torch.set_autocast_dtype(device_type, dtype)
    torch.autocast_increment_nesting()
    try:
        yield
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_dtype(device_type, was_dtype)
        torch.set_autocast_enabled(device_type, was_enabled)


def autocast_output_dtype(op: str, device_type: str, dtype: torch.dtype = torch.float16) -> torch.dtype:
    """The dtype in which an operation's result comes out under autocast.

    Args:
        op: a key of `OPERATIONS`. Its floating activations have `dtype`, its weights float32.
        device_type: "cuda" or "cpu"; neither needs to be there.
        dtype: autocast's low-precision dtype.
    Raises:
        ValueError: an operation or a device that is not listed.
    """
    if op not in OPERATIONS:
        raise ValueError(f"op must be one of {', '.join(OPERATIONS)}; got {op!r}.")
    if device_type not in DEVICE_TYPES:
        raise ValueError(f"device_type must be one of {', '.join(DEVICE_TYPES)}; got {device_type!r}.")

    def new(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.empty(*shape, dtype=dtype, device=device_type)

    # No gradients: backward on fake CUDA tensors ends the process on a build of torch without CUDA.
    with torch.no_grad(), FakeTensorMode(), autocast_flags(device_type, dtype):
        return OPERATIONS[op](new).dtype

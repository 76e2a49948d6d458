"""Block-wise 8-bit quantisation, and an AdamW that keeps its two moments in it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 127  # codes -127 ... 127: symmetric, so -128 stays unused


def _blocks(flat: Tensor, block_size: int) -> Tensor:
    """(n,) -> (blocks, block_size), the last block filled up with zeros."""
    missing = -flat.numel() % block_size
    return (F.pad(flat, (0, missing)) if missing else flat).view(-1, block_size)


def quantize_blockwise(x: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """One scale for each block of the flattened tensor, one signed byte for each element.

    Args:
        x: floating, any shape, finite.
        block_size: elements that share a scale; the last block may be shorter.
    Returns:
        codes: int8 in x's shape, `round(x / scale)`, from -127 to 127.
        scales: float32 (blocks,), the block's largest magnitude / 127; 0 for a block of zeros, whose codes are 0.
    Source: Dettmers et al. 2021, 8-bit Optimizers via Block-wise Quantization, section 2.1 (there with a non-linear map).
    """
    blocks = _blocks(x.reshape(-1).float(), block_size)
    scales = blocks.abs().amax(dim=1) / LEVELS
    # a block of zeros would divide by 0; any divisor gives it the codes 0
    codes = (blocks / torch.where(scales > 0, scales, 1.0)[:, None]).round_()
    return codes.to(torch.int8).view(-1)[: x.numel()].view(x.shape), scales


def dequantize_blockwise(codes: Tensor, scales: Tensor, block_size: int) -> Tensor:
    """`code * scale` of its block: float32 in the shape of `codes`."""
    values = _blocks(codes.reshape(-1), block_size) * scales[:, None]
    return values.view(-1)[: codes.numel()].view(codes.shape)


class AdamW8bit(torch.optim.Optimizer):
    """AdamW whose moments take 2 + 8 / `block_size` bytes a parameter instead of 8.

    The first moment m and the *square root* of the second, √v, are kept in 8 bits. With v itself the range inside a
    block is squared, small entries become 0, and the update m / (√v + eps) explodes (`second_moment="v"` shows it).
    √v becomes 0 as well where a block is long, so a code of 0, which says "less than half a step", is read as half a
    step: the denominator may be too large, never too small. `zero_code=0.0` takes that guard away.

    Args:
        block_size: elements that share a scale.
        slice_elements: elements updated at a time, so that the float32 copies stay small; a multiple of `block_size`.
        min_elements: smaller tensors (biases, norms) keep float32 moments: few bytes, and the most sensitive.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        block_size: int = 256,
        second_moment: str = "sqrt_v",
        zero_code: float = 0.5,
        slice_elements: int = 2**25,
        min_elements: int = 2**16,
    ) -> None:
        if second_moment not in ("sqrt_v", "v"):
            raise ValueError(f"second_moment must be 'sqrt_v' or 'v'; got {second_moment!r}.")
        if slice_elements % block_size:
            raise ValueError(f"slice_elements must be a multiple of block_size; got {slice_elements} and {block_size}.")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        self.block_size, self.second_moment, self.zero_code = block_size, second_moment, zero_code
        self.slice_elements, self.min_elements = slice_elements, min_elements
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            self._start(state, parameter)
        state["step"] += 1
        is_quantized = "m_codes" in state
        flat, grad = parameter.view(-1), gradient.reshape(-1)
        beta1, beta2 = group["betas"]
        for start in range(0, flat.numel(), self.slice_elements):
            part = slice(start, start + self.slice_elements)
            m, v = self._read(state, part) if is_quantized else (state["m"], state["v"])
            g = grad[part].float()
            m.lerp_(g, 1 - beta1)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            step_size = group["lr"] / (1 - beta1 ** state["step"])
            root = v.sqrt().div_(math.sqrt(1 - beta2 ** state["step"])).add_(group["eps"])
            flat[part].mul_(1 - group["lr"] * group["weight_decay"]).addcdiv_(m, root, value=-step_size)
            if is_quantized:
                self._write(state, part, m, v)

    def _start(self, state: dict[str, Any], parameter: Tensor) -> None:
        state["step"] = 0
        n = parameter.numel()
        if n < self.min_elements:
            state["m"] = torch.zeros(n, device=parameter.device)
            state["v"] = torch.zeros(n, device=parameter.device)
            return
        for name in ("m", "v"):
            state[f"{name}_codes"] = torch.zeros(n, dtype=torch.int8, device=parameter.device)
            state[f"{name}_scales"] = torch.zeros(math.ceil(n / self.block_size), device=parameter.device)

    def _read(self, state: dict[str, Any], part: slice) -> tuple[Tensor, Tensor]:
        blocks = slice(part.start // self.block_size, math.ceil(part.stop / self.block_size))
        m = dequantize_blockwise(state["m_codes"][part], state["m_scales"][blocks], self.block_size)
        v_codes = state["v_codes"][part].float().clamp_(min=self.zero_code)
        v = dequantize_blockwise(v_codes, state["v_scales"][blocks], self.block_size)
        return m, v.square_() if self.second_moment == "sqrt_v" else v

    def _write(self, state: dict[str, Any], part: slice, m: Tensor, v: Tensor) -> None:
        blocks = slice(part.start // self.block_size, math.ceil(part.stop / self.block_size))
        for name, value in (("m", m), ("v", v.sqrt_() if self.second_moment == "sqrt_v" else v)):
            codes, scales = quantize_blockwise(value, self.block_size)
            state[f"{name}_codes"][part] = codes
            state[f"{name}_scales"][blocks] = scales

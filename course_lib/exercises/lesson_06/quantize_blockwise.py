"""Block-wise quantisation and back: codes, scales, and the values that they stand for."""

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course_lib.exercises.lesson_06.left_alone import left_alone, left_alone_mismatch
from course_lib.grading.compare import as_tensor_problem, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.toolbox import dequantize_blockwise, quantize_blockwise

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)

    def random_tensor(*shape: int, std: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=generator) * std

    def case(label: str, x: Tensor, block_size: int) -> Case:
        codes = torch.randint(-127, 128, x.shape, generator=generator, dtype=torch.int8)
        scales = torch.rand(math.ceil(x.numel() / block_size), generator=generator) + 0.01
        return Case(
            f"{label}: x [{', '.join(map(str, x.shape))}], blocks of {block_size}", (x, block_size, codes, scales)
        )

    outlier = random_tensor(4 * 64)
    outlier[draw.randrange(64)] = 1e4
    zeros = random_tensor(96)
    zeros[32:64] = 0
    columns = random_tensor(draw.randint(5, 9), 24) * torch.logspace(-6, 3, 24)
    return [
        case("one block", torch.tensor([1.0, -2.0, 0.5, 0.0]), 4),
        case("two blocks of different size", torch.tensor([1.0, 0.5, -0.25, 100.0, 50.0, 3.0]), 3),
        case("a block of zeros", zeros, 32),
        case("zeros alone", torch.zeros(10), 4),
        case("a ragged tail", random_tensor(draw.randint(33, 60)), 16),
        case("two dimensions, blocks across rows", random_tensor(draw.randint(3, 7), 10), 8),
        case("an outlier", outlier, 64),
        case("magnitudes of many sizes", columns, 16),
        case("a block longer than x", random_tensor(3, 5, std=1e-3), 256),
        case("tiny values", random_tensor(64, std=1e-20), 16),
        case("a transposed tensor", random_tensor(6, 11).T, 8),
    ]


class _OddProcessor(TorchFunctionMode):
    """What a NaN becomes as an integer is up to the processor: 0 on many, so that 0 / 0 would pass. Here it is -128."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in (Tensor.__setitem__, Tensor.copy_) and not args[0].is_floating_point():
            args = (*args[:-1], self._without_nan(args[-1]))
        out = func(*args, **(kwargs or {}))
        source = args[0] if args else None
        is_cast = isinstance(out, Tensor) and isinstance(source, Tensor) and out.dtype in INTEGERS
        if is_cast and source.is_floating_point() and out.shape == source.shape:
            out = torch.where(source.isnan(), -128, out).to(out.dtype)
        return out

    @staticmethod
    def _without_nan(value: Any) -> Any:
        is_float = isinstance(value, Tensor) and value.is_floating_point()
        return torch.nan_to_num(value, nan=-128.0) if is_float else value


def observe(solution: tuple[Callable, Callable], case: Case) -> dict[str, Any]:
    quantize, dequantize = solution
    x, block_size, codes, scales = case.args
    x = x.clone() if x.is_contiguous() else x.T.clone().T
    codes, scales = codes.clone(), scales.clone()
    changed = left_alone((x, codes, scales))
    with _OddProcessor():
        answers = {"quantized": quantize(x, block_size), "dequantized": dequantize(codes, scales, block_size)}
    return {**answers, "changed": changed()}


def _blocks(flat: Tensor, block_size: int) -> list[Tensor]:
    return list(flat.split(block_size))


def _scales(x: Tensor, block_size: int) -> Tensor:
    return torch.stack([block.abs().max() for block in _blocks(x.double().reshape(-1), block_size)]) / 127


def quantize_mismatch(case: Case, got: Any) -> Mismatch | None:
    x, block_size, _, _ = case.args
    if not isinstance(got, tuple | list) or len(got) != 2:
        return Mismatch("codes and scales", describe(got), "quantize_blockwise returns two tensors.")
    codes, scales = got
    exact = _scales(x, block_size)
    problem = as_tensor_problem(codes, x.shape, torch.int8)
    if problem:
        return Mismatch(f"codes i8[{','.join(map(str, x.shape))}]", describe(codes), problem)
    problem = as_tensor_problem(scales, exact.shape, torch.float32)
    if problem:
        return Mismatch(f"scales f32[{len(exact)}]", describe(scales), problem)
    # absmax / 127 in float32: half an ulp, or one more by way of a reciprocal
    off = ~((scales.double() - exact).abs() <= 2.0**-22 * exact)
    if off.any():
        block = int(off.nonzero()[0])
        return Mismatch(f"scale {exact[block]:.6g}", f"{scales[block]:.6g}", f"In block {block} of {len(exact)}.")
    spread = exact.repeat_interleave(block_size)[: x.numel()].view(x.shape)
    wanted = torch.where(spread > 0, x.double() / spread.clamp(min=1e-300), 0.0)
    # round(x / scale): off by at most a half, and by float32's rounding of the quotient
    off = ~((codes.double() - wanted).abs() <= 0.5 + 1e-4)
    if off.any():
        at = [int(i) for i in off.nonzero()[0]]
        return Mismatch(f"code {round(wanted[tuple(at)].item())}", str(codes[tuple(at)].item()), f"At {at} of x.")
    return None


def dequantize_mismatch(case: Case, got: Any) -> Mismatch | None:
    _, block_size, codes, scales = case.args
    problem = as_tensor_problem(got, codes.shape, torch.float32)
    if problem:
        return Mismatch(f"values f32[{','.join(map(str, codes.shape))}]", describe(got), problem)
    spread = scales.double().repeat_interleave(block_size)[: codes.numel()].view(codes.shape)
    exact = codes.double() * spread
    off = ~((got.double() - exact).abs() <= 2.0**-23 * exact.abs())
    if off.any():
        at = [int(i) for i in off.nonzero()[0]]
        return Mismatch(f"{exact[tuple(at)]:.6g}", f"{got[tuple(at)]:.6g}", f"dequantize_blockwise, at {at}.")
    return None


def grade(case: Case, got: Any, expected: Any) -> Mismatch | None:
    if not isinstance(got, dict):
        return Mismatch("codes, scales and values", describe(got))
    wrong = quantize_mismatch(case, got.get("quantized")) or dequantize_mismatch(case, got.get("dequantized"))
    return wrong or left_alone_mismatch(got)


def _codes(x: Tensor, scales: Tensor, block_size: int) -> Tensor:
    spread = scales.repeat_interleave(block_size)[: x.numel()].view(x.shape)
    return (x / torch.where(spread > 0, spread, 1.0)).round().clamp(-128, 127).to(torch.int8)


def one_scale(x: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    scales = (x.abs().max() / 127).expand(math.ceil(x.numel() / block_size)).clone()
    return _codes(x, scales, block_size), scales


def truncates(x: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    scales = torch.stack([block.abs().max() for block in x.reshape(-1).split(block_size)]) / 127
    spread = scales.repeat_interleave(block_size)[: x.numel()].view(x.shape)
    return (x / torch.where(spread > 0, spread, 1.0)).to(torch.int8), scales


def scales_by_128(x: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    scales = torch.stack([block.abs().max() for block in x.reshape(-1).split(block_size)]) / 128
    return _codes(x, scales, block_size).clamp(-128, 127), scales


def signed_maximum(x: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    scales = torch.stack([block.max() for block in x.reshape(-1).split(block_size)]) / 127
    return _codes(x, scales, block_size), scales


def _only_zero_blocks(case: Case, got: Any, expected: Any) -> bool:
    """Wrong in blocks of zeros alone."""
    x, block_size, _, _ = case.args
    pair = got.get("quantized")
    if not isinstance(pair, list | tuple) or len(pair) != 2 or as_tensor_problem(pair[0], x.shape, torch.int8):
        return False
    wrong = pair[0] != expected["quantized"][0]
    zero = (_scales(x, block_size) == 0).repeat_interleave(block_size)[: x.numel()].view(x.shape)
    return (
        not dequantize_mismatch(case, got.get("dequantized")) and bool(zero.any()) and not bool((wrong & ~zero).any())
    )


EXERCISE = Exercise(
    name="quantize_blockwise",
    points=3,
    minutes=20,
    difficulty=2,
    checks="codes, scales and values, with ragged tails, blocks of zeros and outliers",
    reference=(quantize_blockwise, dequantize_blockwise),
    functions=("quantize_blockwise", "dequantize_blockwise"),
    cases=cases,
    observe=observe,
    grade=grade,
    hints=(
        "Flatten, pad with zeros to whole blocks, and make it two-dimensional: then a block is a row.",
        "`x.abs().amax(dim=1)` gives a block's largest magnitude. What should the codes of a row of zeros be, and "
        "what do "
        "you divide it by?",
        "F.pad(flat, (0, -n % block_size)).view(-1, block_size); torch.where(scales > 0, scales, 1); round, int8, cut "
        "the "
        "padding off, back to x's shape.",
    ),
    explanation=(
        "An outlier spoils the scale of its own block alone; with one scale for the tensor it would push every other "
        "value to "
        "0. The price is 4 bytes a block: 1 + 4 / block_size bytes a value. bitsandbytes uses the same blocks with a "
        "non-linear map of the 256 codes, finer near zero."
    ),
    next_step="Take one block by hand: its largest magnitude, the scale, and the codes of three of its values.",
    misconceptions=(
        Misconception(
            "one_scale_for_all",
            "One scale serves the whole tensor: a single outlier makes every other block's codes 0. Whose largest "
            "magnitude should a block use?",
            (one_scale, dequantize_blockwise),
        ),
        Misconception(
            "divides_by_zero",
            "A block of zeros has scale 0, and 0 / 0 is NaN, which has no int8. What else could such a block be "
            "divided by?",
            matches=_only_zero_blocks,
        ),
        Misconception(
            "truncates",
            "Codes are cut towards zero instead of rounded: up to a whole step is lost, and always in the same "
            "direction. What does `.to(torch.int8)` do with 3.9?",
            (truncates, dequantize_blockwise),
        ),
        Misconception(
            "scale_by_128",
            "With absmax / 128 the largest positive value has no code. Which largest code is meant, and why is -128 "
            "left out?",
            (scales_by_128, dequantize_blockwise),
        ),
        Misconception(
            "maximum_without_magnitude",
            "The scale comes from the largest value, not from the largest magnitude. What happens to a block whose "
            "extreme value is negative?",
            (signed_maximum, dequantize_blockwise),
        ),
    ),
)

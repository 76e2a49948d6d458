"""Block-wise quantisation against a loop in exact arithmetic, and AdamW on it against torch's."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.nanogpt import GPT, GPTConfig, batch, corpus, loss_fn
from course_lib.toolbox import AdamW8bit, dequantize_blockwise, quantize_blockwise

magnitudes = st.floats(2.0**-90, 2.0**90, width=32)
numbers = st.just(0.0) | magnitudes | magnitudes.map(lambda x: -x)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(numbers, min_size=1, max_size=40), block_size=st.integers(1, 50))
def test_codes_are_the_nearest_in_exact_arithmetic(values: list[float], block_size: int):
    x = torch.tensor(values)
    codes, scales = quantize_blockwise(x, block_size)
    assert len(scales) == math.ceil(len(values) / block_size)
    for block, scale in enumerate(scales.tolist()):
        part = slice(block * block_size, (block + 1) * block_size)
        exact = [Fraction(value) for value in x[part].tolist()]
        largest = max(abs(value) for value in exact)
        assert abs(Fraction(scale) - largest / 127) <= largest / 127 / 2**23 + Fraction(1, 2**149)
        for value, code in zip(exact, codes[part].tolist(), strict=True):
            assert -127 <= code <= 127
            if largest:
                assert abs(value / (largest / 127) - code) <= Fraction(1, 2) + Fraction(1, 10**4)
            else:
                assert code == 0


def test_the_way_back_is_off_by_half_a_step_at_most():
    x = torch.randn(7, 37, generator=torch.Generator().manual_seed(0))
    codes, scales = quantize_blockwise(x, 16)
    back = dequantize_blockwise(codes, scales, 16)
    half = scales.repeat_interleave(16)[: x.numel()].view(x.shape) / 2
    assert back.shape == x.shape
    assert ((back - x).abs() <= half * (1 + 1e-5)).all()


def test_an_outlier_spoils_its_own_block_alone():
    x = torch.ones(256)
    x[3] = 1e6
    codes, scales = quantize_blockwise(x, 64)
    back = dequantize_blockwise(codes, scales, 64)
    assert not back[4:64].any()
    torch.testing.assert_close(back[64:], x[64:])


def test_without_quantisation_it_is_torchs_adamw():
    ours, theirs = torch.randn(5, 6, requires_grad=True), None
    theirs = ours.detach().clone().requires_grad_()
    first = AdamW8bit([ours], lr=0.01, weight_decay=0.1)  # too small to be quantised
    second = torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1)
    for step in range(5):
        gradient = torch.randn(5, 6, generator=torch.Generator().manual_seed(step))
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        first.step()
        second.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_slices_do_not_change_the_update():
    whole = torch.randn(1000, generator=torch.Generator().manual_seed(1)).requires_grad_()
    sliced = whole.detach().clone().requires_grad_()
    optimizers = [AdamW8bit([whole], block_size=64, min_elements=1)]
    optimizers.append(AdamW8bit([sliced], block_size=64, min_elements=1, slice_elements=128))
    for step in range(3):
        gradient = torch.randn(1000, generator=torch.Generator().manual_seed(step))
        whole.grad, sliced.grad = gradient.clone(), gradient.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(whole, sliced)


def test_two_bytes_a_parameter_and_a_little_for_scales():
    weight = torch.randn(512, 256, requires_grad=True)
    optimizer = AdamW8bit([weight], block_size=256)
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    state = sum(value.nbytes for value in optimizer.state[weight].values() if isinstance(value, torch.Tensor))
    assert state == weight.numel() * (2 + 8 / 256)


def train(make_optimizer, steps: int = 80) -> list[float]:
    torch.manual_seed(0)
    model, generator, losses = GPT(GPTConfig()), torch.Generator().manual_seed(1), []
    optimizer = make_optimizer(model.parameters())
    for _ in range(steps):
        inputs, targets = batch(corpus(), 8, 64, generator)
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
    return losses


@pytest.fixture(scope="module")
def reference_loss() -> float:
    return sum(train(lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))[-10:]) / 10


@pytest.mark.parametrize("block_size", [64, 256, 2048])
def test_eight_bit_adamw_trains_to_the_loss_of_the_32_bit_one(block_size: int, reference_loss: float):
    ours = train(lambda parameters: AdamW8bit(parameters, lr=1e-3, block_size=block_size, min_elements=1024))
    assert sum(ours[-10:]) / 10 == pytest.approx(reference_loss, abs=0.05)


def test_with_v_itself_it_explodes():
    losses = train(
        lambda parameters: AdamW8bit(
            parameters, lr=1e-3, block_size=2048, min_elements=1024, second_moment="v", zero_code=0.0
        )
    )
    assert not math.isfinite(losses[-1]) or max(losses) > 100


def test_bad_arguments_are_refused_with_both_numbers():
    weight = [torch.zeros(3, requires_grad=True)]
    with pytest.raises(ValueError, match="'sqrt_v' or 'v'; got 'm'"):
        AdamW8bit(weight, second_moment="m")
    with pytest.raises(ValueError, match="multiple of block_size; got 100 and 64"):
        AdamW8bit(weight, block_size=64, slice_elements=100)

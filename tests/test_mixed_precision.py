"""mixed_precision: bytes on real optimizers, a float64 trajectory, CUDA's policy, and half an ulp."""

import pytest
import torch
from torch import nn

from course_lib.exercises.lesson_02.tiny import OPTIMIZERS, TinyNet, draw_batch, mean_squared
from course_lib.exercises.lesson_03.mixed_precision_step import float64_trajectory, observe
from course_lib.exercises.lesson_03.stable_softmax import error_in_ulp
from course_lib.grading.exercise import Case
from course_lib.mixed_precision import (
    RECIPES,
    amp_step,
    cuda_autocast_dtype,
    mixed_precision_step,
    model_state_bytes,
    stable_softmax,
    unmoved_fraction,
)

BF16 = torch.bfloat16


def measured_state(recipe: str) -> dict:
    """Bytes that a real model and a real AdamW hold after a real step."""
    n = 32 * 32
    low = recipe in ("master_weights", "fp32_gradients", "pure_bf16")
    model = nn.Linear(32, 32, bias=False, dtype=BF16 if low else torch.float32)
    has_master = recipe in ("master_weights", "fp32_gradients")
    master = [nn.Parameter(p.detach().float()) for p in model.parameters()] if has_master else []
    optimizer = torch.optim.AdamW(master or model.parameters())
    with torch.autocast("cpu", dtype=BF16, enabled=recipe == "autocast"):
        loss = model(torch.ones(4, 32, dtype=BF16 if low else torch.float32)).square().mean()
    loss.backward()
    gradients = [p.grad.float() if recipe == "fp32_gradients" else p.grad for p in model.parameters()]
    for copy, gradient in zip(master, gradients, strict=False):
        copy.grad = gradient.float()
    optimizer.step()
    moments = [t for state in optimizer.state.values() for key, t in state.items() if key.startswith("exp_avg")]
    size = lambda tensors: sum(t.nbytes for t in tensors) // n
    parts = (list(model.parameters()), master, gradients, moments)
    return dict(zip(("weights", "master", "gradients", "optimizer"), map(size, parts), strict=True))


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_table_is_what_real_optimizers_hold(recipe):
    assert model_state_bytes(1, recipe) == measured_state(recipe)


def test_the_sums_are_sixteen_sixteen_sixteen_eighteen_eight():
    assert [sum(model_state_bytes(1, recipe).values()) for recipe in RECIPES] == [16, 16, 16, 18, 8]


@pytest.mark.parametrize("optimizer", ["SGD", "SGD with momentum"])
@pytest.mark.parametrize("seed", range(4))
def test_the_step_follows_the_float64_trajectory(optimizer, seed):
    options = {"seed": seed, "optimizer": optimizer, "steps": 6, "size": 7, "stale": True}
    case = Case("", kwargs=options)
    for mine, (loss, weights) in zip(observe(mixed_precision_step, case), float64_trajectory(case), strict=True):
        assert (mine["master"] - weights).abs().max() < 0.02  # steps of 0.1 by gradients that are right to 2**-8
        assert torch.equal(mine["model"], mine["master"].to(BF16))
        assert not torch.equal(mine["master"], mine["master"].to(BF16).float())
        assert mine["loss"] == pytest.approx(loss, rel=0.03)


def test_small_updates_add_up_in_the_master_and_are_lost_without_one():
    weight = nn.Parameter(torch.ones(1, 1))
    model = nn.Linear(1, 1, bias=False, dtype=BF16)
    with torch.no_grad():
        model.weight.fill_(1.0)
    alone = torch.ones(1, dtype=BF16)
    optimizer = torch.optim.SGD([weight], lr=2.0**-10)
    for _ in range(16):
        mixed_precision_step([weight], model, optimizer, lambda y, t: y.sum(), (torch.ones(1, 1, dtype=BF16), None))
        alone += -(2.0**-10)
    assert weight.item() == 1 - 16 * 2.0**-10 and model.weight.item() == weight.bfloat16().item()
    assert alone.item() == 1.0


def test_bf16_adamw_moves_no_weight_at_one():
    weight = nn.Parameter(torch.ones(1000, dtype=BF16))
    before = weight.detach().clone()
    optimizer = torch.optim.AdamW([weight], lr=1e-4)
    torch.manual_seed(0)
    for _ in range(100):
        weight.grad = torch.randn(1000).to(BF16)
        optimizer.step()
    assert unmoved_fraction([before], [weight]) == 1.0


def test_unmoved_counts_elements():
    assert unmoved_fraction([torch.zeros(1), torch.zeros(9)], [torch.ones(1), torch.zeros(9)]) == 0.9


def test_autocast_dtypes_are_torchs():
    assert cuda_autocast_dtype("linear") is torch.float16
    assert cuda_autocast_dtype("softmax") is torch.float32


@pytest.mark.parametrize("n", [1, 2, 1000, 70_000])
def test_softmax_is_rounded_once(n):
    torch.manual_seed(n)
    for size in (0.0, 1.0, 20.0, 1e4):
        x = (torch.randn(2, n) * size).clamp(-65504, 65504).half()
        assert error_in_ulp(stable_softmax(x), torch.softmax(x.double(), -1)).max() <= 0.51


@pytest.mark.parametrize("dtype", [torch.float16, BF16])
def test_an_amp_step_is_close_to_a_float32_step(dtype):
    model, plain = TinyNet(0), TinyNet(0)
    a, b = OPTIMIZERS["SGD"](model.parameters()), OPTIMIZERS["SGD"](plain.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1)
    inputs, targets = draw_batch(3)
    loss = amp_step(model, a, scaler, (inputs, targets), mean_squared, dtype, "cpu")
    due = mean_squared(plain(inputs), targets)
    due.backward()
    b.step()
    assert loss == pytest.approx(due.item(), rel=2e-2)
    for mine, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=5e-3)
    assert scaler.get_scale() == (2.0**11 if dtype is torch.float16 else 2.0**10)
    assert model.first.weight.dtype is torch.float32

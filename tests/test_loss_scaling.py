"""loss_scaling: the scaler is torch's, step by step; the rest is checked by casts and by plain training steps."""

import random

import pytest
import torch
from torch import nn

from course_lib.exercises.lesson_02 import dynamic_loss_scaler as exercise
from course_lib.grading.compare import alike
from course_lib.grading.exercise import Case
from course_lib.loss_scaling import (
    DynamicLossScaler,
    accumulated_step,
    clipped_step,
    first_nonfinite_module,
    largest_safe_scale,
    scaled_step,
    underflow_fraction,
)


def torch_scaler(**options):
    return torch.amp.GradScaler("cpu", **options)


def traces(options: dict, schedule: list, save_after: int | None = None) -> tuple[list, list]:
    case = Case("", kwargs={"options": options, "schedule": schedule, "save_after": save_after})
    return exercise.observe(DynamicLossScaler, case), exercise.observe(torch_scaler, case)


class TestDynamicLossScaler:
    def test_it_agrees_with_torch_over_hundreds_of_random_schedules(self):
        draw = random.Random(0)
        for number in range(400):
            options = {
                "init_scale": 2.0 ** draw.randint(-10, 40),
                "growth_factor": draw.choice([2.0, 4.0, 8.0]),
                "backoff_factor": draw.choice([0.5, 0.25]),
                "growth_interval": draw.randint(1, 5),
            }
            schedule = exercise.random_schedule(draw)
            ours, theirs = traces(options, schedule, draw.choice([None, *range(1, len(schedule))]))
            assert len(ours) == len(schedule)
            assert alike(ours, theirs, rel=0.0), (number, options, schedule)

    @pytest.mark.parametrize("bad", ["inf", "-inf", "nan"])
    @pytest.mark.parametrize(
        ("interval", "schedule"),
        [
            (2, ["bad", "good", "good"]),  # overflow at once
            (2, ["good", "bad", "bad", "good", "good"]),  # twice in a row
            (3, ["good", "good", "bad", "good", "good", "good"]),  # on the last step before growth
            (1, ["good", "good", "bad", "good"]),  # growth at every step
        ],
    )
    def test_it_agrees_at_the_edges(self, bad, interval, schedule):
        schedule = [bad if kind == "bad" else kind for kind in schedule]
        for save_after in (None, *range(1, len(schedule))):
            ours, theirs = traces({"growth_interval": interval}, schedule, save_after)
            assert alike(ours, theirs, rel=0.0)

    def test_the_defaults_are_torchs(self):
        ours, theirs = traces({}, ["good"] * 2000)
        assert alike(ours, theirs, rel=0.0)
        assert ours[-2]["scale"] == 65536.0 and ours[-1]["scale"] == 131072.0

    def test_its_state_survives_a_checkpoint_file(self, tmp_path):
        scaler = DynamicLossScaler(growth_interval=7)
        torch.save(scaler.state_dict(), tmp_path / "scaler.pt")
        other = DynamicLossScaler()
        other.load_state_dict(torch.load(tmp_path / "scaler.pt", weights_only=True))
        assert other.state_dict() == scaler.state_dict()


def test_the_exercise_sees_a_scaler_that_is_wrong_only_after_loading():
    class Forgetful(DynamicLossScaler):
        def load_state_dict(self, state):
            super().load_state_dict({**state, "good_steps": 0})

    case = Case("", kwargs={"options": {"growth_interval": 2}, "schedule": ["good"] * 4, "save_after": 1})
    due = exercise.observe(DynamicLossScaler, case)
    assert exercise.grade(case, exercise.observe(Forgetful, case), due) is not None
    assert exercise.grade(case, exercise.observe(torch_scaler, case), due) is None


def test_float16_keeps_blurs_and_loses_where_the_lesson_says():
    tiny = torch.tensor([2.0**-14, 2.0**-24, 2.0**-25, 1.0000001 * 2.0**-25, 65519.0, 65520.0])
    assert tiny.half().tolist() == [2.0**-14, 2.0**-24, 0.0, 2.0**-24, 65504.0, float("inf")]
    assert torch.tensor([1e-7, 1e-8]).half().tolist() == pytest.approx([1.19e-7, 0.0], rel=1e-2)
    assert underflow_fraction(tiny, torch.float16) == 1 / 6


def test_underflow_is_measured_by_the_cast_for_every_power():
    for exponent in range(-40, 5):
        value = torch.tensor([2.0**exponent, 1.0])
        assert underflow_fraction(value, torch.float16) == (0.5 if exponent <= -25 else 0.0)
        assert underflow_fraction(value, torch.float16, 2.0**20) == 0.0 if exponent > -45 else True
        assert underflow_fraction(value, torch.bfloat16) == 0.0


def test_the_safe_scale_is_safe_and_twice_it_is_not():
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float16, torch.float8_e5m2):
        for _ in range(300):
            center = torch.rand(1, generator=generator) * 40 - 25
            gradients = torch.exp2(center + torch.randn(9, generator=generator)) * torch.randn(9, generator=generator)
            scale = largest_safe_scale(gradients, dtype)
            assert (gradients.double() * scale).to(dtype).isfinite().all()
            assert not (gradients.double() * scale * 2).to(dtype).isfinite().all()


def small_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def loss_of(model, seed=1):
    torch.manual_seed(seed)
    return nn.functional.mse_loss(model(torch.randn(6, 3)), torch.randn(6, 2))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_a_scaled_step_is_a_plain_step(make):
    scaled, plain = small_model(), small_model()
    a, b = make(scaled.parameters(), lr=0.1), make(plain.parameters(), lr=0.1)
    for _ in range(3):
        a.zero_grad()
        b.zero_grad()
        assert scaled_step(scaled, a, loss_of(scaled), 2.0**12) is True
        loss_of(plain).backward()
        b.step()
    for mine, due in zip(scaled.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine.grad, due.grad) and torch.equal(mine, due)


def test_a_skipped_step_leaves_everything_as_it_was():
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters())
    before = [p.detach().clone() for p in model.parameters()]
    assert scaled_step(model, optimizer, loss_of(model) * 1e38, 2.0**20) is False
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert not optimizer.state


@pytest.mark.parametrize("scale", [1.0, 2.0**8, 2.0**20])
def test_clipping_does_not_depend_on_the_scale(scale):
    model, plain = small_model(), small_model()
    norm = clipped_step(
        model, torch.optim.SGD(model.parameters(), lr=1.0), torch_scaler(init_scale=scale), loss_of(model), 0.1
    )
    loss_of(plain).backward()
    due = nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
    torch.optim.SGD(plain.parameters(), lr=1.0).step()
    assert norm == pytest.approx(due.item(), rel=1e-6) and norm > 0.1
    for mine, wanted in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-6, atol=1e-7)


def test_accumulation_gives_the_full_batchs_gradient():
    model, plain = small_model(), small_model()
    torch.manual_seed(5)
    inputs, targets = torch.randn(12, 3), torch.randn(12, 2)
    parts = list(zip(inputs.split(3), targets.split(3), strict=True))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    accumulated_step(model, torch.optim.SGD(model.parameters(), lr=1.0), torch_scaler(), parts, nn.functional.mse_loss)
    nn.functional.mse_loss(plain(inputs), targets).backward()
    torch.optim.SGD(plain.parameters(), lr=1.0).step()
    for mine, due in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, due, rtol=1e-5, atol=1e-7)


def test_the_first_bad_module_is_named_and_no_hook_is_left():
    model = small_model()
    assert first_nonfinite_module(model, torch.randn(2, 3)) is None
    with torch.no_grad():
        model[0].weight[0, 0] = float("inf")
    assert first_nonfinite_module(model, torch.ones(2, 3)) == "0"
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(RuntimeError):
        first_nonfinite_module(model, torch.ones(2, 4))
    assert not any(module._forward_hooks for module in model.modules())

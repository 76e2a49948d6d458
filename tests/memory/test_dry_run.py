"""dry_run: ordinary PyTorch steps without values; what fits, what does not, and what is refused."""

from __future__ import annotations

import copy
import gc
import math
import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from course_lib.memory import DryRunError, Gpu, MemoryLedger, SimulatedOutOfMemoryError, dry_run

MIB = 2**20


def build(make=torch.optim.AdamW, **options):
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
    return model, make(model.parameters(), **options), torch.randn(256, 512)


def step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def tiny_gpu(usable_bytes):
    return Gpu("tiny", usable_bytes, 1e11, 1e12, 1e12, 1e13, 1e13, (8, 0), 2**16, "made up")


class TestReport:
    def test_describes_the_step(self):
        report = dry_run(build, step)
        weights = report.start_bytes - report.peak_by_category["input"]
        assert report.peak_bytes == sum(report.peak_by_category.values())
        assert report.timeline[report.peak_index].operation == report.peak_operation
        assert report.live_by_category["gradient"] == report.live_by_category["parameter"]
        assert weights == 3 * report.live_by_category["parameter"] + 4 * 512  # AdamW's step counts
        assert [mark.phase for mark in report.marks] == ["forward", "backward", "step"]
        assert report.mark("nothing") is None and report.peak_in("nothing") is None
        assert report.peak_in("step").live_bytes <= report.peak_bytes
        assert "peak" in str(report) and report.peak_operation in str(report)

    def test_modules_are_named_in_the_forward_pass(self):
        report = dry_run(build, step)
        assert {point.module for point in report.timeline if point.phase == "forward"} >= {"0", "1", "2"}

    def test_no_module_is_named_in_the_backward_pass_but_for_recomputation(self):
        def checkpointed(model, optimizer, x):
            for layer in model:
                x = checkpoint(layer, x, use_reentrant=False)
            x.square().mean().backward()

        backward = [point for point in dry_run(build, step).timeline if point.phase == "backward"]
        assert {point.module for point in backward} == {""}
        backward = [point for point in dry_run(build, checkpointed).timeline if point.phase == "backward"]
        assert {point.module for point in backward} == {"", "0", "1", "2"}

    def test_the_step_reported_is_a_later_one(self):
        """The optimizer's state is there before the forward pass, and its step count is that of a second step."""
        counts = []

        def counting(model, optimizer, x):
            step(model, optimizer, x)
            counts.append(next(iter(optimizer.state.values()))["step"].item())

        report = dry_run(build, counting)
        assert report.timeline[0].by_category["optimizer state"] > 2 * 8 * MIB - MIB
        assert counts == [2.0]

    def test_accumulation_keeps_gradients_during_the_second_forward(self):
        def accumulate(model, optimizer, x):
            optimizer.zero_grad()
            for part in x.chunk(2):
                (model(part).square().mean() / 2).backward()
            optimizer.step()

        report = dry_run(build, accumulate)
        assert [mark.phase for mark in report.marks] == ["forward", "backward", "forward", "backward", "step"]
        assert report.mark("forward").by_category["gradient"] > 8 * MIB - MIB

    def test_an_optimizer_in_backward_never_holds_all_gradients(self):
        def build_hooked():
            model, _, x = build(torch.optim.SGD)
            optimizers = {p: torch.optim.AdamW([p], foreach=True) for p in model.parameters()}

            def update(parameter):
                optimizers[parameter].step()
                parameter.grad = None

            for parameter in model.parameters():
                parameter.register_post_accumulate_grad_hook(update)
            return model, x

        report = dry_run(build_hooked, lambda model, x: model(x).square().mean().backward())
        assert report.timeline[0].by_category["optimizer state"] > 16 * MIB - MIB
        whole = report.peak_by_category["parameter"]
        assert max(point.by_category["gradient"] for point in report.timeline) < 0.6 * whole

    def test_an_optimizer_of_ones_own_with_int8_state(self):
        class Signs(torch.optim.Optimizer):
            def __init__(self, parameters):
                super().__init__(parameters, {"lr": 0.1})

            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        if not state:
                            state["signs"] = torch.zeros_like(p, dtype=torch.int8)
                        state["signs"].copy_(p.grad.sign())
                        p.add_(state["signs"], alpha=-group["lr"])

        report = dry_run(lambda: build(Signs), step)
        assert report.live_by_category["optimizer state"] == pytest.approx(
            report.live_by_category["parameter"] / 4, rel=0.01
        )

    def test_leaves_no_trace(self):
        torch.manual_seed(3)
        before = torch.random.get_rng_state()
        threshold, autocast, scaler = gc.isenabled(), torch.autocast.__init__, torch.amp.GradScaler.__init__
        save_on_cpu = torch.autograd.graph.save_on_cpu.__init__
        dry_run(build, step)
        with pytest.raises(ZeroDivisionError):
            dry_run(build, lambda *built: 1 / 0)
        assert torch.equal(torch.random.get_rng_state(), before)
        assert (gc.isenabled(), torch.autocast.__init__, torch.amp.GradScaler.__init__) == (threshold, autocast, scaler)
        assert torch.autograd.graph.save_on_cpu.__init__ is save_on_cpu
        assert type(torch.zeros(1)) is torch.Tensor
        assert torch.utils._python_dispatch._get_current_dispatch_mode() is None

    def test_a_ledger_inside_a_dry_run(self):
        def measured(model, optimizer, x):
            with MemoryLedger() as ledger:
                model(x).square().mean().backward()
            assert ledger.peak_bytes > 2 * 256 * 2048 * 4

        dry_run(build, measured)


class TestOutOfMemory:
    def test_at_the_operation_that_does_not_fit(self):
        needed = dry_run(build, step).peak_bytes
        dry_run(build, step, gpu=tiny_gpu(needed))
        with pytest.raises(SimulatedOutOfMemoryError) as caught:
            dry_run(build, step, gpu=tiny_gpu(needed - 512))
        error = caught.value
        assert isinstance(error, torch.OutOfMemoryError)
        assert error.requested_bytes + sum(error.live_by_category.values()) > needed - 512
        assert error.report.timeline and error.report.peak_bytes <= needed - 512
        assert error.report.gpu == "tiny"
        assert "has a total capacity of" in str(error) and "GPU 0 (tiny)" in str(error)

    @pytest.mark.parametrize("usable_mib, phase", [(4, "build"), (20, "build"), (26, "forward"), (38, "step")])
    def test_names_the_phase(self, usable_mib, phase):
        with pytest.raises(SimulatedOutOfMemoryError) as caught:
            dry_run(build, step, gpu=tiny_gpu(usable_mib * MIB))
        assert caught.value.phase == phase

    def test_in_backward_and_in_recomputation(self):
        def checkpointed(model, optimizer, x):
            for _ in range(2):
                x = checkpoint(model, x, use_reentrant=False)
            x.square().mean().backward()

        def plain(model, optimizer, x):
            F.gelu(model(x)).square().mean().backward()

        for one in (checkpointed, plain):
            needed = dry_run(lambda: build(torch.optim.SGD), one)
            assert needed.peak_phase == "backward"
            with pytest.raises(SimulatedOutOfMemoryError) as caught:
                dry_run(lambda: build(torch.optim.SGD), one, gpu=tiny_gpu(needed.peak_bytes - 512))
            assert caught.value.phase == "backward"

    def test_says_how_much_too_much_the_optimizers_state_is(self):
        with pytest.raises(SimulatedOutOfMemoryError) as caught:
            dry_run(build, step, gpu=tiny_gpu(9 * MIB))  # 8 MiB of weights, 16 of AdamW's moments
        error = caught.value
        assert (error.phase, error.operation, error.free_bytes) == ("build", "the optimizer's state", 0)
        assert error.requested_bytes == sum(error.live_by_category.values()) - 9 * MIB > 14 * MIB

    def test_can_be_caught_and_tried_again_inside_a_step(self):
        """The usual loop that halves the batch until it fits."""
        sizes = []

        def halving(model, optimizer, x):
            while True:
                try:
                    sizes.append(len(x))
                    model(x).square().mean().backward()
                    return
                except torch.OutOfMemoryError:
                    x = x[: len(x) // 2]

        needed = dry_run(lambda: build(torch.optim.SGD), halving).peak_bytes
        sizes.clear()
        dry_run(lambda: build(torch.optim.SGD), halving, gpu=tiny_gpu(needed - 512))
        assert sizes == [256, 128]

    def test_measures_to_the_end_on_request(self):
        report = dry_run(build, step, gpu=tiny_gpu(MIB), stop_when_full=False)
        assert not report.fits and report.peak_bytes == dry_run(build, step).peak_bytes
        assert "does not fit tiny" in str(report)

    def test_the_real_gpus_are_known_by_name(self):
        assert dry_run(build, step, gpu="t4").gpu == "T4"
        with pytest.raises(ValueError, match=r"gpu must be one of T4, .*; got 'T5'"):
            dry_run(build, step, gpu="T5")


class TestStepsForCuda:
    """A step written for a GPU runs as it stands."""

    def test_devices_autocast_and_scaler(self):
        def build_cuda():
            model = nn.Linear(512, 512, device="cuda").cuda().to("cuda:0")
            x = torch.randn(64, 512, device=torch.device("cuda")).to("cuda", non_blocking=True)
            return model, torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda"), x.cuda()

        def step_cuda(model, optimizer, scaler, x):
            assert scaler.is_enabled()
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16), torch.autocast(device_type="cuda", dtype=torch.float16):
                out = model(x)
                assert out.dtype == torch.float16 and out.softmax(-1).dtype == torch.float32
                loss = out.float().square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            assert torch.isfinite(norm) and not torch.isnan(norm) and not norm.isinf()
            assert scaler.get_scale() == 2.0**16
            scaler.step(optimizer)
            scaler.update()
            assert scaler.get_scale() == 2.0**16
            done.append(next(iter(optimizer.state.values()))["step"].item())

        done = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dry_run(build_cuda, step_cuda, gpu="T4")
        assert done == [2.0]  # the step was not skipped

    def test_device_objects_and_pinned_memory(self):
        device = torch.device("cuda", 0)  # made outside, as scripts do

        def step_cuda(model, optimizer, x):
            assert torch.device("cuda", 0) == torch.device("cuda:0") == torch.device(type="cuda", index=0)
            step(model.to(device), optimizer, x.pin_memory().to(device, non_blocking=True).cuda(0))

        assert dry_run(build, step_cuda).peak_bytes == dry_run(build, step).peak_bytes

    def test_questions_about_cudas_memory_are_answered_by_the_ledger(self):
        def step_cuda(model, optimizer, x):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            step(model, optimizer, x)
            torch.cuda.synchronize()
            seen.append((before, torch.cuda.memory_allocated("cuda"), torch.cuda.max_memory_allocated()))

        seen = []
        report = dry_run(build, step_cuda)
        assert seen == [(report.start_bytes, report.live_bytes, report.peak_bytes)]

    def test_a_copy_of_the_model_for_an_average(self):
        def build_average():
            model, optimizer, x = build()
            return model, optimizer, x, copy.deepcopy(model), torch.optim.swa_utils.AveragedModel(model)

        def step_average(model, optimizer, x, frozen, average):
            step(model, optimizer, x)
            with torch.no_grad():
                frozen(x)
            average.update_parameters(model)

        one = dry_run(build, step).peak_by_category["parameter"]
        assert dry_run(build_average, step_average).peak_by_category["parameter"] == 3 * one

    def test_autocast_keeps_casts_of_weights_and_can_be_told_not_to(self):
        def once(cache_enabled):
            def run(model, optimizer, x):
                with torch.autocast("cuda", torch.float16, cache_enabled=cache_enabled):
                    y = (model(x) + model(x)).float()
                y.sum().backward()

            return dry_run(lambda: build(torch.optim.SGD), run).mark("forward").by_category["activation"]

        assert once(True) + 2 * 512 * 2048 == pytest.approx(once(False), abs=2 * 4096)

    def test_conversion_of_modules(self):
        for convert in (nn.Module.half, nn.Module.bfloat16, lambda m: m.to("cuda", torch.bfloat16)):
            report = dry_run(
                lambda convert=convert: (convert(build()[0]), torch.empty(4, 512)),
                lambda model, x: model(x.to(model[0].weight.dtype)).sum().backward(),
            )
            assert report.live_by_category["parameter"] == pytest.approx(2 * (2 * 512 * 2048 + 2560), abs=1024)

    def test_save_on_cpu_moves_activations_to_the_host(self):
        def offloaded(model, optimizer, x):
            with torch.autograd.graph.save_on_cpu(pin_memory=True):
                loss = model(x).square().mean()
            loss.backward()

        plain = dry_run(build, step)
        report = dry_run(build, offloaded)
        assert report.mark("forward").by_category["activation"] < 4096
        assert plain.offloaded_bytes == 0
        assert report.offloaded_bytes > plain.mark("forward").by_category["activation"]  # weights are saved too

    def test_dropout_is_drawn_again_under_checkpoint(self):
        block = lambda: nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 64))
        report = dry_run(
            lambda: (block(), torch.empty(8, 64)),
            lambda model, x: checkpoint(model, x, use_reentrant=False).sum().backward(),
        )
        assert sum(point.operation == "aten.native_dropout.default" for point in report.timeline) == 2

    def test_selective_checkpointing_keeps_more_than_full_and_less_than_none(self):
        def keeps_products(ctx, op, *args, **kwargs):
            kept = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
            return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

        def kept(**options):
            def run(model, optimizer, x):
                wrapped = checkpoint(model, x, use_reentrant=False, **options) if options else model(x)
                wrapped.square().mean().backward()

            return dry_run(build, run).mark("forward").by_category["activation"]

        selective = partial(create_selective_checkpoint_contexts, keeps_products)
        full = kept(preserve_rng_state=False)
        assert full < kept(context_fn=selective) < kept()

    def test_a_model_of_transformers(self):
        transformers = pytest.importorskip("transformers", reason="needs the hf extra")

        def build_gpt2(is_checkpointed):
            config = transformers.GPT2Config(n_layer=4, n_embd=64, n_head=4, vocab_size=100, loss_type="ForCausalLM")
            model = transformers.AutoModelForCausalLM.from_config(config)
            if is_checkpointed:
                name = "activation_checkpointing_enable"
                name = name if hasattr(model, name) else "gradient_checkpointing_enable"
                getattr(model, name)({"use_reentrant": False})
            model.train()
            return model, torch.optim.AdamW(model.parameters()), torch.zeros(2, 128, dtype=torch.long)

        def train(model, optimizer, tokens):
            model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
            optimizer.step()

        plain, checkpointed = (dry_run(lambda on=on: build_gpt2(on), train) for on in (False, True))
        assert checkpointed.peak_bytes < plain.peak_bytes
        assert checkpointed.start_bytes == plain.start_bytes

    def test_real_tensors_from_outside_are_taken_by_their_shape(self):
        targets = torch.randn(256, 512)
        report = dry_run(build, lambda model, optimizer, x: F.mse_loss(model(x), targets).backward())
        assert report.peak_bytes > 0 and torch.is_tensor(targets)

    def test_an_empty_result_of_build(self):
        assert dry_run(lambda: (), lambda: torch.zeros(1024).sum() and None).peak_bytes >= 4096


def in_anomaly_mode(x):
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("ignore")
        x.clone().requires_grad_().exp().sum().backward()


class TestValues:
    """Reads are answered so that an ordinary step goes on, or refused in the course's words."""

    @pytest.mark.parametrize("read", [
        lambda x: math.isfinite(x.mean().item()),
        lambda x: math.isfinite(float(x.mean())),
        lambda x: f"{x.mean():.3f} {x}",
        lambda x: str(x) and repr(x.mean()) and print(end=""),
        lambda x: bool(torch.isfinite(x).all()) or 1 / 0,
        lambda x: 1 / 0 if torch.isnan(x).any() else None,
        lambda x: 1 / 0 if torch.isinf(x).any() else None,
        lambda x: 1 / 0 if not torch.isfinite(x.mean()) else None,
        lambda x: 1 / 0 if (~torch.isfinite(x)).any() else None,
        lambda x: (x.long() != -100).sum().item() == x.numel() or 1 / 0,
        lambda x: 1 / (x.long() != -100).sum().item(),
        lambda x: torch.tensor(0.5).item() == 0.5 or 1 / 0,
        lambda x: (torch.tensor(2) + 3).item() == 5 or 1 / 0,
        lambda x: torch.equal(x, x) or 1 / 0,
        lambda x: torch.allclose(x, x) or 1 / 0,
        lambda x: in_anomaly_mode(x),
        lambda x: all(torch.isfinite(row).all() for row in x) or 1 / 0,
    ])  # fmt: skip
    def test_answered(self, read):
        dry_run(lambda: torch.empty(4, 4), read)

    @pytest.mark.parametrize("read, advice", [
        (lambda x: int(x.long()[0, 0]), "whole number.*take it from a shape"),
        (lambda x: x.long().max().item(), "whole number"),
        (lambda x: 1 if x.mean() > 3 else 0, "torch.where"),
        (lambda x: x[x > 0], "masked_fill"),
        (lambda x: (x > 0).nonzero(), "torch.where"),
        (lambda x: x.masked_select(x > 0), "torch.where"),
        (lambda x: x.unique(), "torch.where"),
        (lambda x: x.numpy(), "NumPy"),
        (lambda x: x.long().tolist(), "whole number"),
        (lambda x: [0] * x.long().sum(), "whole number"),
    ])  # fmt: skip
    def test_refused_with_advice(self, read, advice):
        with pytest.raises(DryRunError, match=f"(?s)A dry run knows shapes, not values.*{advice}"):
            dry_run(lambda: torch.empty(4, 4), read)

    def test_a_model_made_outside_is_refused(self):
        model = nn.Linear(4, 4)
        with pytest.raises(DryRunError, match="build\\(\\) must make the model itself; parameter weight"):
            dry_run(lambda: (model, torch.empty(1, 4)), lambda model, x: model(x))

    def test_the_learners_own_error_stays_as_it_is(self, capfd):
        with pytest.raises(RuntimeError, match=r"reduction dim|shapes cannot be multiplied"):
            dry_run(lambda: torch.empty(4, 4), lambda x: x @ torch.empty(3, 4))
        assert capfd.readouterr().err == ""  # FakeTensor logs a page for each

"""The ledger against three independent truths: closed forms of papers, torch's own MemTracker, and real tensors."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from course_lib.memory import MemoryLedger, MemoryReport, dry_run
from course_lib.memory.cuda_rules import cuda_rules
from course_lib.memory.decoder import Decoder
from course_lib.memory.models import MODELS, ModelConfig


class PaperBlock(nn.Module):
    """The transformer block of Korthikanti et al. 2022 (arXiv 2205.05198), section 4: written here, apart from ours."""

    def __init__(self, hidden, heads, *, kind, dropout, dtype):
        super().__init__()
        self.heads, self.kind, self.p = heads, kind, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden, dtype=dtype), nn.LayerNorm(hidden, dtype=dtype)
        self.qkv = nn.Linear(hidden, 3 * hidden, dtype=dtype)
        self.out = nn.Linear(hidden, hidden, dtype=dtype)
        self.up, self.down = nn.Linear(hidden, 4 * hidden, dtype=dtype), nn.Linear(4 * hidden, hidden, dtype=dtype)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.kind == "flash":
            core = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.p)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(h / self.heads)
            if self.kind == "fp32_softmax":
                weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
            else:
                weights = F.softmax(scores, dim=-1)
            core = F.dropout(weights, self.p) @ v
        x = x + F.dropout(self.out(core.transpose(1, 2).reshape(b, s, h)), self.p)
        return x + F.dropout(self.down(F.gelu(self.up(self.ln_2(x)))), self.p)


def kept_by_one_block(b, s, h, a, *, kind, dropout, dtype=torch.bfloat16, autocast=None):
    """Bytes of activations after the forward pass that a third block adds to a second one."""
    kept = []
    for layers in (2, 3):

        def build(layers=layers):
            blocks = nn.Sequential(*(PaperBlock(h, a, kind=kind, dropout=dropout, dtype=dtype) for _ in range(layers)))
            return blocks, torch.empty(b, s, h, dtype=dtype, requires_grad=True)

        def step(model, x):
            with torch.autocast("cuda", autocast or torch.float16, enabled=autocast is not None):
                y = model(x)
            y.float().square().mean().backward()

        kept.append(dry_run(build, step).mark("forward").by_category["activation"])
    return kept[1] - kept[0]


SHAPES = [(2, 2048, 4096, 32), (1, 1024, 8192, 32), (4, 4096, 4096, 16)]
FORMULAS = {  # (kind, dropout): bytes in units of s·b·h, r = a·s/h
    ("naive", 0.1): lambda r, a_h: 34 + 5 * r,
    ("naive", 0.0): lambda r, a_h: 32 + 2 * r,
    ("fp32_softmax", 0.1): lambda r, a_h: 34 + 7 * r,
    ("fp32_softmax", 0.0): lambda r, a_h: 32 + 6 * r,
    ("flash", 0.1): lambda r, a_h: 34 + 4 * a_h,
    ("flash", 0.0): lambda r, a_h: 32 + 4 * a_h,
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind, dropout", FORMULAS)
def test_a_block_keeps_what_the_closed_form_says(kind, dropout, shape):
    b, s, h, a = shape
    layer_norms = 2 * 2 * 4 / h  # mean and 1/std of two LayerNorms, float32; the paper neglects them
    expected = s * b * h * (FORMULAS[kind, dropout](a * s / h, a / h) + layer_norms)
    assert kept_by_one_block(*shape, kind=kind, dropout=dropout) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind, dropout, formula", [
    ("naive", 0.0, lambda r, a_h: 36 + 6 * r),
    ("naive", 0.1, lambda r, a_h: 38 + 7 * r),
    ("flash", 0.0, lambda r, a_h: 36 + 4 * a_h),
])  # fmt: skip
def test_a_block_under_cuda_autocast(kind, dropout, formula):
    """float32 weights and residual stream: LayerNorm reads float32, and each weight has a cast copy of two bytes."""
    b, s, h, a = 2, 2048, 4096, 32
    weights = 12 * h * h + 9 * h
    expected = s * b * h * (formula(a * s / h, a / h) + 16 / h) + 2 * weights
    kept = kept_by_one_block(b, s, h, a, kind=kind, dropout=dropout, dtype=torch.float32, autocast=torch.bfloat16)
    assert kept == pytest.approx(expected, rel=1e-3)


def test_float32_doubles_all_but_the_masks():
    b, s, h, a = 2, 2048, 4096, 32
    kept = kept_by_one_block(b, s, h, a, kind="naive", dropout=0.1, dtype=torch.float32)
    assert kept == pytest.approx(s * b * h * (66 + 9 * a * s / h + 16 / h), rel=1e-3)


# ---- the second opinion ----------------------------------------------------------------------------------------------
TINY = ModelConfig("tiny", "llama", 3, 256, 8, 2, 32, 512, 1000, 512, tied=False, qk_norm=True)
TINY_GPT = ModelConfig("tiny-gpt", "gpt2", 3, 256, 8, 8, 32, 1024, 1000, 512, tied=True)


def decoder_step(config, *, attention="sdpa", is_checkpointed=False, dtype=torch.float32, make=None, batch=4, seq=256):
    make = make or (lambda parameters: torch.optim.AdamW(parameters, foreach=True))

    def build():
        model = Decoder(config, attention=attention, is_checkpointed=is_checkpointed, dtype=dtype)
        return model, make(model.parameters()), torch.randint(config.vocab, (batch, seq + 1))

    def step(model, optimizer, tokens):
        optimizer.zero_grad()
        # No name for the logits: a reference would keep two more bytes for each of them through backward.
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return build, step


def mem_tracker_peak(build, step):
    """The same step under torch's MemTracker: bytes at the peak. Warnings of its own are not ours."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with cuda_rules(), FakeTensorMode():
        model, optimizer, tokens = build()
        tracker = MemTracker()
        tracker.track_external(model, optimizer, tokens)
        with tracker:
            for _ in range(2):  # the first makes the optimizer's state
                tracker.reset_mod_stats()
                step(model, optimizer, tokens)
        snapshot = tracker.get_tracker_snapshot("peak")
    return snapshot[torch.device("cpu")]["Total"]


@pytest.mark.parametrize("config, attention, is_checkpointed, dtype", [
    (TINY, "sdpa", False, torch.bfloat16),
    (TINY, "sdpa", True, torch.float32),
    (TINY, "naive", True, torch.bfloat16),
    (TINY_GPT, "naive", False, torch.float32),
    (TINY_GPT, "naive", True, torch.float32),
    (TINY_GPT, "sdpa", True, torch.bfloat16),
])  # fmt: skip
def test_agrees_with_mem_tracker(config, attention, is_checkpointed, dtype):
    build, step = decoder_step(config, attention=attention, is_checkpointed=is_checkpointed, dtype=dtype)
    assert dry_run(build, step).peak_bytes == pytest.approx(mem_tracker_peak(build, step), rel=0.01)


# ---- real tensors ----------------------------------------------------------------------------------------------------
def measured_on_real_tensors(build, step):
    """The report of the second step, on real CPU tensors."""
    with cuda_rules():
        built = build()
        step(*built)
        ledger = MemoryLedger()
        ledger.watch(*built)
        built[1].zero_grad()
        ledger.reset()
        with ledger:
            step(*built)
        return MemoryReport.of(ledger, 0)


@pytest.mark.parametrize("config", [TINY, TINY_GPT], ids=lambda config: config.name)
@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("make", [
    lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True),
], ids=["AdamW", "SGD"])  # fmt: skip
def test_real_tensors_agree_to_the_byte(config, is_checkpointed, make):
    build, step = decoder_step(config, attention="naive", is_checkpointed=is_checkpointed, make=make, batch=2, seq=32)
    real, fake = measured_on_real_tensors(build, step), dry_run(build, step)
    assert fake.peak_bytes == real.peak_bytes
    assert fake.peak_operation == real.peak_operation
    assert fake.peak_by_category == real.peak_by_category
    assert fake.live_by_category == real.live_by_category
    assert [mark.by_category for mark in fake.marks[:2]] == [mark.by_category for mark in real.marks[:2]]


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_real_tensors_agree_under_autocast_with_a_scaler_and_clipping(is_checkpointed):
    build, _ = decoder_step(TINY_GPT, attention="naive", is_checkpointed=is_checkpointed, batch=2, seq=32)

    def build_with_scaler():
        return *build(), torch.amp.GradScaler("cpu", init_scale=2.0**4)

    def step(model, optimizer, tokens, scaler):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    real, fake = measured_on_real_tensors(build_with_scaler, step), dry_run(build_with_scaler, step)
    assert fake.peak_bytes == pytest.approx(real.peak_bytes, abs=4 * 512)  # the scaler's own numbers
    assert fake.peak_operation == real.peak_operation


# ---- the 8B model ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("attention, is_checkpointed, kept_gb, peak_gb", [
    ("sdpa", False, 68.8, 95.1),
    ("sdpa", True, 7.7, 34.0),
    ("naive", False, 536.3, 562.6),
])  # fmt: skip
def test_the_8b_model_at_8192_tokens(attention, is_checkpointed, kept_gb, peak_gb):
    build, step = decoder_step(
        MODELS["qwen3-8b"],
        attention=attention,
        is_checkpointed=is_checkpointed,
        dtype=torch.bfloat16,
        make=lambda parameters: torch.optim.SGD(parameters),
        batch=1,
        seq=8192,
    )
    report = dry_run(build, step)
    assert report.mark("forward").by_category["activation"] / 1e9 == pytest.approx(kept_gb, abs=0.05)
    assert report.peak_bytes / 1e9 == pytest.approx(peak_gb, abs=0.05)
    assert report.start_bytes == pytest.approx(2 * MODELS["qwen3-8b"].parameters, rel=1e-3)


def test_bytes_per_parameter_by_recipe():
    """fp32 and AdamW: 16 after backward, 20 at the step with foreach, less than 17 without."""
    config = ModelConfig("thin", "gpt2", 2, 512, 8, 8, 64, 2048, 256, 64, tied=True)
    peaks = {}
    for foreach in (True, False):
        build, step = decoder_step(
            config, batch=1, seq=8, make=lambda ps, foreach=foreach: torch.optim.AdamW(ps, foreach=foreach)
        )
        report = dry_run(build, step)
        assert report.mark("backward").live_bytes / config.parameters == pytest.approx(16, abs=0.1)
        peaks[foreach] = report.peak_in("step").live_bytes / config.parameters
    assert peaks[True] == pytest.approx(20, abs=0.1)
    assert 16 < peaks[False] < 18


def test_checkpoint_in_the_middle_of_autocast_keeps_its_precision():
    layer = nn.Linear(64, 64)
    with cuda_rules(), torch.autocast("cpu", torch.bfloat16):
        y = checkpoint(layer, torch.randn(4, 64), use_reentrant=False)
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert layer.weight.grad.dtype == torch.float32

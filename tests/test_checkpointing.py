"""The reference solutions of lesson 04, against torch's own checkpoint, plain autograd and brute force."""

import itertools
import math
import random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.flop_counter import FlopCounterMode

from course_lib import checkpointing as subject
from course_lib.memory import MemoryLedger, dry_run
from course_lib.memory.cuda_rules import cuda_rules
from course_lib.nanogpt import GPT, Block, GPTConfig


def bf16_block(attention: str, dropout: bool, hidden: int = 64, heads: int = 4) -> Block:
    config = GPTConfig(n_embd=hidden, n_head=heads, dropout=0.1 if dropout else 0.0, attention=attention)
    return Block(config, dtype=torch.bfloat16)


def fp32_softmax(block: Block) -> None:
    dropout = block.attn.config.dropout

    def attend(q, k, v):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        future = torch.full(scores.shape[-2:], -math.inf, dtype=scores.dtype).triu(1)
        weights = F.softmax((scores + future).float(), dim=-1).to(q.dtype)
        return F.dropout(weights, dropout) @ v if dropout else weights @ v

    block.attn.attend = attend


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("attention", ["naive", "fp32_softmax"])
def test_the_formula_is_what_autograd_saves(attention: str, dropout: bool):
    batch, seq, hidden, heads = 2, 96, 64, 4
    block = bf16_block("naive", dropout, hidden, heads)
    if attention == "fp32_softmax":
        fp32_softmax(block)
    x = torch.randn(batch, seq, hidden, dtype=torch.bfloat16)
    with cuda_rules():
        measured = subject.saved_activation_bytes(lambda: block(x))
    statistics = 2 * 2 * batch * seq * 2  # mean and 1/std of two LayerNorms, two bytes each on a CPU
    formula = subject.block_activation_bytes(batch, seq, hidden, heads, attention=attention, dropout=dropout)
    assert measured == formula + statistics


def test_flash_without_dropout_is_what_autograd_saves():
    block, x = bf16_block("sdpa", False), torch.randn(2, 96, 64, dtype=torch.bfloat16)
    measured = subject.saved_activation_bytes(lambda: block(x))
    assert measured == subject.block_activation_bytes(2, 96, 64, 4, attention="flash", dropout=False) + 8 * 2 * 96


def test_flash_with_dropout_as_a_gpu_does_it():
    batch, seq, hidden, heads = 2, 1024, 512, 8

    def build():
        x = torch.randn(batch, seq, hidden, dtype=torch.bfloat16)
        return bf16_block("sdpa", True, hidden, heads), x

    report = dry_run(build, lambda block, x: block(x).sum().backward(), gpu="A100-40GB")
    x_bytes = 2 * batch * seq * hidden  # x is an input here, and the formula counts it
    kept = report.mark("forward").by_category["activation"] + x_bytes
    formula = subject.block_activation_bytes(batch, seq, hidden, heads, attention="flash", dropout=True)
    assert kept == pytest.approx(formula, rel=0.002 + 2 / 34)  # the block's output is alive as well


def test_an_unknown_attention_is_refused():
    with pytest.raises(ValueError, match='attention must be "naive"'):
        subject.block_activation_bytes(1, 1, 1, 1, attention="sparse", dropout=False)


def test_saved_bytes_leave_out_weights_and_count_storages_once():
    weight = torch.ones(6, 3, requires_grad=True)
    x = torch.ones(4, 3)
    assert subject.saved_activation_bytes(lambda: x @ weight.t()) == x.nbytes
    flat = torch.ones(18)
    slice_of_flat = flat[:9].requires_grad_()  # a leaf, though a view of something that needs no gradients
    assert subject.saved_activation_bytes(lambda: slice_of_flat * slice_of_flat) == 0
    with torch.no_grad():
        assert subject.saved_activation_bytes(lambda: x @ weight.t()) == 0


def gradients(function, inputs, leaves, seed, *, autocast=False):
    for leaf in leaves:
        leaf.grad = None
    torch.manual_seed(seed)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        output = function(*inputs)
    torch.rand(5)
    state = torch.get_rng_state()
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed + 1))
    (output * weights).sum().backward()
    assert torch.equal(state, torch.get_rng_state())
    return [output.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_recompute_is_the_plain_call_to_the_bit(needs_grad: bool, autocast: bool):
    module = torch.nn.Sequential(torch.nn.Linear(5, 9), torch.nn.GELU(), torch.nn.Dropout(0.4), torch.nn.Linear(9, 7))
    x = torch.randn(6, 5, requires_grad=needs_grad)

    def function(value, power, names):
        return module(value) ** power if names == ["a"] else value

    leaves = [*module.parameters(), *([x] if needs_grad else [])]
    plain = gradients(function, (x, 2, ["a"]), leaves, 3, autocast=autocast)
    mine = gradients(lambda *inputs: subject.recompute(function, *inputs), (x, 2, ["a"]), leaves, 3, autocast=autocast)
    for expected, got in zip(plain, mine, strict=True):
        assert torch.equal(expected, got)


def test_recompute_notices_an_input_changed_in_place():
    x, weight = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    output = subject.recompute(lambda value: value @ weight, x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def step_peak(forward, model, tokens) -> int:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with MemoryLedger() as ledger:
        logits = forward(model, tokens)
        (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    return ledger.peak_bytes


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_forward_checkpointed_gives_the_same_gradients_at_a_lower_peak(dropout: float):
    torch.manual_seed(1)
    model = GPT(GPTConfig(vocab_size=11, block_size=64, n_layer=8, n_head=2, n_embd=24, dropout=dropout))
    tokens = torch.randint(11, (2, 60))
    found = []
    for forward in (lambda model, tokens: model(tokens), subject.forward_checkpointed):
        torch.manual_seed(2)
        peak = step_peak(forward, model, tokens)
        found.append((peak, [parameter.grad for parameter in model.parameters()]))
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))
    assert found[1][0] < 0.35 * found[0][0]


@given(st.integers(1, 60), st.integers(1, 50), st.integers(1, 900))
def test_best_segment_count_is_the_smallest_of_the_best(n: int, boundary: int, layer: int):
    def peak(k: int) -> int:
        return k * boundary + math.ceil(n / k) * layer

    best = subject.best_segment_count(n, boundary, layer)
    assert all(peak(best) < peak(k) for k in range(1, best))
    assert all(peak(best) <= peak(k) for k in range(best, n + 1))


def test_square_root_is_best_where_a_layer_costs_as_much_as_its_boundary():
    assert subject.best_segment_count(36, 1, 1) == 6
    assert subject.best_segment_count(36, 2, 34) == 18


def test_early_stop_spares_the_last_matrix_product():
    def flops(seq: int, hidden: int, is_checkpointed: bool, early_stop: bool = True) -> int:
        block = Block(GPTConfig(n_head=2, n_embd=hidden, attention="naive"))
        x = torch.randn(2, seq, hidden, requires_grad=True)
        with FlopCounterMode(display=False) as counter, set_checkpoint_early_stop(early_stop):
            y = checkpoint(block, x, use_reentrant=False) if is_checkpointed else block(x)
            (y * torch.randn_like(y)).sum().backward()
        return counter.get_total_flops()

    for seq, hidden in ((16, 64), (64, 64), (192, 32)):
        plain, ratio = flops(seq, hidden, False), seq / hidden
        assert flops(seq, hidden, True, early_stop=False) / plain == pytest.approx(4 / 3)
        due = 1 + (16 + 4 * ratio) / (24 + 4 * ratio) / 3
        assert flops(seq, hidden, True) / plain == pytest.approx(due)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(0, 2**20))
def test_cheapest_plan_against_every_set(n: int, seed: int):
    draw = random.Random(seed)
    sizes = [draw.randint(0, 30) for _ in range(n)]
    flops = [float(draw.randint(0, 30)) for _ in range(n)]
    budget = draw.randint(0, sum(sizes) + 3)
    plan = subject.cheapest_plan(sizes, flops, budget)

    def cost(chosen) -> float:
        return sum(flops[layer] for layer in chosen)

    def fits(chosen) -> bool:
        return sum(sizes[layer] for layer in range(n) if layer not in chosen) <= budget

    every = [set(chosen) for k in range(n + 1) for chosen in itertools.combinations(range(n), k)]
    assert fits(plan)
    assert cost(plan) == min(cost(chosen) for chosen in every if fits(chosen))


def test_slider_draws_every_position():
    from course_lib.widgets.checkpointing import segments_slider

    model = GPT(GPTConfig(vocab_size=11, block_size=16, n_layer=4, n_head=2, n_embd=16))
    timelines = {}
    for segments in (0, 1, 4):
        with MemoryLedger() as ledger:
            tokens = torch.zeros(1, 16, dtype=torch.long)
            logits = subject.forward_checkpointed(model, tokens) if segments else model(tokens)
            logits.square().sum().backward()
        timelines[segments] = ledger.timeline
    box = segments_slider(timelines, start=4, unit="KiB")
    slider, image = box.children
    before = image.value
    slider.value = 1
    assert bytes(image.value) != bytes(before)
    assert bytes(image.value).startswith(b"\x89PNG")

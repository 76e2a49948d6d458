"""Gradients over micro-batches and the chunked loss, against the full batch and float64."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.memory import MemoryLedger
from course_lib.nanogpt import GPT, GPTConfig, loss_fn
from course_lib.toolbox import accumulate_gradients, chunked_cross_entropy, mean_loss, step_in_backward


def gpt(seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    return GPT(GPTConfig(vocab_size=31, block_size=8, n_layer=1, n_head=2, n_embd=16))


def test_unequal_micro_batches_give_the_full_batchs_gradient():
    model, truth = gpt(), gpt().double()
    tokens, targets = torch.randint(31, (2, 6, 8))
    for row, valid in enumerate((8, 1, 0, 0, 3, 8)):
        targets[row, valid:] = -100
    loss = accumulate_gradients(model, list(zip(tokens.split(2), targets.split(2), strict=True)), loss_fn)
    wanted = loss_fn(truth(tokens), targets)
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    for ours, theirs in zip(model.parameters(), truth.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    chunk=st.integers(1, 50),
    vocab=st.integers(2, 20),
    seed=st.integers(0, 999),
    share=st.floats(0, 1),
)
def test_a_chunked_loss_is_the_loss(n: int, chunk: int, vocab: int, seed: int, share: float):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(vocab, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(vocab, (n,), generator=generator)
    targets[torch.rand(n, generator=generator) < share] = -100
    loss = chunked_cross_entropy(hidden, weight, targets, chunk)
    got = torch.autograd.grad(loss * 3, (hidden, weight))
    if (targets == -100).all():
        assert loss == 0
        assert all(not gradient.any() for gradient in got)
        return
    wanted = F.cross_entropy(hidden @ weight.T, targets)
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-6)  # the chunks' logarithms are in float32
    for ours, theirs in zip(got, torch.autograd.grad(wanted * 3, (hidden, weight)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_chunked_loss_stays_within_its_bytes():
    n, h, v, chunk = 512, 16, 1000, 32
    hidden, weight = torch.randn(n, h, requires_grad=True), torch.randn(v, h, requires_grad=True)
    with MemoryLedger() as ledger:
        chunked_cross_entropy(hidden, weight, torch.randint(v, (n,)), chunk).backward()
    assert ledger.peak_bytes <= 6 * 4 * chunk * v + 16 * v * h < 4 * n * v


def test_evaluation_reads_a_generator_once_and_keeps_nothing():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5)).train()
    data = [(torch.randn(n, 4), torch.randint(3, (n,))) for n in (5, 2, 7)]
    inputs, targets = (torch.cat(parts) for parts in zip(*data, strict=True))
    assert mean_loss(model, iter(data)) == pytest.approx(
        F.cross_entropy(model.eval()(inputs), targets).item(), rel=1e-5
    )
    model.train()
    mean_loss(model, iter(data))
    assert model.training


def test_stepping_in_backward_is_the_same_step_without_gradients_left():
    usual, fused = gpt(), gpt()
    optimizer = torch.optim.AdamW(usual.parameters(), lr=1e-2)
    handles = step_in_backward(fused, lambda parameters: torch.optim.AdamW(parameters, lr=1e-2))
    tokens = torch.randint(31, (2, 8))
    for _ in range(3):
        optimizer.zero_grad()
        loss_fn(usual(tokens), tokens).backward()
        optimizer.step()
        loss_fn(fused(tokens), tokens).backward()
    assert all(torch.equal(a, b) for a, b in zip(usual.parameters(), fused.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in fused.parameters())
    for handle in handles:
        handle.remove()
    loss_fn(fused(tokens), tokens).backward()
    assert all(parameter.grad is not None for parameter in fused.parameters())

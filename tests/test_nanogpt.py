"""nanogpt: GPT-2's shapes and counts, two attentions that agree, and a corpus that the course may use."""

import copy

import pytest
import torch

from course_lib.nanogpt import GPT, GPT2_CONFIGS, GPTConfig, batch, corpus, loss_fn


def count(model):
    return sum(p.numel() for p in model.parameters())  # parameters() yields the tied weight once


@pytest.mark.parametrize(
    ("name", "published"),
    [("gpt2", 124_439_808), ("gpt2-medium", 354_823_168), ("gpt2-large", 774_030_080), ("gpt2-xl", 1_557_611_200)],
)
def test_parameter_counts_are_gpt2s(name, published):
    assert count(GPT(GPT2_CONFIGS[name], device="meta")) == published


def test_shapes_are_those_of_transformers_gpt2():
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    ours = GPT(GPT2_CONFIGS["gpt2"], device="meta")
    sizes = lambda model: sorted(tuple(sorted(p.shape)) for p in model.parameters())  # Conv1D stores the transpose
    assert sizes(ours) == sizes(theirs)


def test_naive_and_fused_attention_agree_and_are_causal():
    torch.manual_seed(0)
    naive = GPT(GPTConfig(attention="naive"), dtype=torch.float64)
    fused = GPT(GPTConfig(attention="sdpa"), dtype=torch.float64)
    fused.load_state_dict(naive.state_dict())
    tokens = torch.randint(256, (2, 33))
    a, b = naive(tokens), fused(tokens)
    assert a.shape == (2, 33, 256)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 256
    torch.testing.assert_close(naive(changed)[:, :-1], a[:, :-1], rtol=0, atol=0)


def test_the_head_is_tied_also_after_a_deep_copy():
    model = copy.deepcopy(GPT(GPTConfig()))
    assert model.lm_head.weight is model.wte.weight


def test_attend_can_be_replaced_on_an_instance():
    model = GPT(GPTConfig())
    calls = []
    for block in model.blocks:
        block.attn.attend = lambda q, k, v: calls.append(q.shape) or v
    model(torch.zeros(3, 5, dtype=torch.long))
    assert calls == [(3, 2, 5, 32)] * 2


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    for attention in ("naive", "sdpa"):
        model = GPT(GPTConfig(dropout=0.5, attention=attention))
        tokens = torch.randint(256, (1, 8))
        assert not torch.equal(model(tokens), model(tokens))
        model.eval()
        assert torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_low_precision_model_is_made_in_that_dtype_and_runs(dtype):
    model = GPT(GPTConfig(), dtype=dtype)
    assert {p.dtype for p in model.parameters()} == {dtype}
    assert model(torch.zeros(1, 4, dtype=torch.long)).dtype == dtype


def test_the_first_loss_is_that_of_a_uniform_guess():
    torch.manual_seed(0)
    inputs, targets = batch(corpus(), 8, 64, torch.Generator().manual_seed(0))
    assert abs(loss_fn(GPT(GPTConfig())(inputs), targets).item() - 5.545) < 0.1  # ln 256


def test_targets_are_the_next_bytes_and_the_generator_decides():
    text = corpus()
    assert text.dtype == torch.uint8 and 100_000 < len(text) < 300_000
    inputs, targets = batch(text, 4, 16, torch.Generator().manual_seed(3))
    assert inputs.shape == targets.shape == (4, 16) and inputs.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    again, _ = batch(text, 4, 16, torch.Generator().manual_seed(3))
    assert torch.equal(inputs, again)


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="multiple of n_head; got 10 and 3"):
        GPTConfig(n_embd=10, n_head=3)
    with pytest.raises(ValueError, match="block_size long; got 65 > 64"):
        GPT(GPTConfig())(torch.zeros(1, 65, dtype=torch.long))

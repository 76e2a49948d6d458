"""Attention by tiles against float64, PyTorch and the bytes that it may take; the on-chip memory; the oracle's faults."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from torch.utils.flop_counter import FlopCounterMode

from course_lib import attention
from course_lib.attention import FlashAttention, naive_attention, tiled_attention, tiled_attention_backward
from course_lib.exercises.lesson_05 import LESSON
from course_lib.exercises.lesson_05 import attention_oracle as oracle
from course_lib.memory import MemoryLedger
from course_lib.nanogpt import GPT, GPTConfig, batch, corpus, loss_fn
from course_lib.on_chip_memory import FreedTileError, OnChipMemory, OnChipMemoryError

SHAPES = [(1, 1, 1, 1, 4), (2, 3, 7, 7, 8), (2, 3, 5, 11, 8), (1, 2, 1, 9, 16), (3, 2, 13, 29, 5)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def qkv(shape: tuple, dtype: torch.dtype = torch.float32, seed: int = 0, **how):
    batch_size, heads, q_len, k_len, dim = shape
    generator = torch.Generator().manual_seed(seed)
    lengths = (q_len, k_len, k_len)
    return [torch.randn(batch_size, heads, n, dim, generator=generator).to(dtype).requires_grad_(**how) if how
            else torch.randn(batch_size, heads, n, dim, generator=generator).to(dtype) for n in lengths]  # fmt: skip


# ---- on-chip memory ----------------------------------------------------------------------------------------------------
def test_a_tile_that_does_not_fit_is_refused_with_what_was_asked_and_what_is_held():
    memory = OnChipMemory(1000)
    memory.load(torch.zeros(10, 10))
    with pytest.raises(OnChipMemoryError) as caught:
        memory.load(torch.zeros(50, 4))
    assert (caught.value.asked_bytes, caught.value.held_bytes, caught.value.capacity_bytes) == (800, 400, 1000)
    assert str(caught.value) == (
        "a tile must fit in on-chip memory; asked for 800 bytes (shape [50, 4]) while 400 of 1,000 bytes are held by "
        "1 tile. Free a tile that you no longer need, or load a smaller one."
    )
    assert memory.held_bytes == 400
    assert memory.traffic_bytes == 400, "a refused load moves nothing"


def test_a_freed_tile_cannot_be_read_in_any_way():
    memory = OnChipMemory()
    tile = memory.load(torch.ones(2, 3))
    view, transposed = tile[0], tile.mT
    memory.free(tile)
    for read in (
        lambda: tile + 1, lambda: tile.shape, lambda: tile[0], lambda: torch.cat([tile, tile]), lambda: tile.clone(),
        lambda: torch.einsum("ij,kj->ik", tile, tile), lambda: tile.tolist(), lambda: tile.numpy(), lambda: tile.data,
        lambda: memory.store(tile, torch.zeros(2, 3)), lambda: F.softmax(tile, -1), lambda: tile.to(torch.float16),
    ):  # fmt: skip
        with pytest.raises(FreedTileError, match="must not be read after it is freed"):
            read()
    assert view.isnan().all(), "a view that was kept reads NaN"
    assert transposed.isnan().all()
    assert repr(tile) == "Tile(freed)"


def test_a_tile_is_a_copy_and_computing_gives_plain_tensors():
    memory = OnChipMemory()
    source = torch.ones(2, 3)
    tile = memory.load(source)
    source.zero_()
    assert type(tile + 1) is torch.Tensor
    assert type(tile.mT @ tile) is torch.Tensor
    assert isinstance(tile, torch.Tensor)
    assert tile.sum() == 6


def test_changing_a_tile_in_place_leaves_it_a_tile():
    memory = OnChipMemory()
    tile = same = memory.allocate((2, 2), torch.float32)
    tile += 1
    tile *= 3
    tile[0] = 7
    assert tile is same
    assert tile.tolist() == [[7, 7], [3, 3]]
    memory.free(tile)
    assert memory.held_bytes == 0


def test_traffic_is_counted_each_way_and_allocating_costs_none():
    memory, destination = OnChipMemory(), torch.zeros(4, 4, dtype=torch.float16)
    memory.load(torch.zeros(4, 4))
    memory.allocate((100, 4), torch.float32)
    memory.store(torch.ones(2, 4), destination[1:3])
    assert (memory.loaded_bytes, memory.stored_bytes, memory.traffic_bytes) == (64, 16, 80)
    assert memory.peak_bytes == 64 + 1600
    assert destination[1:3].eq(1).all() and destination[0].eq(0).all()


def test_a_scope_frees_what_was_loaded_in_it_even_after_an_error():
    memory = OnChipMemory()
    outer = memory.load(torch.ones(2))
    with pytest.raises(ZeroDivisionError), memory.scope():
        inner = memory.load(torch.ones(3))
        memory.free(inner)
        memory.load(torch.ones(5))
        raise ZeroDivisionError
    assert memory.held_bytes == 8
    assert outer.sum() == 2


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda m, t: m.free(t + 1), "free must get what load or allocate returned; got Tensor"),
        (lambda m, t: (m.free(t), m.free(t)), "must be freed once"),
        (lambda m, t: OnChipMemory().free(t), "a tile of this memory"),
        (lambda m, t: m.load(t), "got a tile, which is on chip already"),
        (lambda m, t: m.store(t, torch.zeros(3)), r"got \[2\] for \[3\]"),
        (lambda m, t: OnChipMemory(0), "at least 1; got 0"),
    ],
)
def test_misuse_is_answered_with_what_to_do(misuse, message):
    memory = OnChipMemory()
    with pytest.raises((ValueError, FreedTileError), match=message):
        misuse(memory, memory.load(torch.ones(2)))


# ---- values ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("blocks", [(1, 1), (3, 4), (64, 2)])
def test_forward_and_backward_stay_within_twice_the_error_of_the_plain_formula(shape, causal, dtype, blocks):
    q, k, v = qkv(shape, dtype)
    how = {"block_q": blocks[0], "block_k": blocks[1], "causal": causal}
    out, logsumexp = tiled_attention(q, k, v, **how, memory=OnChipMemory())
    assert oracle.out_problem(out, q, k, v, causal) is None
    assert oracle.logsumexp_problem(logsumexp, q, k, v, causal) is None
    grad_out = torch.randn(q.shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    found = tiled_attention_backward(q, k, v, out, logsumexp, grad_out, **how)
    assert oracle.gradient_problem(found, (q, k, v, grad_out), causal) is None


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_agree_with_finite_differences(causal):
    q, k, v = (tensor.requires_grad_() for tensor in qkv((1, 2, 4, 6, 3), torch.float64))
    assert torch.autograd.gradcheck(lambda q, k, v: FlashAttention.apply(q, k, v, causal, 3, 2), (q, k, v))


def test_it_is_what_pytorch_computes():
    q, k, v = qkv((2, 3, 5, 11, 8))
    ours, _ = tiled_attention(q, k, v, block_q=2, block_k=4, causal=True, memory=OnChipMemory())
    theirs = F.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(5, 11))
    torch.testing.assert_close(ours, theirs)
    masked = F.scaled_dot_product_attention(q, k, v, attn_mask=attention.decode_mask(5, 11))
    torch.testing.assert_close(masked, theirs, msg="decode_mask is aligned to the end")


def test_sdpa_aligns_is_causal_to_the_start():
    q, k, v = qkv((1, 1, 2, 5, 8))
    causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    from_start = F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(2, 5).tril().bool())
    torch.testing.assert_close(causal, from_start)


def test_a_change_of_the_last_key_does_not_reach_earlier_causal_outputs():
    q, k, v = qkv((1, 2, 16, 16, 8))
    before = FlashAttention.apply(q, k, v, True, 5, 3)
    k[:, :, -1] += 1
    v[:, :, -1] += 1
    after = FlashAttention.apply(q, k, v, True, 5, 3)
    assert torch.equal(before[:, :, :-1], after[:, :, :-1])
    assert not torch.equal(before[:, :, -1], after[:, :, -1])


def test_merging_is_associative_and_has_a_neutral_element():
    generator = torch.Generator().manual_seed(0)

    def part():
        return torch.randn(5, generator=generator) * 50, torch.rand(5, generator=generator), torch.randn(5, 3)

    a, b, c = part(), part(), part()
    nothing = torch.full((5,), -math.inf), torch.zeros(5), torch.zeros(5, 3)
    merge = attention.merge_partial
    for left, right in zip(merge(merge(a, b), c), merge(a, merge(b, c)), strict=True):
        torch.testing.assert_close(left, right)
    for same, own in zip(merge(a, nothing), a, strict=True):
        assert torch.equal(same, own)
    assert not any(tensor.isnan().any() for tensor in merge(nothing, nothing))


def test_the_self_test_s_merged_sum():
    parts = ((torch.tensor([m]), torch.tensor([s]), torch.zeros(1, 1)) for m, s in ((3.0, 2.0), (5.0, 1.0)))
    row_max, row_sum, _ = attention.merge_partial(*parts)
    assert (row_max.item(), round(row_sum.item(), 3)) == (5.0, 1.271)


# ---- bytes and operations ------------------------------------------------------------------------------------------------
def test_the_paper_s_figures_can_be_counted():
    assert 8192 * 8192 * 2 == 134_217_728 == 128 * 2**20
    assert attention.attention_traffic_bytes(1024, 64, 2) * 1024 == 9_126_805_504
    assert attention.block_sizes(192 * 1024, 64, 2) == (64, 384)
    product = 2 * 1024 * 1024 * 64 * 16 * 64
    assert round(6 * product / 1e9) == 825 and round(7 * product / 1e9) == 962


def test_traffic_follows_the_formula_and_halves_with_twice_the_memory():
    N, d = 512, 16

    def traffic(sram_bytes: int) -> int:
        small, large = attention.block_sizes(sram_bytes, d, 2)
        q, k, v = (torch.zeros(1, 1, N, d, dtype=torch.float16) for _ in range(3))
        memory = OnChipMemory()
        tiled_attention(q, k, v, block_q=large, block_k=small, causal=False, memory=memory)
        return memory.traffic_bytes

    for kib in (2, 4, 8):
        elements = kib * 512
        assert traffic(kib * 1024) == (2 * N * d + 8 * N * N * d * d // elements) * 2
    once = 2 * N * d * 2
    assert traffic(4096) - once == (traffic(2048) - once) / 2


def test_a_causal_mask_saves_almost_half_the_traffic():
    q, k, v = qkv((1, 1, 512, 512, 8))
    full, causal = OnChipMemory(), OnChipMemory()
    tiled_attention(q, k, v, block_q=16, block_k=16, causal=False, memory=full)
    tiled_attention(q, k, v, block_q=16, block_k=16, causal=True, memory=causal)
    assert 0.5 < causal.loaded_bytes / full.loaded_bytes < 0.55


def test_seven_products_replace_six():
    q, k, v = (tensor.requires_grad_() for tensor in qkv((1, 2, 64, 64, 8)))

    def flops(function) -> int:
        with FlopCounterMode(display=False) as counter:
            function().sum().backward()
        return counter.get_total_flops()

    ours = flops(lambda: FlashAttention.apply(q, k, v, False, 16, 16))
    assert 6 * ours == 7 * flops(lambda: naive_attention(q, k, v))


def test_forward_keeps_one_float_a_query_beside_its_inputs_and_output():
    q, k, v = (tensor.requires_grad_() for tensor in qkv((2, 3, 64, 64, 8)))
    with MemoryLedger(block_bytes=1) as ledger:
        out = FlashAttention.apply(q, k, v, True, 16, 16)
    assert ledger.live_bytes == out.nbytes + 4 * 2 * 3 * 64


def test_peak_grows_with_the_length_and_not_with_its_square():
    def peak(function, length: int) -> int:
        q, k, v = (tensor.requires_grad_() for tensor in qkv((1, 1, length, length, 8)))
        with MemoryLedger(block_bytes=1) as ledger:
            function(q, k, v).backward(torch.ones(1, 1, length, 8))
        return ledger.peak_bytes

    def ours(q, k, v):
        return FlashAttention.apply(q, k, v, True, 32, 32)

    assert peak(ours, 1024) < 2.1 * peak(ours, 512)
    assert peak(naive_attention, 1024) > 3.8 * peak(naive_attention, 512)
    assert peak(ours, 1024) < 1024 * 1024


def test_nanogpt_trains_to_the_same_loss():
    def train(attend=None):
        torch.manual_seed(0)
        model = GPT(GPTConfig(attention="naive"))
        for block in model.blocks:
            block.attn.attend = attend or block.attn.attend
        optimizer, generator = torch.optim.SGD(model.parameters(), lr=0.1), torch.Generator().manual_seed(0)
        for _ in range(8):
            inputs, targets = batch(corpus(), 2, 48, generator)
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), targets)
            loss.backward()
            optimizer.step()
        return loss.item()

    ours = train(lambda q, k, v: FlashAttention.apply(q, k, v, True, 20, 16))
    assert abs(ours - train()) < 1e-4


# ---- the oracle's faults -------------------------------------------------------------------------------------------------
def test_without_a_fault_the_tile_loop_of_the_oracle_is_the_truth():
    q, k, v = qkv((2, 3, 5, 11, 8))
    truth, _ = oracle.attend(q, k, v, True, torch.float64)
    torch.testing.assert_close(oracle.faulty("", q, k, v, 2, 4, True), truth)


@pytest.mark.parametrize("exercise", LESSON.exercises, ids=lambda exercise: exercise.name)
def test_graders_survive_junk(exercise):
    if exercise.unavailable():
        pytest.skip(exercise.unavailable())
    case = exercise.cases(0)[-1]
    expected = exercise.observe(exercise.reference, case)
    junk = [None, "text", 3, math.nan, [], (), {}, {"out": None}, {"result": [1, 2]}, {"result": (None,) * 3}]
    junk += [torch.zeros(0), torch.zeros(3, dtype=torch.complex64), [torch.zeros(2)] * 2, [torch.zeros(2)] * 3]
    for observation in junk:
        assert exercise.grade(case, observation, expected) is not None
        for idea in exercise.misconceptions:
            if idea.matches is not None:
                assert idea.matches(case, observation, None) in (True, False)


# ---- figures -------------------------------------------------------------------------------------------------------------
def test_the_frames_of_the_animation_end_at_the_log_sum_exp():
    from course_lib.widgets.attention import tile_frames, tiles_figure, tiles_strip

    scores = torch.randn(10, 14, generator=torch.Generator().manual_seed(1)) * 2
    frames = tile_frames(scores, 4, 4, causal=True)
    rows = [
        m + math.log(s)
        for frame in frames
        if frame.keys is None
        for m, s in zip(frame.row_max, frame.row_sum, strict=True)
    ]
    hidden = oracle.hidden(10, 14)
    torch.testing.assert_close(
        torch.tensor(rows), scores.masked_fill(hidden, -math.inf).logsumexp(1), rtol=1e-5, atol=1e-5
    )
    assert not any(keys[0] > queries[1] - 1 + 4 for queries, keys in frames[-1].visited), (
        "tiles of the future are skipped"
    )
    for figure, alt in (tiles_figure(frames, 3, 10, 14), tiles_strip(frames, [0, 3], 10, 14)):
        assert "on chip" in alt
        figure.clear()


# ---- Triton ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_the_kernel_agrees_with_float64(causal, dtype):
    pytest.importorskip("triton")
    from course_lib.triton_attention import can_compile, triton_attention

    q, k, v = qkv((1, 2, 9, 21, 16), dtype)
    device = "cuda" if can_compile() else "cpu"
    out = triton_attention(q.to(device), k.to(device), v.to(device), causal, 16, 16).cpu()
    assert oracle.out_problem(out, q, k, v, causal) is None


def test_triton_is_interpreted_even_after_an_optimizer_has_imported_it():
    pytest.importorskip("triton")
    import os
    import subprocess
    import sys

    code = (
        "import torch; torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))])\n"
        "import triton.language\n"
        "from course_lib.triton_attention import can_compile, triton_attention\n"
        "q = torch.ones(1, 1, 3, 16)\n"
        "print(can_compile() or triton_attention(q, q, q, True, 16, 16).sum().item() == 48.0)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "True", done.stderr


def test_a_broken_interpreter_is_the_grader_s_fault_and_not_the_learner_s(monkeypatch):
    pytest.importorskip("triton")
    from course_lib.exercises.lesson_05 import triton_attention as exercise_file
    from course_lib.grading import assess
    from course_lib.triton_attention import triton_attention

    if exercise_file.can_compile():
        pytest.skip("compiled here, not interpreted")
    monkeypatch.setattr(exercise_file, "_interpreter_works", lambda: False)
    verdict = assess("triton_attention", triton_attention, seed=0)
    assert verdict.status == "grader_error"
    assert "restart the kernel" in verdict.feedback


def test_where_triton_is_missing_a_cell_with_a_kernel_still_runs(monkeypatch):
    from course_lib import triton_attention as module

    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    module.load_triton.cache_clear()
    try:
        triton, tl = module.load_triton()

        @triton.jit
        def kernel(x, BLOCK: tl.constexpr):
            return x

        assert kernel(3, 4) == 3
        assert "not installed" in module.missing_reason()
        with pytest.raises(RuntimeError, match="not installed"):
            module.triton_attention(*qkv((1, 1, 2, 2, 16)), False)
    finally:
        module.load_triton.cache_clear()

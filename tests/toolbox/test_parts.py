"""The capstone's step, FSDP2 on two processes, the table of switches, the review of all lessons."""

import json
from pathlib import Path

import pytest
import torch

from course_lib.nanogpt import GPT, GPTConfig, loss_fn
from course_lib.toolbox import Plan, capstone_step, zero_bytes_per_gpu
from course_lib.toolbox.review import QUIZ_HEADING, answer_cards, mixed, questions
from course_lib.toolbox.switches import SWITCHES, unknown_fields
from course_lib.widgets.toolbox import cards_html


def small() -> tuple[GPT, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=31, block_size=8, n_layer=2, n_head=2, n_embd=16))
    tokens, targets = torch.randint(31, (2, 4, 8))
    targets[1, 2:] = -100
    targets[3] = -100
    return model, tokens, targets


@pytest.mark.parametrize("changes", [{}, {"checkpoint_blocks": 2}, {"chunk_tokens": 3}, {"offload": "activations"}])
def test_the_step_takes_the_full_batchs_gradient(changes: dict):
    model, tokens, targets = small()
    truth, _, _ = small()
    plan = Plan("fp32", "sdpa", 1, 4, **changes)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    loss = capstone_step(model, torch.optim.SGD(model.parameters(), lr=0.5), scaler, tokens, targets, plan)
    wanted = loss_fn(truth(tokens), targets)
    wanted.backward()
    torch.optim.SGD(truth.parameters(), lr=0.5).step()
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    for ours, theirs in zip(model.parameters(), truth.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_an_overflow_skips_the_step_and_halves_the_scale_once():
    model, tokens, targets = small()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    capstone_step(model, optimizer, scaler, tokens, targets, Plan("fp16", "sdpa", 1, 4))
    assert scaler.get_scale() == 2.0**39
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.slow
def test_fully_shard_leaves_each_rank_what_zero_3_says():
    from course_lib.toolbox.fsdp_demo import fsdp_bytes

    for rank in fsdp_bytes(ranks=2):
        total = rank["parameters"] + rank["gradients"] + rank["optimizer state"]
        # a dimension that two does not divide is padded or left out on the second rank
        assert total == pytest.approx(zero_bytes_per_gpu(rank["n_params"], 2, 3), rel=0.01)


def test_every_hugging_face_switch_is_a_field_of_the_installed_library():
    unknown = unknown_fields()
    if unknown is None:
        pytest.skip("transformers is not installed")
    assert unknown == []
    assert len(SWITCHES) >= 9


def test_eight_bit_adamw_is_a_value_of_optim():
    training_args = pytest.importorskip("transformers.training_args")
    assert any("adamw" in name.value and "8bit" in name.value for name in training_args.OptimizerNames)


def test_a_name_that_is_none_would_be_found(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("transformers")
    from course_lib.toolbox import switches

    monkeypatch.setattr(switches, "SWITCHES", (switches.Switch("x", "y", ("no_such_switch",)),))
    assert switches.unknown_fields() == ["no_such_switch"]


def notebook(folder: Path, name: str, *cells: str) -> None:
    content = {"cells": [{"cell_type": "markdown", "source": [cell]} for cell in cells]}
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def test_both_forms_of_a_self_test_are_read(tmp_path: Path):
    numbered = f"{QUIZ_HEADING}\n\n1. Why `x`?\n<details><summary>Answer</summary>Because.</details>\n\n2. And **y**?\n"
    notebook(tmp_path, "01_a.ipynb", numbered + "<details><summary>Answer</summary>So &lt; that.</details>")
    notebook(
        tmp_path, "02_b.ipynb", f"{QUIZ_HEADING}\n\n<details><summary>What is z?</summary>\n\nA letter.\n</details>"
    )
    found = questions(tmp_path)
    assert [(q.lesson, q.question, q.answer) for q in found] == [
        ("01", "Why x?", "Because."),
        ("01", "And y?", "So < that."),
        ("02", "What is z?", "A letter."),
    ]
    assert {q.lesson for q in mixed(found, 0, 2)} == {"01", "02"}
    assert mixed(found, 5, 3) == mixed(found, 5, 3)


def test_every_lesson_asks_and_answers():
    lessons = {question.lesson for question in questions()}
    assert lessons >= {f"{number:02}" for number in range(1, 8)}
    assert {title[:2] for title in answer_cards()} >= lessons
    assert all(len(question.answer) > 20 and "<" not in question.question for question in questions())


def test_cards_escape_what_they_show():
    assert "&lt;script&gt;" in cards_html({"a": "<script>"})

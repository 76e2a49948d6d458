"""Per-block checkpointing of nanoGPT: every gradient, and the peak through backward."""

import collections
import random
from collections.abc import Callable
from typing import Any

import torch

from course_lib.checkpointing import forward_checkpointed
from course_lib.grading.compare import describe, tensor_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.nanogpt import GPT, GPTConfig

# of the reference's peak; two segments a block cost up to 1.07, two blocks a segment 1.4 and more
PEAK_ALLOWANCE = 1.15


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)

    def case(label: str, n_layer: int, batch: int, seq: int, *, dropout: float = 0.0, frozen: bool = False) -> Case:
        # A small vocabulary: else the logits are the peak, and any forward pass has the same one.
        config = {
            "vocab_size": 11,
            "block_size": seq + 3,
            "n_layer": n_layer,
            "n_head": 2,
            "n_embd": 24,
            "dropout": dropout,
        }
        text = f"{label}: {n_layer} blocks, tokens ({batch}, {seq})"
        return Case(text, (config, batch, seq, frozen, draw.randrange(2**31)))

    return [
        case("a small GPT", 2, 2, 5),
        case("a deeper GPT", 8, 3, draw.randint(60, 80)),
        case("with dropout", 8, 2, draw.randint(60, 80), dropout=0.2),
        case("with frozen embeddings", 8, 2, draw.randint(60, 80), frozen=True),
        case("a deep GPT", draw.randint(10, 14), draw.choice([1, 4]), draw.randint(40, 90), dropout=0.1),
    ]


def observe(solution: Callable, case: Case) -> dict[str, Any]:
    from course_lib.memory import MemoryLedger

    config, batch, seq, frozen, seed = case.args
    torch.manual_seed(seed)
    model = GPT(GPTConfig(**config))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # biases and gains too: nothing is 0 or 1 by luck
    if frozen:
        model.wte.weight.requires_grad_(False)
        model.wpe.weight.requires_grad_(False)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # there before the measurement: only activations count
    tokens = torch.randint(config["vocab_size"], (batch, seq))
    output_weights = torch.randn(batch, seq, config["vocab_size"])
    calls = [collections.Counter() for _ in model.blocks]

    def count(counter: collections.Counter) -> Callable:
        return lambda module, inputs: counter.update([id(module)])

    for block, counter in zip(model.blocks, calls, strict=True):
        for module in block.modules():
            module.register_forward_pre_hook(count(counter))
    with MemoryLedger() as ledger:
        logits = solution(model, tokens)
        kept = ledger.live_bytes
        if logits.requires_grad:
            (logits * output_weights).sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    # Calls and the bytes kept help to name a mistake. They are not graded.
    runs = [max(counter.values(), default=0) for counter in calls]
    return {"logits": logits.detach(), "gradients": gradients, "peak": ledger.peak_bytes, "kept": kept, "runs": runs}


def _tensor_problem(got: Any, expected: torch.Tensor, name: str) -> Mismatch | None:
    # The arithmetic is the same; room for another order of summation only.
    floor = 64 * torch.finfo(torch.float32).eps * expected.abs().max().item()
    return tensor_mismatch(got, expected, expected.double(), name=name, floor=floor)


def _wrong_values(got: Any, expected: dict[str, Any]) -> list[tuple[str, Mismatch]]:
    if not isinstance(got, dict) or got.keys() != expected.keys() or not isinstance(got["gradients"], dict):
        return [("logits", Mismatch("logits, gradients and a peak", describe(got)))]
    found = [("logits", _tensor_problem(got["logits"], expected["logits"], "the logits"))]
    for name, gradient in expected["gradients"].items():
        found.append((name, _tensor_problem(got["gradients"].get(name), gradient, f"the gradient of {name}")))
    return [(name, problem) for name, problem in found if problem is not None]


def grade(case: Case, got: Any, expected: dict[str, Any]) -> Mismatch | None:
    wrong = _wrong_values(got, expected)
    if wrong:
        return wrong[0][1]
    limit = int(PEAK_ALLOWANCE * expected["peak"]) + 4096  # a few small tensors more are no mistake
    if case.args[0]["n_layer"] < 4:  # too few blocks for the peak to tell segments apart
        return None
    if isinstance(got["peak"], int) and got["peak"] <= limit:
        return None
    note = "Peak of new tensors through forward and backward; all gradients are right."
    return Mismatch(f"at most {limit} bytes", describe(got["peak"]), note)


def _peak_is_high(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    return not _wrong_values(got, expected) and grade(case, got, expected) is not None


def _nothing(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    return _peak_is_high(case, got, expected) and max(got["runs"]) <= 1


def _some_blocks_skipped(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    return _peak_is_high(case, got, expected) and min(got["runs"]) <= 1 < max(got["runs"])


def _small_pieces(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    return _peak_is_high(case, got, expected) and got["kept"] > 1.3 * expected["kept"]


def _one_segment(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    return _several_blocks(case, got, expected) and got["peak"] > 0.45 * case.args[0]["n_layer"] * expected["peak"]


def _several_blocks(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    return _peak_is_high(case, got, expected) and got["kept"] <= expected["kept"]


def _other_random_numbers(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    return case.args[0]["dropout"] > 0 and all(name != "logits" for name, _ in _wrong_values(got, expected))


def _without_gradients(case: Case, got: Any, expected: dict[str, Any]) -> bool:
    wrong = _wrong_values(got, expected)
    return (
        case.args[3]
        and bool(wrong)
        and all(name.startswith("blocks") and not got["gradients"][name].any() for name, _ in wrong)
    )


EXERCISE = Exercise(
    name="forward_checkpointed",
    points=2,
    minutes=10,
    difficulty=1,
    checks="logits, every gradient, and the peak through backward of a GPT with each block checkpointed",
    reference=forward_checkpointed,
    cases=cases,
    observe=observe,
    grade=grade,
    measured_in_process=True,
    time_limit_s=30.0,
    hints=(
        "Copy `GPT.forward` and look at the loop over `model.blocks`.",
        "`checkpoint(function, *inputs, use_reentrant=False)` runs the function and keeps its inputs. What is the "
        "function here?",
        "One call of `checkpoint` for each block, inside the loop; embeddings, the last LayerNorm and the head stay "
        "as they are.",
    ),
    explanation=(
        "One block a segment keeps one (B, T, C) tensor a block, and its peak holds the inside of one block. Fewer, "
        "larger segments keep less after forward and more at the peak; smaller pieces keep their own inputs, which "
        "is nearly all that there is to keep."
    ),
    next_step=(
        "Count which tensors are alive when backward enters the last block, and how many blocks are open at once."
    ),
    misconceptions=(
        Misconception(
            "nothing_is_recomputed",
            "No block runs twice, so everything is kept until backward. Which call must go around each block?",
            matches=_nothing,
        ),
        Misconception(
            "some_blocks_not_checkpointed",
            "Some blocks run once only, so they keep everything until backward. (`checkpoint_sequential` leaves out "
            "its last segment on purpose.) Which blocks does your loop miss?",
            matches=_some_blocks_skipped,
        ),
        Misconception(
            "whole_model_as_one_segment",
            "After forward almost nothing is left, and yet the peak is as high as without checkpointing: backward "
            "builds the whole segment again at once. How much of the model does one segment hold?",
            matches=_one_segment,
        ),
        Misconception(
            "each_operation_alone",
            "Your segments are too small, or leave out parts of a block: each keeps its own inputs, and those are "
            "most of what a block keeps. What is the largest piece whose inside can be thrown away at once?",
            matches=_small_pieces,
        ),
        Misconception(
            "several_blocks_a_segment",
            "Several blocks share a segment, so backward opens them all at once. A transformer block keeps far more "
            "inside than at its border: how many blocks should be open at a time?",
            matches=_several_blocks,
        ),
        Misconception(
            "other_random_numbers",
            "With dropout the logits are right and the gradients are wrong: the second run drops other elements. "
            "Which argument turned that off?",
            matches=_other_random_numbers,
        ),
        Misconception(
            "reentrant_without_gradients",
            "With frozen embeddings the blocks get no gradients at all: the reentrant checkpoint needs an input "
            "that requires gradients. Which argument chooses the other kind?",
            matches=_without_gradients,
        ),
    ),
)

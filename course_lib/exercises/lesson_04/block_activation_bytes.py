"""sbh(34 + 5as/h) and its relatives, as a function."""

import random
from collections.abc import Callable

from course_lib.checkpointing import block_activation_bytes
from course_lib.grading.compare import as_float, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch

KINDS = [(attention, dropout) for attention in ("naive", "fp32_softmax", "flash") for dropout in (True, False)]


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    sizes = [(1, 2, 4, 2)] * len(KINDS)
    for _ in KINDS:
        heads = draw.choice([2, 3, 5, 6, 8, 12, 32])
        sizes.append(
            (draw.randint(2, 9), draw.choice([24, 96, 320, 1024, 8192]), heads * draw.choice([8, 64, 128]), heads)
        )
    return [
        Case(
            f'block_activation_bytes({b}, {s}, {h}, {a}, attention="{attention}", dropout={dropout})',
            (b, s, h, a),
            {"attention": attention, "dropout": dropout},
        )
        for (attention, dropout), (b, s, h, a) in zip(KINDS * 2, sizes, strict=True)
    ]


def grade(case: Case, got: object, expected: int) -> Mismatch | None:
    number = as_float(got)
    # A formula written with r = as/h in floating point may be off in the last bits.
    if number is not None and abs(number - expected) <= 1e-12 * expected:
        return None
    batch, seq, hidden, _ = case.args
    sbh = batch * seq * hidden
    note = f"In units of sbh = {sbh}: {expected / sbh:g} expected"
    note += "." if number is None else f", {number / sbh:g} returned."
    return Mismatch(f"{expected} bytes", describe(got), note)


def _formula(coefficients: Callable[[str, bool], tuple[float, float, float]]) -> Callable:
    """A solution from coefficients of sbh, abs² and abs."""

    def solution(batch, seq, hidden, heads, *, attention, dropout):
        linear, square, statistics = coefficients(attention, dropout)
        return int(
            linear * batch * seq * hidden + square * batch * heads * seq * seq + statistics * batch * heads * seq
        )

    return solution


SQUARE = {("naive", True): 5, ("naive", False): 2, ("fp32_softmax", True): 7, ("fp32_softmax", False): 6}


def _right(attention: str, dropout: bool) -> tuple[float, float, float]:
    return 34 if dropout else 32, SQUARE.get((attention, dropout), 0), 4 if attention == "flash" else 0


def _no_masks(attention: str, dropout: bool) -> tuple[float, float, float]:
    _, square, statistics = _right(attention, dropout)
    return 32, square - (dropout and attention != "flash"), statistics


def _two_byte_masks(attention: str, dropout: bool) -> tuple[float, float, float]:
    linear, square, statistics = _right(attention, dropout)
    return linear + 2 * dropout, square + (dropout and attention != "flash"), statistics


def _keeps_scores(attention: str, dropout: bool) -> tuple[float, float, float]:
    linear, square, statistics = _right(attention, dropout)
    return linear, square + (0 if attention == "flash" else 2), statistics


def _always_dropout(attention: str, dropout: bool) -> tuple[float, float, float]:
    return _right(attention, True)


def _no_log_sum_exp(attention: str, dropout: bool) -> tuple[float, float, float]:
    linear, square, _ = _right(attention, dropout)
    return linear, square, 0


def _same_softmax(attention: str, dropout: bool) -> tuple[float, float, float]:
    return _right("naive" if attention == "fp32_softmax" else attention, dropout)


def _elements(attention: str, dropout: bool) -> tuple[float, float, float]:
    return tuple(number / 2 for number in _right(attention, dropout))


EXERCISE = Exercise(
    name="block_activation_bytes",
    points=3,
    minutes=20,
    difficulty=2,
    checks="the bytes that one bfloat16 GPT block keeps, for three kinds of attention, with and without dropout",
    reference=block_activation_bytes,
    cases=cases,
    grade=grade,
    hints=(
        "Two units are enough: sbh, one number for each token and channel, and abs², one for each pair of tokens "
        "and head.",
        "Go through the block in order. Without dropout the part in sbh is 2 bytes each for the inputs of both "
        "LayerNorms, of the fused QKV, of the projection, of the first linear layer; 2 each for q, k, v; 8 each for "
        "GELU's input and the last linear layer's input.",
        "Dropout adds a mask of one byte an element wherever it acts: twice on sbh, once on abs². On abs² its "
        "output is saved too, since the product with v needs it. A softmax in fp32 keeps 4 bytes and its bfloat16 "
        "cast 2. Flash keeps one fp32 number for each token and head.",
    ),
    explanation=(
        "sbh: LayerNorm inputs 4, QKV input 2, q k v 6, projection input 2, MLP 2 + 8 + 8 = 32, and two dropout "
        "masks of one byte: 34. abs²: softmax output 2; dropout mask 1 and dropout output 2: 5. The raw scores are "
        "not kept. With r = as/h that is sbh(34 + 5r)."
    ),
    next_step=(
        "Write your block's list of saved tensors next to the lesson's, one line a tensor, and compare coefficient "
        "by coefficient."
    ),
    misconceptions=(
        Misconception(
            "one_vector_a_layer",
            "2sbh is one vector for each token: what a block passes on, and what checkpointing keeps. How many "
            "tensors inside the block does backward need besides?",
            solution=_formula(lambda attention, dropout: (2, 0, 0)),
        ),
        Misconception(
            "forgets_the_masks",
            "The dropout masks are missing. Backward must know which elements were dropped, at one byte each, in "
            "three places.",
            solution=_formula(_no_masks),
        ),
        Misconception(
            "two_byte_masks",
            "Your dropout masks have two bytes an element, as the CPU's own dropout keeps them. A mask on a GPU is "
            "boolean: how large is that?",
            solution=_formula(_two_byte_masks),
        ),
        Misconception(
            "keeps_the_raw_scores",
            "You count the scores before the softmax. The softmax's backward needs its output only: is there "
            "another reader of the raw scores?",
            solution=_formula(_keeps_scores),
        ),
        Misconception(
            "always_dropout",
            "Your numbers do not depend on `dropout`. Which saved tensors disappear when nothing is dropped?",
            solution=_formula(_always_dropout),
        ),
        Misconception(
            "forgets_the_log_sum_exp",
            "Flash attention keeps no scores, but one fp32 number for each token and head, so that backward can "
            "compute them again.",
            solution=_formula(_no_log_sum_exp),
        ),
        Misconception(
            "softmax_stays_in_bfloat16",
            "With fp32_softmax the softmax's output is float32, and its bfloat16 cast is saved as well. How many "
            "bytes are the two together?",
            solution=_formula(_same_softmax),
        ),
        Misconception(
            "counts_elements",
            "Your result is half of what is due: are you counting numbers where bytes are asked, or masks of half a "
            "byte?",
            solution=_formula(_elements),
        ),
    ),
)

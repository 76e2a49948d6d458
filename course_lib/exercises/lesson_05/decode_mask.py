"""Exercise: which keys the newest queries may see."""

import random

import torch

from course_lib.attention import decode_mask
from course_lib.exercises.lesson_05.attention_oracle import hidden
from course_lib.grading.compare import as_tensor_problem, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch


def cases(seed: int) -> list[Case]:
    rng = random.Random(seed)
    sizes = [(1, 1), (2, 2), (1, 5), (2, 5), (4, 4)]
    for _ in range(4):
        q_len = rng.randrange(2, 12)
        sizes.append((q_len, q_len + rng.randrange(1, 12)))
    return [Case(f"decode_mask({q}, {k})", (q, k)) for q, k in sizes]


def _rows(mask: torch.Tensor) -> str:
    return " / ".join("".join("1" if cell else "0" for cell in row) for row in mask[:4].tolist())


def grade(case, observation, expected):
    q_len, k_len = case.args
    truth = ~hidden(q_len, k_len)
    problem = as_tensor_problem(observation, truth.shape, torch.bool)
    if problem:
        return Mismatch(f"bool[{q_len},{k_len}]", describe(observation), problem)
    if torch.equal(observation, truth):
        return None
    return Mismatch(_rows(truth), _rows(observation), "Rows are queries, 1 = attend.")


def _inverted(q_len, k_len):
    return ~decode_mask(q_len, k_len)


def _from_start(q_len, k_len):
    return torch.ones(q_len, k_len, dtype=torch.bool).tril()


def _inverted_from_start(q_len, k_len):
    return torch.ones(q_len, k_len, dtype=torch.bool).triu(1)


def _without_self(q_len, k_len):
    return torch.ones(q_len, k_len, dtype=torch.bool).tril(k_len - q_len - 1)


def _everything(q_len, k_len):
    return torch.ones(q_len, k_len, dtype=torch.bool)


def _upper(q_len, k_len):
    return torch.ones(q_len, k_len, dtype=torch.bool).triu(k_len - q_len)


EXERCISE = Exercise(
    name="decode_mask",
    points=1,
    minutes=5,
    difficulty=1,
    checks="a causal mask for fewer queries than keys",
    reference=decode_mask,
    cases=cases,
    grade=grade,
    hints=(
        "Draw it for 2 queries and 5 keys: the queries are positions 3 and 4 of the 5.",
        "Query i stands at position i + k_len - q_len. It sees every key up to and including its own position.",
        "Compare a column of the queries' positions with a row of the keys' positions.",
    ),
    explanation="During generation the queries are the newest tokens, so the last query is at the last key. The mask is a "
    "lower triangle pushed right by k_len - q_len. In `scaled_dot_product_attention` True means attend.",
    next_step="Write down by hand which keys each query may see, for 2 queries and 5 keys.",
    misconceptions=(
        Misconception(
            "inverts_mask",
            "True stands where attention is forbidden here. In `scaled_dot_product_attention` True means: attend.",
            _inverted,
        ),
        Misconception(
            "aligns_mask_to_start",
            "the first query is treated as the first token. The queries are the *last* q_len of the k_len tokens.",
            _from_start,
        ),
        Misconception(
            "inverts_mask_and_aligns_to_start",
            "two things: True must mean attend, and the queries are the last of the tokens, not the first.",
            _inverted_from_start,
        ),
        Misconception("hides_own_position", "a query may see the key at its own position too.", _without_self),
        Misconception("hides_nothing", "every query sees every key here, those that come after it too.", _everything),
        Misconception("shows_the_future", "each query sees its own position and the future, not the past.", _upper),
    ),
)

"""Exercise: bytes that standard attention moves between HBM and the chip."""

import random

from course_lib.attention import attention_traffic_bytes
from course_lib.grading.compare import float_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception


def cases(seed: int) -> list[Case]:
    rng = random.Random(seed)
    sizes = [(2, 1, 1), (8, 4, 2), (1024, 64, 2), (8192, 128, 2)]
    sizes += [(rng.randrange(3, 5000), rng.randrange(1, 257), rng.choice((1, 2, 4))) for _ in range(4)]
    return [Case(f"attention_traffic_bytes({n}, {d}, {b})", (n, d, b)) for n, d, b in sizes]


def grade(case, observation, expected):
    return float_mismatch(observation, expected)


def _scores_once(seq, head_dim, size):
    return (4 * seq * head_dim + seq * seq) * size


def _scores_written_and_read_once(seq, head_dim, size):
    return (4 * seq * head_dim + 2 * seq * seq) * size


def _elements(seq, head_dim, size):
    return 4 * seq * head_dim + 4 * seq * seq


def _no_vectors(seq, head_dim, size):
    return 4 * seq * seq * size


def _no_output(seq, head_dim, size):
    return (3 * seq * head_dim + 4 * seq * seq) * size


def _flops(seq, head_dim, size):
    return 4 * seq * seq * head_dim


EXERCISE = Exercise(
    name="attention_traffic_bytes",
    points=2,
    minutes=8,
    difficulty=1,
    checks="bytes that standard attention reads and writes, forward, one head",
    reference=attention_traffic_bytes,
    cases=cases,
    grade=grade,
    hints=(
        "Three operations run one after the other: scores = QKᵀ, weights = softmax(scores), out = weights · V. "
        "Each reads its inputs from HBM and writes its result back.",
        "Make a table with one line an operation: which matrices does it read, which does it write, and is each "
        "N×d or N×N?",
        "QKᵀ: two N×d in, one N×N out. softmax: one N×N in, one N×N out. weights · V: one N×N and one N×d in, one "
        "N×d out.",
    ),
    explanation="Each of the three operations starts from HBM and ends there, so the N×N matrix crosses four times: "
    "scores out and in, weights out and in. Q, K, V and the output cross once each.",
    next_step="List what each of the three operations reads and writes, then add up the elements.",
    misconceptions=(
        Misconception(
            "counts_scores_once",
            "your count has the N×N matrix crossing once. Softmax is an operation of its own: follow what it "
            "reads and writes.",
            _scores_once,
        ),
        Misconception(
            "counts_scores_twice",
            "your count has the N×N matrix crossing twice. Softmax reads one N×N matrix and writes another: count "
            "both.",
            _scores_written_and_read_once,
        ),
        Misconception("counts_elements", "this is the number of elements; each has a size in bytes.", _elements),
        Misconception("forgets_the_vectors", "Q, K, V and the output cross too: N×d each.", _no_vectors),
        Misconception("forgets_the_output", "the output is written to HBM as well.", _no_output),
        Misconception("counts_flops", "this is the arithmetic, 4N²d operations; the question is what moves.", _flops),
    ),
)

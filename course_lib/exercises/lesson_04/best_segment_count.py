"""How many segments make the peak smallest."""

import math
import random

from course_lib.checkpointing import best_segment_count, segment_peak_bytes
from course_lib.grading.compare import as_float, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    fixed = [
        (1, 2, 34),
        (4, 1, 1),
        (6, 3, 2),
        (12, 2, 34),
        (36, 2, 32),
        (36, 1, 1),
        (100, 1, 1),
        (6, 1, 1),
        (17, 50, 1),
        (48, 5, 5 * 48),
    ]
    drawn = [(draw.randint(2, 120), draw.randint(1, 40), draw.randint(1, 800)) for _ in range(30)]
    return [
        Case(f"best_segment_count({n}, {boundary}, {layer})", (n, boundary, layer))
        for n, boundary, layer in fixed + drawn
    ]


def grade(case: Case, got: object, expected: int) -> Mismatch | None:
    number = as_float(got)
    if number == expected:
        return None
    n, boundary, layer = case.args
    due = f"{expected} (peak {segment_peak_bytes(n, expected, boundary, layer)})"
    if number is None or not number.is_integer() or not 1 <= number <= n:
        return Mismatch(due, describe(got), f"The number of segments must be a whole number from 1 to {n}.")
    peak = segment_peak_bytes(n, int(number), boundary, layer)
    return Mismatch(due, f"{int(number)} (peak {peak})", "Peak means k·boundary + ⌈n/k⌉·layer.")


def _always_sqrt(case: Case, got: object, expected: int) -> bool:
    root = math.sqrt(case.args[0])
    return as_float(got) in (math.floor(root), math.ceil(root))


def largest_on_ties(n_layers, boundary_bytes, layer_bytes):
    return min(range(n_layers, 0, -1), key=lambda k: k * boundary_bytes + math.ceil(n_layers / k) * layer_bytes)


def layers_divide_evenly(n_layers, boundary_bytes, layer_bytes):
    return min(range(1, n_layers + 1), key=lambda k: k * boundary_bytes + n_layers / k * layer_bytes)


def rounds_down(n_layers, boundary_bytes, layer_bytes):
    return min(range(1, n_layers + 1), key=lambda k: k * boundary_bytes + n_layers // k * layer_bytes)


def _continuous_optimum(case: Case, got: object, expected: int) -> bool:
    n, boundary, layer = case.args
    best = math.sqrt(n * layer / boundary)
    return as_float(got) in {float(min(max(k, 1), n)) for k in (math.floor(best), math.ceil(best))}


def layers_in_a_segment(n_layers, boundary_bytes, layer_bytes):
    return math.ceil(n_layers / best_segment_count(n_layers, boundary_bytes, layer_bytes))


EXERCISE = Exercise(
    name="best_segment_count",
    points=2,
    minutes=10,
    difficulty=1,
    checks="the number of segments with the smallest k·boundary + ⌈n/k⌉·layer",
    reference=best_segment_count,
    cases=cases,
    grade=grade,
    hints=(
        "There are only n possible answers. How long does it take to try them all?",
        "Write the peak as a function of k, with the ceiling, and take the k at which it is smallest.",
        "`min(range(1, n_layers + 1), key=...)` returns the first of equals: on ties the smallest k.",
    ),
    explanation=(
        "√n is the optimum where a layer keeps as much inside as it passes on, and n is a square. A transformer "
        "block keeps 34 where its boundary keeps 2, so the optimum moves to √(17n) segments, and the ceiling makes "
        "it jump. Trying all k needs no theory."
    ),
    next_step="Compute k·boundary + ⌈n/k⌉·layer by hand for your k and for its neighbours in this case.",
    misconceptions=(
        Misconception(
            "largest_on_ties",
            "Your k has the smallest peak, and so has a smaller k. Which of the two is asked for?",
            solution=largest_on_ties,
        ),
        Misconception(
            "always_square_root",
            "You return about √n whatever the sizes are. That is the optimum only where a layer keeps as much as "
            "its boundary: which two numbers does √n ignore?",
            matches=_always_sqrt,
        ),
        Misconception(
            "layers_divide_evenly",
            "Your peak uses n/k layers in a segment. When k does not divide n, how many layers has the longest "
            "segment?",
            solution=layers_divide_evenly,
        ),
        Misconception(
            "layers_divide_evenly",
            "Your peak rounds n/k down. When k does not divide n, how many layers has the longest segment?",
            solution=rounds_down,
        ),
        Misconception(
            "returns_layers_in_a_segment",
            "You return how many layers a segment has. Asked for is how many segments there are.",
            solution=layers_in_a_segment,
        ),
        Misconception(
            "layers_divide_evenly",
            "Your k is the optimum if layers could be split. They cannot: the longest segment has ⌈n/k⌉ of them, "
            "and the peak jumps.",
            matches=_continuous_optimum,
        ),
        Misconception(
            "every_layer_its_own_segment",
            "You make every layer a segment of its own. That is right only while a boundary is cheap beside a "
            "layer: look at this case's two sizes.",
            matches=lambda case, got, expected: as_float(got) == case.args[0],
        ),
    ),
)

"""Which unequal layers to recompute under a budget of bytes."""

import random

from course_lib.checkpointing import cheapest_plan
from course_lib.grading.compare import alike, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    fixed = [
        ([5], [1.0], 5),
        ([5], [1.0], 4),
        ([4, 6, 9], [1.0, 1.0, 1.0], 100),
        ([4, 6, 9], [1.0, 2.0, 3.0], 0),
        ([10, 6, 5], [9.0, 4.0, 4.0], 11),  # the largest layer is the dearest
        ([6, 5, 5], [6.0, 4.0, 4.0], 10),
        ([0, 7, 7], [3.0, 2.0, 2.0], 7),  # a layer that keeps nothing need not be recomputed
    ]
    drawn = []
    for n in (5, 8, 11, 16):
        sizes = [draw.randint(1, 400) for _ in range(n)]
        # Work that grows with size, but not in proportion: attention against MLP, wide against narrow.
        flops = [float(size * draw.randint(5, 20) + draw.randint(0, 500)) for size in sizes]
        drawn.append((sizes, flops, int(sum(sizes) * draw.uniform(0.2, 0.8))))
    return [
        Case(f"cheapest_plan({sizes}, {flops}, {budget})", (sizes, flops, budget))
        for sizes, flops, budget in fixed + drawn
    ]


def _layers(got: object, n: int) -> set[int] | None:
    """The plan as a set of layer numbers, or None when it is none."""
    if not isinstance(got, set | list | tuple):
        return None
    plain = all(isinstance(layer, int) and not isinstance(layer, bool) and 0 <= layer < n for layer in got)
    return set(got) if plain and len(set(got)) == len(got) else None


def _kept_and_work(case: Case, plan: set[int]) -> tuple[int, float]:
    sizes, flops, _ = case.args
    return sum(size for layer, size in enumerate(sizes) if layer not in plan), sum(
        flops[layer] for layer in sorted(plan)
    )


def grade(case: Case, got: object, expected: object) -> Mismatch | None:
    sizes, _, budget = case.args
    _, least = _kept_and_work(case, set(expected))
    due = f"at most {budget} bytes kept, {least:g} FLOPs recomputed"
    plan = _layers(got, len(sizes))
    if plan is None:
        return Mismatch(due, describe(got), f"A plan is a set of different layer numbers from 0 to {len(sizes) - 1}.")
    kept, work = _kept_and_work(case, plan)
    if kept > budget:
        return Mismatch(
            due, f"{kept} bytes kept by {plan or 'the empty plan'}", "The layers that are not recomputed keep too much."
        )
    if work > least:
        return Mismatch(
            due,
            f"{kept} bytes kept, {work:g} FLOPs recomputed by {plan}",
            "It fits; another plan that fits costs less.",
        )
    return None


def greedy_by_size(layer_bytes, layer_flops, budget):
    plan, kept = set(), sum(layer_bytes)
    for layer in sorted(range(len(layer_bytes)), key=lambda layer: -layer_bytes[layer]):
        if kept <= budget:
            break
        plan.add(layer)
        kept -= layer_bytes[layer]
    return plan


def greedy_by_ratio(layer_bytes, layer_flops, budget):
    plan, kept = set(), sum(layer_bytes)
    for layer in sorted(range(len(layer_bytes)), key=lambda layer: layer_flops[layer] / max(layer_bytes[layer], 1e-9)):
        if kept <= budget:
            break
        plan.add(layer)
        kept -= layer_bytes[layer]
    return plan


def _greedy_somehow(case: Case, got: object, expected: object) -> bool:
    plan = _layers(got, len(case.args[0]))
    return plan is not None and (alike(plan, greedy_by_size(*case.args)) or alike(plan, greedy_by_ratio(*case.args)))


def _keeps_the_plan(case: Case, got: object, expected: object) -> bool:
    """The complement is a best plan: the set names what is kept."""
    n = len(case.args[0])
    plan = _layers(got, n)
    return plan is not None and grade(case, set(range(n)) - plan, expected) is None


def _recomputes_everything(case: Case, got: object, expected: object) -> bool:
    return _layers(got, len(case.args[0])) == set(range(len(case.args[0])))


def _budget_for_recomputed(case: Case, got: object, expected: object) -> bool:
    plan = _layers(got, len(case.args[0]))
    return plan is not None and sum(case.args[0][layer] for layer in plan) <= case.args[2]


EXERCISE = Exercise(
    name="cheapest_plan",
    points=4,
    minutes=25,
    difficulty=3,
    bonus=True,
    checks="a plan that keeps at most `budget` bytes and recomputes the least work",
    reference=cheapest_plan,
    cases=cases,
    grade=grade,
    hints=(
        "With at most 16 layers there are at most 65,536 plans.",
        "For each set of layers: what do the others keep, and what does the set cost? Take the cheapest that fits.",
        'Count from 0 to 2ⁿ − 1 and read bit i of the counter as "recompute layer i"; or build the lists of sums '
        "by doubling, one layer at a time.",
    ),
    explanation=(
        "This is the knapsack problem: no order by size or by ratio is always right, since what is left over may "
        "just not take the next layer. At 16 layers, trying all sets is quick; compilers such as `torch.compile` "
        "with an activation budget solve the large version approximately."
    ),
    next_step="List all plans that fit for this case by hand, if it is small, and compare their work with yours.",
    misconceptions=(
        Misconception(
            "names_what_is_kept",
            "Your set seems to name the layers that keep their activations. Asked for are those that are recomputed.",
            matches=_keeps_the_plan,
        ),
        Misconception(
            "recomputes_everything",
            "Recomputing all layers always fits and always costs most. Which layers may keep what they have?",
            matches=_recomputes_everything,
        ),
        Misconception(
            "recomputes_nothing",
            "The empty plan recomputes nothing and fits only when everything fits. What do the layers keep together?",
            matches=lambda case, got, expected: _layers(got, len(case.args[0])) == set(),
        ),
        Misconception(
            "greedy_by_size",
            "You recompute the largest layers first. They free most and may cost most: what does each byte cost, "
            "and what if the last step frees too much?",
            solution=greedy_by_size,
        ),
        Misconception(
            "greedy_by_ratio",
            "You recompute what is cheapest a byte first. That is near the best, and not always the best: the last "
            "layer that you take may free more than you need.",
            matches=_greedy_somehow,
        ),
        Misconception(
            "budget_for_the_recomputed",
            "Your plan keeps the *recomputed* layers under the budget. The budget is for the layers that stay in "
            "memory.",
            matches=_budget_for_recomputed,
        ),
    ),
)

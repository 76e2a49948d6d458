"""Three levels of making a step fit: a plan is data, judged by dry run for memory and by a model for time."""

import dataclasses
from collections.abc import Callable
from typing import Any

from course_lib.grading.compare import describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.toolbox import LEVELS, Plan, Trial, fit_on_gpu, try_plan

FIELDS = {entry.name for entry in dataclasses.fields(Plan)}
FULL = "out_of_memory"


def cases(seed: int) -> list[Case]:
    return [Case(f"level {number}, {name}", (name,)) for number, name in enumerate(LEVELS, 1)]


def observe(solution: Callable, case: Case) -> Any:
    plan = solution(LEVELS[case.args[0]])
    return dataclasses.asdict(plan) if isinstance(plan, Plan) else plan


def trial_of(case: Case, got: Any) -> Trial:
    """The plan that came as plain data, tried on the trusted side."""
    is_plan = isinstance(got, dict) and got.keys() == FIELDS
    return try_plan(LEVELS[case.args[0]], Plan(**got) if is_plan else got)


def grade(case: Case, got: Any, expected: Any) -> Mismatch | None:
    trial = trial_of(case, got)
    if trial.kind == "not_a_plan":
        return Mismatch("a Plan", describe(got), trial.problem)
    if trial.kind not in ("", FULL):
        return Mismatch("a plan of this level", "another", trial.problem)
    if not trial.fits:
        return Mismatch("a plan that fits", "one that does not", trial.problem)
    par = LEVELS[case.args[0]].par
    if trial.slowdown <= par:
        return None
    note = f"It fits ({trial.report.peak_bytes / 2**30:.2f} GiB): {trial.score:.0%} of the points of this level."
    longest = max(trial.seconds, key=lambda part: trial.seconds[part])
    return Mismatch(
        f"a slowdown of {par:.2f} (par)",
        f"{trial.slowdown:.2f}",
        note,
        f"Most of its time goes to {longest}; spend the memory that is left on doing less work twice, or in larger "
        f"pieces.",
        score=trial.score,
    )


def _shrinks(case: Case, got: Any, expected: Any) -> bool:
    level, kind = LEVELS[case.args[0]], trial_of(case, got).kind
    return kind == "global_batch" and got["micro_batch"] * got["accumulation"] < level.global_batch


def _grows(case: Case, got: Any, expected: Any) -> bool:
    return trial_of(case, got).kind == "global_batch" and not _shrinks(case, got, expected)


def _bf16(case: Case, got: Any, expected: Any) -> bool:
    return trial_of(case, got).kind == "no_bf16"


def _without_tool(case: Case, got: Any, expected: Any) -> bool:
    level = LEVELS[case.args[0]]
    is_full = trial_of(case, got).kind == FULL
    return is_full and all(got[name] == value for name, value in level.without_tool.items())


def _too_much(case: Case, got: Any, expected: Any) -> bool:
    return trial_of(case, got).kind == FULL


def _slow(case: Case, got: Any, expected: Any) -> bool:
    return trial_of(case, got).fits


EXERCISE = Exercise(
    name="fit_on_gpu",
    points=9,
    minutes=40,
    difficulty=3,
    checks="a plan for each of three levels: does it fit in a dry run, and how far is its predicted time from par",
    reference=fit_on_gpu,
    cases=cases,
    observe=observe,
    grade=grade,
    partial=True,
    time_limit_s=180.0,  # a learner may search through every plan of a level
    hints=(
        "Print `level.choices`. Turn the free switches first (precision, attention), then ask which part of the "
        "memory is left "
        "over: state, activations or logits.",
        "A plan that fits with gigabytes to spare is slow: larger micro-batches pass over the weights less often, and "
        "blocks "
        "that need not be recomputed should not be.",
        "A loop may do it: for plan in level.plans(): trial = try_plan(level, plan); keep the one with trial.fits and "
        "the "
        "smallest trial.slowdown. First guess what it will find.",
    ),
    explanation=(
        "Level 1 is about activations of a batch: eight sequences at a time fill the card and pass over the weights "
        "four times. "
        "Level 2 is about one sequence: recompute as few blocks as possible. Level 3 is about state: only smaller "
        "moments make "
        "room, and then chunks of the loss are cheaper than recomputing blocks."
    ),
    next_step="Try the plan with `try_plan(level, plan)` and read at which operation it stops.",
    misconceptions=(
        Misconception(
            "shrinks_the_global_batch",
            "A step of fewer sequences fits easily, and is another experiment. Which other number "
            "makes up for a "
            "smaller micro-batch?",
            matches=_shrinks,
        ),
        Misconception(
            "grows_the_global_batch",
            "The step would see more sequences than the global batch. What should micro-batch times accumulation be?",
            matches=_grows,
        ),
        Misconception(
            "bf16_on_a_t4",
            "A T4 (compute capability 7.5) has no bf16 units; what `is_bf16_supported()` calls support is emulation. "
            "Which "
            "16-bit format has it?",
            matches=_bf16,
        ),
        Misconception(
            "leaves_out_the_tool",
            "The plan leaves out the one tool without which no plan of this level fits. Which part of the memory is "
            "too large, and "
            "what shrinks just that part?",
            matches=_without_tool,
        ),
        Misconception(
            "too_much_at_once",
            "The right tool is there, and the rest is still too large. Which choice could be one notch smaller?",
            matches=_too_much,
        ),
        Misconception(
            "fits_but_slow",
            "It fits, and pays more time than it has to. How much memory is left, and what could be undone with it?",
            matches=_slow,
        ),
    ),
)

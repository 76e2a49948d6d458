"""Bytes of model state by recipe."""

import random

from course_lib.grading.compare import as_int, describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.mixed_precision import RECIPES, model_state_bytes

PARTS = ("weights", "master", "gradients", "optimizer")


def cases(seed: int) -> list[Case]:
    draw = random.Random(seed)
    sizes = [1, 1000, 8_030_261_248, draw.randrange(1, 10**6), draw.randrange(10**6, 10**12)]
    return [Case(f"model_state_bytes({n}, {recipe!r})", (n, recipe)) for n in sizes for recipe in RECIPES]


def grade(case: Case, got: object, expected: dict) -> Mismatch | None:
    if not isinstance(got, dict):
        return Mismatch("a dict", describe(got), f"The keys are {', '.join(PARTS)}.")
    if set(got) != set(PARTS):
        return Mismatch(f"the keys {', '.join(PARTS)}", describe(sorted(map(str, got))))
    for part in PARTS:
        if as_int(got[part]) != expected[part]:
            return Mismatch(f"{part} {expected[part]}", f"{part} {describe(got[part])}")
    return None


def _table(**changes: tuple):
    """The reference with other bytes a parameter for some recipes."""

    def solution(n_params, recipe):
        sizes = changes.get(recipe, tuple(RECIPES[recipe].values()))
        return {part: n_params * size for part, size in zip(PARTS, sizes, strict=True)}

    return solution


HALF = (2, 0, 2, 4)

EXERCISE = Exercise(
    name="model_state_bytes",
    points=3,
    minutes=15,
    difficulty=1,
    checks="bytes of weights, master copy, gradients and optimizer state, for five recipes",
    reference=model_state_bytes,
    cases=cases,
    grade=grade,
    hints=(
        "Write the five recipes as rows of a table with four columns: bytes for each parameter.",
        "AdamW keeps two moments for each parameter, in the dtype of the tensors that it updates. Which tensors does "
        "it update in each recipe?",
        "Autocast casts for single operations; the weights themselves, and so their gradients and moments, stay "
        "float32. With master weights AdamW "
        "updates the float32 master; the 16-bit weights have 16-bit gradients.",
    ),
    explanation=(
        "Four of the five recipes need sixteen bytes or more: 4+0+4+8, the same under autocast, 2+4+2+8 with master "
        "weights, and 2+4+4+8 = 18 with "
        "float32 gradients. Only bfloat16 for everything needs half, and that recipe loses small updates. Mixed "
        "precision does not shrink model state."
    ),
    next_step="Write down, for this recipe, the dtype of each of the four tensors and its bytes.",
    misconceptions=(
        Misconception(
            "halves_everything",
            "You halve every number of FP32. Which tensors must stay in float32 so that small updates are not lost?",
            solution=_table(autocast=HALF, master_weights=HALF, fp32_gradients=HALF),
        ),
        Misconception(
            "halves_everything",
            "You halve every number of FP32. Which tensors must stay in float32 so that small updates are not lost?",
            solution=_table(autocast=HALF, master_weights=HALF, fp32_gradients=(2, 0, 4, 4)),
        ),
        Misconception(
            "drops_the_master",
            "The float32 master copy is missing. AdamW cannot add updates of one part in ten thousand to 16-bit "
            "weights.",
            solution=_table(master_weights=(2, 0, 2, 8), fp32_gradients=(2, 0, 4, 8)),
        ),
        Misconception(
            "autocast_keeps_two_copies",
            "You give autocast a 16-bit copy of the weights beside the float32 ones. Autocast's casts live from "
            "forward to backward only: look at "
            "`model.parameters()` under autocast. Which dtype do they have?",
            solution=_table(autocast=(2, 4, 4, 8)),
        ),
        Misconception(
            "autocast_keeps_two_copies",
            "You treat autocast like master weights. Look at `model.parameters()` and their `.grad` under autocast: "
            "which dtypes do they have?",
            solution=_table(autocast=(2, 4, 2, 8)),
        ),
        Misconception(
            "autocast_halves_gradients",
            "A gradient has the dtype of its parameter. Which dtype has a parameter under autocast?",
            solution=_table(autocast=(4, 0, 2, 8)),
        ),
        Misconception(
            "master_is_optimizer_state",
            "Your sum is right, but the master copy is not optimizer state: it is the parameters themselves, in "
            "float32. Count it as `master`.",
            solution=_table(master_weights=(2, 0, 2, 12), fp32_gradients=(2, 0, 4, 12)),
        ),
        Misconception(
            "sixteen_bit_moments",
            "AdamW's moments have the dtype of the tensors that it updates. With master weights those are float32.",
            solution=_table(master_weights=(2, 4, 2, 4), fp32_gradients=(2, 4, 4, 4)),
        ),
        Misconception(
            "one_moment",
            "AdamW keeps two moments for each parameter: the mean of gradients and the mean of their squares.",
            solution=lambda n, recipe: {
                **model_state_bytes(n, recipe),
                "optimizer": n * RECIPES[recipe]["optimizer"] // 2,
            },
        ),
        Misconception(
            "fp32_moments_everywhere",
            "In pure bf16, AdamW's moments are made like the parameters: which dtype is that?",
            solution=_table(pure_bf16=(2, 0, 2, 8)),
        ),
        Misconception(
            "bytes_for_one_parameter",
            "These are bytes for one parameter. How many are there?",
            solution=lambda n, recipe: model_state_bytes(1, recipe),
        ),
    ),
)

"""Lesson 03: the mixed-precision step."""

from course_lib.exercises.lesson_03 import (
    amp_step,
    cuda_autocast_dtype,
    mixed_precision_step,
    model_state_bytes,
    stable_softmax,
    unmoved_fraction,
)
from course_lib.grading.exercise import Lesson

LESSON = Lesson(
    number="03",
    slug="03_mixed_precision_step",
    title="The mixed-precision step",
    exercises=(
        model_state_bytes.EXERCISE,
        unmoved_fraction.EXERCISE,
        mixed_precision_step.EXERCISE,
        cuda_autocast_dtype.EXERCISE,
        stable_softmax.EXERCISE,
        amp_step.EXERCISE,
    ),
)

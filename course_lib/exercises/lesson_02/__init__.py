"""Lesson 02: loss scaling."""

from course_lib.exercises.lesson_02 import (
    accumulated_step,
    clipped_step,
    dynamic_loss_scaler,
    first_nonfinite_module,
    largest_safe_scale,
    scaled_step,
    underflow_fraction,
)
from course_lib.grading.exercise import Lesson

LESSON = Lesson(
    number="02",
    slug="02_loss_scaling",
    title="Loss scaling",
    exercises=(
        underflow_fraction.EXERCISE,
        largest_safe_scale.EXERCISE,
        scaled_step.EXERCISE,
        dynamic_loss_scaler.EXERCISE,
        clipped_step.EXERCISE,
        accumulated_step.EXERCISE,
        first_nonfinite_module.EXERCISE,
    ),
)

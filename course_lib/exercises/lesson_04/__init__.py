"""Lesson 04: gradient checkpointing, with nanoGPT."""

from course_lib.exercises.lesson_04 import (
    best_segment_count,
    block_activation_bytes,
    cheapest_plan,
    forward_checkpointed,
    recompute,
    saved_activation_bytes,
    selective_policy,
)
from course_lib.grading.exercise import Lesson

LESSON = Lesson(
    number="04",
    slug="04_gradient_checkpointing",
    title="Gradient checkpointing, with nanoGPT",
    exercises=(
        saved_activation_bytes.EXERCISE,
        block_activation_bytes.EXERCISE,
        recompute.EXERCISE,
        forward_checkpointed.EXERCISE,
        best_segment_count.EXERCISE,
        selective_policy.EXERCISE,
        cheapest_plan.EXERCISE,
    ),
)

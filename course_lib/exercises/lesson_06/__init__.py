"""Lesson 06: the OOM toolbox."""

from course_lib.exercises.lesson_06 import (
    accumulate_gradients,
    chunked_cross_entropy,
    mean_loss,
    quantize_blockwise,
    zero_bytes_per_gpu,
)
from course_lib.grading.exercise import Lesson

LESSON = Lesson(
    number="06",
    slug="06_oom_toolbox",
    title="The OOM toolbox",
    exercises=(
        accumulate_gradients.EXERCISE,
        chunked_cross_entropy.EXERCISE,
        mean_loss.EXERCISE,
        quantize_blockwise.EXERCISE,
        zero_bytes_per_gpu.EXERCISE,
    ),
)

"""Lesson 06: the OOM toolbox."""

from course_lib.exercises.lesson_06 import (
    accumulate_gradients,
    chunked_cross_entropy,
    fit_on_gpu,
    leak_clinic,
    mean_loss,
    predict_step_bytes,
    quantize_blockwise,
    zero_bytes_per_gpu,
)
from course_lib.grading.exercise import Lesson

LESSON = Lesson(
    number="06",
    slug="06_oom_toolbox",
    title="The OOM toolbox",
    exercises=(
        predict_step_bytes.EXERCISE,
        accumulate_gradients.EXERCISE,
        chunked_cross_entropy.EXERCISE,
        quantize_blockwise.EXERCISE,
        zero_bytes_per_gpu.EXERCISE,
        mean_loss.EXERCISE,
        leak_clinic.EXERCISE,
        fit_on_gpu.EXERCISE,
    ),
)

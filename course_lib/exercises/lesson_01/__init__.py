"""Floating-point formats: 16 points, and 3 more for stochastic rounding."""

from course_lib.exercises.lesson_01 import (
    choose_compute_dtype,
    counting_ceiling,
    decode_bits,
    dot_product,
    encode_float,
    format_limits,
    stochastic_round,
    ulp,
)
from course_lib.grading.exercise import Lesson

LESSON = Lesson(
    number="01",
    slug="01_floating_point_formats",
    title="Floating-point formats",
    exercises=(
        decode_bits.EXERCISE,
        encode_float.EXERCISE,
        format_limits.EXERCISE,
        ulp.EXERCISE,
        counting_ceiling.EXERCISE,
        dot_product.EXERCISE,
        stochastic_round.EXERCISE,
        choose_compute_dtype.EXERCISE,
    ),
)

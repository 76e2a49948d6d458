"""Lesson 05: FlashAttention by tiling."""

from course_lib.exercises.lesson_05 import (
    attention_traffic_bytes,
    block_sizes,
    decode_mask,
    flash_attention,
    merge_partial,
    tiled_attention,
    tiled_attention_backward,
    triton_attention,
)
from course_lib.grading.exercise import Lesson

LESSON = Lesson(
    number="05",
    slug="05_flash_attention",
    title="FlashAttention by tiling",
    exercises=(
        attention_traffic_bytes.EXERCISE,
        merge_partial.EXERCISE,
        tiled_attention.EXERCISE,
        block_sizes.EXERCISE,
        tiled_attention_backward.EXERCISE,
        flash_attention.EXERCISE,
        decode_mask.EXERCISE,
        triton_attention.EXERCISE,
    ),
)

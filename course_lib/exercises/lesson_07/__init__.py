"""Lesson 07: the capstone."""

from course_lib.exercises.lesson_07 import capstone_step
from course_lib.grading.exercise import Lesson

LESSON = Lesson(
    number="07",
    slug="07_capstone",
    title="Capstone: sixteen gigabytes",
    exercises=(capstone_step.EXERCISE,),
)

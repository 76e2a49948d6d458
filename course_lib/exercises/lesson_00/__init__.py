"""Start here: one toy exercise, to see how the course talks."""

from course_lib.exercises.lesson_00 import to_gib
from course_lib.grading.exercise import Lesson

LESSON = Lesson(number="00", slug="00_start_here", title="Start here", exercises=(to_gib.EXERCISE,))

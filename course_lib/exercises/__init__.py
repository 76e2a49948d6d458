"""The syllabus: one package a lesson, one module an exercise."""

from course_lib.exercises import (
    lesson_00,
    lesson_01,
    lesson_02,
    lesson_03,
    lesson_04,
    lesson_05,
    lesson_06,
    lesson_07,
)

SYLLABUS = (
    lesson_00.LESSON,
    lesson_01.LESSON,
    lesson_02.LESSON,
    lesson_03.LESSON,
    lesson_04.LESSON,
    lesson_05.LESSON,
    lesson_06.LESSON,
    lesson_07.LESSON,
)

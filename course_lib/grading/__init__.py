"""How solutions are judged: exercises, observations, verdicts, and what surrounds them."""

from course_lib.grading.assess import assess
from course_lib.grading.verdict import Verdict

__all__ = ["Verdict", "assess"]

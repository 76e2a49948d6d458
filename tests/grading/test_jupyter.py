"""The learner's words in a real kernel: one display a check, and a kernel that survives endless code."""

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

SETUP = """
import course_lib.exercises
from course_lib import check, hint, progress
from course_lib.grading.exercise import Case, Exercise, Lesson
from course_lib.grading.compare import float_mismatch
toy = Exercise("double_it", 3, 1, 1, "twice the number", lambda x: 2.0 * x, lambda seed: [Case("double_it(3.0)", (3.0,))],
               lambda case, seen, due: float_mismatch(seen, due), ("a", "b", "c"), "", "try 3.", time_limit_s=0.3)
course_lib.exercises.SYLLABUS = (Lesson("00", "00_toy", "Toy", (toy,)),)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    home = str(tmp_path_factory.mktemp("home"))
    cells = [
        f"import os; os.environ['SIXTEEN_BYTES_HOME'] = {home!r}" + SETUP,
        "def double_it(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        "check(double_it)",
        "def double_it(x):\n    import sys\n    sys.exit(1)",
        "check(double_it)",
        "def double_it(x):\n    print('noise')\n    return 2 * x\ncheck(double_it)",
        "progress()",
        "print(6 * 7)",
    ]
    notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    NotebookClient(notebook, timeout=60).execute()
    nbformat.validate(notebook)
    return [cell.outputs for cell in notebook.cells]


def only_text(cell_outputs) -> str:
    assert [output.output_type for output in cell_outputs] == ["display_data"]
    assert set(cell_outputs[0].data) == {"text/plain", "text/html"}
    return cell_outputs[0].data["text/plain"]


def test_endless_code_is_stopped_and_the_kernel_goes_on(outputs):
    assert "no end within 0.3 seconds" in only_text(outputs[2])
    assert outputs[7][0].text == "42\n"


def test_an_exit_is_a_sentence(outputs):
    assert "SystemExit" in only_text(outputs[4])


def test_prints_cost_nothing_and_stay_inside_the_one_display(outputs):
    text = only_text(outputs[5])
    assert "3 of 3 points" in text and "printed something" in text


def test_progress_is_one_picture(outputs):
    assert "Together: 3 of 3 points" in only_text(outputs[6])

"""Which dtype comes out of an operation under CUDA's autocast; the key is asked of torch on fake tensors."""

import torch

from course_lib.grading.compare import describe
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.memory.autocast_policy import OPERATIONS, autocast_output_dtype
from course_lib.mixed_precision import cuda_autocast_dtype


def cases(seed: int) -> list[Case]:
    return [Case(f"cuda_autocast_dtype({op!r})", (op,)) for op in OPERATIONS]


def grade(case: Case, got: object, expected: torch.dtype) -> Mismatch | None:
    if isinstance(got, torch.dtype):
        due = "the other of the two" if got in (torch.float16, torch.float32) else "torch.float16 or torch.float32"
        return None if got == expected else Mismatch(due, str(got))
    return Mismatch("a torch.dtype", describe(got), "Return torch.float16 or torch.float32.")


def cpu_policy(op):
    return autocast_output_dtype(op, "cpu")


def only_losses_and_softmax(op):
    return torch.float32 if op in ("cross_entropy", "softmax", "layer_norm", "exp", "sum") else torch.float16


EXERCISE = Exercise(
    name="cuda_autocast_dtype",
    points=3,
    minutes=10,
    difficulty=2,
    checks="the dtype of ten operations under CUDA's float16 autocast",
    reference=cuda_autocast_dtype,
    cases=cases,
    grade=grade,
    partial=True,
    hints=(
        "Sort the ten by what float16 would do to them: some multiply and add many products in a wide accumulator, "
        "some make large numbers or sum them up.",
        "CUDA has a list for float16 (matrix products and attention), a list for float32 (exponentials, reductions, "
        "normalisations, losses), and "
        "leaves everything else as it comes in.",
        "An operation on neither list works in the dtype of its inputs. GELU's input is a float16 activation; an "
        "embedding's only floating input is its weight.",
    ),
    explanation=(
        "Matrix products run in float16 because tensor cores accumulate them in float32. Exponentials, sums, norms "
        "and losses run in float32, because "
        "their range or their many additions need it. The rest follows its input: GELU stays float16, and an "
        "embedding gives float32, its weight's dtype. "
        "The CPU's policy differs: it leaves softmax, layer_norm, exp and sum in 16 bits, so a test on a CPU does not "
        "show what a GPU will do."
    ),
    next_step=(
        "Ask of this operation: on CUDA's float16 list, on its float32 list, or on neither, so that it follows its "
        "inputs?"
    ),
    misconceptions=(
        Misconception(
            "embedding_in_float16",
            "An embedding is on neither of CUDA's lists, so it works in its inputs' dtype. Its indices are integers: "
            "which dtype is left?",
            solution=only_losses_and_softmax,
        ),
        Misconception(
            "uses_the_cpu_policy",
            "This is what the CPU's autocast does: it leaves softmax, normalisations and sums in 16 bits. CUDA is "
            "more careful with them.",
            solution=cpu_policy,
        ),
        Misconception(
            "everything_in_float16",
            "Autocast does not put everything in float16. Which operations make large numbers, or add many small ones?",
            solution=lambda op: torch.float16,
        ),
        Misconception(
            "everything_in_float32",
            "Too much is float32 here: then autocast saves little. Which operations are safe and fast on tensor cores, and "
            "which follow their inputs?",
            solution=lambda op: torch.float32,
        ),
    ),
)

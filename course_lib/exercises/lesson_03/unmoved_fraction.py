"""The share of weights that an update left where they were."""

import random

import torch

from course_lib.grading.compare import call_keeping_inputs, float_mismatch, inputs_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch
from course_lib.mixed_precision import unmoved_fraction


def cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)
    draw = random.Random(seed)
    one = torch.ones(4)
    chosen = [
        ("nothing moved", [one], [one.clone()]),
        ("one of four moved", [one], [torch.tensor([1.0, 1.0, 1.0, 2.0])]),
        ("the smallest possible moves", [one], [torch.tensor([1.0, 1.0 + 2**-23, 1.0 - 2**-24, 1.0])]),
        ("tiny weights", [torch.tensor([1e-12, 0.0, 1e-30, 1, 2])], [torch.tensor([2e-12, 1e-38, 1e-30, 1, 2])]),
        ("tensors of 1 and of 7", [one[:1], torch.zeros(7)], [one[:1].clone(), torch.arange(7.0)]),
        ("bfloat16, a matrix and a vector", *_step(generator, torch.bfloat16, [(3, 5), (2,)], 0.004)),
    ]
    for _ in range(4):
        shapes = [(draw.randint(1, 9), draw.randint(1, 9)), (draw.randint(1, 40),), ()]
        dtype = draw.choice([torch.bfloat16, torch.float32])
        chosen.append(("random tensors", *_step(generator, dtype, shapes, 10 ** draw.uniform(-8, -2))))
    return [Case(label, (before, after)) for label, before, after in chosen]


def _step(generator: torch.Generator, dtype: torch.dtype, shapes: list, size: float) -> tuple[list, list]:
    before = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return before, [tensor + (size * torch.randn(tensor.shape, generator=generator)).to(dtype) for tensor in before]


def grade(case: Case, got: object, expected: float) -> Mismatch | None:
    # a mean of a mask in float32 is right to 6e-8
    return inputs_mismatch(got) or float_mismatch(got, expected, rel=1e-6)


def mean_of_means(before, after):
    return sum((a == b).float().mean().item() for a, b in zip(before, after, strict=True)) / len(before)


def whole_tensors(before, after):
    return sum(torch.equal(a, b) for a, b in zip(before, after, strict=True)) / len(before)


def nearly_equal(before, after):
    same = sum(torch.isclose(a, b).sum().item() for a, b in zip(before, after, strict=True))
    return same / sum(a.numel() for a in before)


def moved(before, after):
    return 1 - unmoved_fraction(before, after)


def counts(before, after):
    return float(sum((a == b).sum().item() for a, b in zip(before, after, strict=True)))


EXERCISE = Exercise(
    name="unmoved_fraction",
    points=1,
    minutes=5,
    difficulty=1,
    checks="the share of all elements that an update did not change",
    reference=unmoved_fraction,
    cases=cases,
    grade=grade,
    observe=call_keeping_inputs,
    hints=(
        "Not moved means exactly equal: `==`, element by element.",
        "Count over all tensors before you divide: a bias of 4 entries must not weigh as much as a matrix of 4,000.",
        "Two sums over the lists: of `(old == new).sum().item()` and of `old.numel()`.",
    ),
    explanation=(
        "Exact comparison is right here: the question is whether the update survived its rounding, not whether it was "
        "large."
    ),
    next_step="Count by hand for this case: elements that stayed, and elements in all.",
    misconceptions=(
        Misconception(
            "averages_over_tensors",
            "You average the shares of the tensors, so that a small bias counts as much as a large matrix. The share "
            "asked for is of all elements.",
            solution=mean_of_means,
        ),
        Misconception(
            "counts_whole_tensors",
            "You count tensors that did not change at all. Asked for is the share of elements.",
            solution=whole_tensors,
        ),
        Misconception(
            "treats_nearly_equal_as_unmoved",
            "You compare with a tolerance. A weight that moved by its last bit has moved.",
            solution=nearly_equal,
        ),
        Misconception("gives_the_share_that_moved", "This is the share that did move.", solution=moved),
        Misconception(
            "gives_a_count", "This is a number of elements. Divide it by how many there are.", solution=counts
        ),
    ),
)

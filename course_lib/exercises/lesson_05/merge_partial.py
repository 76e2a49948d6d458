"""Exercise: join two partial softmaxes over different keys."""

import math

import torch

from course_lib.attention import merge_partial
from course_lib.grading.compare import call_keeping_inputs, inputs_mismatch, tensor_mismatch
from course_lib.grading.exercise import Case, Exercise, Misconception, Mismatch

_NAMES = ("row_max", "row_sum", "out")


def _part(scores: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What a set of keys says: (row_max, row_sum, out), scores (..., rows, keys), values (..., keys, dim)."""
    row_max = scores.amax(-1)
    weights = torch.exp(scores - torch.where(row_max == -math.inf, 0.0, row_max)[..., None])
    return row_max, weights.sum(-1), weights @ values


def cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    def part(shift: float, shape: tuple = (), rows: int = 3, keys: int = 4, dim: int = 2, hide: tuple = ()):
        scores = normal(*shape, rows, keys) + shift
        for row in hide:
            scores[..., row, :] = -math.inf
        return _part(scores, normal(*shape, keys, dim))

    one = (torch.tensor([0.0]), torch.tensor([1.0]), torch.tensor([[1.0]]))
    two = (torch.tensor([math.log(2.0)]), torch.tensor([1.0]), torch.tensor([[4.0]]))
    nothing = (torch.full((3,), -math.inf), torch.zeros(3), torch.zeros(3, 2))
    return [
        Case("one row, maxima 0 and ln 2", (one, two)),
        Case("the same the other way round", (two, one)),
        Case("three rows", (part(0.0), part(0.5))),
        Case("the second part has seen nothing", (part(0.0), nothing)),
        Case("the first part has seen nothing", (nothing, part(0.0))),
        Case("neither part has seen anything", (nothing, nothing)),
        Case("one row of each part has seen nothing", (part(0.0, hide=(0, 2)), part(0.0, hide=(1, 2)))),
        Case("maxima near +200", (part(200.0), part(201.0))),
        Case("maxima near -200", (part(-200.0), part(-199.0))),
        Case("maxima 20,000 apart", (part(-1e4), part(1e4))),
        Case("shape (2, 3, rows)", (part(1.0, (2, 3), 5, 7, 4), part(-1.0, (2, 3), 5, 2, 4))),
        Case("rows and dim equal", (part(0.0, (2,), 4, 6, 4), part(2.0, (2,), 4, 3, 4))),
    ]


def _exact(a, b):
    """In float64, one row at a time and with Python's own exp."""
    a, b = ([tensor.double() for tensor in part] for part in (a, b))
    row_max = torch.maximum(a[0], b[0])

    def factor(own: float, common: float) -> float:
        return 0.0 if own == -math.inf else math.exp(own - common)

    scales = []
    for part in (a, b):
        pairs = zip(part[0].flatten().tolist(), row_max.flatten().tolist(), strict=True)
        scales.append(torch.tensor([factor(*pair) for pair in pairs], dtype=torch.float64).reshape(row_max.shape))
    row_sum = scales[0] * a[1] + scales[1] * b[1]
    return row_max, row_sum, scales[0][..., None] * a[2] + scales[1][..., None] * b[2]


def grade(case, observation, expected):
    changed = inputs_mismatch(observation)
    if changed:
        return changed
    if not isinstance(observation, list | tuple) or len(observation) != 3:
        return Mismatch("(row_max, row_sum, out)", type(observation).__name__, "Three tensors are due, in this order.")
    size = max(part[2].abs().max().item() for part in case.args)
    for name, got, due, truth in zip(_NAMES, observation, expected, _exact(*case.args), strict=True):
        floor = 4 * torch.finfo(torch.float32).eps * max(1.0, size) if name != "row_max" else 0.0
        problem = tensor_mismatch(got, due, truth, name=name, floor=floor)
        if problem:
            return problem
    return None


def _with(scale):
    """A merge whose factors come from `scale(own_max, merged_max)`."""

    def merge(a, b):
        row_max = torch.maximum(a[0], b[0])
        factor_a, factor_b = scale(a[0], row_max), scale(b[0], row_max)
        out = factor_a[..., None] * a[2] + factor_b[..., None] * b[2]
        return row_max, factor_a * a[1] + factor_b * b[1], out

    return merge


def _only_out_rescaled(a, b):
    row_max, _, out = merge_partial(a, b)
    return row_max, a[1] + b[1], out


def _only_sum_rescaled(a, b):
    row_max, row_sum, _ = merge_partial(a, b)
    return row_max, row_sum, a[2] + b[2]


def _normalised(a, b):
    row_max, row_sum, out = merge_partial(a, b)
    return row_max, row_sum, out / row_sum[..., None]


def _first_is_older(a, b):
    row_max = torch.maximum(a[0], b[0])
    factor = torch.exp(a[0] - row_max)
    return row_max, factor * a[1] + b[1], factor[..., None] * a[2] + b[2]


def _absolute(a, b):
    row_max = torch.maximum(a[0], b[0])
    row_sum = (torch.exp(a[0]) * a[1] + torch.exp(b[0]) * b[1]) / torch.exp(row_max)
    out = torch.exp(a[0])[..., None] * a[2] + torch.exp(b[0])[..., None] * b[2]
    return row_max, row_sum, out / torch.exp(row_max)[..., None]


EXERCISE = Exercise(
    name="merge_partial",
    points=3,
    minutes=15,
    difficulty=2,
    checks="two partial softmaxes joined into one",
    reference=merge_partial,
    cases=cases,
    grade=grade,
    observe=call_keeping_inputs,
    hints=(
        "Sums relative to different maxima cannot be added. First bring both parts to the same maximum.",
        "A sum relative to m becomes a sum relative to M by a factor exp(m - M). The unnormalised output takes "
        "the same factor.",
        "The factor for (..., rows, dim) needs a last dimension of 1. For a row that neither part has seen, M is -inf: "
        "subtract 0 there instead, and both factors are exp(-inf) = 0.",
    ),
    explanation="exp(s - m) · exp(m - M) = exp(s - M): one factor for each row moves a whole part to the common maximum. "
    "The factors are at most 1, so nothing overflows. -inf - -inf is NaN, hence the `where` for rows that have "
    "seen nothing.",
    next_step="Take one row and two keys, one in each part, and follow the numbers by hand.",
    misconceptions=(
        Misconception(
            "adds_without_rescaling",
            "both parts are added as they are, but each is relative to its own maximum. Bring them to one maximum "
            "first.",
            _with(lambda own, merged: torch.ones_like(own)),
        ),
        Misconception(
            "rescales_only_out",
            "the sums are relative to different maxima too, not only the outputs.",
            _only_out_rescaled,
        ),
        Misconception(
            "rescales_only_sum",
            "the outputs are relative to different maxima too, not only the sums.",
            _only_sum_rescaled,
        ),
        Misconception(
            "subtracts_infinities",
            "a row that neither part has seen has the maximum -inf, and -inf - -inf is NaN. Give such rows "
            "something finite to subtract.",
            _with(lambda own, merged: torch.exp(own - merged)),
        ),
        Misconception(
            "normalises_the_output",
            "the output is divided by the sum here. A part stays unnormalised, so that it can be merged again.",
            _normalised,
        ),
        Misconception(
            "expects_the_larger_maximum_second",
            "only the first part is rescaled, which is right when the second has the larger maximum. Either may "
            "have it.",
            _first_is_older,
        ),
        Misconception(
            "exponentiates_the_maximum",
            "exp of a maximum overflows (float32 does above 88). Only exp of a *difference* that is never "
            "positive is safe.",
            _absolute,
        ),
        Misconception(
            "inverts_the_factor",
            "the factor is upside down: a part with a smaller maximum must shrink when the maximum grows.",
            _with(lambda own, merged: torch.exp(torch.where(merged == -math.inf, -math.inf, merged - own))),
        ),
    ),
)

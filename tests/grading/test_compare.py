"""Comparisons: no NaN passes, no tolerance by feel, no junk breaks them."""

import math

import pytest
import torch

from course_lib.grading.compare import (
    alike,
    as_float,
    as_int,
    describe,
    exact_mismatch,
    float_mismatch,
    tensor_mismatch,
)
from course_lib.grading.observation import ExceptionRecord, Opaque

JUNK = [None, "text", [], [1, None], {}, {"a": 1}, math.nan, math.inf, -0.0, 2**2000, True, 1j, b"x", torch.float16,
        torch.tensor([]), torch.tensor(math.nan), torch.zeros(2, 3), torch.zeros(2, dtype=torch.complex64),
        Opaque("X"), ExceptionRecord("E", "m"), (1, 2), {1}, torch.zeros(2, dtype=torch.float8_e4m3fn)]  # fmt: skip


@pytest.mark.parametrize("junk", JUNK, ids=str)
def test_junk_never_breaks_a_comparison(junk):
    assert describe(junk)
    assert float_mismatch(junk, 3.0) is not None
    assert exact_mismatch(junk, torch.ones(5)) is not None
    assert tensor_mismatch(junk, torch.ones(5), torch.ones(5)) is not None
    as_int(junk)
    for other in JUNK:
        alike(junk, other)


def test_floats_compare_by_bits_unless_told():
    assert float_mismatch(0.0, -0.0) is not None and float_mismatch(-0.0, -0.0) is None
    assert float_mismatch(math.nan, math.nan) is None and float_mismatch(math.nan, 1.0) is not None
    assert float_mismatch(1.0 + 2**-52, 1.0) is not None and float_mismatch(1.0 + 2**-52, 1.0, rel=2**-50) is None
    assert float_mismatch(math.inf, 1e308, rel=0.5) is not None
    assert as_float(True) is None and as_float(torch.tensor(2)) == 2.0


def test_nan_and_infinity_never_fit_a_budget():
    truth = torch.tensor([1.0, 2.0], dtype=torch.float64)
    for bad in (math.nan, math.inf):
        assert tensor_mismatch(torch.tensor([1.0, bad]), truth.float(), truth) is not None


def test_the_budget_is_the_references_error_and_one_ulp():
    truth = torch.tensor([1.0, 1000.0], dtype=torch.float64)
    expected = truth.float()
    ulp = torch.finfo(torch.float32).eps * 1000
    assert tensor_mismatch(expected + torch.tensor([0.0, 0.4 * ulp]), expected, truth) is None
    mismatch = tensor_mismatch(expected + torch.tensor([0.0, 3 * ulp]), expected, truth)
    assert mismatch is not None and "[1]" in mismatch.note
    assert tensor_mismatch(expected.half(), expected, truth) is not None
    assert tensor_mismatch(expected[:1], expected, truth) is not None


def test_infinities_that_are_due_must_come():
    truth = torch.tensor([math.inf, 1.0], dtype=torch.float64)
    assert tensor_mismatch(truth.float(), truth.float(), truth) is None
    assert tensor_mismatch(torch.tensor([1.0, 1.0]), truth.float(), truth) is not None


def test_zero_is_not_close_to_a_tiny_gradient():
    truth = torch.full((4,), 1e-9, dtype=torch.float64)
    assert tensor_mismatch(torch.zeros(4), truth.float(), truth) is not None
    assert not alike(torch.zeros(4), truth.float())

"""autocast_policy: what torch says about CUDA without one, and what it does on a real CPU."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from course_lib.memory.autocast_policy import OPERATIONS, autocast_flags, autocast_output_dtype

FLOAT32_ON_CUDA = {"softmax", "layer_norm", "exp", "sum", "cross_entropy", "embedding"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("op", OPERATIONS)
def test_cuda_computes_the_fragile_operations_in_float32(op, dtype):
    assert autocast_output_dtype(op, "cuda", dtype) is (torch.float32 if op in FLOAT32_ON_CUDA else dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("op", OPERATIONS)
def test_the_cpu_column_is_what_real_cpu_tensors_do(op, dtype):
    new = lambda *shape, dtype=dtype: torch.zeros(*shape, dtype=dtype)
    with torch.autocast("cpu", dtype=dtype):
        assert autocast_output_dtype(op, "cpu", dtype) is OPERATIONS[op](new).dtype


def test_the_policies_differ_in_exactly_four_of_ten():
    differ = {op for op in OPERATIONS if autocast_output_dtype(op, "cuda") is not autocast_output_dtype(op, "cpu")}
    assert differ == {"softmax", "layer_norm", "exp", "sum"}


def test_cuda_refuses_a_loss_on_probabilities_that_the_cpu_computes():
    def loss(device):
        probabilities, targets = (torch.empty(4, dtype=torch.float16, device=device) for _ in range(2))
        return torch.nn.functional.binary_cross_entropy(probabilities, targets)

    with FakeTensorMode(), autocast_flags("cpu", torch.float16):
        assert loss("cpu").dtype is torch.float32
    with (
        FakeTensorMode(),
        autocast_flags("cuda", torch.float16),
        pytest.raises(RuntimeError, match="unsafe to autocast"),
    ):
        loss("cuda")


def test_nothing_is_left_switched_on_and_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        autocast_output_dtype("linear", "cuda", torch.bfloat16)
    assert not torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") is torch.float16
    with torch.autocast("cpu", dtype=torch.float16):
        autocast_output_dtype("linear", "cpu", torch.bfloat16)
        assert torch.get_autocast_dtype("cpu") is torch.float16 and torch.is_autocast_enabled("cpu")


def test_an_unknown_operation_is_named():
    with pytest.raises(ValueError, match=r"op must be one of linear.*got 'lstm'"):
        autocast_output_dtype("lstm", "cuda")
    with pytest.raises(ValueError, match="device_type must be one of cuda, cpu; got 'tpu'"):
        autocast_output_dtype("linear", "tpu")

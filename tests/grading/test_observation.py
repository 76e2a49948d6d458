"""The codec keeps every bit of plain data and trusts nothing that it reads."""

import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.grading.observation import (
    TENSOR_DTYPES,
    ExceptionRecord,
    MalformedObservation,
    Observation,
    Opaque,
    decode,
    encode,
)

numbers = st.floats() | st.integers(-(2**200), 2**200) | st.booleans() | st.complex_numbers(allow_nan=False)
leaves = st.none() | numbers | st.text() | st.binary(max_size=40) | st.sampled_from(list(TENSOR_DTYPES.values()))
keys = st.text(max_size=8) | st.integers() | st.tuples(st.integers(), st.text(max_size=3))
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=20,
)


def is_identical(a, b) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, complex):
        return is_identical(a.real, b.real) and is_identical(a.imag, b.imag)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(is_identical, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_identical(a[key], b[key]) for key in a)
    return a == b


@given(trees)
def test_plain_data_survives(value):
    assert is_identical(decode(encode(value)), value)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", TENSOR_DTYPES)
@given(data=st.data())
def test_tensors_of_every_dtype_keep_every_bit(name, data):
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = TENSOR_DTYPES[name]
    count = math.prod(shape) * dtype.itemsize
    raw = data.draw(st.binary(min_size=count, max_size=count))
    if dtype == torch.bool:
        raw = bytes(byte & 1 for byte in raw)
    made = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype).reshape(shape) if count else None
    tensor = torch.empty(shape, dtype=dtype) if made is None else made
    back = decode(encode(tensor))
    assert back.dtype == tensor.dtype and back.shape == tensor.shape
    if count:
        assert back.reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8))


def test_every_float8_dtype_is_covered():
    assert {name for name in TENSOR_DTYPES if name.startswith("float8")} >= {
        "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    }  # fmt: skip


def test_special_values_and_views_survive():
    tensor = torch.tensor([[0.0, -0.0, math.inf], [-math.inf, math.nan, 1e-45]])
    for view in (tensor.t(), tensor[:, ::2], tensor[1], tensor[0, 1]):
        back = decode(encode(view))
        assert back.shape == view.shape and torch.equal(torch.signbit(back), torch.signbit(view))
        assert torch.allclose(back, view, rtol=0, atol=0, equal_nan=True)


def test_gradients_and_conjugates_are_dropped():
    tensor = torch.tensor([1 + 2j], requires_grad=True).conj()
    back = decode(encode(tensor))
    assert not back.requires_grad and not back.is_conj() and back.item() == 1 - 2j


def test_numpy_becomes_python_and_torch():
    assert is_identical(decode(encode([np.float32(0.5), np.int8(-3), np.bool_(True)])), [0.5, -3, True])
    array = decode(encode(np.arange(6.0).reshape(2, 3)))
    assert isinstance(array, torch.Tensor) and array.dtype == torch.float64 and array.shape == (2, 3)


def test_subclasses_lose_their_tricks():
    class AlwaysEqual(float):
        def __eq__(self, other):
            return True

        __hash__ = float.__hash__

        def hex(self):
            return "0x1p+0"

    class Lying(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return torch.ones(1)

    assert type(decode(encode(AlwaysEqual(3.0)))) is float and decode(encode(AlwaysEqual(3.0))) == 3.0
    tensor = decode(encode(torch.zeros(2).as_subclass(Lying)))
    assert type(tensor) is torch.Tensor and tensor.tolist() == [0.0, 0.0]


def test_what_has_no_plain_form_is_named():
    class Model:
        def __str__(self):
            raise RuntimeError("no text")

    assert decode(encode(Model())) == Opaque("Model", "")
    assert isinstance(decode(encode(torch.empty(2, device="meta"))), Opaque)
    assert decode(encode(ValueError("bad"))) == ExceptionRecord("ValueError", "bad")


def test_endless_nesting_ends():
    loop: list = []
    loop.append(loop)
    assert decode(encode(loop)) is not None


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    try:
        decode(data)
    except MalformedObservation:
        pass


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'[{"tensor":[0,"float32",[1000000000000]]},[4]]',
        b'[{"tensor":[7,"float32",[1]]},[]]',
        b'[{"tensor":[0,"float32",[-1]]},[4]]',
        b'[{"int":"0x' + b"f" * 5000 + b'"},[]]',
        b'[{"pickle":"gASV"},[]]',
        b'[{"float":"nan","int":"0x1"},[]]',
        b"[null,[-5]]",
        b"[null,[1e30]]",
        b"[NaN,[]]",
        b'{"a":1}',
    ],
)
def test_malformed_messages_are_refused(text):
    with pytest.raises(MalformedObservation):
        decode(struct.pack("<Q", len(text)) + text)


def test_a_truncated_message_is_refused():
    whole = encode([torch.arange(10), "text"])
    for cut in range(len(whole)):
        with pytest.raises(MalformedObservation):
            decode(whole[:cut])


def test_observations_cross_the_boundary():
    for seen in (
        Observation([1.0, torch.ones(2)]),
        Observation(ended="raised", error=ExceptionRecord("ValueError", "x", "line 3"), noise="hello"),
        Observation(ended="timed_out"),
    ):
        back = Observation.from_bytes(seen.to_bytes())
        assert (back.ended, back.error, back.noise) == (seen.ended, seen.error, seen.noise)


@pytest.mark.parametrize("parts", [(1, "lost", None, ""), (1, "raised", None, ""), (1, "returned", None), [1, 2, 3, 4]])
def test_forged_observations_are_refused(parts):
    with pytest.raises(MalformedObservation):
        Observation.from_bytes(encode(parts))

"""What was seen of a solution, as plain data that can cross a process boundary.

The wire format is a JSON text and the raw bytes of the tensors behind it. Decoding builds plain values only:
nothing is unpickled, imported or evaluated, and a malformed message raises `MalformedObservation`.
"""

import base64
import binascii
import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

MAX_DEPTH = 40
MAX_TEXT_CHARS = 2_000
_MAX_INT_BITS = 4_096
_LENGTH = struct.Struct("<Q")


class MalformedObservation(ValueError):
    """The bytes are no observation."""


@dataclass(frozen=True)
class Opaque:
    """Something that has no plain form: only its type's name and the start of its text are kept."""

    type_name: str
    text: str = ""

    def __str__(self) -> str:
        return f"an object of type {self.type_name}"


@dataclass(frozen=True)
class ExceptionRecord:
    """An exception by class and message, with the learner's line where it is known."""

    class_name: str
    message: str
    line: str = ""

    def __str__(self) -> str:
        where = f" at {self.line}" if self.line else ""
        return f"{self.class_name}: {self.message}{where}" if self.message else f"{self.class_name}{where}"


def _tensor_dtypes() -> dict[str, torch.dtype]:
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    quantized = ("torch.q", "torch.bits")
    names = {str(dtype).removeprefix("torch."): dtype for dtype in found if not str(dtype).startswith(quantized)}
    return dict(sorted(names.items()))


TENSOR_DTYPES = _tensor_dtypes()


def _text_of(value: Any) -> str:
    try:
        return str(value)[:MAX_TEXT_CHARS]
    except BaseException:  # a learner's __str__ may do anything
        return ""


def _opaque(value: Any) -> dict:
    return {"opaque": [type(value).__name__, _text_of(value)]}


def record_exception(error: BaseException, line: str = "") -> ExceptionRecord:
    """Keeps class and message only: the exception itself would keep its frames, and their tensors, alive."""
    return ExceptionRecord(type(error).__name__, _text_of(error), line)


def _encode_tensor(tensor: torch.Tensor, buffers: list[bytes]) -> dict:
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach().as_subclass(torch.Tensor)
        name = str(plain.dtype).removeprefix("torch.")
        if plain.layout != torch.strided or plain.device.type == "meta" or name not in TENSOR_DTYPES:
            return {"opaque": ["Tensor", f"layout {plain.layout}, device {plain.device}, dtype {plain.dtype}"]}
        plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
        raw = b"" if plain.numel() == 0 else plain.reshape(-1).view(torch.uint8).numpy().tobytes()
    buffers.append(raw)
    return {"tensor": [len(buffers) - 1, name, list(plain.shape)]}


def _encode(value: Any, buffers: list[bytes], depth: int) -> Any:
    # type(value), not isinstance on the value: `__class__` can lie.
    kind = type(value)
    if depth > MAX_DEPTH:
        return _opaque(value)
    if value is None or kind is bool or kind is str:
        return value
    if issubclass(kind, np.generic):
        return _encode(value.item(), buffers, depth + 1) if value.dtype.kind in "biufc" else _opaque(value)
    if issubclass(kind, int):
        exact = int.__index__(value)
        return (
            {"int": hex(exact)} if exact.bit_length() <= _MAX_INT_BITS else {"opaque": ["int", "more than 4096 bits"]}
        )
    if issubclass(kind, float):
        return {"float": float.hex(float.__float__(value))}
    if issubclass(kind, complex):
        return {"complex": [float.hex(value.real), float.hex(value.imag)]}
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, bytes | bytearray):
        return {"bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if issubclass(kind, torch.Tensor):
        return _encode_tensor(value, buffers)
    if issubclass(kind, np.ndarray):
        try:
            return _encode_tensor(torch.from_numpy(np.ascontiguousarray(value)).reshape(value.shape), buffers)
        except TypeError:
            return _opaque(value)
    if issubclass(kind, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if issubclass(kind, list):
        return {"list": [_encode(item, buffers, depth + 1) for item in list.__iter__(value)]}
    if issubclass(kind, tuple):
        return {"tuple": [_encode(item, buffers, depth + 1) for item in tuple.__iter__(value)]}
    if issubclass(kind, dict):
        items = dict.items(value)
        return {"dict": [[_encode(k, buffers, depth + 1), _encode(v, buffers, depth + 1)] for k, v in items]}
    if issubclass(kind, set | frozenset):
        return {"set": [_encode(item, buffers, depth + 1) for item in sorted(value, key=_text_of)]}
    if kind is ExceptionRecord:
        return {"exception": [value.class_name, value.message, value.line]}
    if issubclass(kind, BaseException):
        return _encode(record_exception(value), buffers, depth)
    if kind is Opaque:
        return {"opaque": [value.type_name, value.text]}
    return _opaque(value)


def encode(value: Any) -> bytes:
    """Any value as bytes. What has no plain form becomes `Opaque`; a NumPy scalar becomes a Python number.

    Tensors keep dtype, shape and every bit; device, strides, gradients and subclasses are dropped.
    """
    buffers: list[bytes] = []
    tree = _encode(value, buffers, 0)
    text = json.dumps([tree, [len(raw) for raw in buffers]], separators=(",", ":")).encode("ascii")
    return b"".join([_LENGTH.pack(len(text)), text, *buffers])


def _decode_tensor(spec: Any, buffers: list[memoryview]) -> torch.Tensor:
    index, name, shape = spec
    if type(index) is not int or not 0 <= index < len(buffers) or name not in TENSOR_DTYPES:
        raise MalformedObservation("a tensor names no buffer or no dtype")
    if not all(type(size) is int and 0 <= size < 2**40 for size in shape):
        raise MalformedObservation("a tensor's shape is not a list of sizes")
    dtype, raw, count = TENSOR_DTYPES[name], buffers[index], 1
    for size in shape:
        count *= size
    if count * dtype.itemsize != len(raw):
        raise MalformedObservation(f"a tensor of {count} elements came with {len(raw)} bytes")
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype).reshape(shape)


def _hashable(key: Any) -> Any:
    if type(key) in (list, dict, set) or isinstance(key, torch.Tensor):
        return Opaque(type(key).__name__, "as a key")
    return tuple(_hashable(item) for item in key) if type(key) is tuple else key


def _decode(tree: Any, buffers: list[memoryview], depth: int = 0) -> Any:
    if depth > MAX_DEPTH + 8:
        raise MalformedObservation("nested too deep")
    if tree is None or type(tree) in (bool, str):
        return tree
    if type(tree) is not dict or len(tree) != 1:
        raise MalformedObservation("an unknown node")
    ((tag, body),) = tree.items()

    def inner(node: Any) -> Any:
        return _decode(node, buffers, depth + 1)

    match tag:
        case "int":
            if len(body) > _MAX_INT_BITS // 4 + 4:
                raise MalformedObservation("an integer is too long")
            return int(body, 16)
        case "float":
            return float.fromhex(body)
        case "complex":
            return complex(float.fromhex(body[0]), float.fromhex(body[1]))
        case "bytes":
            return base64.b64decode(body, validate=True)
        case "tensor":
            return _decode_tensor(body, buffers)
        case "dtype":
            return TENSOR_DTYPES[body] if body in TENSOR_DTYPES else Opaque("dtype", str(body))
        case "list":
            return [inner(node) for node in body]
        case "tuple":
            return tuple(inner(node) for node in body)
        case "dict":
            return {_hashable(inner(key)): inner(node) for key, node in body}
        case "set":
            return {_hashable(inner(node)) for node in body}
        case "exception":
            return ExceptionRecord(*(str(part) for part in body))
        case "opaque":
            return Opaque(*(str(part)[:MAX_TEXT_CHARS] for part in body))
    raise MalformedObservation(f"an unknown tag {tag!r}")


def decode(data: bytes) -> Any:
    """The value that `encode` was given, in plain form.

    Raises:
        MalformedObservation: for any bytes that `encode` does not make.
    """
    try:
        view = memoryview(data)
        (length,) = _LENGTH.unpack(view[: _LENGTH.size])
        start = _LENGTH.size
        tree, sizes = json.loads(bytes(view[start : start + length]))
        start += length
        buffers = []
        for size in sizes:
            if type(size) is not int or size < 0 or start + size > len(view):
                raise MalformedObservation("a buffer reaches past the end")
            buffers.append(view[start : start + size])
            start += size
        if start != len(view):
            raise MalformedObservation("bytes are left over")
        return _decode(tree, buffers)
    except MalformedObservation:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError, struct.error) as error:
        raise MalformedObservation(f"not readable: {type(error).__name__}") from None
    except (binascii.Error, RuntimeError, MemoryError) as error:
        raise MalformedObservation(f"not readable: {type(error).__name__}") from None


@dataclass(frozen=True)
class Observation:
    """What one case gave: a value, or how the code ended.

    Attributes:
        value: plain data, when `ended` is ``"returned"``.
        ended: ``"returned"``, ``"raised"``, ``"timed_out"``, ``"not_run"`` or ``"lost"`` (its process died).
        error: the exception, when `ended` is ``"raised"``.
        noise: the start of what the code printed.
    """

    value: Any = None
    ended: str = "returned"
    error: ExceptionRecord | None = None
    noise: str = ""

    def to_bytes(self) -> bytes:
        """For the wire."""
        return encode((self.value, self.ended, self.error, self.noise))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Observation":
        """From the wire; raises MalformedObservation."""
        parts = decode(data)
        if type(parts) is not tuple or len(parts) != 4:
            raise MalformedObservation("not four parts")
        value, ended, error, noise = parts
        kinds = type(error) in (ExceptionRecord, type(None)) and type(noise) is str
        if ended not in ("returned", "raised", "timed_out", "not_run") or not kinds:
            raise MalformedObservation("parts of the wrong kind")
        if (ended == "raised") != (error is not None):
            raise MalformedObservation("an error that was not raised")
        return cls(value, ended, error, noise)

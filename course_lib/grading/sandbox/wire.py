"""Messages between the grader and a worker: a nonce, a number, a length, and that many bytes.

The reader refuses what is longer than allowed before it reads it, and what does not carry the nonce of the
question and the next number: replies queued ahead, and bytes written by someone else, are no answers.
"""

import os
import select
import struct
import time
from collections.abc import Callable

HEADER = struct.Struct("<16sIQ")
NONCE_BYTES = 16
_CHUNK = 1 << 20


class WireError(Exception):
    """What came is no answer to the question."""


class EndOfStream(WireError):
    """The other side closed its end."""


class TooLong(WireError):
    """A message longer than allowed."""


class Expired(Exception):
    """Nothing complete came in time."""


def pack(nonce: bytes, number: int, body: bytes) -> bytes:
    """One message."""
    return HEADER.pack(nonce, number, len(body)) + body


def read_exactly(fd: int, count: int) -> bytes:
    """Blocking read of `count` bytes, for the worker."""
    parts = []
    while count:
        part = os.read(fd, min(count, _CHUNK))
        if not part:
            raise EndOfStream
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def write_all(fd: int, data: bytes) -> None:
    """Blocking write, for the worker."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:_CHUNK]) :]


def read_message(fd: int, nonce: bytes, number: int, max_bytes: int, tick: Callable[[], None]) -> bytes:
    """The body of the next message, for the grader; `fd` must not block.

    Args:
        tick: called at least every tenth of a second while waiting; raises to give up.
    Raises:
        WireError: what came is not message `number` with this nonce, or is longer than `max_bytes`.
    """
    head = _collect(fd, HEADER.size, tick)
    got_nonce, got_number, length = HEADER.unpack(head)
    if got_nonce != nonce or got_number != number:
        raise WireError("a reply that nobody asked for")
    if length > max_bytes:
        raise TooLong(f"a reply of {length} bytes; at most {max_bytes} are allowed")
    return _collect(fd, length, tick)


def _collect(fd: int, count: int, tick: Callable[[], None]) -> bytes:
    data = bytearray()
    last_tick = time.monotonic()
    while len(data) < count:
        try:
            part = os.read(fd, min(count - len(data), _CHUNK))
        except BlockingIOError:
            select.select([fd], [], [], 0.05)
            part = None
        if part == b"":
            raise EndOfStream
        if part:
            data += part
        if part is None or time.monotonic() - last_tick > 0.05:
            tick()
            last_tick = time.monotonic()
    return bytes(data)


def write_message(fd: int, data: bytes, tick: Callable[[], None]) -> None:
    """Sends a packed message to a worker that may not be reading; `fd` must not block."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view[:_CHUNK]) :]
        except BlockingIOError:
            select.select([], [fd], [], 0.05)
            tick()
        except BrokenPipeError:
            raise EndOfStream from None

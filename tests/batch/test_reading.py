"""Any bytes become cells or a reason; any reply becomes plain data or a refusal; neither stops a batch."""

import json
import os
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.grading.batch.reading import Unreadable, read
from course_lib.grading.batch.selection import NotOfTheCourse, is_stub, parse, select
from course_lib.grading.observation import MalformedObservation, Observation, encode
from course_lib.grading.sandbox import wire
from tests.batch.bank import GOOD, STUBS, code, notebook
from tests.batch.damaged import PLAIN
from tests.batch.toys import SYLLABUS

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20) | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


def graded(data: bytes) -> object:
    try:
        return select(read(data), SYLLABUS)
    except (Unreadable, NotOfTheCourse) as problem:
        assert len(str(problem)) > 20
        return None


@given(st.binary(max_size=200))
def test_bytes(data: bytes) -> None:
    graded(data)


@given(st.integers(0, len(PLAIN)), st.binary(max_size=8), st.integers(0, 40))
@settings(max_examples=150)
def test_a_notebook_cut_and_overwritten_anywhere(place: int, junk: bytes, gone: int) -> None:
    graded(PLAIN[:place] + junk + PLAIN[place + gone :])


@given(JSON, st.sampled_from(["cells", "metadata", "worksheets", "nbformat"]))
@settings(max_examples=150)
def test_any_json_in_the_place_of_any_part(value: object, part: str) -> None:
    document = json.loads(PLAIN)
    document[part] = value
    graded(json.dumps(document).encode())


@given(JSON, st.sampled_from(["source", "metadata", "cell_type", "id", "outputs"]))
@settings(max_examples=150)
def test_any_json_in_the_place_of_any_part_of_a_cell(value: object, part: str) -> None:
    document = json.loads(PLAIN)
    document["cells"][1][part] = value
    selection = graded(json.dumps(document).encode())
    if part in ("metadata", "id", "outputs"):
        assert selection is not None and selection.problems == ()
        assert all(answer.cells for answer in selection.answers.values())


@given(st.text(max_size=300))
@settings(max_examples=200)
def test_any_text_as_a_cell(text: str) -> None:
    assert graded(notebook([*[code(source) for source in GOOD.values()], code(text)])) is not None


@given(st.binary(max_size=300))
def test_any_reply_is_an_observation_or_refused(data: bytes) -> None:
    try:
        Observation.from_bytes(data)
    except MalformedObservation:
        return


@pytest.mark.parametrize("name", STUBS)
def test_stubs_are_known_and_answers_are_none(name: str) -> None:
    names = ("pack", "unpack") if name == "pack_digits" else (name,)
    assert is_stub(parse(STUBS[name]), names)
    assert not is_stub(parse(GOOD[name]), names)
    assert not is_stub(parse(STUBS[name] + f"{names[0]} = print\n"), names)


def channel(data: bytes) -> int:
    out, into = os.pipe()
    os.write(into, data)
    os.close(into)
    os.set_blocking(out, False)
    return out


def test_only_the_reply_to_the_last_question_is_read() -> None:
    nonce, other, body = b"n" * 16, b"o" * 16, encode(1)
    good = wire.pack(nonce, 3, body)
    assert wire.read_message(channel(good), nonce, 3, 100, lambda: None) == body
    for bad in (wire.pack(other, 3, body), wire.pack(nonce, 4, body), b"x" * 64):
        with pytest.raises(wire.WireError, match="nobody asked"):
            wire.read_message(channel(bad), nonce, 3, 100, lambda: None)
    with pytest.raises(wire.TooLong, match="at most 100"):
        wire.read_message(channel(struct.pack("<16sIQ", nonce, 3, 1 << 62)), nonce, 3, 100, lambda: None)
    with pytest.raises(wire.EndOfStream):
        wire.read_message(channel(good[:-1]), nonce, 3, 100, lambda: None)


def test_a_notebook_of_100_megabytes_is_read_in_little() -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "A" * 100_000_000}, "metadata": {}}
    reading = read(notebook([code("x = 1", outputs=[picture]), *[code(source) for source in GOOD.values()]]))
    assert sum(len(cell.source) for cell in reading.cells) < 2_000
    with pytest.raises(Unreadable, match="outputs cleared"):
        read(b" " * (201 * 1024 * 1024) + b"{}")

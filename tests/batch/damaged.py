"""Files as they arrive: from Colab, from old Jupyter, cut, shuffled, merged, renamed, and not notebooks at all."""

import json

from tests.batch.bank import GOOD, POINTS, STUBS, Entry, code, notebook


def _colab() -> bytes:
    """As Colab saves: its own metadata, ids inside it, no nbgrader, no cell ids, a form's title line."""
    cells = [
        code(f"#@title Exercise {{ display-mode: 'form' }}\n{source}", metadata={"id": f"aB3_{n}", "cellView": "form"})
        for n, source in enumerate(GOOD.values())
    ]
    cells.insert(0, code("!pip install -q git+https://github.com/OWNER/sixteen-bytes", metadata={"id": "x"}))
    metadata = {"colab": {"provenance": [], "toc_visible": True}, "accelerator": "GPU"}
    return notebook(cells, metadata=metadata, nbformat_minor=0)


def _format_3() -> bytes:
    cells = [{"cell_type": "code", "input": text.splitlines(True), "language": "python"} for text in GOOD.values()]
    return json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]}).encode()


def _with_metadata(**sources: str) -> list[dict]:
    return [
        code(
            source.partition("\n")[2],
            metadata={"nbgrader": {"grade_id": name, "solution": True, "grade": False, "schema_version": 3}},
        )
        for name, source in {**GOOD, **sources}.items()
    ]


CELLS = [code(source) for source in GOOD.values()]
PLAIN = notebook(CELLS)
BUT_HALVE = {**POINTS, "halve": 0}
WRONG = code("def halve(x):\n    return x / 2 + 1\n")
CONFLICT = (
    b'<<<<<<< HEAD\n "metadata": {},\n=======\n "metadata": 1,\n>>>>>>> theirs\n "nbformat"',
    b' "metadata": {},\n "nbformat"',
)

DAMAGED = [
    Entry("colab", _colab(), POINTS),
    Entry("format_3", _format_3(), POINTS),
    Entry("metadata_only", notebook(_with_metadata()), POINTS),
    Entry("no_markers_no_metadata", notebook([code(s.partition("\n")[2]) for s in GOOD.values()]), POINTS),
    Entry("reversed", notebook(CELLS[::-1]), POINTS),
    Entry("all_in_one_cell", notebook([code("\n".join(GOOD.values()))]), POINTS),
    Entry("source_as_lists", notebook([{**c, "source": c["source"].splitlines(True)} for c in CELLS]), POINTS),
    Entry("duplicated_cells", notebook([c for c in CELLS for _ in (1, 2)]), POINTS),
    Entry("duplicated_metadata", notebook([*_with_metadata(), *_with_metadata()]), POINTS),
    Entry("good_then_broken_copy", notebook([*CELLS, WRONG]), POINTS),
    Entry("broken_then_good_copy", notebook([WRONG, *CELLS]), POINTS),
    Entry("good_then_stub_copy", notebook([*CELLS, code(STUBS["halve"])]), POINTS),
    Entry("metadata_on_the_wrong_cells", notebook(_with_metadata()[::-1]), POINTS),
    Entry(
        "split_function",
        notebook([code("# exercise: halve\ndef halve(x):\n    y = x\n"), code("    return y / 2\n"), *CELLS[1:]]),
        POINTS,
    ),
    Entry("split_before_the_body", notebook([code("def halve(x):\n"), code("    return x / 2\n"), *CELLS[1:]]), POINTS),
    Entry("answer_as_markdown", notebook([{**CELLS[0], "cell_type": "markdown"}, *CELLS[1:]]), POINTS),
    Entry("answer_as_raw", notebook([{**CELLS[0], "cell_type": "raw"}, *CELLS[1:]]), POINTS),
    Entry("ids_all_equal", notebook([{**c, "id": "same"} for c in CELLS], nbformat_minor=5), POINTS),
    Entry("byte_order_mark", b"\xef\xbb\xbf" + PLAIN, POINTS),
    Entry("utf_16", PLAIN.decode().encode("utf-16"), POINTS, problem="UTF-16"),
    Entry("latin_1", notebook([*CELLS, code("# Gr")]).replace(b"# Gr", b"# Gr\xfc\xdfe"), POINTS, problem="Latin-1"),
    Entry("junk_metadata", notebook([{**c, "metadata": 7, "outputs": "x"} for c in CELLS], metadata=[]), POINTS),
    Entry("unknown_format", notebook(CELLS, nbformat=99), POINTS),
    Entry("huge_outputs", notebook([*CELLS, code("1", outputs=[{"data": {"image/png": "A" * 30_000_000}}])]), POINTS),
    Entry("hundreds_of_cells", notebook([*CELLS, *[code(f"v{n} = 1") for n in range(300)]]), POINTS),
    Entry("truncated", PLAIN[: PLAIN.rindex(b"# exercise: pack")], {**POINTS, "pack_digits": 0}, problem="damaged"),
    Entry(
        "merge_conflict",
        json.dumps(json.loads(PLAIN), indent=1).encode().replace(CONFLICT[1], CONFLICT[0]),
        POINTS,
        problem="merge conflict",
    ),
    Entry("deleted_cell", notebook(CELLS[1:]), BUT_HALVE, problem="halve: no cell"),
    Entry(
        "renamed_function",
        notebook([code("# exercise: halve\ndef half(x):\n    return x / 2"), *CELLS[1:]]),
        BUT_HALVE,
        problem="it defines half",
    ),
    Entry(
        "answer_with_a_syntax_error",
        notebook([code("# exercise: halve\ndef halve(x)\n    return x / 2"), *CELLS[1:]]),
        BUT_HALVE,
        problem="not valid Python",
    ),
    Entry("stray_cell_entries", notebook([None, 3, "x", [], *CELLS]), POINTS, problem="is no cell"),
    Entry("empty_file", b"", problem="empty"),
    Entry("only_white_space", b" \n\t ", problem="empty"),
    Entry("no_json", b"hello, here is my homework", problem="damaged"),
    Entry("json_list", b"[1, 2, 3]", problem="not a notebook"),
    Entry("no_cells", b'{"metadata": {}}', problem="no cells"),
    Entry("deep_json", b'{"cells": ' + b"[" * 200_000, problem="nested"),
    Entry("pdf", b"%PDF-1.7 ...", problem="a PDF"),
    Entry("web_page", b"<!DOCTYPE html><html>Please log in</html>", problem="web page"),
    Entry("zip_inside", b"PK\x03\x04....", problem="zip archive"),
    Entry("other_course", notebook([code("print('history of art')")]), problem="no exercise of the course"),
    Entry("empty_notebook", notebook([]), problem="no exercise of the course"),
]

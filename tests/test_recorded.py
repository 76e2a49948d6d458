"""Live, recorded or predicted: the caption always says which, and none stands in silently for another."""

from __future__ import annotations

import json

import pytest

from course_lib import recorded as module
from course_lib.recorded import recorded

PROVENANCE = {"gpu": "Tesla T4", "torch": "2.13.0", "date": "2026-01-02", "commit": "abc"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "recorded").mkdir()

    def data_path(*parts):
        path = tmp_path.joinpath(*parts)
        if not path.exists():
            raise FileNotFoundError(path)
        return path

    monkeypatch.setattr(module, "data_path", data_path)
    monkeypatch.setattr(module, "is_available", lambda needs: False)
    monkeypatch.delenv(module.RECORD_VARIABLE, raising=False)
    return tmp_path / "recorded"


def write(folder, **content):
    (folder / "thing.json").write_text(json.dumps(content), encoding="utf-8")


def test_with_a_gpu_the_function_runs(folder, monkeypatch):
    monkeypatch.setattr(module, "is_available", lambda needs: True)
    write(folder, data=[0], provenance=PROVENANCE)
    data, caption = recorded("thing")(lambda: {"times": (1.5, 2.5)})()
    assert data == {"times": [1.5, 2.5]}  # as it would be read from a file
    assert caption == "live"


def test_without_one_the_recording_says_where_it_is_from(folder):
    write(folder, data=[1, 2], provenance=PROVENANCE)
    found = recorded("thing", predict=lambda: [0])(lambda: pytest.fail("ran without a GPU"))()
    assert found.data == [1, 2]
    assert found.caption == "recorded on Tesla T4, torch 2.13.0, 2026-01-02"
    assert found.source == "recorded"


def test_without_a_recording_the_dry_run_predicts(folder):
    found = recorded("thing", predict=lambda: {"peak_bytes": 7})(lambda: None)()
    assert found.data == {"peak_bytes": 7}
    assert found.caption == "predicted by dry run for T4"
    assert recorded("thing", predict=lambda: 1, predict_gpu="H100")(lambda: None)().caption.endswith("H100")


def test_without_anything_it_says_so(folder):
    with pytest.raises(LookupError, match="Run this cell on a GPU"):
        recorded("thing")(lambda: None)()


def test_a_damaged_recording_is_not_used(folder):
    write(folder, data=[1])
    with pytest.raises(ValueError, match="must be a recording"):
        recorded("thing", predict=lambda: 1)(lambda: None)()


def test_recording_writes_data_with_its_provenance(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "is_available", lambda needs: True)
    monkeypatch.setattr(module, "provenance", lambda: PROVENANCE)
    monkeypatch.setenv(module.RECORD_VARIABLE, str(tmp_path / "out"))
    recorded("thing", needs="bf16")(lambda: [3])()
    found = json.loads((tmp_path / "out" / "thing.json").read_text(encoding="utf-8"))
    assert found == {"name": "thing", "needs": "bf16", "provenance": PROVENANCE, "data": [3]}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thing.json"]


@pytest.mark.parametrize("data", [{1, 2}, float("nan"), object()])
def test_only_plain_data_is_returned(folder, data):
    with pytest.raises(TypeError, match="plain data"):
        recorded("thing", predict=lambda: data)(lambda: None)()


@pytest.mark.parametrize("options", [{"name": "../x"}, {"name": ""}, {"name": "x", "needs": "gpu"}])
def test_names_and_needs_are_checked_at_once(options):
    with pytest.raises(ValueError, match="must be"):
        recorded(**options)


def test_every_committed_recording_can_be_read():
    for path in (module.PACKAGE.parent / "data" / "recorded").glob("*.json"):
        found = module.load_recording(path.stem)
        assert found is not None and found["name"] == path.stem
        assert {"gpu", "driver", "torch", "date", "command", "commit"} <= set(found["provenance"])

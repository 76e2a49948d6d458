"""What all tests share: one thread, no window, a progress file of their own, and cells that need a GPU left out.

`make test` also loads this file for the notebooks themselves (`pytest -p tests.conftest --nbval-lax notebooks`).
"""

from __future__ import annotations

import os
import tempfile

import hypothesis
import pytest

os.environ["MPLBACKEND"] = "Agg"
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No clock decides a test, and a failure is found again by the next run.
hypothesis.settings.register_profile("course", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("course")


def pytest_configure(config: pytest.Config) -> None:
    folder = tempfile.TemporaryDirectory(prefix="sixteen-bytes-")
    config.add_cleanup(folder.cleanup)
    os.environ["SIXTEEN_BYTES_HOME"] = folder.name  # the kernels of nbval inherit it
    if config.getoption("nbval", False) or config.getoption("nbval_lax", False):
        os.environ.pop("MPLBACKEND")  # kernels draw into the notebook


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips `gpu-only` cells, and tests marked `gpu`, where there is no GPU."""
    wanting = [item for item in items if "gpu-only" in cell_tags(item) or item.get_closest_marker("gpu")]
    if wanting and not has_gpu():
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def cell_tags(item: pytest.Item) -> list[str]:
    """The tags of the notebook cell that a test item of nbval runs; none for other tests."""
    cell = getattr(item, "cell", None)
    return list(cell.metadata.get("tags", [])) if cell is not None else []


@pytest.fixture(autouse=True)
def _one_home_a_test(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIXTEEN_BYTES_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)

"""A learner's first minutes in a real JupyterLab: run a notebook, see pictures and live widgets, no traceback."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """JupyterLab serving copies of the notebooks, without a token, on this machine only."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOKS, folder / "notebooks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--no-browser", "--ip=127.0.0.1", f"--port={port}", "--IdentityProvider.token=", "--allow-root"]
    environment = {**os.environ, "SIXTEEN_BYTES_HOME": str(folder), "MPLBACKEND": ""}
    environment.pop("MPLBACKEND")
    with open(folder / "log", "wb") as log:
        lab = subprocess.Popen(
            [sys.executable, "-m", "jupyter", "lab", *options],
            cwd=folder / "notebooks",
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        base = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{base}/api/status", timeout=2)
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.4)
        else:
            pytest.fail((folder / "log").read_text())
        yield base
    finally:
        lab.terminate()
        lab.wait(30)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


def run_all(browser, address: str, name: str):
    """Opens a notebook, runs every cell, waits for the kernel to be idle; the page."""
    page = browser.new_page(viewport={"width": 1280, "height": 2400})
    page.set_default_timeout(120_000)
    page.goto(f"{address}/lab/tree/{name}.ipynb?reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell", state="attached")
    page.wait_for_selector("[data-status=idle], .jp-Notebook-ExecutionIndicator[data-status=idle]", state="attached")
    page.click("text=Run >> nth=0")
    page.click("text=Run All Cells >> nth=0")
    count = sum(cell["cell_type"] == "code" for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"])
    # JupyterLab draws only what is near the window, so the kernel is asked, not the page.
    for _ in range(300):
        kernels = json.loads(urllib.request.urlopen(f"{address}/api/sessions", timeout=10).read())
        states = [session["kernel"]["execution_state"] for session in kernels if session["path"].startswith(name)]
        if states == ["idle"] and page.locator(".jp-InputPrompt", has_text="[*]").count() == 0:
            break
        page.wait_for_timeout(500)
    assert count > 0
    return page


def scroll_through(page) -> None:
    box = page.locator(".jp-WindowedPanel-outer, .jp-Notebook").first
    for step in range(60):
        box.evaluate("(element, step) => element.scrollTo(0, 1500 * step)", step)
        page.wait_for_timeout(150)
        assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        assert page.locator("text=Error displaying widget").count() == 0


@pytest.mark.parametrize("name", ["00_start_here", "01_floating_point_formats"])
def test_a_lesson_runs_without_a_traceback(browser, address, name, tmp_path):
    page = run_all(browser, address, name)
    scroll_through(page)
    page.screenshot(path=str(Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"{name}.png"))
    page.close()


def test_a_bit_can_be_toggled(browser, address):
    page = run_all(browser, address, "01_floating_point_formats")
    box = page.locator(".jp-WindowedPanel-outer, .jp-Notebook").first
    toggles = page.locator(".jupyter-widgets button.widget-toggle-button")
    for step in range(60):
        box.evaluate("(element, step) => element.scrollTo(0, 700 * step)", step)
        page.wait_for_timeout(200)
        if toggles.count() >= 16:
            break
    image = page.locator(".jupyter-widgets img").first
    before = image.get_attribute("src")
    toggles.nth(15).click()
    for _ in range(100):
        if image.get_attribute("src") != before:
            return
        page.wait_for_timeout(100)
    pytest.fail("the picture did not follow the bit")

"""Measurements that need a GPU: live where there is one, else recorded with their provenance, else predicted.

The three are never mixed up: each result carries a caption that says which one it is.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from course_lib.data_files import PACKAGE, data_path

RECORD_VARIABLE = "SIXTEEN_BYTES_RECORD"  # a folder: live results are written there (set by `course record`)
NEEDS = ("cuda", "bf16")


class Measurement(NamedTuple):
    """Plain data and the caption that says where it came from: `data, caption = measure()`."""

    data: Any
    caption: str

    @property
    def source(self) -> str:
        """`live`, `recorded` or `predicted`."""
        return self.caption.split()[0].rstrip(",")


def is_available(needs: str) -> bool:
    """Whether this machine can run the measurement itself.

    `"bf16"` asks for real bfloat16: the permissive default of `is_bf16_supported` is True on a T4, which emulates it
    slowly.
    """
    import torch

    if not torch.cuda.is_available():
        return False
    return needs == "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)


def recorded(
    name: str, needs: str = "cuda", predict: Callable[[], Any] | None = None, *, predict_gpu: str = "T4"
) -> Callable[[Callable[[], Any]], Callable[[], Measurement]]:
    """Turns a function that measures something on a GPU into one that works everywhere.

    Args:
        name: of the file `data/recorded/<name>.json`.
        needs: `"cuda"`, or `"bf16"` for a GPU that computes in bfloat16 itself.
        predict: called where there is neither the GPU nor a recording; returns data of the same shape, from a dry run.
        predict_gpu: the GPU that the prediction is for; the caption names it.
    Returns:
        A decorator. The decorated function takes no arguments and returns a `Measurement`: what the function
        returned, as plain data (lists, dicts with string keys, numbers, strings), and one of three captions: `live`,
        `recorded on <GPU>, torch <version>, <date>`, `predicted by dry run for <GPU>`.
    Raises:
        ValueError: `needs` or `name` is not one that the course knows what to do with.
    """
    if needs not in NEEDS:
        raise ValueError(f"needs must be one of {', '.join(NEEDS)}; got {needs!r}. Ask for the GPU that it needs.")
    if not name or not name.replace("_", "").replace("-", "").isalnum():
        raise ValueError(f"name must be letters, digits, - and _; got {name!r}. It becomes the name of a file.")

    def decorate(measure: Callable[[], Any]) -> Callable[[], Measurement]:
        @functools.wraps(measure)
        def measurement() -> Measurement:
            if is_available(needs):
                data = _plain(name, measure())
                folder = os.environ.get(RECORD_VARIABLE)
                if folder:
                    write_recording(Path(folder), name, needs, data)
                return Measurement(data, "live")
            found = load_recording(name)
            if found is not None:
                source = found["provenance"]
                return Measurement(
                    found["data"], f"recorded on {source['gpu']}, torch {source['torch']}, {source['date']}"
                )
            if predict is None:
                raise LookupError(
                    f"{name} must be measured, recorded or predicted; got none of them. "
                    f"Run this cell on a GPU, or run `course record` there."
                )
            return Measurement(_plain(name, predict()), f"predicted by dry run for {predict_gpu}")

        measurement.recorded_name = name  # type: ignore[attr-defined]
        measurement.needs = needs  # type: ignore[attr-defined]
        return measurement

    return decorate


def load_recording(name: str) -> dict[str, Any] | None:
    """The recording of that name, or None where nothing has been recorded yet.

    Raises:
        ValueError: the file is there but is not a recording.
    """
    try:
        path = data_path("recorded", f"{name}.json")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        for key in ("gpu", "torch", "date"):
            found["provenance"][key]
        found["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} must be a recording with its provenance; got {error!r}. Record it again.") from error
    return found


def provenance() -> dict[str, Any]:
    """What someone needs to judge or repeat a measurement: GPU, driver, versions, date, command, commit."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "capability": [properties.major, properties.minor],
        "memory_bytes": properties.total_memory,
        "driver": _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).split("\n")[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": os.environ.get("SIXTEEN_BYTES_COMMAND") or Path(sys.argv[0]).name,
        "commit": _output(["git", "-C", str(PACKAGE.parent), "rev-parse", "HEAD"]) or None,
    }


def write_recording(folder: Path, name: str, needs: str, data: Any) -> Path:
    """Writes one recording with its provenance; the file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    recording = {"name": name, "needs": needs, "provenance": provenance(), "data": data}
    text = json.dumps(recording, indent=1, allow_nan=False) + "\n"
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, suffix=".part", encoding="utf-8") as file:
        file.write(text)
    path = folder / f"{name}.json"
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
    return path


def _plain(name: str, data: Any) -> Any:
    """The data as it will be read back from a file, so that live and recorded results have one shape."""
    try:
        return json.loads(json.dumps(data, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must return plain data (lists, dicts, finite numbers, strings, None); got {error}. "
            "Convert tensors with .item() or .tolist()."
        ) from error


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""

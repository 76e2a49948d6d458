"""What this machine can do for the course: GPU, compute capability, real or emulated bfloat16, memory, versions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

PACKAGES = ("torch", "numpy", "matplotlib", "ipywidgets", "nbformat", "jupyterlab", "transformers", "triton")


def report() -> dict[str, Any]:
    """Facts about this machine as plain data; `advice` turns them into words.

    Keys: `course`, `python`, `system`, `where` (`colab`, `binder` or `local`), `cpu_count`, `memory_bytes` (None where
    the system does not tell), `gpu` (None, or `name`, `capability`, `memory_bytes`, `bf16` in `real`, `emulated`,
    `none`), `versions`, `sandbox` (`works`, `blocked` or `missing`).
    """
    return {
        "course": version("sixteen-bytes"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "where": where(),
        "cpu_count": os.cpu_count() or 1,
        "memory_bytes": memory_bytes(),
        "gpu": gpu(),
        "versions": {name: version(name) for name in PACKAGES},
        "sandbox": sandbox(),
    }


def version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def where() -> str:
    """`colab`, `binder` or `local`."""
    if "COLAB_RELEASE_TAG" in os.environ or "google.colab" in sys.modules:
        return "colab"
    if "BINDER_SERVICE_HOST" in os.environ or "BINDER_LAUNCH_HOST" in os.environ:
        return "binder"
    return "local"


def memory_bytes() -> int | None:
    """Bytes of main memory that a process may use: the container's limit where there is one; None if unknown."""
    found = []
    try:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path, encoding="ascii") as file:
                found.append(int(file.read()))
        except (OSError, ValueError):
            continue
    return min(found)


def gpu() -> dict[str, Any] | None:
    """The first CUDA GPU, or None."""
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    if torch.cuda.is_bf16_supported(including_emulation=False):
        bf16 = "real"
    else:
        bf16 = "emulated" if torch.cuda.is_bf16_supported() else "none"
    return {
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "memory_bytes": properties.total_memory,
        "bf16": bf16,
    }


def sandbox() -> str:
    """Whether bubblewrap, which batch grading needs, `works`, is `blocked` by the system, or `missing`."""
    program = shutil.which("bwrap")
    if program is None:
        return "missing"
    try:
        line = [program, "--unshare-all", "--ro-bind", "/", "/", "true"]
        return "works" if subprocess.run(line, capture_output=True, timeout=20).returncode == 0 else "blocked"
    except (OSError, subprocess.SubprocessError):
        return "blocked"


def advice(facts: dict[str, Any]) -> list[str]:
    """What to do on this machine, one sentence each; `facts` is what `report` gave."""
    said = []
    found = facts["gpu"]
    if found is None:
        said.append(
            "There is no CUDA GPU here. All exercises work without one; GPU cells show recorded or predicted results."
        )
        if facts["where"] == "colab":
            said.append("For a free T4: Runtime, Change runtime type, T4 GPU; then run the notebook from the top.")
    elif found["bf16"] == "emulated":
        said.append(
            f"{found['name']} emulates bfloat16, slowly: use float16 with a loss scaler. Cells that need real bfloat16 "
            "show recorded results."
        )
    elif found["bf16"] == "none":
        said.append(f"{found['name']} has no bfloat16: use float16 with a loss scaler.")
    else:
        said.append(f"{found['name']} computes in bfloat16 itself: every GPU cell runs live.")
    if facts["memory_bytes"] is not None and facts["memory_bytes"] < 2 * 2**30:
        said.append("Less than 2 GiB of memory: keep one notebook open at a time.")
    if facts["where"] != "colab" and facts["versions"]["jupyterlab"] is None:
        said.append("JupyterLab is missing; install it with: pip install -e '.[lab]'")
    if facts["versions"]["triton"] is None:
        said.append("Triton is missing (it exists for Linux only): the bonus of lesson 05 cannot be graded here.")
    if facts["sandbox"] == "missing":
        said.append("bubblewrap is missing: you can learn and check, but not grade others' work (`course grade`).")
    elif facts["sandbox"] == "blocked":
        said.append(
            "bubblewrap is installed but this system blocks user namespaces, as containers and newer Ubuntu do: "
            "`course grade` will not work until they are allowed."
        )
    return said


def describe(facts: dict[str, Any]) -> str:
    """The report as aligned lines of text, followed by the advice."""
    found = facts["gpu"]
    memory = facts["memory_bytes"]
    rows = [
        ("Course", facts["course"] or "not installed"),
        ("Python", f"{facts['python']} on {facts['system']}"),
        ("Where", {"colab": "Google Colab", "binder": "Binder", "local": "your own machine"}[facts["where"]]),
        ("CPU", f"{facts['cpu_count']} cores" + (f", {memory / 2**30:.1f} GiB of memory" if memory else "")),
    ]
    if found is None:
        rows.append(("GPU", "none"))
    else:
        capability = ".".join(map(str, found["capability"]))
        rows.append(("GPU", f"{found['name']}, capability {capability}, {found['memory_bytes'] / 2**30:.1f} GiB"))
        rows.append(("bfloat16", found["bf16"]))
    versions = facts["versions"]
    rows.append(("Versions", ", ".join(f"{name} {versions[name]}" for name in PACKAGES if versions[name])))
    missing = [name for name in PACKAGES if not versions[name]]
    if missing:
        rows.append(("Missing", ", ".join(missing)))
    rows.append(("Sandbox", f"bubblewrap {facts['sandbox']}"))
    lines = [f"{label:<10}{text}" for label, text in rows]
    return "\n".join([*lines, "", *advice(facts)])

"""Where the course's data files lie: inside the installed package, or beside it in a clone."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def data_directories() -> tuple[Path, ...]:
    """Where data files are looked for, in order.

    An installed wheel carries `data/` inside the package. In a clone the folder beside the package is the only
    copy.
    """
    return (PACKAGE / "data", PACKAGE.parent / "data")


def data_path(*parts: str) -> Path:
    """The path of one data file, for example `data_path("recorded", "attention.json")`.

    Raises:
        FileNotFoundError: the file is in none of the places; the message lists them.
    """
    for directory in data_directories():
        path = directory.joinpath(*parts)
        if path.exists():
            return path
    places = " or ".join(str(directory) for directory in data_directories())
    raise FileNotFoundError(f"data file must exist; found no {'/'.join(parts)} in {places}. Install the course again.")

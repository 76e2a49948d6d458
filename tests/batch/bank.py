"""What the bank of submissions is made of: right answers, stubs, and ways to put them into notebooks.

The exercises are those of `toys`. Where a submission says nothing else, its other exercises are answered rightly:
what happens in one must cost only that one.
"""

import json
from dataclasses import dataclass, field

GOOD = {
    "halve": "# exercise: halve\ndef halve(x):\n    return x * 0.5\n",
    "scale_rows": "# exercise: scale_rows\ndef scale_rows(x, factors):\n    return factors.unsqueeze(1) * x\n",
    "describe_sizes": (
        "# exercise: describe_sizes\nimport math\ndef describe_sizes(shape):\n"
        "    return dict(dimensions=len(shape), elements=math.prod(shape))\n"
    ),
    "Counter": (
        "# exercise: Counter\nclass Counter:\n    def __init__(self, start):\n        self.now = start\n"
        "    def up(self, by):\n        self.now = self.now + by\n        return self.now\n"
    ),
    "pack_digits": (
        "# exercise: pack_digits\ndef pack(x):\n    return list(map(int, str(x)))\n"
        "def unpack(digits):\n    total = 0\n    for digit in digits:\n        total = 10 * total + digit\n"
        "    return total\n"
    ),
}
STUBS = {
    "halve": '# exercise: halve\ndef halve(x):\n    """Half of x."""\n    raise NotImplementedError\n',
    "scale_rows": "# exercise: scale_rows\ndef scale_rows(x, factors):\n    raise NotImplementedError('about 1 line')\n",
    "describe_sizes": "# exercise: describe_sizes\ndef describe_sizes(shape):\n    raise NotImplementedError\n",
    "Counter": (
        "# exercise: Counter\nclass Counter:\n    def __init__(self, start):\n        raise NotImplementedError\n"
        "    def up(self, by):\n        raise NotImplementedError\n"
    ),
    "pack_digits": (
        "# exercise: pack_digits\ndef pack(x):\n    raise NotImplementedError\n"
        "def unpack(digits):\n    raise NotImplementedError\n"
    ),
}
POINTS = {"halve": 2, "scale_rows": 3, "describe_sizes": 2, "Counter": 2, "pack_digits": 2}


@dataclass(frozen=True)
class Entry:
    """One submission of the bank.

    Attributes:
        name: the student.
        data: the file.
        points: expected, by exercise; empty when the file cannot be graded at all.
        problem: a piece of the expected problem, or ``""`` for none at all.
        flag: a piece of an expected flag.
    """

    name: str
    data: bytes
    points: dict[str, float] = field(default_factory=dict)
    problem: str = ""
    flag: str = ""


def code(source: str, **more: object) -> dict:
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None, **more}


def notebook(cells: list[dict], **more: object) -> bytes:
    document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}
    return json.dumps(document).encode()


def entry(
    name: str, before: str = "", after: str = "", problem: str = "", flag: str = "", points: dict | None = None,
    **answers: str | None,
) -> Entry:
    """A submission of right answers with some replaced; replaced ones are expected to get nothing."""
    given = {**GOOD, **answers}
    sources = [before, *(source for source in given.values() if source is not None), after]
    expected = {ex: 0 if ex in answers else worth for ex, worth in POINTS.items()}
    cells = [code(source) for source in sources if source]
    return Entry(name, notebook(cells), {**expected, **(points or {})}, problem, flag)  # fmt: skip

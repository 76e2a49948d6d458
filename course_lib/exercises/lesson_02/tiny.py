"""A network of a few weights, made from plain data, and what can be seen of it: for exercises that take a step."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.grading.compare import alike, describe
from course_lib.grading.exercise import Mismatch

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
}


class TinyNet(nn.Module):
    """Two linear layers, and a parameter that takes part in no loss."""

    def __init__(self, seed: int, width: int = 4, dtype: torch.dtype = torch.float32):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(3, width)
        self.second = nn.Linear(width, 2)
        self.unused = nn.Parameter(torch.ones(2))
        with torch.no_grad():
            for parameter in (*self.first.parameters(), *self.second.parameters()):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.7)
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))


def draw_batch(seed: int, size: int = 6, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Inputs (size, 3) and targets (size, 2)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 3, generator=generator).to(dtype), torch.randn(size, 2, generator=generator).to(dtype)


def mean_squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(outputs, targets)


def snapshot(parameters) -> Tensor:
    """All elements in one vector, copied."""
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def optimizer_state(optimizer: torch.optim.Optimizer) -> list:
    """Every tensor of an optimizer's state, in order; empty where there is none yet."""
    entries = optimizer.state_dict()["state"]
    return [
        [torch.as_tensor(entry[key]) for key in sorted(entry) if entry[key] is not None] for entry in entries.values()
    ]


def record_gradients(optimizer: torch.optim.Optimizer, seen: list) -> None:
    """Appends the gradients that each `optimizer.step()` works with."""

    def look(optimizer, args, kwargs):
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        seen.append(snapshot(p.grad for p in parameters) if parameters else torch.zeros(0))

    optimizer.register_step_pre_hook(look)


# Right code may divide by S or multiply by 1/S: relative differences of one rounding, 6e-8, that a few steps can double.
REL = 1e-5


def first_difference(got: object, expected: list, parts: dict[str, str], rel: float = REL) -> Mismatch | None:
    """Compares two traces, lists of dicts, and names the first step and part that differ.

    Args:
        parts: key -> its name in feedback, in the order in which to compare.
    """
    if not isinstance(got, list) or len(got) != len(expected):
        return Mismatch(f"{len(expected)} steps", describe(got))
    for number, (mine, due) in enumerate(zip(got, expected, strict=True), start=1):
        for key, name in parts.items():
            value = mine.get(key) if isinstance(mine, dict) else None
            if not alike(value, due[key], rel):
                return Mismatch(*_shown(value, due[key]), f"Step {number} ({due['kind']}): {name}.")
    return None


def _shown(got: object, expected: object) -> tuple[str, str]:
    if isinstance(got, Tensor) and isinstance(expected, Tensor) and got.shape == expected.shape and got.numel() > 1:
        difference = (got.double() - expected.double()).abs().nan_to_num(nan=torch.inf)
        at = int(difference.argmax())
        return f"{expected.flatten()[at].item():.6g} in element {at}", f"{got.flatten()[at].item():.6g}"
    if isinstance(expected, Tensor) and got is None:
        return "a step", "none"
    if expected is None and isinstance(got, Tensor):
        return "no step", "a step"
    if isinstance(expected, list) and any(isinstance(item, list) for item in [*expected, *_items(got)]):
        return f"{len(expected)} parameters with state", f"{len(_items(got))}, or other values"
    return describe(expected), describe(got)


def _items(value: object) -> list:
    return value if isinstance(value, list) else []

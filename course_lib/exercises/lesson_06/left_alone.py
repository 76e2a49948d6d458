"""What a solution has to leave as it found it: inputs, modes, who wants gradients, and grad mode itself."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.grading.compare import describe
from course_lib.grading.exercise import Mismatch

NEXT = "Look for methods that end in `_`, for `pop`, `train` and `eval`: the caller goes on with what you leave."


def _flat(inputs: Any) -> list[Any]:
    """Tensors, and the length of each list they lie in."""
    if isinstance(inputs, list | tuple):
        return [len(inputs), *(leaf for item in inputs for leaf in _flat(item))]
    return [inputs]


def left_alone(inputs: Any = (), model: nn.Module | None = None) -> Callable[[], str]:
    """Remembers everything now; the function that it returns names what has changed since, "" for nothing.

    It also turns grad mode on again: the next check is not to suffer from this one.
    """
    leaves = _flat(inputs)
    values = [leaf.detach().clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    wants = [leaf.requires_grad for leaf in leaves if isinstance(leaf, Tensor)]
    modes = [module.training for module in model.modules()] if model else []
    trained = [parameter.requires_grad for parameter in model.parameters()] if model else []

    def changed() -> str:
        is_grad_enabled = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        now = _flat(inputs)
        if not is_grad_enabled:
            return "grad mode: it is off now"
        if model and [module.training for module in model.modules()] != modes:
            return "the model's mode"
        if model and [parameter.requires_grad for parameter in model.parameters()] != trained:
            return "requires_grad of the parameters"
        same = len(now) == len(values) and all(
            torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b
            for a, b in zip(now, values, strict=True)
        )
        if not same:
            return "the inputs"
        if [leaf.requires_grad for leaf in now if isinstance(leaf, Tensor)] != wants:
            return "requires_grad of the inputs"
        return ""

    return changed


def left_alone_mismatch(got: dict[str, Any]) -> Mismatch | None:
    """For an observation that keeps the answer under "changed"."""
    changed = got.get("changed")
    if changed == "":
        return None
    what = changed if isinstance(changed, str) else describe(changed)
    return Mismatch("everything else as it was", f"a change in {what}", "", NEXT)

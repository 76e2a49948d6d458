"""Loss scaling: moving gradients into float16's window before backward, and back before the update.

float16 is normal from 2⁻¹⁴, ends in subnormals at 2⁻²⁴, rounds to zero at or below 2⁻²⁵ and to infinity from 65,520.
Multiplying the loss by S multiplies every gradient by S (the chain rule is linear), and a power of two changes
exponents only, so nothing is rounded on the way. Sources: Micikevicius et al. 2018, §3.2 (static scaling, skipped
steps); the dynamic rule and its constants are those of `torch.amp.GradScaler`.
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_


def underflow_fraction(gradients: Tensor, dtype: torch.dtype, scale: float = 1.0) -> float:
    """The share of the non-zero gradients that a cast turns into zero.

    Args:
        gradients: float32, any shape.
        dtype: what the scaled gradients are cast to.
        scale: multiplied in float32, before the cast.
    Returns:
        Between 0 and 1; 0.0 when no gradient is non-zero.
    """
    is_nonzero = gradients != 0
    count = is_nonzero.sum().item()
    if count == 0:
        return 0.0
    is_lost = is_nonzero & ((gradients.float() * scale).to(dtype) == 0)
    return is_lost.sum().item() / count


def largest_safe_scale(gradients: Tensor, dtype: torch.dtype) -> float:
    """The largest power of two by which all gradients can be multiplied without one becoming infinite.

    Args:
        gradients: finite, at least one non-zero.
        dtype: the format that must hold the product, after rounding.
    Returns:
        A power of two; below 1 when the gradients themselves are too large.
    """
    largest = gradients.abs().max().item()
    info = torch.finfo(dtype)
    # Rounding to nearest: what lies less than half a step above the maximum still rounds down to it.
    top = math.frexp(info.max)[1]  # the maximum is just below 2**top
    limit = info.max + 2.0 ** (top - 1) * info.eps / 2  # float16: 65,504 + 16 = 65,520
    significand, exponent = math.frexp(largest)  # largest = significand · 2**exponent, 0.5 <= significand < 1
    is_below = significand < limit / 2.0**top
    return 2.0 ** (top - exponent if is_below else top - exponent - 1)


def scaled_step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, scale: float) -> bool:
    """One training step with a fixed scale.

    Args:
        model: float32 parameters whose gradients are clear; some may receive none.
        loss: a float32 scalar whose graph is alive.
        scale: S. The loss is multiplied by it, the gradients are divided by it again.
    Returns:
        Whether the step was taken. A non-finite gradient skips it: parameters and optimizer state stay as they were.
    """
    (loss * scale).backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    for gradient in gradients:
        gradient.div_(scale)  # before anything looks at the size of a gradient: clipping, weight decay, Adam's moments
    if not all(gradient.isfinite().all() for gradient in gradients):
        return False
    optimizer.step()
    return True


class DynamicLossScaler:
    """A loss scaler that finds its own scale: halve on overflow, double after a run of good steps.

    One optimizer a scaler. The order of a step is `scale(loss).backward()`, then `unscale_` if you need true
    gradients, then `step`, then `update`.

    Args:
        init_scale: the first scale.
        growth_factor: multiplies the scale after `growth_interval` good steps in a row.
        backoff_factor: multiplies the scale after a step with a non-finite gradient.
        growth_interval: how many good steps in a row it takes to grow.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ):
        self._scale = init_scale
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._good_steps = 0
        self._start_iteration()

    def _start_iteration(self) -> None:
        self._is_unscaled = False
        self._found_nonfinite = False

    def scale(self, loss: Tensor) -> Tensor:
        """The loss to call `backward` on."""
        return loss * self._scale

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the optimizer's gradients by the scale, in place, and remembers whether one is not finite.

        Raises:
            RuntimeError: called a second time before `update`.
        """
        if self._is_unscaled:
            raise RuntimeError("unscale_() must be called at most once between updates; got a second call.")
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(self._scale)
                    if not parameter.grad.isfinite().all():  # infinity and NaN: inf - inf is NaN
                        self._found_nonfinite = True
        self._is_unscaled = True

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """`optimizer.step()`, with true gradients, unless one of them is not finite."""
        if not self._is_unscaled:
            self.unscale_(optimizer)
        if not self._found_nonfinite:
            optimizer.step()

    def update(self) -> None:
        """Sets the scale of the next iteration; call it once an iteration."""
        if self._found_nonfinite:
            self._scale *= self._backoff_factor
            self._good_steps = 0
        else:
            self._good_steps += 1
            if self._good_steps == self._growth_interval:
                self._scale *= self._growth_factor
                self._good_steps = 0
        self._start_iteration()

    def get_scale(self) -> float:
        """The scale in force."""
        return self._scale

    def state_dict(self) -> dict:
        """Everything that the next steps depend on, as a copy."""
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "good_steps": self._good_steps,
        }

    def load_state_dict(self, state: dict) -> None:
        """Goes on where the scaler that made the state would have gone on."""
        self._scale = state["scale"]
        self._growth_factor = state["growth_factor"]
        self._backoff_factor = state["backoff_factor"]
        self._growth_interval = state["growth_interval"]
        self._good_steps = state["good_steps"]
        self._start_iteration()


def clipped_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, loss: Tensor, max_norm: float
) -> float:
    """One scaled step with its gradient clipped to a norm; calls `update`.

    Args:
        model: parameters whose gradients are clear.
        loss: a scalar whose graph is alive, unscaled.
    Returns:
        The norm of the true gradient before clipping; not finite on overflow, when the scaler skips the step.
    """
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # max_norm is meant for true gradients, so they must be true by now
    norm = clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm.item()


def accumulated_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    micro_batches: list,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """One scaled step whose gradient is that of all micro-batches together; calls `update`.

    Args:
        model: its gradients may hold something from before; they are cleared first.
        micro_batches: (inputs, targets) pairs, all of one size.
        loss_fn: a mean over a micro-batch.
    """
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        loss = loss_fn(model(inputs), targets) / len(micro_batches)  # a mean of means of equal sizes is the mean
        scaler.scale(loss).backward()  # all with one scale: `update` waits until the sum is complete
    scaler.step(optimizer)
    scaler.update()


def _tensors(output: object) -> Iterable[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, tuple | list):
        for item in output:
            yield from _tensors(item)


def first_nonfinite_module(model: nn.Module, batch: Tensor) -> str | None:
    """Where a forward pass first goes wrong.

    Args:
        batch: the model's input.
    Returns:
        The qualified name ('' for the model itself) of the first module to finish with a non-finite tensor in its
        output; None when there is none. The model keeps no hook.
    """
    found: list[str] = []

    def look(name: str) -> Callable:
        def hook(module: nn.Module, inputs: tuple, output: object) -> None:
            if not found and not all(tensor.isfinite().all() for tensor in _tensors(output)):
                found.append(name)

        return hook

    handles = [module.register_forward_hook(look(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad():
            model(batch)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else None

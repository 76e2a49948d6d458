"""In a dry run "cuda" means the fake tensors: a step written for a GPU runs as it stands.

Fake tensors with device "cuda" abort the process in the backward pass on a build without CUDA, so the GPU's tensors are
fake CPU tensors. What names "cuda" is led to them, and what moves saved tensors to the host is counted apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode

from course_lib.memory.errors import DryRunError
from course_lib.memory.ledger import MemoryLedger


def _is_cuda(thing: Any) -> bool:
    if isinstance(thing, torch.device):
        return thing.type == "cuda"
    return isinstance(thing, str) and (thing == "cuda" or thing.startswith("cuda:"))


class CudaMeansFake(TorchFunctionMode):
    """Leads every device argument that names CUDA to the CPU, where the fake tensors are; refuses NumPy."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.__deepcopy__:
            with warnings.catch_warnings():
                # it asks for the address, which a fake tensor has not
                warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor", UserWarning)
                return func(*args, **kwargs)
        if func is torch.device:  # torch.device("cuda", 0) too
            name = args[0] if args else kwargs.get("type", kwargs.get("device"))
            return torch.device("cpu") if _is_cuda(name) else func(*args, **kwargs)
        if func in (torch.Tensor.numpy, torch.Tensor.__array__):
            raise DryRunError(
                "A dry run knows shapes, not values: it cannot make a NumPy array. Leave the conversion out of the step."
            )
        if func is torch.Tensor.__format__ and isinstance(args[0], FakeTensor):
            return format(args[0].item(), *args[1:]) if args[0].dim() == 0 else str(args[0])
        if any(_is_cuda(arg) for arg in args):
            args = tuple(torch.device("cpu") if _is_cuda(arg) else arg for arg in args)
        if _is_cuda(kwargs.get("device")):
            kwargs = {**kwargs, "device": torch.device("cpu")}
        return func(*args, **kwargs)


@contextmanager
def cuda_means_fake(ledger: MemoryLedger, mode: FakeTensorMode) -> Iterator[None]:
    """Devices, autocast, GradScaler, save_on_cpu and module conversions, for one dry run."""
    with ExitStack() as stack:
        for owner in (torch.amp.autocast_mode.autocast, torch.amp.grad_scaler.GradScaler):
            stack.enter_context(mock.patch.object(owner, "__init__", _on_cpu(owner.__init__)))
        save_on_cpu = torch.autograd.graph.save_on_cpu
        stack.enter_context(mock.patch.object(save_on_cpu, "__init__", _counted_apart(ledger)))
        stack.enter_context(mock.patch.object(torch.utils, "swap_tensors", _swap_fakes(torch.utils.swap_tensors, mode)))
        for name, answer in (
            ("synchronize", None),
            ("empty_cache", None),
            ("reset_peak_memory_stats", None),
            ("memory_allocated", lambda: ledger.live_bytes),
            ("max_memory_allocated", lambda: ledger.peak_bytes),
        ):
            stack.enter_context(mock.patch.object(torch.cuda, name, _answers(answer)))
        stack.enter_context(CudaMeansFake())
        yield


def _answers(answer: Callable[[], int] | None) -> Callable[..., int | None]:
    return lambda device=None: answer() if answer else None


def _on_cpu(init: Callable[..., None]) -> Callable[..., None]:
    def on_cpu(self: Any, *args: Any, **kwargs: Any) -> None:
        # Both take the device's type first, as "device_type" or "device"; GradScaler has "cuda" by default.
        if args:
            args = ("cpu" if _is_cuda(args[0]) else args[0], *args[1:])
        else:
            name = "device" if isinstance(self, torch.amp.GradScaler) else "device_type"
            kwargs[name] = "cpu" if _is_cuda(kwargs.get(name, "cuda")) else kwargs[name]
        init(self, *args, **kwargs)

    return on_cpu


def _counted_apart(ledger: MemoryLedger) -> Callable[..., None]:
    def init(self: Any, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def to_host(tensor: torch.Tensor) -> torch.Tensor:
            with torch.no_grad(), ledger.on_host():
                return tensor.clone()

        def to_gpu(tensor: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return tensor.clone()

        super(torch.autograd.graph.save_on_cpu, self).__init__(to_host, to_gpu)

    return init


def _swap_fakes(swap: Callable[..., None], mode: FakeTensorMode) -> Callable[..., None]:
    """`model.half()` swaps tensors, which torch refuses while FakeTensor's memo holds weak references to them."""

    def swap_fakes(first: Any, second: Any) -> None:
        if isinstance(first, FakeTensor):
            mode.fake_tensor_converter.meta_converter.tensor_memo.clear()
        swap(first, second)

    return swap_fakes

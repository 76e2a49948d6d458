"""Run a real training step on fake tensors: its memory in seconds, on a laptop, without a GPU."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from course_lib.memory.cuda_rules import cuda_rules
from course_lib.memory.devices import cuda_means_fake
from course_lib.memory.errors import DryRunError, SimulatedOutOfMemoryError
from course_lib.memory.gpus import Gpu, find_gpu
from course_lib.memory.ledger import MemoryLedger
from course_lib.memory.report import MemoryReport
from course_lib.memory.values import ShapesOnly


def dry_run(
    build: Callable[[], Any],
    step: Callable[..., Any],
    *,
    gpu: str | Gpu | None = None,
    stop_when_full: bool = True,
) -> MemoryReport:
    """Memory of one training step, as CUDA would need it, without running it on values.

    ```python
    def build():
        model = GPT(config)
        optimizer = torch.optim.AdamW(model.parameters())
        return model, optimizer, torch.randint(256, (8, 1024))

    def step(model, optimizer, tokens):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(tokens), tokens)
        loss.backward()
        optimizer.step()

    report = dry_run(build, step, gpu="T4")
    ```
    `build` and `step` are ordinary PyTorch. Tensors may be made on "cuda" or on the CPU: both stand for the GPU. The
    optimizer's state is made first, so that the step reported is a later one, not the first; AdamW and the others run
    with `foreach=True`, as on CUDA.

    Args:
        build: makes everything that the step needs on fake tensors and returns it: usually `(model, optimizer, batch)`.
            A tuple is spread over step's arguments; anything else is its only one. Models, optimizers and tensors in it
            (in lists and dicts too) are recognised by their type.
        step: one whole training step, `step(*build())`. What it returns is dropped.
        gpu: a name of `GPUS`, a `Gpu`, or None for no limit (and the rules of compute capability 8.0).
        stop_when_full: raise when the step does not fit; False measures it to the end.
    Returns:
        A `MemoryReport`: bytes of tensor storage.
    Raises:
        SimulatedOutOfMemoryError: an operation's result would not fit; its `report` tells what happened until then.
        DryRunError: the step depends on values.
        ValueError: no such GPU.
    """
    chosen = None if gpu is None else find_gpu(gpu)
    capacity = chosen.usable_bytes if chosen is not None and stop_when_full else None
    ledger = MemoryLedger(capacity_bytes=capacity, gpu_name="GPU 0" if chosen is None else f"GPU 0 ({chosen.name})")
    about = {"gpu": chosen and chosen.name, "capacity_bytes": chosen and chosen.usable_bytes}
    start_bytes = 0
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(cuda_rules(chosen))
        stack.enter_context(_garbage_stays())
        stack.enter_context(_quiet("torch._subclasses.fake_tensor"))  # it logs a page for each error of the learner's
        mode = stack.enter_context(ShapesOnly(ledger))
        ledger.start()
        stack.callback(ledger.stop)
        stack.enter_context(cuda_means_fake(ledger, mode))
        try:
            with ledger.in_phase("build"):
                built = build()
                arguments = built if isinstance(built, tuple) else (built,)
                models, optimizers = _find(arguments)
                for optimizer in optimizers:
                    _use_foreach(optimizer)
                ledger.watch(*arguments)
                _refuse_real_models(models)
                stack.enter_context(_module_names(models, ledger))
                with ledger.without_limit():
                    for optimizer in optimizers:
                        _make_state(optimizer)
                ledger.refuse_if_full("the optimizer's state")
            ledger.reset()
            start_bytes = ledger.live_bytes
            step(*arguments)
            if any(optimizer not in optimizers for optimizer in ledger.optimizers_stepped):
                # An optimizer that build did not return (one in backward's hooks) made its state just now: run once more.
                ledger.reset()
                start_bytes = ledger.live_bytes
                step(*arguments)
        except SimulatedOutOfMemoryError as error:
            error.report = MemoryReport.of(ledger, start_bytes, **about)
            raise
        return MemoryReport.of(ledger, start_bytes, **about)


@contextmanager
def _garbage_stays() -> Iterator[None]:
    """No cyclic garbage collection: a cycle that holds tensors lives to the end, every time, not by chance."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _find(arguments: Any) -> tuple[list[torch.nn.Module], list[torch.optim.Optimizer]]:
    models: list[torch.nn.Module] = []
    optimizers: list[torch.optim.Optimizer] = []

    def visit(thing: Any) -> None:
        if isinstance(thing, torch.nn.Module):
            models.append(thing)
        elif isinstance(thing, torch.optim.Optimizer):
            optimizers.append(thing)
        elif isinstance(thing, dict):
            for value in thing.values():
                visit(value)
        elif isinstance(thing, (list, tuple)):
            for value in thing:
                visit(value)

    visit(arguments)
    return models, optimizers


def _refuse_real_models(models: list[torch.nn.Module]) -> None:
    for model in models:
        for name, parameter in model.named_parameters():
            if not isinstance(parameter, torch._subclasses.FakeTensor):
                raise DryRunError(
                    f"build() must make the model itself; parameter {name} is older than the dry run and holds real "
                    "memory. Call the model's class inside build()."
                )


def _use_foreach(optimizer: torch.optim.Optimizer) -> None:
    """CUDA chooses `foreach` by itself where nothing was chosen; the CPU does not, and fake tensors never."""
    for group in optimizer.param_groups:
        if "foreach" in group and group["foreach"] is None and not group.get("fused"):
            group["foreach"] = True


def _make_state(optimizer: torch.optim.Optimizer) -> None:
    """One optimizer step on gradients of zeros, so that the step that is measured finds the state in place."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    before = [p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter, gradient in zip(parameters, before, strict=True):
        parameter.grad = gradient


@contextmanager
def _module_names(models: list[torch.nn.Module], ledger: MemoryLedger) -> Iterator[None]:
    """Tell the ledger which module is at work in the forward pass."""
    keeper = weakref.proxy(ledger)
    inside: list[str] = []  # the modules whose forward has begun and not ended, outermost first
    handles = []
    for model in models:
        for name, module in model.named_modules():

            def enter(module: Any, args: Any, name: str = name) -> None:
                inside.append(name)
                keeper.module = name

            def leave(module: Any, args: Any, out: Any, name: str = name) -> None:
                while inside and inside.pop() != name:  # recomputation may stop early, in the middle of a module
                    pass
                keeper.module = inside[-1] if inside else ""

            handles.append(module.register_forward_pre_hook(enter, prepend=True))
            handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

"""MemoryLedger: every tensor storage from birth to death, by category.

A storage is counted once, however many tensors look at it, at the size that CUDA's caching allocator would hand out
(a multiple of 512 bytes). The ledger keeps weak references alone: nothing it does keeps a tensor alive.

What it cannot see: workspaces inside kernels, the CUDA context, fragmentation; a storage that is resized by hand
(`untyped_storage().resize_(0)`, which is no operation); what another thread makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.memory.errors import SimulatedOutOfMemoryError
from course_lib.memory.storages import BLOCK_BYTES, HOST, LiveStorages, Record, plain_tensors, storage_keys
from course_lib.memory.timeline import ACTIVATION, CATEGORIES, PARAMETER, TEMPORARY, Mark, TimelinePoint
from course_lib.memory.watching import Watcher

# Operations that say nothing about the phase: `loss.item()` after the step does not begin a forward pass.
NEUTRAL = {"aten._local_scalar_dense.default", "aten.detach.default", "aten.lift_fresh.default"}
# Their storage was made by no operation: from a Python list, by `copy.deepcopy`, by `torch.load`.
MADE_ELSEWHERE = {"aten.lift_fresh.default", "aten.set_.source_Storage_storage_offset"}
# Namespaces whose operations make no tensor: the profiler's marks, and questions about a tensor's device or shape.
SILENT = ("profiler.", "prim.")


@cache
def operation_name(func: Any) -> str:
    """For example "aten.mm.default"."""
    return str(func)


class MemoryLedger(TorchDispatchMode):
    """Counts bytes of live tensor storage inside a `with` block, on real CPU, CUDA or fake tensors.

    ```python
    ledger = MemoryLedger()
    ledger.watch(model, optimizer, (tokens, targets))   # tensors older than the block
    with ledger:
        loss = loss_fn(model(tokens), targets)
        loss.backward()
    ledger.peak_bytes, ledger.peak_by_category, ledger.peak_operation
    ```
    Tensors born inside are found by themselves; older ones that are not watched do not count. The block may be left and
    entered again: the count goes on. Ledgers may be nested; each counts for itself. After the block, `live_bytes` still
    falls as tensors die.

    Categories: parameter, gradient, optimizer state, buffer and input are what they say; a tensor made while gradients
    are recorded (the forward pass, and recomputation in the backward pass) is an activation until it dies; everything
    else is temporary. What an `autograd.Function` made in the forward pass and still holds when backward starts becomes
    an activation then.

    Args:
        capacity_bytes: raise `SimulatedOutOfMemoryError` at the operation that would exceed this; None for no limit.
        block_bytes: sizes are rounded up to a multiple of this; 1 counts plain bytes.
        gpu_name: how the error names the GPU.
    """

    def __init__(
        self, *, capacity_bytes: int | None = None, block_bytes: int = BLOCK_BYTES, gpu_name: str = "GPU 0"
    ) -> None:
        super().__init__()
        self.capacity_bytes = capacity_bytes
        self.gpu_name = gpu_name
        self.module = ""  # path of the module at work; whoever knows it (dry_run) sets it
        self._storages = LiveStorages(block_bytes)
        self._live = self._storages.live
        self._watcher = Watcher(self._classify, self._step_begins)
        self._depth = 0
        self._is_on_host = self._in_backward = False
        self._fixed_phase: str | None = None
        self.reset()

    # ---- reading ---------------------------------------------------------------------------------------------------
    @property
    def live_bytes(self) -> int:
        """Bytes of tensor storage alive now."""
        return sum(self._live)

    @property
    def live_by_category(self) -> dict[str, int]:
        """Bytes alive now, by category."""
        return dict(zip(CATEGORIES, self._live, strict=True))

    @property
    def peak_by_category(self) -> dict[str, int]:
        """Bytes by category at the peak; they add up to `peak_bytes`."""
        return dict(zip(CATEGORIES, self._peak_categories, strict=True))

    @property
    def timeline(self) -> list[TimelinePoint]:
        """One point an operation."""
        return self._timeline

    @property
    def marks(self) -> list[Mark]:
        """What was alive at the end of each phase, in order; the phase still open is not among them."""
        return self._marks

    @property
    def phase(self) -> str:
        """The phase of the last operation."""
        return self._phase

    def reset(self) -> None:
        """Begin a new peak and a new timeline at what is alive now."""
        self._timeline: list[TimelinePoint] = []
        self._marks: list[Mark] = []
        self._phase, self._has_stepped = "forward", False
        self._storages.host[1] = self._storages.host[0]
        self.peak_bytes = sum(self._live)
        self.peak_operation = ""
        self.peak_index = -1
        self.peak_phase = ""
        self.peak_module = ""
        self._peak_categories = tuple(self._live)

    def watch(self, *things: Any) -> None:
        """Count these too: models, optimizers, and tensors (as inputs) in any nesting of lists, tuples and dicts.

        Models and optimizers are told by their type, so the order does not matter. Watching again updates categories.
        """
        self._watcher.watch(things)
        self._note_peak("", 0)

    # ---- the mode ----------------------------------------------------------------------------------------------------
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap __torch_dispatch__ for torch.compile, at ten microseconds an operation

    def __enter__(self) -> MemoryLedger:
        self.start()
        if self._depth == 1:
            super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._depth == 1:
            super().__exit__(*exception)
        self.stop()

    def start(self) -> None:
        """Listen to gradients and optimizers. `with ledger` does it; a dry run feeds the operations itself."""
        self._depth += 1
        if self._depth == 1:
            self._end_phase("forward")
            self._watcher.start()

    def stop(self) -> None:
        """Stop listening. The deaths of tensors are still seen."""
        self._depth -= 1
        if self._depth == 0:
            self._watcher.stop()
            self._in_backward = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        for kind in types:
            # A wrapper such as DTensor first turns into operations on its own local tensors.
            if kind is not FakeTensor and hasattr(kind, "__tensor_flatten__"):
                return NotImplemented
        self.before(func, args)
        out = func(*args, **kwargs)
        self.after(func, args, kwargs, out)
        return out

    def before(self, func: Any, args: tuple) -> None:
        """An operation is about to run."""
        name = operation_name(func)
        if name.startswith(SILENT):
            return
        self._follow_phase(name, args)
        for arg in args:
            if isinstance(arg, torch.nn.Parameter):
                self._found_parameter(arg)

    def after(self, func: Any, args: tuple, kwargs: dict, out: Any) -> None:
        """An operation has run: count what it made.

        Raises:
            SimulatedOutOfMemoryError: its result does not fit.
        """
        name = operation_name(func)
        if name.startswith(SILENT):
            return
        if isinstance(out, torch.Tensor):
            self._born((out,), name, args, kwargs)
        elif isinstance(out, (tuple, list)):
            self._born([tensor for tensor in out if isinstance(tensor, torch.Tensor)], name, args, kwargs)
        self._note_operation(name)

    def _follow_phase(self, name: str, args: tuple) -> None:
        """Close the phase when the next operation belongs to another one.

        Forward lasts until backward or an optimizer's step; after these everything is "step" (unscaling, clipping)
        until an operation whose graph is recorded begins the next forward pass.
        """
        if torch._C._current_graph_task_id() != -1:
            if not self._in_backward:
                self._in_backward = True
                self._end_phase("backward")
                self._storages.keep_what_forward_left()
            return
        if self._in_backward:
            self._in_backward = False
            self._end_phase("step")
        if self._phase == "step" and name not in NEUTRAL and torch.is_grad_enabled():
            for arg in args:
                if isinstance(arg, torch.Tensor) and arg.requires_grad:
                    self._end_phase("forward")
                    return

    def _end_phase(self, phase: str) -> None:
        if self._fixed_phase is not None:
            phase = self._fixed_phase
        if phase != self._phase:
            # Between two micro-batches there is no step: only forward, backward, forward, backward.
            is_real = self._phase != "step" or self._has_stepped
            if self._timeline and is_real:
                self._marks.append(Mark(self._phase, len(self._timeline) - 1, sum(self._live), tuple(self._live)))
            self._phase, self._has_stepped = phase, False

    def _step_begins(self) -> None:
        if not self._in_backward:
            self._end_phase("step")
            self._has_stepped = True

    def _found_parameter(self, parameter: torch.Tensor) -> None:
        record = self._storages.find(parameter.untyped_storage())
        if record is not None and record.category != PARAMETER:
            self._watcher.watch_parameter(parameter)

    # ---- births and peaks ----------------------------------------------------------------------------------------------
    def _born(self, tensors: Iterable[torch.Tensor], name: str, args: Any, kwargs: Any) -> None:
        older: set[int] | None = None
        category = ACTIVATION if torch.is_grad_enabled() else TEMPORARY
        for tensor in tensors:
            if tensor.layout != torch.strided:
                self._born(plain_tensors(tensor), name, args, kwargs)
                continue
            storage = tensor.untyped_storage()
            record = self._storages.find(storage)
            if record is not None:
                if "resize" in name or "set_" in name or name.endswith("out"):
                    self._resized(record, storage, name)
                continue
            if name not in MADE_ELSEWHERE:
                if older is None:
                    older = storage_keys((args, kwargs))
                if storage._cdata in older:
                    continue  # a view of a tensor that is older than the block and not watched
            self._add(storage, category, name)

    def _add(self, storage: torch.UntypedStorage, category: int, name: str) -> None:
        nbytes = self._storages.rounded_bytes(storage)
        if self._is_on_host:
            category = HOST
        else:
            self._refuse_what_does_not_fit(nbytes, name)
        self._storages.add(storage, nbytes, category, self._phase)

    def _resized(self, record: Record, storage: torch.UntypedStorage, name: str) -> None:
        nbytes = self._storages.rounded_bytes(storage)
        if nbytes != record.nbytes and record.category != HOST:
            self._refuse_what_does_not_fit(nbytes - record.nbytes, name)
            self._storages.resize(record, nbytes)

    def _classify(self, tensor: torch.Tensor, category: int, keep: Iterable[int] = ()) -> None:
        """Give a tensor's storage a category, unless it has one of `keep`; begin to count it if it is unknown."""
        for part in plain_tensors(tensor):
            storage = part.untyped_storage()
            record = self._storages.find(storage)
            if record is None:
                self._add(storage, category, "")
            elif record.category not in keep:
                self._storages.move(record, category)

    def _refuse_what_does_not_fit(self, nbytes: int, name: str) -> None:
        if self.capacity_bytes is not None and nbytes > 0 and sum(self._live) + nbytes > self.capacity_bytes:
            raise SimulatedOutOfMemoryError(
                requested_bytes=nbytes,
                capacity_bytes=self.capacity_bytes,
                live_by_category=self.live_by_category,
                operation=name or "a tensor older than the step",
                phase=self._phase,
                module=self.module,
                gpu_name=self.gpu_name,
            )

    def _note_operation(self, name: str) -> None:
        index, live = len(self._timeline), sum(self._live)
        self._timeline.append(TimelinePoint(index, name, self._phase, self.module, live, tuple(self._live)))
        if live > self.peak_bytes:
            self._note_peak(name, index)

    def _note_peak(self, name: str, index: int) -> None:
        live = sum(self._live)
        if live > self.peak_bytes:
            self.peak_bytes, self._peak_categories = live, tuple(self._live)
            self.peak_operation, self.peak_index = name, index
            self.peak_phase, self.peak_module = self._phase, self.module

    # ---- for dry runs --------------------------------------------------------------------------------------------------
    @contextmanager
    def in_phase(self, phase: str) -> Iterator[None]:
        """Call everything in the block by this phase."""
        self._fixed_phase = self._phase = phase
        try:
            yield
        finally:
            self._fixed_phase = None

    @contextmanager
    def without_limit(self) -> Iterator[None]:
        """Let the block exceed the capacity."""
        limit, self.capacity_bytes = self.capacity_bytes, None
        try:
            yield
        finally:
            self.capacity_bytes = limit

    @contextmanager
    def on_host(self) -> Iterator[None]:
        """What is made in the block stands for memory of the host, not of the GPU."""
        self._is_on_host = True
        try:
            yield
        finally:
            self._is_on_host = False

    @property
    def optimizers_stepped(self) -> set[torch.optim.Optimizer]:
        """The optimizers, still alive, whose step ran while the ledger listened."""
        return set(self._watcher.stepped)

    @property
    def offloaded_peak_bytes(self) -> int:
        """The most that `on_host` blocks have held at once since the last reset."""
        return self._storages.host[1]

    def refuse_if_full(self, what: str) -> None:
        """Raise `SimulatedOutOfMemoryError` if more is alive than the capacity."""
        if self.capacity_bytes is not None and sum(self._live) > self.capacity_bytes:
            self._refuse_what_does_not_fit(sum(self._live) - self.capacity_bytes, what)

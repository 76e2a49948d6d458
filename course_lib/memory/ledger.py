"""MemoryLedger: every tensor storage from birth to death, by category.

A storage is counted once, however many tensors look at it, at the size that CUDA's caching allocator would hand out
(a multiple of 512 bytes). The ledger keeps weak references to storages alone: nothing it does keeps a tensor alive.

What it cannot see: workspaces inside kernels, the CUDA context, fragmentation.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib.memory.errors import SimulatedOutOfMemoryError

CATEGORIES = ("parameter", "gradient", "optimizer state", "buffer", "input", "activation", "temporary")
PARAMETER, GRADIENT, OPTIMIZER_STATE, BUFFER, INPUT, ACTIVATION, TEMPORARY = range(7)
HOST = 7  # moved to the host's memory by save_on_cpu in a dry run: followed, but no part of the GPU's bytes

# Operations that say nothing about the phase: `loss.item()` after the step does not begin a forward pass.
NEUTRAL = {"aten._local_scalar_dense.default", "aten.detach.default", "aten.lift_fresh.default"}

# Namespaces whose operations make no tensor: the profiler's marks, and questions about a tensor's device or shape.
SILENT = ("profiler.", "prim.")

# c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize: "all sizes are rounded to at least 512 bytes"
BLOCK_BYTES = 512


class TimelinePoint(NamedTuple):
    """What was alive right after one operation.

    Attributes:
        index: number of the operation, from 0.
        operation: for example "aten.mm.default".
        phase: "forward", "backward" (recomputation too) or "step"; "build" in a dry run's preparation.
        module: path of the module at work, such as "blocks.3.attn"; "" when unknown.
        live_bytes: sum of `category_bytes`.
        category_bytes: in the order of `CATEGORIES`.
    """

    index: int
    operation: str
    phase: str
    module: str
    live_bytes: int
    category_bytes: tuple[int, ...]

    @property
    def by_category(self) -> dict[str, int]:
        """Bytes by category."""
        return dict(zip(CATEGORIES, self.category_bytes, strict=True))


class Mark(NamedTuple):
    """What was alive when a phase ended, before the first operation of the next one."""

    phase: str
    index: int
    live_bytes: int
    category_bytes: tuple[int, ...]

    @property
    def by_category(self) -> dict[str, int]:
        """Bytes by category."""
        return dict(zip(CATEGORIES, self.category_bytes, strict=True))


class _Record(weakref.ref):
    """A weak reference to a storage, with what the ledger knows about it."""

    __slots__ = ("category", "key", "nbytes", "phase")

    key: int
    nbytes: int
    category: int
    phase: str


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
        self._block_bytes = block_bytes
        self._live = [0] * len(CATEGORIES)
        self._host = [0, 0]  # live, peak
        self._to_host = False
        self._records: dict[int, _Record] = {}
        self._depth = 0
        self._hooks: list[Any] = []
        self._hooked: set[int] = set()
        self._models: list[weakref.ref] = []
        self._tensors: list[weakref.ref] = []
        self.stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()  # optimizers whose step ran inside
        self._names: dict[Any, str] = {}
        self._in_backward = False
        self._fixed_phase: str | None = None
        self.reset()

        live, host, records = self._live, self._host, self._records

        def forget(record: weakref.ref) -> None:
            assert isinstance(record, _Record)
            if record.category == HOST:
                host[0] -= record.nbytes
            else:
                live[record.category] -= record.nbytes
            # The address may belong to a new storage already; then its record stays.
            if records.get(record.key) is record:
                del records[record.key]

        self._forget = forget

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
        self._host[1] = self._host[0]
        self.peak_bytes = sum(self._live)
        self.peak_operation = ""
        self.peak_index = -1
        self.peak_phase = ""
        self.peak_module = ""
        self._peak_categories = tuple(self._live)

    # ---- tensors older than the block --------------------------------------------------------------------------------
    def watch(self, *things: Any) -> None:
        """Count these too: models, optimizers, and tensors (as inputs) in any nesting of lists, tuples and dicts.

        Models and optimizers are told by their type, so the order does not matter. Watching again updates categories.
        """
        for thing in things:
            if isinstance(thing, torch.nn.Module):
                self._models.append(weakref.ref(thing))
                self._watch_model(thing)
            elif isinstance(thing, torch.optim.Optimizer):
                self._watch_optimizer(thing)
            elif isinstance(thing, torch.nn.Parameter):
                self._tensors.append(weakref.ref(thing))
                self._watch_parameter(thing)
            elif isinstance(thing, torch.Tensor):
                self._classify(thing, INPUT, keep=(PARAMETER, BUFFER, GRADIENT, OPTIMIZER_STATE))
                if thing.requires_grad and thing.is_leaf:
                    self._tensors.append(weakref.ref(thing))
                    self._hook(thing)
            elif isinstance(thing, dict):
                self.watch(*thing.values())
            elif isinstance(thing, (list, tuple)):
                self.watch(*thing)
        self._note_peak("", 0)

    def _watch_model(self, model: torch.nn.Module) -> None:
        for buffer in model.buffers():
            self._classify(buffer, BUFFER)
        for parameter in model.parameters():
            self._watch_parameter(parameter)

    def _watch_parameter(self, parameter: torch.Tensor) -> None:
        self._classify(parameter, PARAMETER)
        if parameter.grad is not None:
            self._classify(parameter.grad, GRADIENT)
        self._hook(parameter)

    def _hook(self, leaf: torch.Tensor) -> None:
        """Learn of a leaf's gradient when it arrives."""
        if self._depth and leaf.requires_grad and leaf.is_leaf and id(leaf) not in self._hooked:
            self._hooked.add(id(leaf))
            self._hooks.append(leaf.register_post_accumulate_grad_hook(self._gradient_arrived))

    def _watch_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._watch_parameter(parameter)
        # A group of a param_groups entry may hold tensors too (a tensor learning rate), but those are a few bytes.
        for leaf in tree_leaves(list(optimizer.state.values())):
            if isinstance(leaf, torch.Tensor):
                self._classify(leaf, OPTIMIZER_STATE, keep=(PARAMETER,))

    def _gradient_arrived(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:  # an optimizer in backward may have taken it already
            self._classify(parameter.grad, GRADIENT)

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
            self._hooks = [
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ]
            self._end_phase("forward")
            self._models = [model for model in self._models if model() is not None]
            for model in self._models:
                self._watch_model(model())
            self._tensors = [tensor for tensor in self._tensors if tensor() is not None]
            for tensor in self._tensors:
                self._hook(tensor())

    def stop(self) -> None:
        """Stop listening. The deaths of tensors are still seen."""
        self._depth -= 1
        if self._depth == 0:
            for hook in self._hooks:
                hook.remove()
            self._hooks, self._hooked = [], set()
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
        name = self._name(func)
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
        name = self._name(func)
        if name.startswith(SILENT):
            return
        if isinstance(out, torch.Tensor):
            self._born((out,), name, args, kwargs)
        elif isinstance(out, (tuple, list)):
            self._born([tensor for tensor in out if isinstance(tensor, torch.Tensor)], name, args, kwargs)
        self._note_operation(name)

    def _name(self, func: Any) -> str:
        name = self._names.get(func)
        if name is None:
            name = self._names[func] = str(func)
        return name

    def _follow_phase(self, name: str, args: tuple) -> None:
        """Close the phase when the next operation belongs to another one.

        Forward lasts until backward or an optimizer's step; after these everything is "step" (unscaling, clipping)
        until an operation whose graph is recorded begins the next forward pass.
        """
        if torch._C._current_graph_task_id() != -1:
            if not self._in_backward:
                self._in_backward = True
                self._end_phase("backward")
                self._keep_what_forward_left()
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

    def _keep_what_forward_left(self) -> None:
        """Backward starts: what a custom Function made without gradients in the forward pass and kept is an activation."""
        for record in list(self._records.values()):
            if record.category == TEMPORARY and record.phase == "forward":
                self._move(record, ACTIVATION)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if not self._in_backward:
            self._end_phase("step")
            self._has_stepped = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._classify(parameter.grad, GRADIENT)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.stepped.add(optimizer)
        self._watch_optimizer(optimizer)

    def _found_parameter(self, parameter: torch.Tensor) -> None:
        storage = parameter.untyped_storage()
        record = self._records.get(storage._cdata)
        if record is not None and record.category != PARAMETER:
            self._watch_parameter(parameter)

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
        self._to_host = True
        try:
            yield
        finally:
            self._to_host = False

    @property
    def offloaded_peak_bytes(self) -> int:
        """The most that `on_host` blocks have held at once since the last reset."""
        return self._host[1]

    def refuse_if_full(self, what: str) -> None:
        """Raise `SimulatedOutOfMemoryError` if more is alive than the capacity."""
        if self.capacity_bytes is not None and sum(self._live) > self.capacity_bytes:
            self._refuse_what_does_not_fit(1, what)

    # ---- births, deaths, peaks ---------------------------------------------------------------------------------------
    def _storage_bytes(self, storage: torch.UntypedStorage) -> int:
        block = self._block_bytes
        return (storage.nbytes() + block - 1) // block * block

    def _born(self, tensors: Iterable[torch.Tensor], name: str, args: Any, kwargs: Any) -> None:
        older: set[int] | None = None
        category = ACTIVATION if torch.is_grad_enabled() else TEMPORARY
        for tensor in tensors:
            if tensor.layout != torch.strided:
                self._born(_plain_tensors(tensor), name, args, kwargs)
                continue
            storage = tensor.untyped_storage()
            record = self._records.get(storage._cdata)
            if record is not None:
                if "resize" in name or "set_" in name or name.endswith("out"):
                    self._resized(record, storage, name)
                continue
            if name != "aten.lift_fresh.default":
                if older is None:
                    older = _storage_keys((args, kwargs))
                if storage._cdata in older:
                    continue  # a view of a tensor that is older than the block and not watched
            self._add(storage, category, name)

    def _add(self, storage: torch.UntypedStorage, category: int, name: str) -> None:
        nbytes = self._storage_bytes(storage)
        if self._to_host:
            category = HOST
            self._host[0] += nbytes
            self._host[1] = max(self._host)
        else:
            self._refuse_what_does_not_fit(nbytes, name)
            self._live[category] += nbytes
        record = _Record(storage, self._forget)
        record.key, record.nbytes, record.category = storage._cdata, nbytes, category
        record.phase = self._phase
        self._records[record.key] = record

    def _resized(self, record: _Record, storage: torch.UntypedStorage, name: str) -> None:
        nbytes = self._storage_bytes(storage)
        if nbytes != record.nbytes and record.category != HOST:
            self._refuse_what_does_not_fit(nbytes - record.nbytes, name)
            self._live[record.category] += nbytes - record.nbytes
            record.nbytes = nbytes

    def _classify(self, tensor: torch.Tensor, category: int, keep: Iterable[int] = ()) -> None:
        """Give a tensor's storage a category, unless it has one of `keep`; begin to count it if it is unknown."""
        for part in _plain_tensors(tensor):
            storage = part.untyped_storage()
            record = self._records.get(storage._cdata)
            if record is None:
                self._add(storage, category, "")
            elif record.category not in keep:
                self._move(record, category)

    def _move(self, record: _Record, category: int) -> None:
        if record.category == HOST:
            return
        self._live[record.category] -= record.nbytes
        self._live[category] += record.nbytes
        record.category = category

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


def _plain_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that own storage: a wrapper's or a sparse tensor's inner ones, or the tensor itself."""
    if not isinstance(tensor, FakeTensor) and hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [part for name in names for part in _plain_tensors(getattr(tensor, name))]
    if tensor.layout == torch.strided:
        return [tensor]
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return []  # other layouts do not occur in training


def _storage_keys(things: Any) -> set[int]:
    """The storages of the tensors among an operation's arguments."""
    leaves = (part for leaf in tree_leaves(things) if isinstance(leaf, torch.Tensor) for part in _plain_tensors(leaf))
    return {leaf.untyped_storage()._cdata for leaf in leaves}

"""What kind of tensor is it? Models, optimizers and gradients as the ledger learns of them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from course_lib.memory.timeline import BUFFER, GRADIENT, INPUT, OPTIMIZER_STATE, PARAMETER

Classify = Callable[..., None]  # (tensor, category, keep=())


class Watcher:
    """Classifies the tensors of models and optimizers, and each gradient when it arrives.

    Models and tensors are held weakly; the hooks are there between `start` and `stop` alone.

    Args:
        classify: gives a tensor's storage a category, unless it has one of `keep`.
        step_begins: called before an optimizer's step, outside of backward too.
    """

    def __init__(self, classify: Classify, step_begins: Callable[[], None]) -> None:
        self._classify = classify
        self._step_begins = step_begins
        self._models: list[weakref.ref] = []
        self._leaves: list[weakref.ref] = []
        self._hooks: list[Any] = []
        self._hooked: set[int] = set()
        self._is_on = False
        self.stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def start(self) -> None:
        """Listen to optimizers, and to the gradients of everything watched so far."""
        self._is_on = True
        self._hooks = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        self._models = [model for model in self._models if model() is not None]
        self._leaves = [leaf for leaf in self._leaves if leaf() is not None]
        for model in self._models:
            self.watch_model(model())
        for leaf in self._leaves:
            self._hook(leaf())

    def stop(self) -> None:
        """Take all hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._hooked, self._is_on = [], set(), False

    def watch(self, things: Iterable[Any]) -> None:
        """Classify models, optimizers and tensors in any nesting of lists, tuples and dicts."""
        for thing in things:
            if isinstance(thing, torch.nn.Module):
                self._models.append(weakref.ref(thing))
                self.watch_model(thing)
            elif isinstance(thing, torch.optim.Optimizer):
                self.watch_optimizer(thing)
            elif isinstance(thing, torch.nn.Parameter):
                self._leaves.append(weakref.ref(thing))
                self.watch_parameter(thing)
            elif isinstance(thing, torch.Tensor):
                self._classify(thing, INPUT, keep=(PARAMETER, BUFFER, GRADIENT, OPTIMIZER_STATE))
                if thing.requires_grad and thing.is_leaf:
                    self._leaves.append(weakref.ref(thing))
                    self._hook(thing)
            elif isinstance(thing, dict):
                self.watch(thing.values())
            elif isinstance(thing, (list, tuple)):
                self.watch(thing)

    def watch_model(self, model: torch.nn.Module | None) -> None:
        """Parameters, their gradients, and buffers."""
        if model is not None:
            for buffer in model.buffers():
                self._classify(buffer, BUFFER)
            for parameter in model.parameters():
                self.watch_parameter(parameter)

    def watch_parameter(self, parameter: torch.Tensor) -> None:
        """A parameter and its gradient, now and when it arrives."""
        self._classify(parameter, PARAMETER)
        self._gradient_arrived(parameter)
        self._hook(parameter)

    def watch_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer's parameters and every tensor of its state."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.watch_parameter(parameter)
        for leaf in tree_leaves(list(optimizer.state.values())):
            if isinstance(leaf, torch.Tensor):
                self._classify(leaf, OPTIMIZER_STATE, keep=(PARAMETER,))

    def _hook(self, leaf: torch.Tensor | None) -> None:
        if self._is_on and leaf is not None and leaf.requires_grad and leaf.is_leaf and id(leaf) not in self._hooked:
            self._hooked.add(id(leaf))
            self._hooks.append(leaf.register_post_accumulate_grad_hook(self._gradient_arrived))

    def _gradient_arrived(self, leaf: torch.Tensor) -> None:
        if leaf.grad is not None:  # an optimizer in backward may have taken it already
            self._classify(leaf.grad, GRADIENT)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._step_begins()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._gradient_arrived(parameter)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.stepped.add(optimizer)
        self.watch_optimizer(optimizer)

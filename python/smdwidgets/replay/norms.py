"""Gradient norms of steps that are executed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from smdwidgets.replay.protocol import StepObserver

__all__ = ["GradientNorms"]


class GradientNorms(StepObserver):
    """The gradient norm of each step, before its last update."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        self.by_step: dict[int, float] = {}
        self._modules = modules
        self._step: int | None = None

    def context(self) -> AbstractContextManager[object]:
        """Return a context in which updates are seen."""
        return self._measured()

    @contextmanager
    def _measured(self) -> Iterator[None]:
        hook = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: self._measure())
        try:
            yield
        finally:
            hook.remove()

    def begin_step(self, step: int) -> None:
        """Note which step runs."""
        self._step = step

    def end_step(self, step: int) -> None:
        """Note that no step runs."""
        self._step = None

    def _measure(self) -> None:
        if self._step is None:
            return
        gradients = [one.grad for module in self._modules for one in module.parameters() if one.grad is not None]
        if gradients:
            squares = [one.detach().double().square().sum().cpu() for one in gradients]
            self.by_step[self._step] = float(torch.stack(squares).sum().sqrt())

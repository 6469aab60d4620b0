"""The PyTorch hook behind the callback of a trainer.

A trainer owns the loop: its callback receives the model and what the trainer logs. A callback never raises into the
training, except for a wrong configuration, before the first step.
"""

from __future__ import annotations

import functools
import logging
import numbers
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import torch
from torch import nn

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.core.hook import Hook as BaseHook
from smdwidgets.hooks.torch.hook import Hook
from smdwidgets.hooks.torch.names import unwrapped_module
from smdwidgets.hooks.torch.optimizers import unwrapped
from smdwidgets.modes import ModeKeys
from smdwidgets.stop import StopRequest

__all__ = ["TrainerHook", "failsafe"]

logger = logging.getLogger("smdwidgets.hooks")

_Method = TypeVar("_Method", bound=Callable[..., None])


def failsafe(method: _Method) -> _Method:
    """Log what a method of a callback raises, once per kind."""
    warned: set[str] = set()

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:
            kind = f"{type(error).__name__}: {error}"
            if kind not in warned:
                warned.add(kind)
                logger.warning("recording failed, and the training continues: %s", kind[:300])

    return cast(_Method, call)


class TrainerHook:
    """A hook that is created when the trainer's processes know each other.

    Args:
        out_dir: directory of the run, or a hook that exists.
        options: further arguments of :class:`~smdwidgets.hooks.torch.hook.Hook`.
    """

    def __init__(self, out_dir: str | os.PathLike[str] | Hook, options: Mapping[str, Any]) -> None:
        if isinstance(out_dir, BaseHook):
            if not isinstance(out_dir, Hook):
                raise SMDebugTypeError(
                    f"the hook must be one of smdwidgets.pytorch, got {type(out_dir).__module__}.Hook"
                )
            if options:
                raise SMDebugTypeError(
                    f"cannot combine {shown(next(iter(options)))} with an existing hook; pass it when creating the hook"
                )
        self._hook = out_dir if isinstance(out_dir, Hook) else None
        self._options = {"out_dir": out_dir, **options}
        self._stopping = False

    @property
    def hook(self) -> Hook | None:
        """The hook, or None before the training."""
        return self._hook

    def use(self, hook: Hook) -> None:
        """Use a hook instead of creating one."""
        self._hook = hook

    def open(self) -> Hook:
        """Create the hook, unless it exists.

        Raises:
            SMDebugError: the configuration is wrong, or the directory has a run already.
        """
        if self._hook is None:
            self._hook = Hook(**self._options)
        self._hook.parts.stopping.end_loop = self._stop_loop
        return self._hook

    def begin(
        self, model: nn.Module, updates: int, optimizers: Iterable[Any] = (), awaits_values: bool = False
    ) -> None:
        """Register the model and the optimizers of a training.

        ``updates``: how many updates the training has had.
        ``awaits_values``: whether the trainer has values of a training step after an evaluation.
        """
        hook = self.open()
        hook.continue_at(ModeKeys.TRAIN, updates)
        if unwrapped_module(model) not in hook.models.names:
            hook.register_module(model)
            hook.loop.steps.awaits_values = awaits_values
            hook.loop.steps.expect_updates()
            for optimizer in map(unwrapped, optimizers):
                if isinstance(optimizer, torch.optim.Optimizer):
                    hook.register_optimizer(optimizer)

    def save(self, logged: Mapping[str, Any]) -> None:
        """Save the numbers among logged values as scalars of the current step."""
        if self._hook is not None:
            for name, value in logged.items():
                if _is_number(value):
                    self._hook.save_scalar(str(name), value)

    def return_to_training(self) -> None:
        """Save the next values at the training step before the evaluation."""
        if self._hook is not None and self._hook.is_open:
            with self._hook.guard.gate:
                self._hook.loop.steps.evaluation_ended()

    def stops(self) -> bool:
        """Whether a rule has requested a stop.

        The trainer then ends its loop, so that nothing is raised.
        """
        if self._hook is not None and self._hook.is_open:
            self._hook.parts.stopping.check()
        return self._stopping

    def _stop_loop(self, request: StopRequest) -> bool:
        logger.warning("stopping the training after this step: %s", request)
        self._stopping = True
        return True

    def end(self) -> None:
        """Complete the run on disk.

        The hook stays open for further trainings and evaluations.
        """
        if self._hook is not None:
            self._hook.rest()


def _is_number(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, numbers.Real)

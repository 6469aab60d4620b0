"""Steps that capture no tensor of the model, and that go like the one before.

Most steps of a training with a capture plan are *quiet*: they have the loss, the norm of the gradients and the learning
rates. Where such a step is one pass, one backward pass and one update of one optimizer, the next ones are expected to
be the same. As long as they are, the training's thread keeps their numbers and does nothing else. Whatever comes
instead is treated as ever: before it is, :meth:`QuietSteps.leave` brings everything up to the event that came last. So
does each call of the script to the hook.

Ten times a second the steps go to the writer's thread, and the hook looks for what it looks for at other steps. The
writer's thread takes them itself where the training does not get there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from smdwidgets.hooks.capture.arrays import TensorCopy, numbers_of
from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch.capture import NUMBERS, TorchCapture
from smdwidgets.hooks.torch.loss_origin import NamedNumber, origin_of, parts_of
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.hooks.writing.number_steps import Column, Number, NumberStep

__all__ = ["Event", "QuietSteps", "Repeated"]

#: Seconds between two looks.
_LOOK_EVERY = 0.1


class Event(IntEnum):
    """The events of a quiet step, in order; ``OTHER`` is any other."""

    OTHER = -1
    UPDATED = 0
    ENTERED = 1
    LEFT = 2
    BACKWARD_BEGAN = 3
    BACKWARD_ENDED = 4
    UPDATE_BEGAN = 5


_OTHER, _UPDATED, _ENTERED, _LEFT, _BACKWARD_BEGAN, _BACKWARD_ENDED, _UPDATE_BEGAN = Event


@dataclass(frozen=True, slots=True)
class Repeated:
    """What quiet steps have in common with the one before.

    Attributes:
        model: what the script calls.
        optimizer: updates the model.
        columns: the numbers: the norm of the gradients, the learning rate of each group, the loss.
        origin: what computes the loss, and the constant that it is divided by.
        loss_type: type of the loss.
    """

    model: Callable[[], nn.Module | None]
    optimizer: Callable[[], Optimizer | None]
    columns: Sequence[Column]
    origin: tuple[str, float]
    loss_type: torch.dtype


_NONE = Repeated(lambda: None, lambda: None, (), ("", 1.0), torch.float32)


class QuietSteps:
    """Takes the events of quiet steps.

    The method of an event returns whether the event was that of a quiet step, and is done with.

    Args:
        parts: the parts of the hook.
        tensors: copies tensors of PyTorch.
        models: the registered models.
        restore: brings the state of the training up to the last event. Called with the number of steps that are
            complete, the last one of them, and whether it has not ended.
    """

    def __init__(
        self,
        parts: Parts,
        tensors: TorchCapture,
        models: RegisteredModels,
        restore: Callable[[int, NumberStep | None, bool], None],
    ) -> None:
        self._guard = parts.guard
        self._plan = parts.plan
        self._recorder = parts.recorder
        self._queue = parts.recorder.queue
        self._tensors = tensors
        self._models = models
        self._parts = parts
        self._restore = restore
        #: Whether steps are taken here. If not, events are followed, to find out whether a step goes like a quiet one.
        self.is_active = False
        self.last_event = _OTHER
        self.repeated = _NONE
        #: The last step that is complete, and number of those since the begin.
        self._last: NumberStep | None = None
        self._count = 0
        self._mode: Any = None
        #: The step of the mode that captures more, and what that follows from.
        self._until = 0
        self._rhythm: tuple[object, ...] = ()
        self._next_look = 0.0
        #: Numbers of the current step, and what it has given.
        self._step = self._mode_step = -1
        self.loss: Number = 0.0
        self.norm: Number = 0.0

    @property
    def is_in_step(self) -> bool:
        """Whether a quiet step is in progress."""
        return self.is_active and self.last_event is not _UPDATED

    # ------------------------------------------------------------------------------------------------ begin and end

    def begin(self, repeated: Repeated) -> None:
        """Expect steps like the current one, which is complete."""
        plan, steps = self._plan, self._parts.steps
        if plan.capture is None or plan.kinds or steps.step != steps.last:
            return
        self._step, self._mode, self._mode_step = steps.step, steps.mode, steps.mode_step
        self._rhythm, self._until = plan.capture.rhythm, plan.capture.next_due(self._mode_step)
        if self._until > self._mode_step + 1 and self._queue.begin_series(repeated.columns, self.leave):
            self.repeated, self._last, self._count = repeated, None, 0
            self._next_look = 0.0  # the time of this step, which may have captured more, is measured separately
            self.is_active, self._guard.before_call = True, self.leave

    def leave(self) -> None:
        """Bring everything up to the last event. What follows is treated as ever."""
        if self.is_active:
            self.is_active = False
            self._restore(self._count, self._last, self._queue.end_series())
            self._last = None
        self.last_event = _OTHER

    def _leave(self) -> bool:
        self.leave()
        return False

    def _follows(self, before: Event, event: Event) -> bool:
        """Note an event. Return whether it may be that of a quiet step."""
        if self.last_event is before:
            self.last_event = event
            return self.is_active
        return self._leave()

    def copy(self, column: int, number: Number) -> TensorCopy:
        """Return a number of a quiet step as a tensor."""
        return number if isinstance(number, TensorCopy) else self.repeated.columns[column].copy(number)

    # ------------------------------------------------------------------------------------------------------- events

    def enters(self, model: nn.Module) -> bool:
        """A registered model is called."""
        if self.is_active and self._begins(model):
            self._queue.last_has_ended = True
            self._step += 1
            self._mode_step += 1
            self._parts.steps.repeat(self._step, self._mode_step)
            self.last_event = _ENTERED
            return True
        self.leave()
        self.last_event = _ENTERED
        return False

    def _begins(self, model: nn.Module) -> bool:
        """Whether a quiet step begins."""
        capture, queue = self._plan.capture, self._queue
        return (
            self.last_event is _UPDATED
            and model.training
            and self.repeated.model() is model
            and torch.is_grad_enabled()
            and self._mode_step + 1 < self._until
            and self._parts.steps.mode is self._mode
            and queue.series is not None
            and capture is not None
            and capture.dense_until <= self._step
            and not self._plan.has_changed()
            and ((time.perf_counter() < self._next_look and not queue.is_odd) or self._look())
        )

    def _look(self) -> bool:
        """Do what other steps do when they begin. Return whether the next step is quiet."""
        self._queue.last_has_ended = True
        self._queue.queue_numbers()
        self._parts.stopping.check()
        self._recorder.export_known()
        capture = self._plan.capture
        assert capture is not None
        capture.measure(self._step + 1, self._guard.gate.elapsed, self._queue.waited_seconds)
        self._next_look = time.perf_counter() + _LOOK_EVERY
        return capture.rhythm == self._rhythm

    def leaves(self) -> bool:
        """The model has returned."""
        return self._follows(_ENTERED, _LEFT)

    def backward_begins(self, roots: Any, named: Sequence[NamedNumber]) -> bool:
        """``backward()`` is called.

        Args:
            roots: what it is called on.
            named: numbers that the model has returned, which may be parts of the loss.
        """
        if not self._follows(_LEFT, _BACKWARD_BEGAN):
            return False
        repeated = self.repeated
        if (
            type(roots) is torch.Tensor
            and roots.ndim == 0
            and roots.dtype is repeated.loss_type
            and origin_of(roots) == repeated.origin
            and not (named and any(parts_of(roots, named)))
        ):
            plain = roots.is_cpu and roots.dtype in NUMBERS
            self.loss = roots.item() if plain else self._tensors.copy_number("loss", roots)
            return True
        self.last_event = _LEFT
        return self._leave()

    def backward_ends(self) -> bool:
        """``backward()`` has returned."""
        return self._follows(_BACKWARD_BEGAN, _BACKWARD_ENDED)

    def update_begins(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """An optimizer is about to step."""
        if not self._follows(_BACKWARD_ENDED, _UPDATE_BEGAN):
            return False
        if optimizer is self.repeated.optimizer() and len(args) < 2 and not kwargs and not _is_scaled(optimizer):
            updated, parameters = self._models.updated_by(optimizer)
            norm: Any = self._tensors.norm_of_few(updated, parameters)
            if norm is None and (norm := self._tensors.norm_of_parameters(updated, parameters)) is not None:
                norm = self._tensors.copy(self.repeated.columns[0].name, norm)
            if norm is not None:
                self.norm = norm
                return True
        self.last_event = _BACKWARD_ENDED
        return self._leave()

    def update_ends(self, optimizer: Optimizer) -> bool:
        """The optimizer has stepped."""
        if not self._follows(_UPDATE_BEGAN, _UPDATED):
            return False
        loss, rates = self.loss, [group.get("lr") for group in optimizer.param_groups]
        if len(rates) + 2 == len(self.repeated.columns) and all(type(rate) is float for rate in rates):
            if not isinstance(loss, float):
                assert isinstance(loss, TensorCopy)
                loss.complete()
            step = NumberStep((self._step, self._mode, self._mode_step), time.time(), [self.norm, *rates, loss])
            if self._queue.add_numbers(step, loss if isinstance(loss, float) else float(numbers_of(loss))):
                self._last = step
                self._count += 1
                return True
        self.last_event = _UPDATE_BEGAN
        return self._leave()


def _is_scaled(optimizer: Optimizer) -> bool:
    """Whether a GradScaler has left the division of the gradients to an optimizer."""
    return getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None

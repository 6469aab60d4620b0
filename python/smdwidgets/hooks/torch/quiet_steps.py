"""Steps that capture no tensor of the model, and that go like the one before.

Most steps of a training with a capture plan are *quiet*: they have the loss, the norm of the gradients, the learning
rates and numbers that the script saves at each step. The events of a step are noted. Where they are those of one update
of one optimizer, with one micro-batch or several, clipped or not, the next steps are expected to be the same. As long
as they are, the training's thread keeps their numbers and does nothing else. Whatever comes instead is treated as ever:
before it is, :meth:`QuietSteps.leave` brings everything up to the event that came last. So does each call of the script
to the hook, other than to save a number that the steps before have, too.

Ten times a second the steps go to the writer's thread, and the hook looks for what it looks for at other steps. The
writer's thread takes them itself where the training does not get there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from smdwidgets.hooks.capture.arrays import TensorCopy, numbers_of
from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch.capture import NUMBERS, TorchCapture
from smdwidgets.hooks.torch.loss_origin import NamedNumber, origin_of, parts_of
from smdwidgets.hooks.torch.lost_gradients import LostGradients
from smdwidgets.hooks.torch.registered import RegisteredModels
from smdwidgets.hooks.writing.number_steps import Column, Number, NumberStep

__all__ = ["Clipped", "Event", "Happened", "InStep", "QuietSteps", "Repeated", "rates_of"]

#: Seconds between two looks.
_LOOK_EVERY = 0.1
#: More events than these are not noted: no step that has them is expected to come again.
_MOST_EVENTS = 1024


class Event(IntEnum):
    """The events of a step that others may repeat; ``NONE`` follows the last one."""

    NONE = -1
    ENTERED = 0
    LEFT = 1
    BACKWARD_BEGAN = 2
    BACKWARD_ENDED = 3
    CLIPS = 4
    CLIPPED = 5
    SAVED = 6
    UPDATE_BEGAN = 7
    UPDATED = 8


(
    _NONE,
    _ENTERED,
    _LEFT,
    _BACKWARD_BEGAN,
    _BACKWARD_ENDED,
    _CLIPS,
    _CLIPPED,
    _SAVED,
    _UPDATE_BEGAN,
    _UPDATED,
) = Event


class Clipped(NamedTuple):
    """Ids of parameters whose gradients were clipped by their norm.

    They are in the order of the call, and a set.
    """

    ids: Sequence[int]
    every: frozenset[int]

    @classmethod
    def of(cls, parameters: Any) -> Clipped:
        """Return what is known of some parameters, or of one."""
        ids = [id(parameters)] if isinstance(parameters, torch.Tensor) else [*map(id, parameters)]
        return cls(ids, frozenset(ids))


class Happened(NamedTuple):
    """An event.

    Attributes:
        event: its kind.
        subject: what it is about, or None: a reference to the model that is called or to the optimizer that is about to
            step; the number of learning rates when it has; the parameters whose gradients were clipped by their norm;
            the name of a number that the script saves.
    """

    event: Event
    subject: Any = None


@dataclass(frozen=True, slots=True)
class Repeated:
    """What quiet steps have in common with the one before.

    Attributes:
        events: the events.
        names: names of the numbers, in the order in which they come.
        origin: what computes the losses, and the constant that they are divided by.
        loss_type: type of the losses; None: they are not saved, because the script saves its own.
        has_mean: whether the mean of the losses is saved.
    """

    events: Sequence[Happened] = ()
    names: Sequence[str] = ()
    origin: tuple[str, float] = ("", 1.0)
    loss_type: torch.dtype | None = None
    has_mean: bool = False


@dataclass(slots=True)
class InStep:
    """What has come of a quiet step.

    Attributes:
        count: number of its events.
        numbers: its numbers, in the order of their names.
        losses: what its backward passes began with.
        norms: norms of gradients before they were clipped.
    """

    count: int = 0
    numbers: list[Number] = field(default_factory=list)
    losses: list[Number] = field(default_factory=list)
    norms: list[tuple[Clipped, torch.Tensor]] = field(default_factory=list)


class QuietSteps:
    """Takes the events of quiet steps.

    The method of an event returns whether the event was that of a quiet step, and is done with.

    Args:
        parts: the parts of the hook.
        tensors: copies tensors of PyTorch.
        models: the registered models.
        restore: brings the state of the training up to the last event. Called with the number of steps that are
            complete, the losses of the last one, whether it has not ended, and what has come of the next one, if
            anything.
        mean_of: returns the mean of the losses of a step.
    """

    def __init__(
        self,
        parts: Parts,
        tensors: TorchCapture,
        models: RegisteredModels,
        restore: Callable[[int, Sequence[TensorCopy], bool, InStep | None], None],
        mean_of: Callable[[Sequence[TensorCopy]], TensorCopy | None],
    ) -> None:
        self._plan = parts.plan
        self._gate = parts.guard.gate
        self._recorder = parts.recorder
        self._queue = parts.recorder.queue
        self._tensors = tensors
        self._models = models
        self._lost = LostGradients()
        self._parts = parts
        self._restore, self._mean_of = restore, mean_of
        parts.guard.before_call = self.interrupt
        #: Called while steps are still taken here, before they are not any more.
        self.before_leaving: Callable[[], object] = lambda: None
        #: Whether steps are taken here. If not, events are noted, to find out whether others may repeat the step.
        self.is_active = False
        #: The events of the current step; None: others do not repeat it.
        self._noted: list[Happened] | None = None
        self.repeated = Repeated()
        #: The events that are expected, and what they are about.
        self._events: Sequence[Event] = ()
        self._subjects: Sequence[Any] = ()
        self.columns: Sequence[Column] = ()
        #: What has come of the current step, and whether it is complete.
        self._now = InStep()
        self._is_complete = True
        #: The last step that is complete, its losses, and number of those since the begin.
        self._last: NumberStep | None = None
        self._last_losses: Sequence[Number] = ()
        self._count = 0
        self._mode: Any = None
        #: The step of the mode that captures more, and what that follows from.
        self._until = 0
        self._rhythm: tuple[object, ...] = ()
        self._next_look = 0.0
        #: Numbers of the current step.
        self._step = self._mode_step = -1

    @property
    def is_in_step(self) -> bool:
        """Whether a quiet step is in progress."""
        return self.is_active and not self._is_complete

    # -------------------------------------------------------------------------------------------------- other steps

    def step_begins(self, training: bool) -> None:
        """Another step begins: note its events. An evaluation has none."""
        self._noted = [] if training else None

    def note(self, event: Event, subject: Any = None) -> None:
        """Note an event of another step."""
        if self._noted is not None:
            if len(self._noted) < _MOST_EVENTS:
                self._noted.append(Happened(event, subject))
            else:
                self._noted = None

    @property
    def noted(self) -> Sequence[Happened] | None:
        """The events of a step that begins with a pass and has one update, or None."""
        noted = self._noted
        if not noted or noted[0].event is not _ENTERED or [one.event for one in noted].count(_UPDATED) != 1:
            return None
        return noted

    # ------------------------------------------------------------------------------------------------ begin and end

    def begin(self, repeated: Repeated) -> None:
        """Expect steps like the current one, which is complete."""
        plan, steps = self._plan, self._parts.steps
        if plan.capture is None or plan.kinds or steps.step != steps.last:
            return
        self._step, self._mode, self._mode_step = steps.step, steps.mode, steps.mode_step
        self._rhythm, self._until = plan.capture.rhythm, plan.capture.next_due(self._mode_step)
        if self._until <= self._mode_step + 1:
            return
        columns = self._queue.begin_series(repeated.names, self.leave)
        if columns is not None:
            self.repeated, self.columns = repeated, columns
            self._events = [*(one.event for one in repeated.events), _NONE]
            self._subjects = [one.subject for one in repeated.events]
            self._now, self._is_complete = InStep(len(repeated.events)), True
            self._last, self._last_losses, self._count = None, (), 0
            self._next_look = 0.0  # the time of this step, which may have captured more, is measured separately
            self.is_active = True

    def leave(self) -> None:
        """Bring everything up to the last event. What follows is treated as ever."""
        if self.is_active:
            self.before_leaving()
            self.is_active, self._noted = False, None
            losses = [*map(self.loss, self._last_losses)]
            is_open = self._queue.end_series()
            self._restore(self._count, losses, is_open, None if self._is_complete else self._now)
            self._last, self._last_losses = None, ()

    def interrupt(self) -> None:
        """Something happens that no other step is expected to repeat: leave."""
        self.leave()
        self._noted = None

    def _leave(self) -> bool:
        self.leave()
        return False

    def _expects(self, event: Event) -> bool:
        return self.is_active and self._events[self._now.count] is event

    def copy(self, column: int, number: Number) -> TensorCopy:
        """Return a number of a quiet step as a tensor."""
        return number if isinstance(number, TensorCopy) else self.columns[column].copy(number)

    def loss(self, number: Number) -> TensorCopy:
        """Return a loss of a quiet step as a tensor."""
        return self.copy(self.repeated.names.index("loss_output_0"), number)

    @property
    def count(self) -> int:
        """Number of complete steps since the begin."""
        return self._count

    def begun(self) -> Sequence[Happened]:
        """Return the events of the step in progress."""
        return () if self._is_complete else self.repeated.events[: self._now.count]

    def saved(self) -> list[str]:
        """Return names of what the script has saved at the current step so far."""
        return [one.subject for one in self.repeated.events[: self._now.count] if one.event is _SAVED]

    # ------------------------------------------------------------------------------------------------------- events

    def enters(self, model: nn.Module) -> bool:
        """A registered model is called."""
        if not self.is_active:
            return False
        now, is_begin = self._now, self._is_complete
        if is_begin:
            if self._events[now.count] is not _NONE or not self._is_alike(0, model) or not self._begins():
                return self._leave()
            self._queue.last_has_ended = True
            self._step += 1
            self._mode_step += 1
            self._now, self._is_complete = InStep(1), False
            self._parts.steps.repeat(self._step, self._mode_step)
            return True
        if self._events[now.count] is _ENTERED and self._is_alike(now.count, model):
            now.count += 1
            return True
        return self._leave()

    def _is_alike(self, place: int, model: nn.Module) -> bool:
        """Whether the pass of a model is that at this place."""
        return self._subjects[place]() is model and model.training and torch.is_grad_enabled()

    def _begins(self) -> bool:
        """Whether the next step may be a quiet one."""
        capture, queue = self._plan.capture, self._queue
        return (
            self._mode_step + 1 < self._until
            and self._parts.steps.mode is self._mode
            and queue.series is not None
            and capture is not None
            and capture.dense_until <= self._step
            and not self._plan.was_set
            and ((time.perf_counter() < self._next_look and not queue.is_odd) or self._look())
        )

    def _look(self) -> bool:
        """Do what other steps do when they begin. Return whether the next step is quiet."""
        # The writer is woken last: a look at the disk releases the interpreter's lock, and would wait for it.
        self._parts.stopping.check()
        self._recorder.export_known()
        self._queue.last_has_ended = True
        self._queue.queue_numbers()
        capture = self._plan.capture
        assert capture is not None
        capture.measure(self._step + 1, self._gate.elapsed, self._queue.waited_seconds)
        self._next_look = time.perf_counter() + _LOOK_EVERY
        return capture.rhythm == self._rhythm and not self._plan.has_changed()

    def _follows(self, event: Event) -> bool:
        """Take an event that nothing else is known of."""
        if self._expects(event):
            self._now.count += 1
            return True
        return self._leave()

    def leaves(self) -> bool:
        """The model has returned."""
        return self._follows(_LEFT)

    def backward_begins(self, roots: Any, named: Sequence[NamedNumber]) -> bool:
        """``backward()`` is called.

        Args:
            roots: what it is called on.
            named: numbers that the model has returned, which may be parts of the loss.
        """
        if not self._expects(_BACKWARD_BEGAN):
            return self._leave()
        repeated = self.repeated
        if repeated.loss_type is not None:
            if not (
                type(roots) is torch.Tensor
                and roots.ndim == 0
                and roots.dtype is repeated.loss_type
                and origin_of(roots) == repeated.origin
                and not (named and any(parts_of(roots, named)))
            ):
                return self._leave()
            plain = roots.is_cpu and roots.dtype in NUMBERS
            self._now.losses.append(roots.item() if plain else self._tensors.copy_number("loss", roots))
        self._now.count += 1
        return True

    def backward_ends(self) -> bool:
        """``backward()`` has returned."""
        return self._follows(_BACKWARD_ENDED)

    def clips(self) -> bool:
        """Gradients are about to be clipped."""
        return self._follows(_CLIPS)

    def clipped(self, parameters: Any, norm: Any) -> bool:
        """Gradients have been clipped; by their norm, if it is a tensor."""
        if not self._expects(_CLIPPED):
            return self._leave()
        before = self._subjects[self._now.count]
        if isinstance(norm, torch.Tensor) != (before is not None):
            return self._leave()
        if before is not None:
            ids = [id(parameters)] if isinstance(parameters, torch.Tensor) else [*map(id, parameters)]
            if ids != before.ids:
                return self._leave()
            self._now.norms.append((before, norm.detach()))
        self._now.count += 1
        return True

    def saves(self, name: str, value: object) -> bool:
        """The script saves a number of this name."""
        if not self._expects(_SAVED) or self._subjects[self._now.count] != name:
            return self._leave()
        now, last = self._now, self._last
        place = len(now.numbers) if last is None or not self._is_complete else len(last.numbers)
        number = self._number(place, value)
        if number is None:
            return self._leave()
        if not self._is_complete:
            now.numbers.append(number)
        elif last is None or not self._queue.add_number(last, number):
            return self._leave()
        now.count += 1
        return True

    def _number(self, place: int, value: object) -> Number | None:
        """Return a number in the type of its column, or None if it is of another type."""
        column = self.columns[place]
        if type(value) is float and column.dtype == "float64":
            return value
        if isinstance(value, torch.Tensor):
            is_number = type(value) is torch.Tensor and value.is_cpu and not value.ndim and not column.shape
            if is_number and column.dtype == NUMBERS.get(value.dtype):
                return float(value.item())
        try:
            copy = self._tensors.copy(column.name, value)
        except Exception:  # the longer way says what is wrong
            return None
        if copy.dtype == column.dtype and copy.shape == column.shape and not copy.reductions:
            return copy
        self._release([copy])
        return None

    def _release(self, numbers: Sequence[Number]) -> None:
        """Give up numbers that are not used."""
        for one in numbers:
            if isinstance(one, TensorCopy) and one.slab is not None:
                self._queue.staging.release(one.slab)

    def update_begins(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """An optimizer is about to step."""
        if (
            not self._expects(_UPDATE_BEGAN)
            or self._subjects[self._now.count]() is not optimizer
            or len(args) > 1
            or kwargs
            or _is_scaled(optimizer)
        ):
            return self._leave()
        now, columns = self._now, self.columns
        updated, parameters = self._models.updated_by(optimizer)
        place = len(now.numbers)
        norm: Any = self._tensors.norm_of_few(updated, parameters)
        if norm is None:
            norm = self._tensors.norm_of_parameters(updated, parameters)
        if norm is None or self._lost.begin(norm):
            return self._leave()
        if not isinstance(norm, float):
            norm = self._tensors.copy(columns[place].name, norm)
        numbers: list[Number] = [norm]
        for before, of_clipped in now.norms:
            if not before.every.isdisjoint(updated.ids):
                number = self._number(place + len(numbers), of_clipped)
                if number is None:
                    self._release(numbers)
                    return self._leave()
                numbers.append(number)
        now.numbers += numbers
        now.count += 1
        return True

    def update_ends(self, optimizer: Optimizer) -> bool:
        """The optimizer has stepped."""
        if not self._expects(_UPDATED):
            return self._leave()
        repeated, now = self.repeated, self._now
        rates, losses = rates_of(optimizer), now.losses
        if rates is None or len(rates) != self._subjects[now.count]:
            return self._leave()
        numbers = [*now.numbers, *rates, *losses]
        attended = []
        for loss in losses:
            if isinstance(loss, TensorCopy):
                loss.complete()
                attended.append(float(numbers_of(loss)))
            else:
                attended.append(loss)
        if repeated.has_mean:
            first = len(numbers) - len(losses)
            mean = self._mean_of([self.copy(first + place, one) for place, one in enumerate(losses)])
            if mean is None:
                return self._leave()
            numbers.append(mean)
        step = NumberStep((self._step, self._mode, self._mode_step), time.time(), numbers)
        if not self._queue.add_numbers(step, attended):
            return self._leave()
        now.count += 1
        self._is_complete = True
        self._last, self._last_losses = step, losses
        self._count += 1
        return True


def rates_of(optimizer: Optimizer) -> list[float] | None:
    """Return the learning rates of an optimizer if all are numbers of Python."""
    rates = []
    for group in optimizer.param_groups:
        rate = group.get("lr")
        if type(rate) is not float:
            return None
        rates.append(rate)
    return rates


def _is_scaled(optimizer: Optimizer) -> bool:
    """Whether a GradScaler has left the division of the gradients to an optimizer."""
    return getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None

"""When a step of a training begins and ends. Knows events, not PyTorch.

A step is, in order of precedence:

1. what lies between two calls of ``hook.step()``;
2. what leads to one update of the model: with several optimizers a *round*, in which each of them has stepped at least
   once;
3. one forward pass in training mode, as in smdebug, where no optimizer updates the model, or where updates have
   stopped.

An evaluation pass is a separate step. Between two updates only the first is recorded whole, so that ``generate()`` does
not fill the run. A value after other passes, such as the mean of a loss, belongs to that step. If the step has a value
of this name, it belongs to the last pass, which becomes a step.

A value after an update belongs to the step of that update, except if the script has saved a value of this name before
its first pass: then it saves it before each pass, such as the indices of a batch, and it belongs to the next one.

>>> class Print:
...     def begin(self, training): print("begin", "training" if training else "evaluation")
...     def end(self): print("end")
...     def settle(self): print("settle")
...     def suspend(self): print("suspend")
...     def resume(self): print("resume")
...     def forget_next_pass(self): pass
...     def updates_expected(self): return False
...     def say(self, message): print(message)
>>> steps = Steps(Print())
>>> steps.register("Adam")
>>> for _ in range(2):  # two micro-batches
...     recorded = steps.forward(training=True)
...     steps.backward_begins(), steps.backward_ends()
begin training
(None, None)
(None, None)
>>> steps.update_begins("Adam")
>>> steps.update_ends("Adam")
settle
>>> steps.forward(training=True)
end
begin training
True
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError

__all__ = ["STEP_ON", "Level", "Recording", "Steps"]

#: Accepted values of ``step_on``.
STEP_ON = ("auto", "optimizer", "forward", "manual")

#: An optimizer that has not stepped for this many rounds or repeated updates is not waited for. A training with this
#: many backward passes and no update has no optimizer that the hook can see.
_PATIENCE = 64
#: After this many backward passes without an update, and four times as many as ever before, updates have stopped.
_STALLED = 16


class Level(IntEnum):
    """What ends a training step.

    The level only rises, with one exception: no update comes.
    """

    FORWARD = 0
    OPTIMIZER = 1
    MANUAL = 2


class Recording(Protocol):
    """What the state machine controls."""

    def begin(self, training: bool) -> None:
        """Begin a step."""

    def end(self) -> None:
        """End the current step."""

    def settle(self) -> None:
        """Mark the current step as complete.

        Values such as a scalar may still be added to it.
        """

    def suspend(self) -> None:
        """Set the current step aside; an evaluation follows."""

    def resume(self) -> None:
        """Continue the step that was set aside."""

    def forget_next_pass(self) -> None:
        """Forget the values that were saved before the pass that begins.

        The pass belongs to no step.
        """

    def updates_expected(self) -> bool:
        """Whether an optimizer exists that may update the model. Asked once at most."""

    def say(self, message: str) -> None:
        """Tell the user."""


@dataclass(slots=True)
class _Optimizer:
    last: int  # the tick of its last update, or of its registration
    stepped: bool = False  # in this round


class Steps:
    """The state machine.

    Args:
        recording: begins and ends steps.
        step_on: ``"auto"``, or the fixed level ``"optimizer"``, ``"forward"`` or ``"manual"``.
    """

    def __init__(self, recording: Recording, step_on: str = "auto") -> None:
        if step_on not in STEP_ON:
            raise SMDebugValueError(f"invalid step_on {shown(step_on)}; choose from {', '.join(STEP_ON)}, smdebug")
        self._recording = recording
        self._fixed = step_on != "auto"
        self.level = Level[step_on.upper()] if self._fixed else Level.FORWARD
        #: Whether the current step is a training step; None between steps.
        self.training: bool | None = None
        #: Whether everything that belongs to the current step has happened.
        self.complete = False
        #: Whether a training step is set aside during an evaluation, and whether it is complete.
        self._suspended = self._suspended_complete = False
        #: Whether a complete training step is set aside, too, because values of it come after the evaluation.
        self.awaits_values = False
        #: Whether the last evaluation pass is not a step yet.
        self.deferred = False
        #: Names of the values that the script saved at this step.
        self._values: set[str] = set()
        #: Names of the values that the script saved before its first pass, and whether there was one.
        self._precede: set[str] = set()
        self._began = False
        self._evaluated = False  # since the last update
        self._optimizers: dict[Hashable, _Optimizer] = {}
        self._registered = False
        #: Whether an optimizer has stepped in this round.
        self._stepped = False
        self._ticks = 0
        self._updating = 0
        self._backward = 0
        self._backwards_in_step = 0
        #: Numbers of backward passes and updates.
        self.backwards = 0
        self.updates = 0
        self._without_update = 0
        self._patience = _PATIENCE
        #: Most backward passes between two updates so far.
        self._longest = 1
        self._quiet = True  # nothing has happened since the step was completed
        self._asks = not self._fixed
        self._fell_back = False

    @property
    def is_open(self) -> bool:
        """Whether a training step is in progress."""
        return self.training is True and not self.complete

    @property
    def has_micro_batches(self) -> bool:
        """Whether one optimizer uses the gradients of several backward passes."""
        return self._backwards_in_step > 1 and len(self._optimizers) <= 1

    @property
    def is_repeatable(self) -> bool:
        """Whether others may go like the step.

        It is complete, and an update by the only optimizer.
        """
        return (
            self.level is Level.OPTIMIZER
            and self.training is True
            and self.complete
            and self._backwards_in_step > 0
            and len(self._optimizers) == 1
            and not (self._suspended or self._backward or self._updating)
        )

    @property
    def number_of_optimizers(self) -> int:
        """Number of optimizers that have stepped or were registered."""
        return len(self._optimizers)

    @property
    def takes_gradients_from_backward(self) -> bool:
        """Whether gradients are those that a backward pass leaves.

        This is so if no optimizer is known to use them.
        """
        return self.level is Level.FORWARD or not (self.updates or self._registered)

    # ---------------------------------------------------------------------------------------------------- optimizers

    def register(self, optimizer: Hashable) -> None:
        """An optimizer that the user has named: a round waits for it from the start."""
        self._registered = True
        self._optimizers.setdefault(optimizer, _Optimizer(self._ticks))
        self.expect_updates()

    def count_passes(self) -> None:
        """Make every pass a step from now on."""
        self.level, self._fixed, self._asks = Level.FORWARD, True, False

    def expect_updates(self) -> None:
        """An optimizer of the model exists."""
        if not self._fixed:
            self.level = max(self.level, Level.OPTIMIZER)

    def forget(self, optimizer: Hashable) -> None:
        """An optimizer was deleted, or updates something else: no round waits for it."""
        if self._optimizers.pop(optimizer, None) is not None:
            self._finish_round()

    # --------------------------------------------------------------------------------------------------------- events

    def forward(self, training: bool, gradients: bool = True, mode_is_set: bool = False) -> bool:
        """The outermost module is called; return whether its tensors are recorded.

        Args:
            training: whether the model trains.
            gradients: whether gradients are enabled.
            mode_is_set: whether ``set_mode`` chose the mode.
        """
        if not training:
            return self._evaluate(mode_is_set)
        if not gradients and not (mode_is_set and self.level is Level.FORWARD):
            return False  # a rollout, or generated text
        self._quiet = False
        if self._updating and self.training:  # a closure
            return True
        self._continue()
        if self.is_open and self._asks and self.level is Level.FORWARD:
            # The second pass without an update: micro-batches, a siamese network, or a training without optimizers.
            self._asks = False
            if not self.updates and self._recording.updates_expected():
                self.expect_updates()
        if not self.is_open or self._next_forward_begins():
            self._begin(training=True)
        return True

    def _next_forward_begins(self) -> bool:
        """At forward level each pass begins a step.

        From the first backward pass on, passes that share one share a step, such as those of a siamese network. So do
        those after updates have stopped, until an optimizer steps again.
        """
        if self.level is Level.OPTIMIZER and self.updates and self._without_update >= max(_STALLED, 4 * self._longest):
            return self._backwards_in_step > 0
        shares = self._fell_back or (self.backwards > 0 and not self._fixed)
        return self.level is Level.FORWARD and (self._backwards_in_step > 0 or not shares)

    def _evaluate(self, mode_is_set: bool) -> bool:
        self._set_aside()
        by_forward = self.level is Level.FORWARD
        if self.level is Level.MANUAL and self.training is False:
            return mode_is_set
        if mode_is_set or by_forward or not self._evaluated:
            self._evaluated = True
            self._begin(training=False)
            return True
        if self.training is False:
            self._recording.settle()
        else:
            self._end()
        self.deferred = True
        self._recording.forget_next_pass()
        return False

    def forward_ended(self) -> None:
        """The outermost module has returned."""
        if self.training is False and self.level is not Level.MANUAL:
            self.complete = True

    def backward_begins(self) -> None:
        """``backward()`` is called."""
        self._backward += 1
        self._quiet = False

    def backward_ends(self) -> None:
        """``backward()`` has returned."""
        self._backward -= 1
        if self._backward:
            return
        self.backwards += 1
        self._backwards_in_step += 1
        self._without_update += 1
        self._finish_round()  # optimizers may step within the backward pass
        # A registered optimizer whose updates are not seen is not one of PyTorch's. Its user may accumulate many
        # micro-batches.
        patience = self._patience if not self._registered else None if self.updates else 4 * self._patience
        if (
            self.level is Level.OPTIMIZER
            and not self._fixed
            and patience is not None
            and self._without_update >= patience
        ):
            self.level, self._fell_back = Level.FORWARD, True
            self._recording.say(
                f"no optimizer has updated the model during {self._without_update} backward passes; from now on a step is a "
                "forward pass. If an optimizer does, pass it to register_optimizer"
            )

    def update_begins(self, optimizer: Hashable) -> None:
        """An optimizer is about to update the model."""
        late = optimizer not in self._optimizers and self._quiet and self.training is True and self.complete
        self._updating += 1
        self.expect_updates()
        self._optimizers.setdefault(optimizer, _Optimizer(self._ticks))
        self._continue()
        if late:  # the first update of another optimizer: it completes the round in which it was not known
            return
        if self.level is Level.FORWARD:
            return
        if not self.is_open:
            self._begin(training=True)
            self._backwards_in_step = self._without_update

    def update_ends(self, optimizer: Hashable) -> None:
        """An optimizer has updated the model, or a GradScaler has skipped the update."""
        if not self._updating:  # the hook was created during the update, in a closure
            self.update_begins(optimizer)
        self._updating -= 1
        self.updates += 1
        self._evaluated = False
        self._longest = max(self._longest, self._without_update)
        if self._without_update > self._patience // 2:
            self._patience = 2 * self._without_update
        self._without_update = 0
        if self.level is Level.FORWARD:
            if self.training:
                self._recording.settle()
            return
        if not self.is_open:
            return
        known = self._optimizers.setdefault(optimizer, _Optimizer(self._ticks))
        self._ticks += known.stepped
        known.stepped, known.last = True, self._ticks
        self._stepped = True
        if not self._backward:
            self._finish_round()

    def _finish_round(self) -> None:
        if not self.is_open or self._updating or self.level is not Level.OPTIMIZER or not self._stepped:
            return
        every = self._optimizers.values()
        # The last optimizer first: where each parameter has its own, it is the one that is still awaited.
        if not all(one.stepped or self._ticks - one.last >= _PATIENCE for one in reversed(every)):
            return
        self._stepped = False
        if any(one.stepped for one in every):
            for one in every:
                one.stepped = False
            self._ticks += 1
            self.complete = self._quiet = True
            self._recording.settle()

    def repeated(self, count: int, values: Iterable[str]) -> None:
        """So many complete steps have followed that went like the last one.

        ``values``: names of the values that the script has saved at the last one so far.
        """
        self._values = set(values)
        self.backwards += count * self._backwards_in_step
        self.updates += count
        self._ticks += count
        for one in self._optimizers.values():
            one.last = self._ticks - 1

    def ended(self) -> None:
        """The step has ended: its recording knows."""
        self.training, self.complete, self.deferred = None, False, False

    def step(self) -> None:
        """End the step, because ``hook.step()`` is called.

        Without a step there was nothing to record, and it is counted.
        """
        counts = self.level is Level.MANUAL
        if not self._fixed:
            self.level = Level.MANUAL
        if self._suspended:
            self._continue()
        elif self.training is None and counts:
            self._begin(training=True)
        self._end()
        self._evaluated = False

    def mode_changed(self, training: bool) -> None:
        """``set_mode`` is called with another mode."""
        if not training:
            self._set_aside()
        if not (self.is_open and training and self.level is not Level.FORWARD):
            self._end()

    def precedes(self, name: str) -> bool:
        """Whether a value that the script saves now belongs to the next pass."""
        if not self._began:
            self._precede.add(name)
        by_forward = self.level is Level.FORWARD and self._backwards_in_step > 0
        ended = self.training is not None and (not self.is_open or by_forward)
        return self._began and name in self._precede and (ended or self.deferred)

    def value_arrives(self, name: str) -> None:
        """Make the last evaluation pass a step if a value belongs to it.

        The value is a loss or a scalar.
        """
        if self.deferred and (self.training is None or name in self._values):
            self._begin(training=False)
            self.complete = True
        self._values.add(name)

    # ---------------------------------------------------------------------------------------------------------- inside

    def _begin(self, training: bool) -> None:
        self._end()
        self._began = True
        self.training, self.complete, self._quiet = training, False, False
        self._values.clear()
        self._backwards_in_step = 0
        self._recording.begin(training)

    def _end(self) -> None:
        self.deferred = False
        if self.training is not None:
            self.training, self.complete = None, False
            self._recording.end()

    def _set_aside(self) -> None:
        """Set an unfinished training step aside, for example between two micro-batches."""
        if self.training and (self.awaits_values or not self.complete) and self.level is not Level.FORWARD:
            self.training, self._suspended, self._suspended_complete = None, True, self.complete
            self._recording.suspend()

    def _continue(self) -> None:
        """Return to the training step that was set aside."""
        if self._suspended:
            self._end()
            self.training, self.complete, self._suspended = True, self._suspended_complete, False
            self._recording.resume()

    def evaluation_ended(self) -> None:
        """Return to the training step before the evaluation.

        The next values belong to it.
        """
        self._continue()

    def close(self) -> None:
        """End the training."""
        self._continue()
        self._end()

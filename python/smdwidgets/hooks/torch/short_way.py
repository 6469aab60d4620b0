"""The short way of events: at most quiet steps, only the quiet steps take them.

PyTorch calls back for each event of a step, and usually a callback passes it on to every part of the hook. At most
quiet steps the other parts need none of them: asked before, they say for how many steps. Until then
:class:`~smdwidgets.hooks.torch.quiet_steps.QuietSteps` takes the events at once. With the first event that it does not
take, the other parts catch up with what they have missed, and receive all events again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer

from smdwidgets.hooks.core.guard import Guard
from smdwidgets.hooks.torch.callbacks import Shortcut
from smdwidgets.hooks.torch.passive import is_passive
from smdwidgets.hooks.torch.quiet_steps import Happened, QuietSteps

__all__ = ["MANY", "Passes", "Receiver", "ShortWay"]

#: More steps than are ever taken without a look at what needs them.
MANY = 1 << 20


class Receiver:
    """A part of the hook that receives events, by default all of them."""

    def rests(self, optimizer: Optimizer) -> int:
        """Return for how many next steps, which go like the last one, it needs no event.

        A step ends with the update by this optimizer. Events for which there is a :meth:`needed` function are excepted.
        """
        return 0

    def needed(self) -> Sequence[Callable[..., object] | None]:
        """Return what to call when a pass begins and when an optimizer has stepped."""
        return None, None

    def missed(self, steps: int, begun: Sequence[Happened]) -> None:
        """Count events that were not passed on.

        Args:
            steps: number of complete steps.
            begun: the events of the next step, which has begun.
        """


class Passes(Protocol):
    """What is known of the calls of the models."""

    #: The modules that are being called, outermost first.
    calls: list[nn.Module]

    def passed(self, outputs: object) -> None:
        """A pass has ended."""

    #: Numbers that the model has returned, which may be parts of the loss.
    named: list[Any]


class ShortWay:
    """Takes the events of steps that are quiet and that nothing else needs.

    Args:
        guard: the hook's guard.
        quiet: takes the events.
        passes: the calls of the models.
    """

    def __init__(self, guard: Guard, quiet: QuietSteps, passes: Passes) -> None:
        self._guard, self._quiet, self._passes = guard, quiet, passes
        #: What receives events beside the training loop.
        self.receivers: Sequence[Receiver] = ()
        around = guard.gate.around
        #: What takes each event.
        self._takes = {
            "enters": around(self._enters),
            "leaves": around(self._leaves),
            "backward_begins": around(self._backward_begins),
            "backward_ends": around(quiet.backward_ends),
            "clips": around(lambda parameters: quiet.clips()),
            "clipped": around(quiet.clipped),
            "before_update": around(quiet.update_begins),
            "after_update": around(self._update_ends),
        }
        #: What callbacks of these events ask first.
        self.shortcuts = {event: Shortcut() for event in self._takes}
        self._is_on = False
        self._thread = 0
        #: Steps that may still begin, and how many were complete before.
        self._left = self._before = 0
        self._when_entered: Sequence[Callable[..., object]] = ()
        self._when_updated: Sequence[Callable[..., object]] = ()
        quiet.before_leaving = self.end

    def begin(self, optimizer: Optimizer) -> None:
        """Take the next steps if nothing else needs them: a quiet one has ended."""
        if self._is_on:
            return
        self._left = min((receiver.rests(optimizer) for receiver in self.receivers), default=MANY)
        if self._left <= 0:
            return
        needed = [receiver.needed() for receiver in self.receivers]
        self._when_entered = [entered for entered, _ in needed if entered is not None]
        self._when_updated = [updated for _, updated in needed if updated is not None]
        self._is_on, self._thread, self._before = True, get_ident(), self._quiet.count
        for event, take in self._takes.items():
            self.shortcuts[event].take = take

    def end(self) -> None:
        """Have the other parts catch up, and receive the next events."""
        if not self._is_on:
            return
        self._is_on = False
        for shortcut in self.shortcuts.values():
            shortcut.take = None
        steps, begun = self._quiet.count - self._before, self._quiet.begun()
        for receiver in self.receivers:
            try:
                receiver.missed(steps, begun)
            except Exception as error:
                self._guard.report_error(error)

    def _end(self) -> bool:
        self.end()
        return False

    def _enters(self, module: nn.Module, inputs: object, named_inputs: object) -> bool:
        calls, is_begin = self._passes.calls, not self._quiet.is_in_step
        if calls or (is_begin and not self._left) or get_ident() != self._thread or is_passive():
            return self._end()
        if not self._quiet.enters(module):
            return False
        calls.append(module)
        self._left -= is_begin
        for entered in self._when_entered:
            entered(module, inputs, named_inputs)
        return True

    def _leaves(self, module: nn.Module, inputs: object, outputs: object) -> bool:
        calls = self._passes.calls
        if len(calls) != 1 or calls[0] is not module or is_passive():
            return self._end()
        if not self._quiet.leaves():
            return False
        calls.clear()
        self._passes.passed(outputs)
        return True

    def _backward_begins(self, roots: Any) -> bool:
        passes = self._passes
        if not self._quiet.backward_begins(roots, passes.named):
            return False
        passes.named = []
        return True

    def _update_ends(self, optimizer: Optimizer, args: object, kwargs: object) -> bool:
        if not self._quiet.update_ends(optimizer):
            return False
        for updated in self._when_updated:
            updated(optimizer, args, kwargs)
        return True

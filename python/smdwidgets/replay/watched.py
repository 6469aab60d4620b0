"""An execution that reports each step and can be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from smdwidgets.replay.protocol import Execution, StepObserver, StepResult

if TYPE_CHECKING:
    import torch

__all__ = ["Stopped", "Watch", "Watched"]


class Stopped(BaseException):
    """The execution was stopped on request.

    No ``except Exception`` of a script catches it.
    """


class Watch(StepObserver):
    """Reports executed steps, and stops an execution at the next step.

    Args:
        executed: is called after each step.
    """

    def __init__(self, executed: Callable[[], None] = lambda: None) -> None:
        self._executed = executed
        self._stop = threading.Event()

    def stop(self) -> None:
        """Stop at the beginning of the next step, or at its next batch."""
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        """Whether the execution is to be stopped."""
        return self._stop.is_set()

    def check(self) -> None:
        """Raise `Stopped` if the execution is to be stopped."""
        if self._stop.is_set():
            raise Stopped

    def begin_step(self, step: int) -> None:
        """Stop here on request."""
        self.check()

    def end_step(self, step: int) -> None:
        """Report the step."""
        self._executed()

    def batch(self, step: int, batch: object) -> object:
        """Stop here on request."""
        self.check()
        return batch


class Watched:
    """An execution whose steps a watch sees before other observers.

    Args:
        execution: the steps.
        watch: the observer.
    """

    def __init__(self, execution: Execution, watch: Watch) -> None:
        self._execution, self._watch = execution, watch

    @property
    def steps(self) -> range:
        """The global steps that can be executed, in order."""
        return self._execution.steps

    @property
    def modules(self) -> Sequence[torch.nn.Module]:
        """The models of the training."""
        return self._execution.modules

    @property
    def optimizers(self) -> Sequence[torch.optim.Optimizer]:
        """The optimizers that update them."""
        return self._execution.optimizers

    def run(self, observers: Sequence[StepObserver] = (), *, last: int | None = None) -> list[StepResult]:
        """Execute the steps; see `Execution.run`.

        Raises:
            Stopped: it was stopped; the live state has been put back.
        """
        self._watch.check()
        return self._execution.run([self._watch, *observers], last=last)

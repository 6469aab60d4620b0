"""What an execution of recorded steps offers, and what observes it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from smdwidgets._text import visible

if TYPE_CHECKING:
    import torch

__all__ = ["Execution", "StepObserver", "StepResult", "sentence"]


@dataclass(frozen=True)
class StepResult:
    """One step that was executed again.

    Attributes:
        step: global step of the training.
        losses: the roots of ``backward()`` of the step, in order.
        equal: whether the step is what was recorded, bit for bit; None: there is nothing to compare.
        detail: what differs first; empty if nothing does.

    >>> StepResult(37, (0.25,), True)
    StepResult(step=37, losses=(0.25,), equal=True, detail='')
    """

    step: int
    losses: tuple[float, ...]
    equal: bool | None
    detail: str = ""


class StepObserver:
    """Sees steps while they are executed again.

    Every method may be overridden; none has to be.

    >>> class Batches(StepObserver):
    ...     def batch(self, step: int, batch: object) -> object:
    ...         return batch[:2]  # the first two rows only
    >>> Batches().batch(37, [1, 2, 3])
    [1, 2]
    """

    def begin_step(self, step: int) -> None:
        """A step begins: with its first batch, or its first forward pass."""

    def end_step(self, step: int) -> None:
        """A step has ended: its optimizers have updated the model."""

    def batch(self, step: int, batch: object) -> object:
        """Return what the loop receives in place of a recorded batch."""
        return batch

    def context(self) -> AbstractContextManager[object]:
        """Return a context that is entered around the executed steps."""
        return nullcontext()


class Execution(Protocol):
    """Steps that can be executed again."""

    @property
    def steps(self) -> range:
        """The global steps that can be executed, in order."""

    @property
    def modules(self) -> Sequence[torch.nn.Module]:
        """The models of the training."""

    @property
    def optimizers(self) -> Sequence[torch.optim.Optimizer]:
        """The optimizers that update them."""

    def run(self, observers: Sequence[StepObserver] = (), *, last: int | None = None) -> list[StepResult]:
        """Execute the steps from the keyframe on, and put the live state back.

        The live state is put back also if a step raises, or Ctrl-C interrupts it. No hook records meanwhile.

        Args:
            observers: what sees the steps. Each receives the batches as the one before has returned them.
            last: the last step to execute; None: the last of `steps`.
        """


def sentence(results: Sequence[StepResult], expected: int) -> str:
    """Return what the comparison of executed steps with the recording says.

    >>> sentence([StepResult(4, (0.5,), True), StepResult(5, (0.25,), True)], 2)
    'bit-equal, 2 of 2 steps'

    Args:
        results: the executed steps.
        expected: the number of steps that were recorded.
    """
    wrong = next((one for one in results if one.equal is False), None)
    if wrong is not None:
        first = ", the first one: something outside of the recording changes the step" if wrong is results[0] else ""
        return f"differs from step {wrong.step:,} on{first} ({visible(wrong.detail, 200)})"
    equal = sum(one.equal is True for one in results)
    text = f"bit-equal, {equal} of {expected} steps" if equal else "executed; nothing was recorded to compare with"
    return text + (f"; the loop ended after {len(results)} of them" if len(results) < expected else "")

"""The tensors of a step on the writer's thread, and their observers.

This is where parts of a hook that look at tensors without saving them attach, such as one that keeps the last steps in
memory:

* an observer is added with :meth:`~smdwidgets.hooks.writing.write_queue.WriteQueue.observe` before the hook opens its
  directory;
* it is called on the writer's thread only, with copies that no training changes any more;
* copies live in slabs that are reused when the step has been written. To keep one longer, call
  :meth:`~smdwidgets.hooks.capture.arrays.Staging.retain` with its slab, and ``release`` when it is not needed any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.modes import ModeKeys

__all__ = ["Captured", "StepKey", "StepObserver", "StepStatistics"]

#: A step: its global step number, its mode, its step number in that mode.
StepKey = tuple[int, ModeKeys, int]


@dataclass(slots=True)
class Captured:
    """A captured tensor that is not written yet.

    ``copy`` is None if only the shape is saved. ``spec`` is what is saved of it: maybe nothing but its statistics.
    """

    name: str
    copy: TensorCopy | None
    shape: tuple[int, ...]
    spec: SaveSpec
    time: float


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """Statistics of some tensors of a step: one row a tensor.

    ``columns`` has an array of ``len(names)`` numbers for each column of the statistics file, such as ``nan`` or
    ``max``.
    """

    names: Sequence[str]
    columns: Mapping[str, NDArray[Any]]


class StepObserver(Protocol):
    """Receives the steps of a hook on the writer's thread, step after step.

    A step's tensors may arrive in several calls, because they are queued in batches. An evaluation may arrive while a
    training step is unfinished, so each call has the key of its step. An observer that raises is removed, with a
    warning.
    """

    def keeps(self, name: str, nbytes: int, before: int) -> bool:
        """Whether a copy of a tensor would be of use, apart from its statistics.

        The training's thread calls this before it copies a large tensor from a device. ``before``: bytes of the step
        that were copied already.
        """

    def tensors(self, key: StepKey, captured: Sequence[Captured]) -> None:
        """Copies of tensors of a step, in the order in which the training made them."""

    def statistics(self, key: StepKey, statistics: StepStatistics) -> None:
        """Statistics of tensors of a step; called after :meth:`tensors` has had them."""

    def finished(self, key: StepKey) -> None:
        """Everything of this step has arrived."""

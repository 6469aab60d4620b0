"""A tensor as it is in view: which one, of which worker, at which steps, and what kind of thing it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.packet import LARGEST_STEP
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.trials.trial import Tensor, Trial


@dataclass(frozen=True)
class TensorView:
    """One tensor of a run, as one worker saw it; an empty ``worker`` is the first by name.

    >>> view = TensorView(trial, "fc1.weight")        # doctest: +SKIP
    >>> view.value(view.steps()[-1]).shape            # doctest: +SKIP
    (32, 10)
    """

    trial: Trial
    name: str
    worker: str = ""

    @cached_property
    def tensor(self) -> Tensor:
        """The tensor asked. A picture is of many steps or of one for long: values are not kept beside it."""
        return self.trial.tensor(self.name).passing()

    @cached_property
    def kind(self) -> str:
        """What a log says that it is, ``image`` or ``histogram`` among others; empty for any tensor."""
        return self.trial._run.kind_of(self.name)

    def steps(self) -> list[int]:
        """Global steps at which there is something of it that a browser can show, incomplete ones too."""
        with no_refresh(self.trial):
            steps = self.tensor.steps(show_incomplete_steps=True)
            if steps and steps[-1] > LARGEST_STEP:
                steps = [step for step in steps if step <= LARGEST_STEP]
            if not self.worker:
                return steps
            return [step for step in steps if self.worker in self.tensor.workers(step)]

    def value(self, step: int) -> NDArray[Any]:
        """The value at a global step, as saved."""
        with no_refresh(self.trial):
            return self.tensor.value(step, ModeKeys.GLOBAL, self.worker or None)

    def numbers(self, step: int) -> NDArray[Any]:
        """The value as real numbers: complex ones by magnitude, in two dimensions of floats at most as precise."""
        value = self.value(step)
        return np.abs(value) if value.dtype.kind == "c" else value

    def stored_reductions(self, step: int) -> dict[tuple[str, bool], Any]:
        """Reductions that were saved in place of the value, or beside it."""
        with no_refresh(self.trial):
            return self.tensor.reduction_values(step, ModeKeys.GLOBAL, self.worker or None) or {}

    def reductions(self, steps: list[int], names: list[str]) -> Columns:
        """Some of its reductions at some steps; a row for each step that has them."""
        with no_refresh(self.trial):
            return self.trial.reductions([self.name], steps, worker=self.worker or None, reductions=names)

    def shape(self, step: int) -> tuple[int, ...]:
        """The shape at a global step."""
        with no_refresh(self.trial):
            return self.tensor.shape(step, ModeKeys.GLOBAL, self.worker or None)

    def workers(self) -> list[str]:
        """Workers that have it at its latest step."""
        steps = TensorView(self.trial, self.name).steps()
        with no_refresh(self.trial):
            return self.tensor.workers(steps[-1]) if steps else []

    def sample(self) -> tuple[str, tuple[int, ...]]:
        """Dtype's name and shape at the latest step that has a value; ``("", ())`` where only reductions were saved."""
        for step in reversed(self.steps()[-3:]):
            try:
                value = self.value(step)
            except SMDebugError:
                continue
            return ("str" if value.dtype.kind in "US" else value.dtype.name), value.shape
        return "", ()

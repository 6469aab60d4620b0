"""The tensor that a widget shows: name, worker, steps and kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError, StepUnavailable, TensorUnavailableForStep
from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.packet import LARGEST_STEP
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.trials.run import Course
from smdwidgets.trials.samples import Sample, sample_of
from smdwidgets.trials.statistics.table import STATISTICS
from smdwidgets.trials.trial import Tensor, Trial
from smdwidgets.trials.widening import widened


@dataclass(frozen=True)
class TensorView:
    """One tensor of a run from one worker; an empty ``worker`` is the first by name.

    >>> view = TensorView(trial, "fc1.weight")        # doctest: +SKIP
    >>> view.value(view.steps()[-1]).shape            # doctest: +SKIP
    (32, 10)
    """

    trial: Trial
    name: str
    worker: str = ""

    @cached_property
    def tensor(self) -> Tensor:
        """The tensor of the trial, without caching of its values.

        A view reads many steps once each, or one step for long, so that a cache of values does not help.
        """
        return self.trial.tensor(self.name).passing()

    @cached_property
    def kind(self) -> str:
        """The kind recorded in a log, such as ``image``; empty for a plain tensor."""
        return self.trial.reader.kind_of(self.name)

    def steps(self) -> list[int]:
        """Return the global steps that a browser can show, including incomplete ones."""
        with no_refresh(self.trial):
            steps = self.tensor.steps(show_incomplete_steps=True)
            if steps and steps[-1] > LARGEST_STEP:
                steps = [step for step in steps if step <= LARGEST_STEP]
            if not self.worker:
                return steps
            return [step for step in steps if self.worker in self.tensor.workers(step)]

    def steps_shown(self) -> list[int]:
        """Return the global steps with a value or a sample, else those with statistics."""
        steps = self.steps()
        with no_refresh(self.trial):
            sampled = self.tensor.sample_steps(worker=self.worker or None)
        if not (steps or sampled):
            sampled = self._recorded_steps()
        return sorted({*steps, *(step for step in sampled if step <= LARGEST_STEP)}) if sampled else steps

    def sample_at(self, step: int) -> Sample | None:
        """Return the sample of the elements at a global step; None without one."""
        with no_refresh(self.trial):
            try:
                return sample_of(self.trial.reader, self.name, step, ModeKeys.GLOBAL, self.worker or None)
            except TensorUnavailableForStep:
                return None

    def recorded(self, step: int) -> dict[str, float]:
        """Return the statistics of all elements that the training wrote; or nothing."""
        file = self.trial.reader.statistics_file()
        if file is None:
            return {}
        with no_refresh(self.trial):
            rows = self.trial.statistics(self.name, step, worker=self.worker or None)
        if not rows.num_rows or int(rows["flags"][0]):
            return {}
        return {name: float(rows[name][0]) for name in rows if name not in {"name", "mode", "worker"}}

    def _recorded_steps(self) -> list[int]:
        """Return the steps with statistics that the training wrote."""
        file = self.trial.reader.statistics_file()
        if file is None:
            return []
        steps: list[int] = np.unique(
            file.read([self.name], None, [self.worker] if self.worker else None)["step"]
        ).tolist()
        return steps

    def shown_numbers(self, step: int) -> NDArray[Any]:
        """Return what :meth:`numbers` does, or the sample if the value is missing."""
        try:
            return self.numbers(step)
        except (TensorUnavailableForStep, StepUnavailable):
            sample = self.sample_at(step)
            if sample is None:
                raise
        return as_numbers(sample.elements)

    def value(self, step: int) -> NDArray[Any]:
        """Return the value at a global step, as saved."""
        with no_refresh(self.trial):
            return self.tensor.value(step, ModeKeys.GLOBAL, self.worker or None)

    def numbers(self, step: int) -> NDArray[Any]:
        """Return the value as real numbers of NumPy; complex numbers become magnitudes."""
        return as_numbers(self.value(step))

    def stored_reductions(self, step: int) -> dict[tuple[str, bool], Any]:
        """Return reductions that were saved in place of the value or with it."""
        with no_refresh(self.trial):
            return self.tensor.reduction_values(step, ModeKeys.GLOBAL, self.worker or None) or {}

    def reductions(self, steps: list[int] | None, names: list[str], others: Sequence[TensorView] = ()) -> Columns:
        """Return the named reductions, one row for each step that has them.

        ``steps=None`` chooses all of them. ``others``, of the same kind, run and worker, are read in the same call.
        """
        tensors = [view.name for view in (self, *others)]
        with no_refresh(self.trial):
            return self.trial.reductions(tensors, steps, worker=self.worker or None, reductions=names)

    def curve(self, reduction: str) -> Columns:
        """Return one reduction of every step; if no value was saved, a statistic."""
        steps = self.steps()
        file = None if steps or reduction not in STATISTICS else self.trial.reader.statistics_file()
        if file is None or self.name not in file.names():
            return self.reductions(steps if not self.worker else None, [reduction])
        with no_refresh(self.trial):
            return self.trial.statistics(self.name, columns=reduction, worker=self.worker or None)

    def shape(self, step: int) -> tuple[int, ...]:
        """Return the shape at a global step."""
        with no_refresh(self.trial):
            return self.tensor.shape(step, ModeKeys.GLOBAL, self.worker or None)

    def course(self, superseded: bool = False) -> Course:
        """Return when the values were written; empty if the run does not record it."""
        with no_refresh(self.trial):
            return self.trial.reader.course(self.name, self.worker or None, superseded)

    def workers(self) -> list[str]:
        """Return the workers that saved the tensor at its latest step."""
        steps = TensorView(self.trial, self.name).steps()
        with no_refresh(self.trial):
            if steps:
                return self.tensor.workers(steps[-1])
            return [name for name in self.trial.workers() if self.tensor.sample_steps(worker=name)]

    def sample(self) -> tuple[str, tuple[int, ...]]:
        """Return dtype name and shape at the latest step that has a value, else a sample.

        ``("", ())`` means that only reductions were saved.
        """
        for step in reversed(self.steps()[-3:]):
            try:
                value = self.value(step)
            except SMDebugError:
                continue
            return ("str" if value.dtype.kind in "US" else value.dtype.name), value.shape
        sample = self.sample_at(steps[-1]) if (steps := self.steps_shown()) else None
        return (sample.elements.dtype.name, sample.shape) if sample is not None else ("", ())


def as_numbers(value: NDArray[Any]) -> NDArray[Any]:
    """Return real numbers of NumPy; complex numbers become magnitudes."""
    value = widened(value)
    return np.abs(value) if value.dtype.kind == "c" else value

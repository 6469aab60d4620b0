"""Show rows of signals where widgets show tensors: each is a number at some steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import InvalidWorker, TensorUnavailable, TensorUnavailableForStep
from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.packet import LARGEST_STEP
from smdwidgets.pictures.view import TensorView
from smdwidgets.signals.rows import SignalRow
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.trials.run import Course
from smdwidgets.trials.samples import names_with_samples
from smdwidgets.trials.trial import Trial

__all__ = ["SIGNALS", "SignalView", "can_show", "described_names", "names_shown", "rows_of", "view_of"]

SIGNALS: Final = "signals"
"""The collection that the page knows them by."""
#: Reductions of one number that are not the number itself.
_ZEROS, _SIZES = ("std", "variance"), ("l1", "l2")


def view_of(trial: Trial, name: str, worker: str = "") -> TensorView:
    """Return the view of a tensor, or of a row of a signal."""
    return SignalView(trial, name, worker) if name in rows_of(trial) else TensorView(trial, name, worker)


def names_shown(trial: Trial) -> list[str]:
    """Return the names of the tensors of a run, and of the rows of its signals.

    Tensors with samples or statistics only are among them.
    """
    names = trial.tensor_names()
    return [*names, *sorted(described_names(trial).difference(names)), *rows_of(trial)]


def described_names(trial: Trial) -> set[str]:
    """Return the names of tensors with samples or statistics, with or without a value.

    Bare steps have none.
    """
    reader = getattr(trial, "reader", None)
    if reader is None:
        return set()
    file = reader.statistics_file()
    return {*names_with_samples(reader), *(() if file is None else file.names())}


def can_show(trial: Trial, name: str) -> bool:
    """Return whether a run has a tensor or a row of a signal with this name."""
    return trial.has_tensor(name) or name in rows_of(trial)


def rows_of(trial: Trial) -> dict[str, tuple[SignalRow, ...]]:
    """Return the rows of a trial's signals by name; bare steps have none."""
    reader = getattr(trial, "reader", None)
    return {} if reader is None else reader.signal_rows()


class SignalView(TensorView):
    """One row of a signal, such as the logits of a head, from one worker."""

    @property
    def _row(self) -> SignalRow:
        with no_refresh(self.trial):
            rows = rows_of(self.trial).get(self.name, ())
        if not rows:
            raise TensorUnavailable(self.name, rows_of(self.trial))
        for row in rows:
            if self.worker in ("", row.worker):
                return row
        raise InvalidWorker(self.worker, self.workers())

    @cached_property
    def kind(self) -> str:
        """Empty: the row is a plain number."""
        return ""

    def steps(self) -> list[int]:
        """Return the steps with a value."""
        return [step for step in self._row.steps.tolist() if step <= LARGEST_STEP]

    def steps_shown(self) -> list[int]:
        """Return the steps with a value."""
        return self.steps()

    def sample_at(self, step: int) -> None:
        """Return None: there are no samples."""

    def value(self, step: int) -> NDArray[Any]:
        """Return the value at a step."""
        row = self._row
        at = int(np.searchsorted(row.steps, step))
        if at == len(row.steps) or row.steps[at] != step:
            raise TensorUnavailableForStep(self.name, step)
        return np.array(row.values[at])

    def stored_reductions(self, step: int) -> dict[tuple[str, bool], Any]:
        """Return nothing: they follow from the value."""
        return {}

    def reductions(self, steps: list[int] | None, names: list[str], others: Sequence[TensorView] = ()) -> Columns:
        """Return the named reductions, one row for each step that has them."""
        parts = [view.reduced(steps, names) for view in (self, *others) if isinstance(view, SignalView)]
        return Columns({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def reduced(self, steps: list[int] | None, names: list[str]) -> dict[str, NDArray[Any]]:
        """Return the columns of :meth:`reductions` for this row alone."""
        row = self._row
        chosen = np.ones(len(row.steps), bool) if steps is None else np.isin(row.steps, steps)
        values = row.values[chosen].astype(np.float64)
        columns: dict[str, NDArray[Any]] = {
            "name": np.full(len(values), self.name, object),
            "step": row.steps[chosen],
            "mode": np.full(len(values), ModeKeys.GLOBAL.name, object),
        }
        for name in names:
            plain = name.removeprefix("abs_")
            sizes = np.abs(values) if plain != name or plain in _SIZES else values
            columns[name] = np.zeros(len(values)) if plain in _ZEROS else sizes
        return columns

    def shape(self, step: int) -> tuple[int, ...]:
        """Return the shape of a number."""
        return ()

    def course(self, superseded: bool = False) -> Course:
        """Return an empty course: the file has no times."""
        return Course(np.empty(0, np.int64), np.empty(0), np.empty(0))

    def workers(self) -> list[str]:
        """Return the workers that recorded the signal."""
        return sorted(row.worker for row in rows_of(self.trial).get(self.name, ()))

    def sample(self) -> tuple[str, tuple[int, ...]]:
        """Return dtype name and shape."""
        return "float32", ()

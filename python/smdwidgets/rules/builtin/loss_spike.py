"""LossSpike."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule, collections_parameter, no_tensor_message
from smdwidgets.rules.findings import Finding, number
from smdwidgets.rules.loss_columns import MOST_CELLS, LossColumns
from smdwidgets.rules.losses import loss_need, losses_at
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need
from smdwidgets.rules.verdicts import Outcome, Verdicts

Column = NDArray[np.float64]


def _medians(windows: Column) -> Column:
    """Return the median of each row. Sorting short rows is faster than `np.median`."""
    ordered = np.sort(windows, axis=1)
    middle = windows.shape[1] // 2
    if windows.shape[1] % 2:
        return np.asarray(ordered[:, middle] + 0.0)
    return np.asarray((ordered[:, middle - 1] + ordered[:, middle]) / 2 + 0.0)


class LossSpike(SelectingRule):
    """Detect a loss that rises suddenly or is not finite.

    Fires immediately when a loss is NaN or infinite. Otherwise compares the loss with the median m over its previous
    `window` saved steps of the same mode. Fires when the loss exceeds m by more than `threshold` times the median
    absolute deviation and by more than `min_rise` times |m|. The second condition prevents firing on a nearly constant
    loss. At least `min_steps` previous losses are needed. The median ignores losses that are not finite.

    With the default parameters, the rule fires on about half of the healthy runs, because the loss of single batches
    has outliers. `diagnose` reports spikes that are rare in the series.

    What to do: use a smaller learning rate or gradient clipping, check the batch of that step, resume from the previous
    checkpoint.
    """

    sagemaker = False
    collections = {"losses": {"save_interval": "10"}}
    needs_selector = False

    collection_names = collections_parameter(("losses",))
    threshold = Real(
        10.0, "Number of median absolute deviations above the median at which the rule fires.", minimum=0.0
    )
    min_rise = Real(0.5, "Minimum rise, as a share of the median.", minimum=0.0)
    window = Integer(20, "Number of previous saved steps for the median.", minimum=2)
    min_steps = Integer(5, "Minimum number of previous saved steps.", minimum=2)

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    def judge(self, step: int) -> None:
        self.required_table(loss_need(self.selector), step)
        judged = False
        losses = losses_at(self.measurements, self.selector, step)
        if not losses:
            raise NothingToJudge("no tensor at this step is a scalar")
        for name, loss in losses.items():
            if not math.isfinite(loss):
                judged = True
                self.blame(name, step, loss, None, f"the loss is {number(loss)}")
                continue
            before = self._before(name, step)
            if len(before) < self.min_steps:
                continue
            judged = True
            usual = median(before) + 0.0  # -0 becomes 0, whatever the order of equal numbers
            spread = median(abs(each - usual) for each in before)
            limit = usual + max(self.threshold * spread, self.min_rise * abs(usual))
            if loss > limit:
                self._blame_rise(name, step, loss, limit, usual, len(before))
        if not judged:
            raise NothingToJudge(f"fewer than {self.min_steps} previous losses are available")

    def _blame_rise(self, name: str, step: int, loss: float, limit: float, usual: float, count: int) -> None:
        message = (
            f"the loss {number(loss)} is above {number(limit)}; its median over {count} saved steps is {number(usual)}"
        )
        self.blame(name, step, loss, limit, message)

    @property
    def columns_selector(self) -> Selector:
        return self.selector

    def judge_columns(self, columns: LossColumns, first: int, end: int) -> Verdicts | None:
        if columns.values.size * self.window > MOST_CELLS:
            return None
        judged = np.zeros(columns.saved.shape, np.bool_)
        limits = np.full(columns.saved.shape, np.nan)
        usual = np.full(columns.saved.shape, np.nan)
        counts = np.zeros(columns.saved.shape, np.int64)
        for name, saved in enumerate(columns.saved):
            for mode in np.unique(columns.modes[saved]):
                rows = np.flatnonzero(saved & (columns.modes == mode) & np.isfinite(columns.values[name]))
                found, medians, spreads = self._windows(columns.values[name, rows])
                with np.errstate(over="ignore"):
                    limits[name, rows] = medians + np.maximum(self.threshold * spreads, self.min_rise * np.abs(medians))
                usual[name, rows], counts[name, rows] = medians, found
                judged[name, rows] = found >= self.min_steps
        bad = columns.saved & ~np.isfinite(columns.values)
        with np.errstate(invalid="ignore"):
            fired = bad | (judged & (columns.values > limits))
        judged |= bad
        saved = columns.saved

        def findings(row: int) -> list[Finding]:
            at, step = first + row, int(columns.steps[first + row])
            self.findings = []
            for name in np.flatnonzero(fired[:, at]).tolist():
                loss = float(columns.values[name, at])
                if bad[name, at]:
                    self.blame(columns.names[name], step, loss, None, f"the loss is {number(loss)}")
                else:
                    limit, median, count = float(limits[name, at]), float(usual[name, at]), int(counts[name, at])
                    self._blame_rise(columns.names[name], step, loss, limit, median, count)
            return self.findings

        def reason(row: int) -> str:
            if saved[:, first + row].any():
                return f"fewer than {self.min_steps} previous losses are available"
            return no_tensor_message(self.selector)

        part = slice(first, end)
        outcomes = np.where(judged[:, part].any(0), Outcome.PASSED, Outcome.SKIPPED)
        outcomes = np.where(fired[:, part].any(0), Outcome.FIRED, outcomes).astype(np.uint8)
        return Verdicts(outcomes, fired[:, part].sum(0), reason, findings)

    def _windows(self, losses: Column) -> tuple[NDArray[np.int64], Column, Column]:
        """Return number, median and deviation of the losses before each finite loss."""
        counts = np.minimum(np.arange(len(losses)), self.window)
        medians, spreads = np.full(len(losses), np.nan), np.full(len(losses), np.nan)
        for at in range(min(self.min_steps, len(losses)), min(self.window, len(losses))):
            before = losses[:at]
            medians[at] = np.median(before) + 0.0
            spreads[at] = np.median(np.abs(before - medians[at]))
        if self.min_steps <= self.window < len(losses):
            windows = sliding_window_view(losses, self.window)[:-1]
            with np.errstate(over="ignore"):
                medians[self.window :] = _medians(windows)
                spreads[self.window :] = _medians(np.abs(windows - medians[self.window :, None]))
        return counts, medians, spreads

    def _before(self, name: str, step: int) -> list[float]:
        """Return the finite losses in the window before this step."""
        found: list[float] = []
        measurements = self.measurements
        for each in measurements.earlier_steps(step, measurements.mode(step)):
            if len(found) == self.window:
                break
            if name in measurements.names(self.selector, each):
                loss = losses_at(measurements, self.selector, each).get(name, math.nan)
                if math.isfinite(loss):
                    found.append(loss)
        return found

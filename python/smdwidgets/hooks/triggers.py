"""Find out, from the statistics of a step, that something broke.

Three things count: values that are not finite, a loss or gradient norm far above the last ones, and five updates in a row that
a GradScaler skipped. Each is reported when it begins, and again only after eight steps without it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.hooks.captured import StepKey
from smdwidgets.hooks.step_columns import NOT_FINITE, StepColumns
from smdwidgets.hooks.tensor_kinds import GRADIENT_NORM, SKIPPED, Kind, Kinds
from smdwidgets.incident import Trigger
from smdwidgets.modes import ModeKeys

__all__ = ["Cause", "Onsets", "Triggers"]

#: Number of values that a spike is compared with; before, no spike is seen.
SPIKE_WINDOW: Final = 64
#: A spike is this many times the usual spread above the median.
SPIKE_FACTOR: Final = 10.0
#: The spread is at least this share of the median, so that a flat curve has no spikes of rounding.
SPIKE_SHARE: Final = 0.05
#: Ratio of the standard deviation of normal numbers to their median absolute deviation.
_SIGMAS_PER_MAD: Final = 1.48
#: Skipped updates in a row that are an incident. Single ones are how a GradScaler finds its scale.
MOST_SKIPPED: Final = 5
#: Steps in which an output may have infinities from the beginning, as attention masks do.
MASK_STEPS: Final = 8
#: Steps without a condition after which it counts as new when it occurs again.
QUIET_STEPS: Final = 8
#: Sets of names whose layout is cached.
_MOST_LAYOUTS: Final = 64

#: Kinds whose infinities are always a fault, and kinds that may have them from the beginning.
_STRICT = (Kind.LOSS, Kind.GRADIENT, Kind.WEIGHT)
_LENIENT = (Kind.OUTPUT, Kind.OTHER)


@dataclass(frozen=True)
class Cause:
    """Why an incident begins or goes on."""

    why: str
    trigger: Trigger | None = None


class Onsets:
    """Which conditions are new at a step, and which go on.

    >>> onsets = Onsets()
    >>> [onsets.begins("loss", step) for step in (3, 4, 11, 40)]
    [True, False, False, True]
    """

    def __init__(self) -> None:
        self._last: dict[object, int] = {}

    def begins(self, condition: object, step: int) -> bool:
        """Note that a condition holds; return whether it is new."""
        last = self._last.get(condition)
        self._last[condition] = step
        return last is None or not 0 <= step - last <= QUIET_STEPS


@dataclass(eq=False, slots=True)
class _Layout:
    """Where the tensors of each kind are among the rows of a step.

    ``age`` is the number of steps with these rows, up to those in which masks are learnt.
    """

    strict: NDArray[np.bool_]
    lenient: NDArray[np.bool_]
    gradients: NDArray[np.intp]
    losses: tuple[int, ...]
    norms: tuple[int, ...]
    skipped: tuple[int, ...]
    age: int = 0


class Triggers:
    """Judges the steps of a run, one after the other.

    Args:
        kinds: the kinds of the run's tensors.
    """

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._layouts: dict[tuple[str, ...], _Layout] = {}
        self._onsets = Onsets()
        self._windows: dict[tuple[ModeKeys, str], deque[float]] = {}
        #: How many steps a lenient tensor was seen in, and the columns in which it was not finite during the first ones.
        self._seen: dict[str, int] = {}
        self._masks: dict[str, set[str]] = {}
        self._skipped_in_a_row = 0

    def judge(self, key: StepKey, table: StepColumns) -> list[Cause]:
        """Return what begins to go wrong at a step.

        The first non-finite tensor in forward order comes first.
        """
        layout = self._layout(table.names)
        causes = self._skipped(key, table, layout)
        if not self._skipped_in_a_row:  # the scaled loss and outputs of a skipped update may overflow
            causes += self._not_finite(key, table, layout)
            causes += self._spikes(key, table, layout)
        return causes

    def _layout(self, names: tuple[str, ...]) -> _Layout:
        layout = self._layouts.get(names)
        if layout is None:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            kinds = [self._kinds[name] for name in names]
            layout = self._layouts[names] = _Layout(
                np.array([kind in _STRICT for kind in kinds], bool),
                np.array([kind in _LENIENT for kind in kinds], bool),
                np.array([at for at, kind in enumerate(kinds) if kind is Kind.GRADIENT], np.intp),
                tuple(at for at, kind in enumerate(kinds) if kind is Kind.LOSS),
                tuple(at for at, name in enumerate(names) if GRADIENT_NORM.search(name)),
                tuple(at for at, name in enumerate(names) if SKIPPED.search(name)),
            )
        return layout

    def _skipped(self, key: StepKey, table: StepColumns, layout: _Layout) -> list[Cause]:
        skipped = [at for at in layout.skipped if table.number("max", at) > 0]
        if not skipped:
            if key[1] is not ModeKeys.EVAL and key[1] is not ModeKeys.PREDICT:
                self._skipped_in_a_row = 0
            return []
        self._skipped_in_a_row += 1
        if self._skipped_in_a_row != MOST_SKIPPED:
            return []
        name = table.names[skipped[0]]
        return [Cause(f"GradScaler skipped {MOST_SKIPPED} updates in a row", Trigger(name, "max", 1.0))]

    # ----------------------------------------------------------------------------------------------- not finite values

    def _not_finite(self, key: StepKey, table: StepColumns, layout: _Layout) -> list[Cause]:
        self._learn_masks(table, layout)
        cause = self.first_not_finite(table)
        return [cause] if cause is not None and self._onsets.begins(("not finite", key[1]), key[0]) else []

    def first_not_finite(self, table: StepColumns) -> Cause | None:
        """Return the first tensor of a step with a value that should be finite and is not."""
        bad = table["not_finite"] > 0
        if not bad.any():
            return None
        layout = self._layout(table.names)
        fault = bad & layout.strict
        for at in np.flatnonzero(bad & layout.lenient).tolist():
            masked = self._masks.get(table.names[at], ())
            fault[at] = any(table.number(each, at) > 0 and each not in masked for each in NOT_FINITE)
        if not fault.any():
            return None
        # An input of the model that is not finite is the cause of what it breaks.
        first = int(np.flatnonzero(bad)[0])
        if not fault[first] and self._kinds[table.names[first]] is not Kind.INPUT:
            first = int(np.flatnonzero(fault)[0])
        column = next(each for each in NOT_FINITE if table.number(each, first) > 0)
        name = table.names[first]
        return Cause(f"{NOT_FINITE[column]} in {shown(name)}", Trigger(name, column, table.number(column, first)))

    def _learn_masks(self, table: StepColumns, layout: _Layout) -> None:
        """Note which outputs have infinities from the beginning."""
        if layout.age >= MASK_STEPS:
            return
        bad = table["not_finite"] > 0
        layout.age += 1
        for at in np.flatnonzero(layout.lenient).tolist():
            name = table.names[at]
            seen = self._seen[name] = self._seen.get(name, 0) + 1
            if seen <= MASK_STEPS and bad[at]:
                columns = ("pos_inf", "neg_inf") if self._kinds[name] is Kind.OUTPUT else tuple(NOT_FINITE)
                self._masks.setdefault(name, set()).update(each for each in columns if table.number(each, at) > 0)

    # --------------------------------------------------------------------------------------------------------- spikes

    def _spikes(self, key: StepKey, table: StepColumns, layout: _Layout) -> list[Cause]:
        values = [(table.names[at], "mean", table.number("mean", at), "loss") for at in layout.losses]
        if layout.norms:
            values += [(table.names[at], "mean", table.number("mean", at), "gradient norm") for at in layout.norms]
        elif len(layout.gradients):
            norms = table["l2"][layout.gradients]
            largest = table.names[int(layout.gradients[int(np.argmax(np.nan_to_num(norms)))])]
            values.append((largest, "l2", sqrt(float(np.sum(norms * norms))), "gradient norm"))
        causes = []
        for name, of, value, what in values:
            series = "" if what == "gradient norm" and not layout.norms else name
            limit = self._limit((key[1], series), value)
            if value > limit and self._onsets.begins(("spike", key[1], series), key[0]):
                text = f"{what} {value:.4g} is far above the last {SPIKE_WINDOW} (limit {limit:.4g})"
                causes.append(Cause(f"{text}: {shown(name)}" if series else text, Trigger(name, of, value)))
        return causes

    def _limit(self, series: tuple[ModeKeys, str], value: float) -> float:
        """Return above which value a series has a spike, and add the value to it.

        NaN before the series is long enough, which no value is above.
        """
        window = self._windows.setdefault(series, deque(maxlen=SPIKE_WINDOW))
        limit = nan
        if len(window) == SPIKE_WINDOW:
            usual = median(window)
            spread = _SIGMAS_PER_MAD * median(abs(each - usual) for each in window)
            limit = usual + SPIKE_FACTOR * max(spread, SPIKE_SHARE * abs(usual))
        if isfinite(value):
            window.append(value)
        return limit

"""Find out, from the statistics of a step, that something broke.

Three things count: values that are not finite, a loss or gradient norm far above the last ones, and five updates in a
row that a GradScaler skipped. Each is reported when it begins, and again only after ten steps without it. For values
that are not finite, these are judged steps of the mode: a model that stays NaN is one incident at any interval of saves
and evaluations.
`smdwidgets.anomalies` says which values are far above others, and which should be finite.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.anomalies import Episodes, NotFinite, SpikeScan
from smdwidgets.anomalies.defaults import EPISODE_QUIET, SPIKE_FIRST, SPIKE_WINDOW
from smdwidgets.hooks.capture.captured import StepKey
from smdwidgets.hooks.incidents.step_columns import NOT_FINITE, StepColumns
from smdwidgets.incident import Trigger
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.causal_order import Place, causal_places
from smdwidgets.naming.tensors import GRADIENT_NORM, SKIPPED_UPDATE, Kind, Kinds

__all__ = ["Cause", "Triggers"]

#: Skipped updates in a row that are an incident. Single ones are how a GradScaler finds its scale.
MOST_SKIPPED: Final = 5
#: A loss or norm below this share of its first values is as good as 0: a rise there is one of rounding.
_NEGLIGIBLE: Final = 1e-6
#: Sets of names whose layout is cached.
_MOST_LAYOUTS: Final = 64

#: Kinds of tensors whose values should be finite: which kinds of values, as in `NOT_FINITE`, they may have from the
#: first step on.
_TOLERATED: Final = {
    Kind.LOSS: (False, False, False),
    Kind.GRADIENT: (False, False, False),
    Kind.WEIGHT: (False, False, False),
    Kind.BIAS: (False, False, False),
    Kind.OUTPUT: (False, True, True),
    Kind.ACTIVATION: (False, True, True),
    Kind.LABEL: (True, True, True),
    Kind.OTHER: (True, True, True),
}
#: The same of gradient norms, which there are at every step, also where gradients are not captured.
_NORM: Final = (False, False, False)


@dataclass(frozen=True)
class Cause:
    """Why an incident begins or goes on."""

    why: str
    trigger: Trigger | None = None
    #: Where the tensor is in the causal order of its step, if that is known.
    place: Place | None = None


@dataclass(eq=False, slots=True)
class _Layout:
    """Rows of a step by what they are judged for.

    ``places`` is the causal order. ``is_new`` until the first step with these rows was judged.
    """

    places: list[Place]
    judged: NDArray[np.bool_]
    gradients: NDArray[np.intp]
    losses: tuple[int, ...]
    norms: tuple[int, ...]
    skipped: tuple[int, ...]
    is_new: bool = True


@dataclass(slots=True)
class _NotFiniteEpisode:
    """The last step of a mode at which a tensor was not finite.

    ``finite`` counts the judged steps since at which the tensor was finite.
    """

    step: int
    tensor: str
    finite: int = 0


class Triggers:
    """Judges the steps of a run, one after the other.

    Args:
        kinds: the kinds of the run's tensors.
    """

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._layouts: dict[tuple[str, ...], _Layout] = {}
        self._episodes: defaultdict[tuple[str, ModeKeys, str], Episodes] = defaultdict(Episodes)
        self._not_finite_episodes: dict[ModeKeys, _NotFiniteEpisode] = {}
        self._scans: defaultdict[tuple[ModeKeys, str], SpikeScan] = defaultdict(SpikeScan)
        #: The first magnitudes of each series.
        self._starts: defaultdict[tuple[ModeKeys, str], list[float]] = defaultdict(list)
        #: Which values of each judged tensor should be finite.
        self._values: dict[str, NotFinite] = {}
        self._skipped_in_a_row = 0

    def judge(self, key: StepKey, table: StepColumns) -> list[Cause]:
        """Return what begins to go wrong at a step.

        The first non-finite tensor in causal order comes first.
        """
        layout = self._layout(table.names)
        causes = self._skipped(key, table, layout)
        if not self._skipped_in_a_row:  # the scaled loss and outputs of a skipped update may overflow
            causes += self._not_finite(key, table, layout)
            causes += self._spikes(key, table, layout)
        return causes

    def places(self, names: tuple[str, ...]) -> Sequence[Place]:
        """Return the places of a step's tensors in causal order."""
        return self._layout(names).places

    def _layout(self, names: tuple[str, ...]) -> _Layout:
        layout = self._layouts.get(names)
        if layout is None:
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            kinds = [self._kinds[name] for name in names]
            layout = self._layouts[names] = _Layout(
                causal_places(kinds),
                np.array([self._tolerated(name) is not None for name in names], bool),
                np.array([row for row, kind in enumerate(kinds) if kind is Kind.GRADIENT], np.intp),
                tuple(row for row, kind in enumerate(kinds) if kind is Kind.LOSS),
                tuple(row for row, name in enumerate(names) if GRADIENT_NORM.search(name)),
                tuple(row for row, name in enumerate(names) if SKIPPED_UPDATE.search(name)),
            )
        return layout

    def _tolerated(self, name: str) -> tuple[bool, bool, bool] | None:
        """Return which values that are not finite a tensor may have; None: not judged."""
        return _NORM if GRADIENT_NORM.search(name) else _TOLERATED.get(self._kinds[name])

    def _skipped(self, key: StepKey, table: StepColumns, layout: _Layout) -> list[Cause]:
        skipped = [row for row in layout.skipped if table.number("max", row) > 0]
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
        if layout.is_new:
            layout.is_new = False
            for row in np.flatnonzero(layout.judged).tolist():
                if table.names[row] not in self._values:
                    tolerated = self._tolerated(table.names[row])
                    assert tolerated is not None  # it is judged
                    values = NotFinite(tolerated)
                    values.push(_present(table, row))
                    self._values[table.names[row]] = values
        cause = self.first_not_finite(table)
        return [cause] if self._begins_not_finite(key, table, cause) and cause is not None else []

    def _begins_not_finite(self, key: StepKey, table: StepColumns, cause: Cause | None) -> bool:
        """Note whether a step has values that are not finite; return whether this is new."""
        episodes, (step, mode) = self._not_finite_episodes, key[:2]
        last = episodes.get(mode)
        if cause is None or cause.trigger is None:
            if last is not None and last.tensor in table.names:
                last.finite += 1
            return False
        goes_on = last is not None and last.step <= step and last.finite < EPISODE_QUIET
        # What training broke, an evaluation only finds again.
        seen = any(other is not mode and each.finite == 0 for other, each in episodes.items())
        episodes[mode] = _NotFiniteEpisode(step, cause.trigger.tensor)
        return not goes_on and not seen

    def first_not_finite(self, table: StepColumns) -> Cause | None:
        """Return the first tensor in causal order that is wrong.

        It has a value that should be finite and is not.
        """
        if not any(table[column].any() for column in NOT_FINITE):  # which also says that nothing is known
            return None
        bad = table["not_finite"] > 0
        if not bad.any():
            return None
        layout = self._layout(table.names)
        rows = sorted(np.flatnonzero(bad).tolist(), key=layout.places.__getitem__)
        first = next((row for row in rows if layout.judged[row] and self._is_fault(table, row)), None)
        if first is None:
            return None
        # An input of the model that is not finite is the cause of what it breaks.
        if self._kinds[table.names[rows[0]]] is Kind.INPUT:
            first = rows[0]
        column = next(column for column in NOT_FINITE if table.number(column, first) > 0)
        name = table.names[first]
        trigger = Trigger(name, column, table.number(column, first))
        return Cause(f"{NOT_FINITE[column]} in {shown(name)}", trigger, layout.places[first])

    def _is_fault(self, table: StepColumns, row: int) -> bool:
        values = self._values.get(table.names[row])
        return values is None or values.is_fault(_present(table, row))

    def _begins(self, condition: str, key: StepKey, series: str = "") -> bool:
        """Note that a condition holds at a step; return whether it is new."""
        return self._episodes[condition, key[1], series].push(key[0])

    # --------------------------------------------------------------------------------------------------------- spikes

    def _spikes(self, key: StepKey, table: StepColumns, layout: _Layout) -> list[Cause]:
        values = [(row, "mean", table.number("mean", row), "loss") for row in layout.losses]
        if layout.norms:
            values += [(row, "mean", table.number("mean", row), "gradient norm") for row in layout.norms]
        elif len(layout.gradients):
            norms = table["l2"][layout.gradients]
            largest = int(layout.gradients[int(np.argmax(np.nan_to_num(norms)))])
            values.append((largest, "l2", sqrt(float(np.sum(norms * norms))), "gradient norm"))
        causes = []
        for row, column, value, what in values:
            name = table.names[row]
            series = "" if what == "gradient norm" and not layout.norms else name
            no_gradient = what == "gradient norm" and value == 0  # neither judged nor compared with
            spike = self._scans[key[1], series].push(nan if no_gradient else value)
            start = self._starts[key[1], series]
            if len(start) < SPIKE_FIRST and isfinite(value):
                start.append(abs(value))
            is_rounding = spike is not None and value < _NEGLIGIBLE * median(start)
            if spike is not None and not is_rounding and self._begins("spike", key, series):
                text = f"{what} {value:.4g} is far above the last {SPIKE_WINDOW} (limit {spike.limit:.4g})"
                why = f"{text}: {shown(name)}" if series else text
                causes.append(Cause(why, Trigger(name, column, value), layout.places[row]))
        return causes


def _present(table: StepColumns, row: int) -> list[bool]:
    """Return which values that are not finite a tensor has."""
    return [table.number(column, row) > 0 for column in NOT_FINITE]

"""Find what stands out in a survey.

These are values that are not finite, jumps of a loss, firings of rules, and tensors of unusual size. Causes are not
judged here: `smdwidgets.diagnosis` joins these findings with what it found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import natural, quoted
from smdwidgets.anomalies import not_finite, rises
from smdwidgets.anomalies.defaults import SIZE_DEVIATIONS
from smdwidgets.finding import Confidence, Finding, Level, ordered
from smdwidgets.finding.rules import rule_finding
from smdwidgets.survey.bins import INFINITE, NAN
from smdwidgets.survey.table import Records, SurveyTable

#: Findings that are kept.
MOST = 200
#: Saved steps between two events of the same finding at most, and as a share of the run.
NEAR, NEAR_SHARE = 32, 0.05
#: Tensors that are kept of a finding.
_NAMES = 1000


@dataclass(frozen=True)
class RuleFirings:
    """The steps at which a rule fired.

    `tensors` has the steps at which it named each tensor, the first tensors first.
    """

    rule: str
    steps: tuple[int, ...]
    tensors: Mapping[str, tuple[int, ...]]


def findings(
    table: SurveyTable,
    steps: Sequence[int],
    losses: Collection[str],
    rules: Iterable[RuleFirings] = (),
    unread: NDArray[np.int64] | None = None,
    finite: Collection[str] = (),
    until: int | None = None,
) -> list[Finding]:
    """Return what stands out, and what rules found.

    The order is that of `smdwidgets.finding.ordered`.

    Args:
        table: the records.
        steps: saved steps of the run.
        losses: names of losses.
        rules: what rules found.
        unread: steps that were not read.
        finite: names of further tensors that are no masks, such as gradients and weights.
        until: last step to judge; None: all.
    """
    records, names = table.records(), table.row_names()
    if until is not None:
        records = {column: values[records["step"] <= until] for column, values in records.items()}
        steps = steps[: bisect_right(steps, until)]
    unread = np.empty(0, np.int64) if unread is None else unread
    survey = _Survey(records, names, np.asarray(steps, np.int64), unread, {*losses, *finite})
    marks = [*survey.not_finite(), *survey.loss_jumps(losses), *survey.surprises()]
    return ordered([*marks, *(_of_rule(rule) for rule in rules if rule.steps)])[:MOST]


def near(steps: int) -> float:
    """Return how many saved steps apart two events of one finding are at most."""
    return max(NEAR, NEAR_SHARE * steps)


def _of_rule(rule: RuleFirings) -> Finding:
    return rule_finding(rule.rule, min(rule.steps), max(rule.steps), len(rule.steps), tuple(rule.tensors))


@dataclass
class _Survey:
    records: Records
    #: Name of each row.
    names: list[str]
    steps: NDArray[np.int64]
    unread: NDArray[np.int64]
    #: Tensors that have no infinities from the first step on, as masks have.
    finite: Collection[str]

    def _events(self, places: NDArray[np.intp]) -> list[list[int]]:
        """Group records by time: those of a group are close to the one before."""
        if not len(places):
            return []
        places = places[np.argsort(self.records["step"][places], kind="stable")]
        ranks = np.searchsorted(self.steps, self.records["step"][places])
        cuts = np.flatnonzero(np.diff(ranks) > near(len(self.steps))) + 1
        return [part.tolist() for part in np.split(places, cuts)]

    def _firsts(self, event: list[int]) -> dict[str, int]:
        """Return the first record of each tensor of an event."""
        found: dict[str, int] = {}
        for place in event:
            found.setdefault(self.names[self.records["row"][place]], place)
        return found

    def _after(self, place: int) -> int | None:
        """Return the step read before a record, if there are unread ones in between."""
        row, step = self.records["row"], self.records["step"]
        before = int(step[place - 1]) if place and row[place - 1] == row[place] else None
        begin = -1 if before is None else before
        skipped = ((self.unread > begin) & (self.unread < step[place])).any() if len(self.unread) else False
        return max(0, begin) if skipped else None

    def _finding(
        self,
        kind: str,
        level: Level,
        confidence: Confidence,
        event: list[int],
        firsts: dict[str, int],
        facts: Mapping[str, object],
    ) -> Finding:
        names = tuple(firsts)[:_NAMES]
        first = int(self.records["step"][firsts[names[0]]])
        last = int(self.records["step"][event].max())
        when = {"when": self._when(firsts[names[0]], first, last), "at": first}
        return Finding.of(kind, level, confidence, first, last, names, {**when, **facts}, source="survey")

    def _when(self, index: int, first: int, last: int) -> str:
        """Return when an event began and ended, such as "from step 120 to 199"."""
        after = self._after(index)
        if after is not None:
            return f"since a step between {after:,} and {first:,}"
        return f"at step {first:,}" if first == last else f"from step {first:,} to {last:,}"

    # --------------------------------------------------------------------------------------------------- not finite

    def not_finite(self) -> Iterable[Finding]:
        """Find the events in which tensors stop being finite."""
        records = self.records
        is_bad = self._faults()
        # The first of a series of bad records of a row.
        same = np.append(False, records["row"][1:] == records["row"][:-1])
        bad_before = np.append(False, is_bad[:-1]) & same
        onsets = np.flatnonzero(is_bad & ~bad_before)
        places = np.flatnonzero(is_bad)
        bad_steps = records["step"][places]
        events = self._events(onsets)
        for number, event in enumerate(events):
            firsts = self._firsts(event)
            # Of equally early tensors, the one with the fewest bad elements is closest to the origin.
            order = sorted(firsts.items(), key=lambda one: (records["step"][one[1]], *self._spread(one)))
            begin = records["step"][event[0]]
            end = records["step"][events[number + 1][0]] if number + 1 < len(events) else None
            own = np.isin(records["row"][places], records["row"][event])
            mine = places[own & (bad_steps >= begin) & ((bad_steps < end) if end is not None else True)]
            yield self._not_finite(dict(order), mine.tolist())

    def _faults(self) -> NDArray[np.bool_]:
        """Return which records have values that should be finite and are not."""
        rows, flags = self.records["row"], self.records["flag"]
        is_fault = (flags & (NAN | INFINITE)) > 0
        for row in np.unique(rows[is_fault & ((flags & INFINITE) > 0)]).tolist():
            part = slice(*np.searchsorted(rows, [row, row + 1]))
            present = (flags[part, None] & np.array([NAN, INFINITE], flags.dtype)) > 0
            is_fault[part] = not_finite(present, (False, self.names[row] not in self.finite))
        return is_fault

    def _spread(self, one: tuple[str, int]) -> tuple[float, str]:
        return float(self.records["not_finite"][one[1]]), natural(one[0])

    def _not_finite(self, firsts: dict[str, int], event: list[int]) -> Finding:
        lead, index = next(iter(firsts.items()))
        records = self.records
        elements = float(records["elements"][index])
        count = max(1, round(float(records["not_finite"][index]) * elements))
        share = [f"{'all' if count == elements else f'{count:,} of'} {elements:,.0f} values"] if elements > 1 else []
        facts = {
            "series": quoted(lead),
            "what": "NaN" if records["flag"][index] & NAN else "infinite",
            "share": "; ".join([*share, *_followers(len(firsts) - 1)]),
        }
        # The diagnosis judges series; a tensor with such a value is a proof by itself.
        level: Level = "problem" if any(records["elements"][index] > 1 for index in firsts.values()) else "note"
        return self._finding("not_finite", level, "proof", event, firsts, facts)

    # -------------------------------------------------------------------------------------------------------- losses

    def loss_jumps(self, losses: Collection[str]) -> Iterable[Finding]:
        """Find steps at which a loss rises far above the values before."""
        records = self.records
        for row, name in enumerate(self.names):
            if name not in losses:
                continue
            start, end = np.searchsorted(records["row"], [row, row + 1])
            for mode in np.unique(records["mode"][start:end]):
                places = np.arange(start, end)[records["mode"][start:end] == mode]
                spikes = rises(records["mean"][places].astype(np.float64)).spikes()
                levels = dict(zip(places[spikes.index].tolist(), spikes.level.tolist(), strict=True))
                for event in self._events(places[spikes.index]):
                    peak = float(records["mean"][event].max())
                    title = f"{quoted(name)} jumps at step {records['step'][event[0]]:,}"
                    facts = {"title": title, "level": levels[event[0]], "top": peak}
                    yield self._finding("spike", "note", "low", event, {name: event[0]}, facts)

    # ------------------------------------------------------------------------------------------------------- surprise

    def surprises(self) -> Iterable[Finding]:
        """Find steps at which tensors have an unusual size."""
        records = self.records
        with np.errstate(invalid="ignore"):
            places = np.flatnonzero((np.abs(records["surprise"]) >= SIZE_DEVIATIONS) & (records["elements"] != 1))
        for event in self._events(places):
            firsts = self._firsts(event)
            begin = records["step"][event[0]]
            order = sorted(
                firsts.items(),
                key=lambda one: (records["step"][one[1]], -abs(records["surprise"][one[1]]), natural(one[0])),
            )
            together = [place for _, place in order if records["step"][place] == begin]
            lead, place = order[0]
            change = self.change(place)
            who, follow = quoted(lead), len(order) - len(together)
            if len(together) > 1:
                who += f" and {_number(len(together) - 1, 'more tensor')}"
            verb = change if len(together) == 1 else change.replace("falls", "fall").replace("grows", "grow")
            verb = verb if len(together) == 1 else verb.replace("its", "their").replace("shrinks", "shrink")
            level: Level = "warning" if change == "falls to 0" else "note"
            # It stands out until its new size is usual; that is not when it ends.
            first = int(begin)
            when = self._when(place, first, first)
            facts = {
                "what": f"{who} {verb}",
                "when": when,
                "follow": "".join(f"{text.capitalize()}." for text in _followers(follow)),
            }
            yield self._finding("stands_out", level, "low", event, dict(order), facts)

    def change(self, place: int) -> str:
        """Describe the change of a record against its usual size."""
        size, usual = float(self.records["size"][place]), float(self.records["usual"][place])
        size = float(self.records["l2"][place]) if np.isnan(size) else size
        if size == -np.inf:
            return "falls to 0"
        ratio = times(size - usual)
        return f"{'grows' if size > usual else 'shrinks'} to {ratio} its usual size"


def times(decades: float) -> str:
    """Return a factor as text.

    >>> times(1.6), times(-1.0), times(0.04)
    ('40 ×', '1/10 of', '1.1 ×')
    """
    factor = 10.0 ** min(abs(decades), 30)
    shown = f"{factor:.1f}" if factor < 10 else f"{factor:,.0f}" if factor < 1e6 else f"{factor:.0e}"
    return f"{shown.removesuffix('.0')} ×" if decades >= 0 else f"1/{shown.removesuffix('.0')} of"


def largest_change(table: SurveyTable) -> tuple[str, str, int] | None:
    """Return the tensor with the largest surprise, its change as text, and the step."""
    records = table.records()
    with np.errstate(invalid="ignore"):
        surprise = np.where(records["elements"] != 1, np.abs(records["surprise"]), np.nan)
    if not len(surprise) or np.isnan(surprise).all():
        return None
    place = int(np.nanargmax(surprise))
    size, usual = float(records["size"][place]), float(records["usual"][place])
    size = float(records["l2"][place]) if np.isnan(size) else size
    change = "0" if size == -np.inf else f"{times(size - usual)} its usual size"
    return table.row_names()[records["row"][place]], change, int(records["step"][place])


def _followers(count: int) -> list[str]:
    return [f"{_number(count, 'more tensor')} follow{'s' if count == 1 else ''}"] if count > 0 else []


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

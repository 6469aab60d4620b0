"""Find what stands out in a survey.

These are values that are not finite, jumps of a loss, firings of rules, and surprises. Nothing is judged here about causes; see `smdwidgets.diagnosis`. Findings are ordered by kind, then by their first step, then by
amount, because later findings usually repeat the first or follow from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import natural, visible
from smdwidgets.diagnosis.spikes import SpikeScan
from smdwidgets.survey.bins import INFINITE, NAN
from smdwidgets.survey.surprise import SURPRISING
from smdwidgets.survey.table import Records, SurveyTable

Kind = Literal["not_finite", "loss_jump", "rule", "surprise"]
Severity = Literal["problem", "warning", "note"]

#: Kinds, the most suspicious first.
KINDS: tuple[Kind, ...] = ("not_finite", "loss_jump", "rule", "surprise")
#: Findings that are kept.
MOST = 200
#: Saved steps between two events of the same finding at most, and as a share of the run.
NEAR, NEAR_SHARE = 32, 0.05
#: Characters of a name in a sentence, and tensors that are kept of a finding.
_NAME, _TENSORS = 48, 1000


@dataclass(frozen=True)
class RuleFirings:
    """The steps at which a rule fired.

    `tensors` has the steps at which it named each tensor, the first tensors first.
    """

    rule: str
    steps: tuple[int, ...]
    tensors: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class MapFinding:
    """One thing that stands out.

    Attributes:
        id: stable while the run grows.
        kind: "not_finite", "loss_jump", "rule" or "surprise".
        severity: "problem", "warning" or "note".
        tensors: names, the first affected first.
        first: first step that shows it.
        last: last step that shows it.
        count: number of saved steps that show it.
        after: the step before `first` that was read, if there are unread steps in between; else None.
        amount: share of elements, or size of the change, by which equally early findings are ordered.
        fact: what happened, without the step.
        rest: what follows the fact in a separate sentence.
    """

    id: str
    kind: Kind
    severity: Severity
    tensors: tuple[str, ...]
    first: int
    last: int
    count: int
    after: int | None
    amount: float
    fact: str
    rest: str = ""

    @property
    def when(self) -> str:
        """When it began, such as "at step 371"."""
        if self.after is None:
            return f"at step {self.first:,}"
        return f"between steps {self.after:,} and {self.first:,}"

    @property
    def text(self) -> str:
        """The finding as a sentence."""
        lasts = f", until step {self.last:,}" if self.last > self.first else ""
        return f"{self.fact} {self.when}{lasts}{self.rest}."


def quoted(name: str) -> str:
    """Return a name between backticks, escaped, with its end if it is long.

    >>> quoted("model.layers.17.self_attn.k_proj.lora_A.default.weight")
    '`…ayers.17.self_attn.k_proj.lora_A.default.weight`'
    """
    text = visible(name).replace("`", "'")
    return f"`{text if len(text) <= _NAME else '…' + text[1 - _NAME :]}`"


def findings(
    table: SurveyTable,
    steps: Sequence[int],
    losses: Collection[str],
    rules: Iterable[RuleFirings] = (),
    unread: NDArray[np.int64] | None = None,
) -> list[MapFinding]:
    """Return what stands out, the most suspicious first.

    Args:
        table: the records.
        steps: saved steps of the run.
        losses: names of losses.
        rules: what rules found.
        unread: steps that were not read.
    """
    records, names = table.records(), table.row_names()
    survey = _Survey(records, names, np.asarray(steps, np.int64), np.empty(0, np.int64) if unread is None else unread)
    found = [*survey.not_finite(), *survey.loss_jumps(losses), *survey.surprises()]
    found += [_of_rule(rule) for rule in rules if rule.steps]
    found.sort(key=lambda one: (KINDS.index(one.kind), one.first, -one.amount, one.id))
    return found[:MOST]


def near(steps: int) -> float:
    """Return how many saved steps apart two events of one finding are at most."""
    return max(NEAR, NEAR_SHARE * steps)


def _of_rule(rule: RuleFirings) -> MapFinding:
    count = len(rule.steps)
    times = "1 step" if count == 1 else f"{count:,} steps"
    tensors = tuple(rule.tensors)
    of = f" for {quoted(tensors[0])}" if tensors else ""
    others = len(tensors) - 1
    of += f" and {_number(others, 'more tensor')}" if others > 0 else ""
    return MapFinding(
        f"rule:{rule.rule}",
        "rule",
        "warning",
        tensors[:_TENSORS],
        min(rule.steps),
        max(rule.steps),
        count,
        None,
        float(count),
        f"{quoted(rule.rule)} fires{of} ({times})",
    )


@dataclass
class _Survey:
    records: Records
    #: Name of each row.
    names: list[str]
    steps: NDArray[np.int64]
    unread: NDArray[np.int64]

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
        kind: Kind,
        severity: Severity,
        event: list[int],
        firsts: dict[str, int],
        amount: float,
        fact: str,
        rest: str = "",
    ) -> MapFinding:
        steps = self.records["step"][event]
        lead = next(iter(firsts))
        first = int(self.records["step"][firsts[lead]])
        tensors = tuple(firsts)[:_TENSORS]
        count, last = len(np.unique(steps)), int(steps.max())
        after = self._after(firsts[lead])
        return MapFinding(
            f"{kind}:{lead}:{first}", kind, severity, tensors, first, last, count, after, amount, fact, rest
        )

    # --------------------------------------------------------------------------------------------------- not finite

    def not_finite(self) -> Iterable[MapFinding]:
        """Find the events in which tensors stop being finite."""
        records = self.records
        is_bad = (records["flag"] & (NAN | INFINITE)) > 0
        # The first of a series of bad records of a row.
        same = np.append(False, records["row"][1:] == records["row"][:-1])
        bad_before = np.append(False, is_bad[:-1]) & same
        onsets = np.flatnonzero(is_bad & ~bad_before)
        masks = {int(row) for row in records["row"][onsets] if self._is_mask(int(row), is_bad)}
        onsets = onsets[[int(row) not in masks for row in records["row"][onsets]]] if masks else onsets
        places = np.flatnonzero(is_bad & ~np.isin(records["row"], list(masks)))
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

    def _is_mask(self, row: int, is_bad: NDArray[np.bool_]) -> bool:
        """Whether a tensor has infinities at every step, as the mask of an attention has."""
        start, end = np.searchsorted(self.records["row"], [row, row + 1])
        flags = self.records["flag"][start:end]
        return bool(end - start > 1 and is_bad[start:end].all() and not (flags & NAN).any())

    def _spread(self, one: tuple[str, int]) -> tuple[float, tuple[tuple[int, str], ...]]:
        return float(self.records["not_finite"][one[1]]), natural(one[0])

    def _not_finite(self, firsts: dict[str, int], event: list[int]) -> MapFinding:
        lead, place = next(iter(firsts.items()))
        records = self.records
        what = "NaN" if records["flag"][place] & NAN else "infinite"
        elements = float(records["elements"][place])
        share = float(records["not_finite"][place])
        bad = max(1, round(share * elements))
        some = "" if elements <= 1 else f" ({'all' if bad == elements else f'{bad:,} of'} {elements:,.0f} values)"
        begins = place and records["row"][place - 1] == records["row"][place]
        fact = f"{quoted(lead)} {'turns' if begins else 'is'} {what}{some}"
        others = len(firsts) - 1
        rest = f"; {_number(others, 'more tensor')} follow{'s' if others == 1 else ''}" if others else ""
        return self._finding("not_finite", "problem", event, firsts, share, fact, rest)

    # -------------------------------------------------------------------------------------------------------- losses

    def loss_jumps(self, losses: Collection[str]) -> Iterable[MapFinding]:
        """Find steps at which a loss rises far above the values before."""
        records = self.records
        for row, name in enumerate(self.names):
            if name not in losses:
                continue
            start, end = np.searchsorted(records["row"], [row, row + 1])
            for mode in np.unique(records["mode"][start:end]):
                places = np.arange(start, end)[records["mode"][start:end] == mode]
                values = records["mean"][places].astype(np.float64)
                places, values = places[np.isfinite(values)], values[np.isfinite(values)]
                rises = SpikeScan().update(values)
                high = rises.height >= rises.least
                levels = dict(zip(places[rises.at[high]].tolist(), rises.level[high].tolist(), strict=True))
                for event in self._events(places[rises.at[high]]):
                    level = levels[event[0]]
                    peak = float(records["mean"][event].max())
                    fact = f"{quoted(name)} jumps from {level:.3g} to {peak:.3g}"
                    amount = peak / level if level else peak
                    yield self._finding("loss_jump", "warning", event, {name: event[0]}, amount, fact)

    # ------------------------------------------------------------------------------------------------------- surprise

    def surprises(self) -> Iterable[MapFinding]:
        """Find steps at which tensors have an unusual size."""
        records = self.records
        with np.errstate(invalid="ignore"):
            places = np.flatnonzero((np.abs(records["surprise"]) >= SURPRISING) & (records["elements"] != 1))
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
            rest = f"; {_number(follow, 'more tensor')} follow{'s' if follow == 1 else ''}" if follow else ""
            stops = change == "falls to 0"
            severity: Severity = "warning" if stops else "note"
            amount = float(abs(records["surprise"][place]))
            yield self._finding("surprise", severity, event, dict(order), amount, f"{who} {verb}", rest)

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


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

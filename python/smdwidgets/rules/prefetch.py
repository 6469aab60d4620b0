"""Fetching what rules need for many steps at once, in portions of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from smdwidgets.rules.builtin.base import BuiltinRule
from smdwidgets.rules.measurements import measurements_of
from smdwidgets.rules.tables import Need

if TYPE_CHECKING:
    from smdwidgets.rules.rule import Rule
    from smdwidgets.trials import Trial

__all__ = ["needs_of", "portions"]

#: Tensors that one sweep reads at most, about. Large enough to keep all cores busy, small enough to stop soon.
ROWS_AT_ONCE = 100_000
STEPS_AT_ONCE = 512


def needs_of(rules: Iterable[Rule]) -> list[Need]:
    """What these rules will ask of every step. Rules of one's own fetch for themselves."""
    return [need for rule in rules if isinstance(rule, BuiltinRule) for need in rule.needs()]


def portions(
    trial: Trial, needs: Sequence[Need], steps: Sequence[int], cancelled: Callable[[], bool] | None = None
) -> Iterator[Sequence[int]]:
    """The steps in portions, what is needed of each portion fetched before it is given out."""
    measurements = measurements_of(trial)
    at = 0
    while at < len(steps):
        rows = measurements.rows(needs, steps[at]) if needs else 0
        size = max(1, min(STEPS_AT_ONCE, ROWS_AT_ONCE // max(rows, 1)))
        portion = steps[at : at + size]
        if needs:
            measurements.prefetch(needs, portion, cancelled)
        yield portion
        at += size

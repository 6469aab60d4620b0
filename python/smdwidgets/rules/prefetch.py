"""Prefetch the columns that rules need, in portions of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from smdwidgets.executors import current
from smdwidgets.rules.builtin.base import BuiltinRule
from smdwidgets.rules.measurements import measurements_of
from smdwidgets.rules.tables import Need

if TYPE_CHECKING:
    from smdwidgets.rules.rule import Rule
    from smdwidgets.trials import Trial

__all__ = ["needs_of", "portions"]

#: Approximate maximum number of tensors per sweep: keeps all cores busy, and can be cancelled soon.
ROWS_AT_ONCE = 100_000
STEPS_AT_ONCE = 512
#: A cluster sweeps so many times as much at once. More would not fit into the cache of columns.
_MOST_SHARES = 8


def needs_of(rules: Iterable[Rule]) -> list[Need]:
    """Return the columns that these rules read at every step.

    User-defined rules declare no columns and read tensors themselves.
    """
    return [need for rule in rules if isinstance(rule, BuiltinRule) for need in rule.needs()]


def portions(
    trial: Trial, needs: Sequence[Need], steps: Sequence[int], cancelled: Callable[[], bool] | None = None
) -> Iterator[Sequence[int]]:
    """Yield the steps in portions, and prefetch the columns of each portion."""
    measurements = measurements_of(trial)
    executor = current()
    share = 1 if executor is None else min(executor.slots, _MOST_SHARES)
    at = 0
    while at < len(steps):
        rows = measurements.rows(needs, steps[at]) if needs else 0
        size = max(1, min(STEPS_AT_ONCE * share, ROWS_AT_ONCE * share // max(rows, 1)))
        portion = steps[at : at + size]
        if needs:
            measurements.prefetch(needs, portion, cancelled)
        yield portion
        at += size

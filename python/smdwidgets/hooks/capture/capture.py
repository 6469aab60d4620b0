"""What a capture plan decides at each step.

Runs on the training's thread; :mod:`~smdwidgets.hooks.writing.planned_steps` is its counterpart on the writer's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from smdwidgets.config import Collection
from smdwidgets.config.capture_plan import AUTO, TENSORS, CapturePlan
from smdwidgets.config.keys import NON_REDUCTION_COLLECTIONS
from smdwidgets.hooks.capture.disk_budget import DiskBudget
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.capture.time_budget import LARGEST_INTERVAL, VALUES, TimeBudget

__all__ = ["ACTIVATIONS", "VALUES", "Capture"]

ACTIVATIONS = TENSORS[-1]


class Capture:
    """The state of a plan: the intervals, and what is captured at the current step.

    Args:
        plan: the plan.
        kinds: the kind of tensors in each collection, such as ``{"biases": "weights"}``. Tensors of other collections
            are captured at every step.
    """

    def __init__(self, plan: CapturePlan, kinds: Mapping[str, str]) -> None:
        self.plan = plan
        self.kinds = dict(kinds)
        fixed = None if plan.statistics == AUTO else int(plan.statistics)
        ladder = (VALUES, *(kind for kind in reversed(TENSORS) if kind in plan.kinds))
        self.time = TimeBudget(plan.time_share, ladder, fixed)
        self.disk = DiskBudget(plan)
        self.log: Callable[[dict[str, Any]], None] = lambda line: None
        #: Whether the current step saves values, and the kinds whose statistics it saves.
        self.values = False
        self.statistics: frozenset[str] = frozenset()
        #: Both, to be compared.
        self.state: tuple[object, ...] = ()
        self._states: dict[object, tuple[frozenset[str], tuple[object, ...]]] = {}
        #: The global step up to which everything is captured.
        self.dense_until = -1
        self._measured_at = -1
        self._waited = 0.0
        #: Seconds of the writer's thread since the training waited for it, by kind.
        self._written: dict[str, float] = {}
        #: Seconds that the device of the training was busy with copies, by kind, not accounted for yet.
        self._copied: dict[str, float] = {}

    def open(self, disk: DiskBudget, log: Callable[[dict[str, Any]], None]) -> None:
        """The hook has opened a directory, whose disk the budget describes."""
        self.disk, self.log = disk, log
        log({"change": "plan", "plan": self.plan.to_dict()})

    def capture_densely(self, until: int) -> None:
        """Save values and statistics of everything at every step up to this global step."""
        self.dense_until = max(self.dense_until, until)

    def measure(self, step: int, hook_seconds: float, waited_seconds: float) -> None:
        """Adapt the intervals before a step.

        Args:
            step: its global number.
            hook_seconds: what the hook has taken on the training's thread, in all.
            waited_seconds: what of that the training has waited for the disk.
        """
        if waited_seconds > self._waited:
            waited, self._waited = waited_seconds - self._waited, waited_seconds
            written, self._written = self._written or {VALUES: 1.0}, {}
            total = sum(written.values())
            for kind, seconds in written.items():
                self.time.spend_beside(kind, waited * seconds / total)
        if self._copied:
            copied, self._copied = self._copied, {}
            for kind, seconds in copied.items():
                self.time.spend_beside(kind, seconds)
        steps, self._measured_at = max(step - self._measured_at, 1), step
        for changed in self.time.step(hook_seconds, waited_seconds, steps):
            self._changed(changed, step)

    def wrote(self, kind: str, seconds: float) -> None:
        """The writer's thread has worked so long on tensors of a kind, or on values."""
        self._written[kind] = self._written.get(kind, 0.0) + seconds

    def device_copied(self, kind: str, seconds: float) -> None:
        """The device was busy for so long with copies of a kind of tensor."""
        self._copied[kind] = self._copied.get(kind, 0.0) + seconds

    def begin(self, step: int, mode_step: int) -> None:
        """Decide what a step captures.

        Args:
            step: its global number.
            mode_step: its number in its mode.
        """
        dense = step <= self.dense_until
        disk = self.disk
        self.values = dense or disk.values.wants(mode_step)
        rarer = disk.statistics_interval
        due = [
            kind
            for kind, interval in self.time.intervals.items()
            if interval and (dense or mode_step % (interval * rarer) == 0)
        ]
        key = self.values, *due
        state = self._states.get(key)
        if state is None:
            kinds = frozenset(kind for kind in due if kind != VALUES)
            state = self._states[key] = kinds, (self.values, kinds)
        self.statistics, self.state = state

    @property
    def rhythm(self) -> tuple[object, ...]:
        """A value that changes with the intervals of all kinds of tensors and of values."""
        values = self.disk.values
        return values.every, values.at_least, self.disk.statistics_interval, *self.time.intervals.values()

    def next_due(self, mode_step: int) -> int:
        """Return the first later step of the mode that captures tensors of the model.

        Steps with values count, unless every step has them: those are values of what is captured at that step.
        """
        values, rarer = self.disk.values, self.disk.statistics_interval
        spacing = max(values.every, values.at_least) if values.every else 0
        intervals = [each * rarer for kind, each in self.time.intervals.items() if kind != VALUES and each]
        intervals += [spacing] if spacing > 1 else []
        return min(((mode_step // each + 1) * each for each in intervals), default=mode_step + LARGEST_INTERVAL)

    def _changed(self, kind: str, step: int) -> None:
        interval = self.time.interval(kind)
        if kind == VALUES:
            self.disk.values.at_least = max(self.plan.every, 1) * interval
        share, floor = self.time.measured_share, self.time.floor_share
        self.log(
            {
                "step": step,
                "change": kind,
                "every": interval,
                "share": None if share is None else round(share, 5),
                "floor": None if floor is None else round(floor, 5),
            }
        )

    def wants(self, collection: str) -> bool:
        """Whether the current step captures tensors of a collection."""
        kind = self.kinds.get(collection)
        values = self.values and not self.plan.statistics
        return kind is None or (kind in self.plan.kinds and (values or kind in self.statistics))

    def kinds_of(self, collections: Iterable[Collection]) -> frozenset[str]:
        """Return the kinds of tensors that these collections may contain."""
        names = [one.name for one in collections if one.name not in NON_REDUCTION_COLLECTIONS]
        kinds = [self.kinds.get(name) for name in names]
        return frozenset(TENSORS) if None in kinds else frozenset(kind for kind in kinds if kind is not None)

    def spec(self, spec: SaveSpec, members: Iterable[Collection], kind: str) -> SaveSpec | None:
        """Return what the current step saves of a tensor, or None.

        Args:
            spec: what the collections save.
            members: the collections that contain the tensor, all of which leave the choice to the plan.
            kind: the kind of tensor, if it has one.
        """
        if any(one.name in NON_REDUCTION_COLLECTIONS for one in members):
            return replace(spec, statistics=bool(self.plan.statistics))
        described = bool(self.plan.statistics)
        statistics = kind in self.statistics if kind else described
        # The values of what is captured anyway cost the training nothing but the time that it waits for the disk.
        whole = self.values and spec.raw and (statistics or not described)
        if not (whole or statistics):
            return None
        histogram = spec.histogram if whole else None
        return replace(spec, raw=whole, planned=whole, histogram=histogram, statistics=statistics, kind=kind)

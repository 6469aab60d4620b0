"""Checks of schedules that were planned per epoch and step per batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.checks.torch.context import Context
from smdwidgets.finding import Level

__all__ = ["Schedules"]

#: Steps of a schedule within one epoch after which it is judged.
_STEPS = 8
#: The learning rate after one epoch, as a share of the first one: small, and certainly too small.
_SMALL, _NOTHING = 0.05, 1e-6
#: A step schedule falls at least this often in one epoch, and an exponential one is at least this steep.
_FALLS, _STEEP = 4, 0.985


@dataclass
class _Steps:
    """The steps of a schedule in the present epoch."""

    loader: int = 0
    count: int = 0
    batches: int = 0
    updates: int = -1


class Schedules:
    """Foresees what a schedule makes of the learning rate within one epoch.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def steps(self, schedule: Any) -> None:
        """A schedule is about to step."""
        context = self._context
        steps: _Steps = self._known.setdefault(schedule, _Steps())
        if not context.loader or context.batches is None:
            return
        if steps.loader != context.loader or context.updates == steps.updates:  # another epoch, or no update between
            steps.loader, steps.count, steps.batches = context.loader, 0, context.loader_batches
        steps.count += 1
        steps.updates = context.updates
        if steps.count < _STEPS:
            return
        since = max(1, context.loader_batches - steps.batches)
        number = int(context.batches * (steps.count - 1) / since)  # steps of the schedule in an epoch
        share = _after(schedule, number)
        if share is not None and share <= _SMALL:
            name = type(schedule).__name__
            level: Level | None = "warning" if share > _NOTHING else None
            facts = {"schedule": name, "count": number, "share": f"{share:.0e}"}
            context.log.say("schedule_per_batch", context.step, facts, [name], level=level)


def _after(schedule: Any, number: int) -> float | None:
    """Return the factor of the rate after some steps, or None if unknown."""
    name, gamma = type(schedule).__name__, getattr(schedule, "gamma", None)
    if not isinstance(gamma, float) or not 0 < gamma < 1:
        return None
    if name == "ExponentialLR" and gamma <= _STEEP:
        return float(gamma**number)
    if name == "StepLR" and isinstance(size := getattr(schedule, "step_size", None), int) and size > 0:
        falls = number // size
        return float(gamma**falls) if falls >= _FALLS else None
    milestones = getattr(schedule, "milestones", None)
    if name == "MultiStepLR" and milestones and max(milestones) <= number / 2:
        return float(gamma ** sum(milestones.values()))
    return None

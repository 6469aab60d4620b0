"""What a capture plan writes of each step; runs on the writer's thread.

The tensors of a step are held until it is complete, then written with the small ones first: so a step can be thinned by
cutting its event file off. Before a step with values is written, steps that must make room for it are thinned.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from typing import Any

from smdwidgets._text import byte_size, listed, shown
from smdwidgets.config.capture_plan import TENSORS, ordinal
from smdwidgets.exceptions import SMDebugError
from smdwidgets.hooks.capture.capture import VALUES, Capture
from smdwidgets.hooks.capture.captured import Captured, StepKey
from smdwidgets.hooks.capture.disk_budget import SMALL_STEP
from smdwidgets.hooks.writing.thinning import Thinning

__all__ = ["PlannedSteps"]

logger = logging.getLogger("smdwidgets.hooks")

#: The kind of tensors that the size of a model is made of.
_WEIGHTS = TENSORS[0]


class PlannedSteps:
    """Chooses what is written of each step.

    Args:
        capture: the state of the plan.
        thinning: deletes values of saved steps; None: nothing can be deleted, as on S3. The spacing then doubles before
            the share is used up.
        hold_bytes: larger steps are written before they are complete.
        where: the run, for messages.
    """

    def __init__(self, capture: Capture, thinning: Thinning | None, hold_bytes: int, where: str) -> None:
        self._capture = capture
        self._disk = capture.disk
        self._thinning = thinning
        self._hold_bytes = hold_bytes
        self._where = where
        self._held: dict[StepKey, list[Captured]] = {}
        self._held_bytes: dict[StepKey, int] = {}
        #: Bytes of values that were chosen, by step in progress, and steps that are never thinned.
        self._chosen: dict[StepKey, int] = {}
        self._kept: set[StepKey] = set()
        self._incident: set[StepKey] = set()
        #: Name of the first value in the event file of each step with values.
        self._first: dict[StepKey, str] = {}
        self._said: set[str] = set()
        self._spacing = capture.disk.values.every
        #: Whether the size of the model is known, which the budget may follow.
        self._fitted = False
        self._logged_pause = False
        #: Space that the last step takes without its values.
        self._small_step = SMALL_STEP

    def hold(self, key: StepKey, captured: Sequence[Captured]) -> bool:
        """Hold tensors of a step; return whether they must be written now."""
        self._held.setdefault(key, []).extend(captured)
        nbytes = sum(one.copy.nbytes for one in captured if one.copy is not None)
        self._held_bytes[key] = self._held_bytes.get(key, 0) + nbytes
        return self._held_bytes[key] > self._hold_bytes

    def held_steps(self) -> list[StepKey]:
        """The steps with tensors that are held."""
        return list(self._held)

    def take(self, key: StepKey) -> tuple[list[Captured], list[Captured]]:
        """Return what is to be written of the held tensors, in order, and all of them."""
        held = self._held.pop(key, [])
        self._held_bytes.pop(key, None)
        if not held:
            return [], []
        values = [one for one in held if one.spec.planned and one.copy is not None and one.copy.dtype != "str"]
        of_values = {id(one) for one in values}
        small = [one for one in held if id(one) not in of_values]
        if any(one.spec.kept for one in small):
            self._kept.add(key)
        if self._disk.look():
            self._report_pause()
        if values:
            values = self._fitting(key, values)
        if values:
            self._first.setdefault(key, values[0].name)
        elif key not in self._chosen and key not in self._kept and not self._makes_room_for_scalars(key):
            small = []
        return [*small, *values], held

    def described(self, captured: Sequence[Captured], seconds: float) -> None:
        """The statistics of some tensors took so long."""
        sizes: dict[str, int] = {}
        for one in captured:
            if one.spec.statistics and one.copy is not None:
                sizes[one.spec.kind] = sizes.get(one.spec.kind, 0) + one.copy.nbytes
        total = max(sum(sizes.values()), 1)
        for kind, nbytes in sizes.items():
            self._capture.wrote(kind, seconds * nbytes / total)

    def wrote(self, seconds: float) -> None:
        """Writing values took so long."""
        self._capture.wrote(VALUES, seconds)

    def copied(self, one: Captured) -> None:
        """Note how long a device was busy with a copy."""
        copy = one.copy
        if copy is not None and copy.device_seconds:
            for_value = one.spec.planned and copy.is_whole and copy.statistics is not None
            self._capture.device_copied(VALUES if for_value else one.spec.kind, copy.device_seconds)

    def allows_incident(self, nbytes: int) -> bool:
        """Whether the steps around an incident fit their share."""
        self._disk.check()
        allowed = self._disk.allows_incident(nbytes)
        if not allowed:
            self._say_once(
                "incidents",
                "%s: steps around an incident are not saved: their share of the plan's budget (%s) is used up, or the disk is full",
                shown(self._where, 200),
                byte_size(self._disk.incidents_share),
            )
        return allowed

    def took_incident(self, nbytes: int) -> None:
        """So many bytes were written beside the steps of an incident."""
        self._disk.took_incident(nbytes)

    def keep(self, key: StepKey) -> None:
        """Never thin a step: it belongs to an incident."""
        if key in self._first and key not in self._chosen:  # it is complete
            self._first.pop(key)
            self._disk.keep(key)
        else:
            self._kept.add(key)
            self._incident.add(key)

    def without_values(self, key: StepKey, chosen: Sequence[Captured], error: OSError) -> list[Captured]:
        """Writing failed: return what to write instead of the chosen tensors."""
        small = [one for one in chosen if not one.spec.planned]
        nbytes = self._chosen.pop(key, 0)
        self._first.pop(key, None)
        if error.errno == errno.ENOSPC and nbytes and self._disk.fill(nbytes):
            self._report_pause(said=not small)
        return small if len(small) < len(chosen) else []

    def saved(self, key: StepKey, nbytes: int, own_files: bool = True) -> None:
        """A step was written, to separate files or to a segment."""
        values = self._chosen.pop(key, None)
        # What is left of a step without its values, or takes two files.
        self._small_step = SMALL_STEP if own_files else max(nbytes - (values or 0), 1)
        if key in self._kept:
            self._kept.discard(key)
            self._first.pop(key, None)
            if key in self._incident:
                self._incident.discard(key)
                self._disk.incidents_used += nbytes
        elif values is not None:
            self._disk.values.saved(key, nbytes)
            self._forecast(key, nbytes)
        else:
            self._disk.scalars.saved(key, self._small_step)

    # ------------------------------------------------------------------------------------------------------- inside

    def _fitting(self, key: StepKey, values: list[Captured]) -> list[Captured]:
        """Return the values that fit the budget, and thin earlier steps for them."""
        disk = self._disk
        if not self._fitted and (model := _model_size(values)):
            disk.fit(model)
            self._fitted = True
        if disk.paused:
            return []
        limit = disk.largest_step
        total = self._chosen.get(key, 0)
        by_size = sorted(values, key=_size)
        fitting: set[int] = set()
        for one in by_size:
            if one.copy is None or not one.copy.is_whole:
                continue
            if total + _size(one) > limit:
                break
            total += _size(one)
            fitting.add(id(one))
        left_out = [one for one in values if id(one) not in fitting]
        if left_out:
            self._say_once(
                "large",
                "%s: values of %s are not saved, only their statistics: with %s, a step exceeds the budget of the plan (%s for "
                "steps with values); a larger budget saves them: plan=CapturePlan(budget=...)",
                shown(self._where, 200),
                listed([one.name for one in left_out], 3),
                byte_size(total + sum(map(_size, left_out))),
                byte_size(disk.values.share),
            )
        values = [one for one in values if id(one) in fitting]
        if not values:
            return []
        if self._thinning is None:
            fits = self._fits_without_thinning(total)
        else:
            fits, thinned = disk.values.make_room(key, total)
            self._thin_values(thinned)
        if not fits:
            return []
        self._chosen[key] = total
        return values

    def _fits_without_thinning(self, nbytes: int) -> bool:
        """Double the spacing whenever half of what was left is used."""
        values = self._disk.values
        while values.used + nbytes > values.share * (1 - 0.5 * self._capture.plan.every / values.every):
            if values.used + nbytes > values.share:
                return False
            values.every *= 2
        return True

    def _makes_room_for_scalars(self, key: StepKey) -> bool:
        scalars = self._disk.scalars
        if not scalars.wants(key[2]):
            return False
        if self._thinning is None:
            return True
        fits, thinned = scalars.make_room(key, self._small_step)
        for one in thinned:
            self._thin(one, None, scalars.every)
        self._delete(thinned)
        return fits

    def _thin_values(self, keys: list[StepKey]) -> None:
        scalars, every = self._disk.scalars, self._disk.values.every
        for key in keys:
            first = self._first.pop(key, None)
            if self._thin(key, first if scalars.wants(key[2]) else None, every):
                scalars.saved(key, self._small_step)
        self._delete(keys)

    def _delete(self, keys: list[StepKey]) -> None:
        """Delete what was thinned."""
        if keys and self._thinning is not None:
            try:
                self._thinning.delete()
            except (OSError, SMDebugError) as error:
                self._say_once("thin", "%s: cannot delete values: %s", shown(self._where, 200), error)

    def _thin(self, key: StepKey, first: str | None, every: int) -> bool:
        if self._thinning is None:
            return True
        try:
            return self._thinning.thin(key, first, every)
        except OSError as error:
            self._say_once("thin", "%s: cannot delete values of step %d: %s", shown(self._where, 200), key[0], error)
            return True

    # ----------------------------------------------------------------------------------------------------- reporting

    def _forecast(self, key: StepKey, nbytes: int) -> None:
        """Say once what a step takes, and record it whenever the spacing changes."""
        disk, every = self._disk, self._disk.values.every
        if self._said & {"forecast", "thins"} and every == self._spacing:
            return
        self._spacing = every
        steps = max(int(disk.values.share // max(nbytes, 1)), 1)
        share = self._capture.time.measured_share
        line: dict[str, Any] = {
            "step": key[0],
            "change": "values",
            "every": every,
            "bytes_a_step": nbytes,
            "largest_bytes": disk.values.share,
            "share": None if share is None else round(share, 5),
        }
        self._capture.log(line)
        # The first step says what to expect, for those who listen. All should know when the budget begins to matter.
        first = every == self._capture.plan.every
        logger.log(
            logging.INFO if first or "thins" in self._said else logging.WARNING,
            "%s: whole tensors of %s steps (%s each) fit the disk budget of %s: keeping them at every %s from now on; "
            'losses and statistics stay complete. plan=CapturePlan(budget="10GB") keeps more',
            shown(self._where, 200),
            f"{steps:,}",
            byte_size(nbytes),
            byte_size(disk.total),
            "step" if every == 1 else f"{ordinal(every)} step",
        )
        self._said.add("forecast" if first else "thins")

    def _report_pause(self, said: bool = False) -> None:
        """Record that saving values pauses or resumes, and log it unless the caller does."""
        disk = self._disk
        self._capture.log({"change": "paused" if disk.paused else "resumed", "free_bytes": disk.free_bytes})
        if disk.paused and not said:
            self._logged_pause = True
            logger.warning(
                "%s: values are not saved until the disk has more space: %s are free, and the plan leaves %s free; losses and "
                "statistics are saved",
                shown(self._where, 200),
                byte_size(disk.free_bytes),
                byte_size(disk.reserve),
            )
        elif not disk.paused and self._logged_pause:
            self._logged_pause = False
            logger.warning("%s: values are saved again", shown(self._where, 200))

    def _say_once(self, about: str, message: str, *args: object) -> None:
        if about not in self._said:
            self._said.add(about)
            logger.warning(message, *args)


def _model_size(values: Sequence[Captured]) -> int:
    """Return the size of the weights.

    Loops save tensors of no known kind: all tensors of the step count then.
    """
    kinds = any(one.spec.kind for one in values)
    return sum(_size(one) for one in values if one.spec.kind == _WEIGHTS or not kinds)


def _size(one: Captured) -> int:
    return 0 if one.copy is None else one.copy.whole_nbytes

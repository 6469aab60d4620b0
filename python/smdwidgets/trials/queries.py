"""Cached queries on a run's index: steps, modes, names and step states.

:class:`smdwidgets.trials.trial.Trial` is the public interface to them. The modules that read many values, look up places and
describe trials use this class.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from enum import Enum

from smdwidgets.modes import ModeKeys
from smdwidgets.trials.refreshable import RefreshableTrial
from smdwidgets.trials.run import is_text, possible


class StepState(Enum):
    """Availability of a step."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class RunQueries(RefreshableTrial):
    """Queries on the index of a run, cached until the run grows."""

    # Steps are cached as arrays, which take 8 bytes for each step where a list of numbers takes 40. They are never modified.

    def _all_steps(self, mode: ModeKeys) -> array[int]:
        index = self._run.index
        if mode == ModeKeys.GLOBAL:
            return self._cached("steps", lambda: array("q", index.steps()))
        self._run.load()
        return self._cached(("steps", mode), lambda: array("q", index.mode_steps(mode.value)))

    def _complete_steps(self, mode: ModeKeys) -> array[int]:
        return self._cached(("complete", mode), lambda: self._only_complete(self._all_steps(mode), mode))

    def _only_complete(self, steps: array[int], mode: ModeKeys) -> array[int]:
        """Return the steps of a mode, given in ascending order, that are complete."""
        until = self._complete.until
        if mode == ModeKeys.GLOBAL:
            return steps if not steps or steps[-1] <= until else steps[: bisect_right(steps, until)]
        last = self._run.index.last_step()
        if last is None or last <= until:
            return steps
        globally = self._run.index.global_step
        return array("q", (step for step in steps if (at := globally(mode.value, step)) is not None and at <= until))

    def _mode_of(self, global_step: int) -> tuple[int, int] | None:
        if not possible(global_step):
            return None
        if self._run.partly_read:
            self._run.load([global_step])
        return self._run.index.mode_of(global_step)

    def _global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        if mode == ModeKeys.GLOBAL:
            return mode_step
        if not possible(mode_step):
            return None
        self._run.load()
        return self._run.index.global_step(mode.value, mode_step)

    def _step_text(self, global_step: int) -> str:
        """Return a step for messages.

        The mode is added if global steps are not those that were logged.
        """
        found = self._mode_of(global_step) if self._run.numbers_steps else None
        return f"step {global_step:d}" if found is None else f"{ModeKeys(found[0]).name} step {found[1]:d}"

    def _names(self, step: int | None, mode: ModeKeys) -> list[str]:
        index = self._run.index
        if step is not None:
            at = self._global_step(mode, step)
            if at is None or not possible(at):
                return []
            if self._run.partly_read:
                self._run.load([at])
            return index.names_at(at)
        self._run.load()
        if mode == ModeKeys.GLOBAL:
            return self._cached("names", index.names)
        return self._cached(("names", mode), lambda: index.names_in_mode(mode.value))

    def _state_of(self, step: int, mode: ModeKeys) -> StepState:
        """Return whether a step is available, without refreshing."""
        steps = self._all_steps(mode)
        at = bisect_left(steps, step)
        if at == len(steps):
            return StepState.UNAVAILABLE if self.loaded_all_steps else StepState.NOT_YET_AVAILABLE
        reached = self._global_step(mode, steps[at])
        passed = self.loaded_all_steps or (reached is not None and reached <= self._complete.until)
        if not passed:
            return StepState.NOT_YET_AVAILABLE
        return StepState.AVAILABLE if steps[at] == step else StepState.UNAVAILABLE

    def _has(self, name: str) -> bool:
        """Return whether a tensor was saved at any step; refresh if it is unknown."""
        if not is_text(name):
            return False
        if self._run.has(name):
            return True
        self.maybe_refresh()
        return self._run.has(name)

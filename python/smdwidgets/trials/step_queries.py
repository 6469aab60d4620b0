"""Public queries of a run's steps, modes and workers, and the wait for steps."""

from __future__ import annotations

import math
from collections.abc import Iterable

from smdwidgets.exceptions import NoMoreData, StepUnavailable
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials.queries import RunQueries, StepState
from smdwidgets.trials.wait import wait_until


class StepQueries(RunQueries):
    """Steps, modes and workers of a run."""

    def steps(self, mode: ModeKeys | str = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the complete steps in ascending order: global steps, or steps of a mode.

        A step is complete once all workers have written it. ``show_incomplete_steps`` adds incomplete steps.
        """
        self.maybe_refresh()
        mode = as_mode(mode)
        return list(self._all_steps(mode) if show_incomplete_steps else self._complete_steps(mode))

    def modes(self) -> list[ModeKeys]:
        """Return the modes of the steps read so far, without GLOBAL."""
        self.maybe_refresh()
        self._run.load()
        return [ModeKeys(number) for number in self._run.index.modes() if number != ModeKeys.GLOBAL.value]

    def mode(self, global_step: int) -> ModeKeys | None:
        """Return the mode of a global step, or None if the step was not saved."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """Return the mode step of a global step, or None if the step was not saved."""
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys, int] | tuple[None, None]:
        """Return mode and mode step of a global step, or (None, None)."""
        found = self._mode_of(global_step)
        if found is None:
            self.maybe_refresh()
            found = self._mode_of(global_step)
        return (None, None) if found is None else (ModeKeys(found[0]), found[1])

    @property
    def _global_to_mode(self) -> dict[int, tuple[ModeKeys, int]]:
        """Mode and mode step by global step, for compatibility with smdebug."""
        index = self._run.index
        self._run.load()
        return {step: (ModeKeys(of[0]), of[1]) for step in index.steps() if (of := index.mode_of(step)) is not None}

    def global_step(self, mode: ModeKeys | str, mode_step: int) -> int | None:
        """Return the global step of a mode step, or None if the step was not saved."""
        mode = as_mode(mode)
        found = self._global_step(mode, mode_step)
        if found is None:
            self.maybe_refresh()
            found = self._global_step(mode, mode_step)
        return found

    def workers(self) -> list[str]:
        """Return the names of the workers of the run, sorted."""
        self.maybe_refresh()
        return sorted(self._collection_workers.union(self._run.index.workers()))

    # ---------------------------------------------------------------------------------------------------- waiting

    def has_passed_step(self, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> StepState:
        """Return the availability of a step.

        AVAILABLE: it is complete. NOT_YET_AVAILABLE: it may still be saved. UNAVAILABLE: it was not saved.
        """
        mode = as_mode(mode)
        self.maybe_refresh()
        return self._state_of(step, mode)

    def wait_for_steps(
        self,
        required_steps: Iterable[int],
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        timeout: float | None = None,
    ) -> None:
        """Block until all these steps are available. Ctrl-C interrupts the wait.

        Raises:
            StepUnavailable: a step was skipped.
            NoMoreData: the run ended before a step.
            WaitTimeout: ``timeout`` seconds elapsed (None: no timeout).
        """
        mode = as_mode(mode)
        steps = [required_steps] if isinstance(required_steps, int) else list(required_steps)
        if timeout is not None and (math.isnan(timeout) or timeout < 0):
            raise ValueError(f"timeout must be >= 0 seconds or None, got {timeout!r}")
        missing = list(reversed(steps))

        def done() -> bool:
            while missing and self._is_available(missing[-1], mode):
                missing.pop()
            return not missing

        def what() -> str:
            seen = self._all_steps(mode)
            last = f"last step so far: {seen[-1]}" if seen else "no steps so far"
            return f"step {missing[-1]} of {mode.name} of {self.path} ({last})"

        with self.refreshing(True):
            wait_until(done, what, timeout)

    def _is_available(self, step: int, mode: ModeKeys) -> bool:
        state = self.has_passed_step(step, mode)
        if state == StepState.UNAVAILABLE:
            seen = self._all_steps(mode)
            last = seen[-1] if seen else -1
            if not self.loaded_all_steps or step < last:
                raise StepUnavailable(step, mode)
            raise NoMoreData(step, mode, last)
        return state == StepState.AVAILABLE

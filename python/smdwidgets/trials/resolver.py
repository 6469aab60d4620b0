"""Resolve a step of a tensor to the global step at which it was saved."""

from __future__ import annotations

from smdwidgets.exceptions import (
    InvalidWorker,
    SMDebugError,
    StepDeleted,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)
from smdwidgets.modes import ModeKeys
from smdwidgets.trials.reader import RunReader, StepState
from smdwidgets.trials.run import is_text, possible


class StepResolver:
    """Resolves steps of one tensor.

    If a step is not found and the run has not ended, checks for new steps and tries again.
    """

    __slots__ = ("_name", "_reader")

    def __init__(self, reader: RunReader, name: str) -> None:
        self._reader = reader
        self._name = name

    def global_step(self, step_num: int, mode: ModeKeys, worker: str | None) -> int:
        """Return the global step at which the tensor (of the worker) was saved.

        Raises :class:`StepUnavailable`, :class:`StepNotYetAvailable`, :class:`TensorUnavailableForStep` or
        :class:`InvalidWorker`.
        """
        reader = self._reader
        ended = reader.loaded_all_steps
        step, workers = self._look_up(step_num, mode, worker)
        if step is None or not workers:
            reader.maybe_refresh(self._name)
            # Before the second lookup, since another thread may refresh the trial in between.
            state = reader.step_state(step_num, mode)
            if not ended:
                step, workers = self._look_up(step_num, mode, worker)
            if step is None or not workers:
                raise self._why_not(step, state, step_num, mode)
        return step

    def workers(self, step_num: int, mode: ModeKeys) -> list[str]:
        """Return the workers that saved the tensor at a step.

        Raises :class:`TensorUnavailableForStep`.
        """
        ended = self._reader.loaded_all_steps
        step, workers = self._look_up(step_num, mode, None)
        if not workers:
            self._reader.maybe_refresh(self._name)
            if not ended:
                step, workers = self._look_up(step_num, mode, None)
            if not workers:
                raise self._not_saved(step, step_num, mode)
        return workers

    def deleted(self, step: int | None, step_num: int, mode: ModeKeys) -> StepDeleted | None:
        """Return the error for a global step whose values were deleted, or None."""
        every = None if step is None else self._reader.run.deleted(step)
        return None if every is None else StepDeleted(self._name, step_num, mode, every)

    def _look_up(self, step_num: int, mode: ModeKeys, worker: str | None) -> tuple[int | None, list[str]]:
        """Return the global step and the workers that saved the tensor; do not refresh."""
        reader, index = self._reader, self._reader.index
        step = reader.global_step(mode, step_num)
        if step is None or not possible(step):
            return step, []
        if reader.run.partly_read:
            reader.load([step])
        if worker is not None and not is_text(worker):
            raise InvalidWorker(worker)
        workers = index.workers_of(self._name, step)
        if not workers and mode != ModeKeys.GLOBAL:
            # A restarted training has several global steps for this mode step.
            latest = index.global_step(mode.value, step_num, latest=True) or step
            workers = index.workers_of(self._name, latest)
            step = latest if workers else step
        if worker is not None and workers and worker not in workers:
            raise InvalidWorker(worker, workers)
        return step, workers

    def _why_not(self, step: int | None, state: StepState, step_num: int, mode: ModeKeys) -> SMDebugError:
        if state == StepState.NOT_YET_AVAILABLE:
            return StepNotYetAvailable(step_num, mode)
        deleted = self.deleted(step, step_num, mode)
        if deleted is not None:
            return deleted
        return (
            StepUnavailable(step_num, mode) if state == StepState.UNAVAILABLE else self._not_saved(step, step_num, mode)
        )

    def _not_saved(self, step: int | None, step_num: int, mode: ModeKeys) -> TensorUnavailableForStep:
        mark = "" if step is None else f"/{step:012d}_"
        bad = [message for key, message in self._reader.index.problems() if mark and mark in f"/{key}"]
        reason = f"cannot read the index file of the step ({bad[0]})" if bad else ""
        return TensorUnavailableForStep(self._name, step_num, mode, reason=reason)

"""Resolve a step of a tensor to the global step at which it was saved, or to the reason why there is none."""

from __future__ import annotations

from smdwidgets.exceptions import InvalidWorker, StepNotYetAvailable, StepUnavailable, TensorUnavailableForStep
from smdwidgets.modes import ModeKeys
from smdwidgets.trials.queries import RunQueries, StepState
from smdwidgets.trials.run import is_text, possible

_GLOBAL = ModeKeys.GLOBAL


class StepResolver:
    """Resolves steps of one tensor: once if the run has ended, else again after checking for new steps."""

    __slots__ = ("_index", "_name", "_trial")

    def __init__(self, trial: RunQueries, name: str) -> None:
        self._trial = trial
        self._name = name
        self._index = trial._run.index

    def global_step(self, step_num: int, mode: ModeKeys, worker: str | None) -> int:
        """Return the global step at which the tensor (of the worker) was saved.

        Raises :class:`StepUnavailable`, :class:`StepNotYetAvailable`, :class:`TensorUnavailableForStep` or :class:`InvalidWorker`.
        """
        ended = self._trial.loaded_all_steps
        step, workers = self._look_up(step_num, mode, worker)
        if step is None or not workers:
            self._trial.maybe_refresh(self._name)
            # Before the second look: another thread may refresh the trial in between.
            state = self._trial._state_of(step_num, mode)
            if not ended:
                step, workers = self._look_up(step_num, mode, worker)
            if step is None or not workers:
                raise self._why_not(step, state, step_num, mode)
        return step

    def workers(self, step_num: int, mode: ModeKeys) -> list[str]:
        """Return the workers that saved the tensor at a step, or raise :class:`TensorUnavailableForStep`."""
        ended = self._trial.loaded_all_steps
        step, workers = self._look_up(step_num, mode, None)
        if not workers:
            self._trial.maybe_refresh(self._name)
            if not ended:
                step, workers = self._look_up(step_num, mode, None)
            if not workers:
                raise self._not_saved(step, step_num, mode)
        return workers

    def _look_up(self, step_num: int, mode: ModeKeys, worker: str | None) -> tuple[int | None, list[str]]:
        """Return the global step and the workers that saved the tensor there, by what has been read so far."""
        trial, index = self._trial, self._index
        step = trial._global_step(mode, step_num)
        if step is None or not possible(step):
            return step, []
        if trial._run.partly_read:
            trial._run.load([step])
        if worker is not None and not is_text(worker):
            raise InvalidWorker(worker)
        workers = index.workers_of(self._name, step)
        if not workers and mode != _GLOBAL:
            # A training that was restarted has been at this step of the mode more than once.
            latest = index.global_step(mode.value, step_num, latest=True) or step
            workers = index.workers_of(self._name, latest)
            step = latest if workers else step
        if worker is not None and workers and worker not in workers:
            raise InvalidWorker(worker, workers)
        return step, workers

    def _why_not(
        self, step: int | None, state: StepState, step_num: int, mode: ModeKeys
    ) -> StepUnavailable | StepNotYetAvailable | TensorUnavailableForStep:
        if state == StepState.UNAVAILABLE:
            return StepUnavailable(step_num, mode)
        if state == StepState.NOT_YET_AVAILABLE:
            return StepNotYetAvailable(step_num, mode)
        return self._not_saved(step, step_num, mode)

    def _not_saved(self, step: int | None, step_num: int, mode: ModeKeys) -> TensorUnavailableForStep:
        mark = "" if step is None else f"/{step:012d}_"
        bad = [message for key, message in self._index.problems() if mark and mark in f"/{key}"]
        reason = f"the index file of that step can't be read ({bad[0]})" if bad else ""
        return TensorUnavailableForStep(self._name, step_num, mode, reason=reason)

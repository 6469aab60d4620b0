"""Steps and workers of one tensor."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NoReturn

from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials.queries import RunQueries
from smdwidgets.trials.resolver import StepResolver

_GLOBAL = ModeKeys.GLOBAL


class TensorSteps:
    """A tensor of a run, and the steps at which it was saved."""

    __slots__ = ("_fetch", "_index", "_resolver", "name", "trial")

    def __init__(self, name: str, trial: RunQueries) -> None:
        self.name = name
        self.trial = trial
        self._bind()

    def _bind(self) -> None:
        """Read from the trial's current index."""
        self._index = self.trial._run.index
        self._resolver = StepResolver(self.trial, self.name)
        self._fetch = self.trial._run.getter()

    def _close(self) -> None:
        trial = self.trial

        def refuse(name: str, step: int, worker: str | None = None) -> NoReturn:
            trial._refuse()

        self._fetch = refuse

    def steps(self, mode: ModeKeys | str = _GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the steps of a mode at which the tensor was saved, in ascending order.

        Steps with only a reduction or the shape are included.
        """
        self.trial.maybe_refresh(self.name)
        return list(self._steps(as_mode(mode), show_incomplete_steps))

    def _steps(self, mode: ModeKeys, show_incomplete_steps: bool = False) -> array[int]:
        trial, name = self.trial, self.name
        trial._run.load()

        def every() -> array[int]:
            return array(
                "q", self._index.steps_of(name) if mode == _GLOBAL else self._index.mode_steps(mode.value, name)
            )

        every_step = trial._cached(("steps of", name, mode), every)
        if show_incomplete_steps:
            return every_step
        return trial._cached(("complete of", name, mode), lambda: trial._only_complete(every_step, mode))

    def prev_steps(self, step: int, n: int | None = None, mode: ModeKeys | str = _GLOBAL) -> list[int]:
        """Return the last ``n`` steps up to ``step`` (inclusive), in ascending order.

        ``n=None`` returns all of them.
        """
        if n is not None and n < 0:
            raise ValueError(f"n must be >= 0 or None, got {n}")
        steps = self.steps(mode)
        end = bisect_right(steps, step)
        return steps[0 if n is None else max(0, end - n) : end]

    def workers(self, step_num: int, mode: ModeKeys | str = _GLOBAL) -> list[str]:
        """Return the workers that saved the tensor at a step, sorted."""
        return self._resolver.workers(step_num, as_mode(mode))

"""One tensor of a run over its steps."""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import (
    DataError,
    InvalidWorker,
    RunFileMissing,
    RunIOError,
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
    UFuncTypeError,
)
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials import show
from smdwidgets.trials.missing import wait_for_event_file
from smdwidgets.trials.run import dtype_named, is_text, possible

if TYPE_CHECKING:
    from smdwidgets.plots import TensorPlots
    from smdwidgets.trials.trial import Trial

#: Names of reductions, in the order in which they are stored and shown.
REDUCTIONS: Final = ("min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2")

_GLOBAL = ModeKeys.GLOBAL


class StepState(Enum):
    """What is known of a step."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Tensor:
    """One tensor of a run. Got from ``trial.tensor(name)``.

    Every call returns writable arrays with memory of their own: writing to one changes nothing that is returned later.

    >>> weight = trial.tensor("fc1.weight")                      # doctest: +SKIP
    >>> weight.value(weight.steps()[-1]).shape                   # doctest: +SKIP
    (64, 32)
    """

    __slots__ = ("_fetch", "_index", "name", "trial")

    def __init__(self, name: str, trial: Trial) -> None:
        self.name = name
        self.trial = trial
        self._index = trial._run.index
        self._fetch = trial._run.getter()

    def passing(self) -> Tensor:
        """The same tensor for one who looks at each value once: none is kept for the next question."""
        tensor = Tensor(self.name, self.trial)
        tensor._fetch = self.trial._run.passing()
        return tensor

    # ----------------------------------------------------------------------------------------------------- values

    def value(
        self,
        step_num: int,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        copy: bool = False,
    ) -> NDArray[Any]:
        """Return the value at a step (in the count of ``mode``) of a worker (None: the first by name that has one).

        The array is writable and independent of every other one. ``copy`` has no effect; it is accepted for older scripts.

        Raises :class:`StepUnavailable`, :class:`StepNotYetAvailable`, :class:`TensorUnavailableForStep`,
        :class:`InvalidWorker`, or :class:`~smdwidgets.exceptions.DataError` where the record is damaged.
        """
        # The common case comes first and is one call into the core: no question of modes, no look for news.
        if mode is _GLOBAL:
            try:
                value = self._fetch(self.name, step_num, worker)
            except (DataError, RunIOError, OverflowError, UnicodeEncodeError):
                value = None  # said, or mended, below
            if value is not None:
                return value
        return self._value_after_all(step_num, as_mode(mode), worker)

    def values(self, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> dict[int, NDArray[Any]]:
        """The value at each step of a mode, by step. For many tensors at once see ``trial.values``."""
        return {step: self.value(step, mode, worker) for step in self.steps(mode)}

    def _value_after_all(self, step_num: int, mode: ModeKeys, worker: str | None) -> NDArray[Any]:
        step = self._locate(step_num, mode, worker)
        place = self._index.find(self.name, step, worker)
        if place is None:
            has_reductions = bool(self._index.stored_reductions(self.name, step, worker))
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions)
        return self._read(place, step_num, mode)

    def _read(self, place: Any, step_num: int, mode: ModeKeys) -> NDArray[Any]:
        """The value at a place, after waiting for its file, and again where the step was written anew."""
        try:
            return self.trial._run.value(place)
        except RunIOError as error:
            if not isinstance(error, RunFileMissing) and self.trial._run.file_there(place.event_key):
                raise
            wait_for_event_file(self.trial, place, self.name, step_num, mode)
            return self.trial._run.value(place)
        except DataError:
            again = self.trial._run.reread(place.step) and self._index.find(self.name, place.step, place.worker)
            if not again:
                raise
            return self.trial._run.value(again)

    def _locate(self, step_num: int, mode: ModeKeys, worker: str | None) -> int:
        """The global step, once it is known that the tensor (of the worker) has something there."""
        trial = self.trial
        step = self._step_with_it(step_num, mode, worker)
        if step is None:
            trial.maybe_refresh(self.name)
            state = trial.has_passed_step(step_num, mode)
            step = self._step_with_it(step_num, mode, worker)
            if step is None:
                if state == StepState.UNAVAILABLE:
                    raise StepUnavailable(step_num, mode)
                if state == StepState.NOT_YET_AVAILABLE:
                    raise StepNotYetAvailable(step_num, mode)
                raise TensorUnavailableForStep(self.name, step_num, mode, reason=self._why_not(step_num, mode))
        return step

    def _step_with_it(self, step_num: int, mode: ModeKeys, worker: str | None) -> int | None:
        step = self.trial._global_step(mode, step_num)
        if step is None or not possible(step):
            return None
        if self.trial._run.partly_read:
            self.trial._run.load([step])
        if worker is not None and not is_text(worker):
            raise InvalidWorker(worker)
        workers = self._index.workers_of(self.name, step)
        if not workers and mode != _GLOBAL:
            # A training that was restarted has been at this step of the mode more than once.
            step = self._index.global_step(mode.value, step_num, latest=True) or step
            workers = self._index.workers_of(self.name, step)
        if worker is not None and workers and worker not in workers:
            raise InvalidWorker(worker, workers)
        return step if workers else None

    def _why_not(self, step_num: int, mode: ModeKeys) -> str:
        step = self.trial._global_step(mode, step_num)
        mark = "" if step is None else f"/{step:012d}_"
        bad = [message for key, message in self.trial._run.index.problems() if mark and mark in f"/{key}"]
        return f"the index file of that step can't be read ({bad[0]})" if bad else ""

    # ------------------------------------------------------------------------------------------------- reductions

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        abs: bool = False,
    ) -> Any:
        """One reduction: the one that was saved, or else computed from the value.

        ``reduction_name`` is one of min, max, mean, std, variance, sum, prod, l1, l2; ``abs`` takes the absolute value first.
        Computed std and variance divide by n, and norms are over all elements.
        """
        mode = as_mode(mode)
        step = self._locate(step_num, mode, worker)
        known = reduction_name in REDUCTIONS
        stored = self._index.stored_reduction(self.name, step, reduction_name, abs, worker) if known else None
        if stored is not None:
            return self._read(stored, step_num, mode)
        place = self._index.find(self.name, step, worker)
        if place is None:
            has_reductions = bool(self._index.stored_reductions(self.name, step, worker))
            which = f"{'abs_' if abs else ''}{reduction_name}"
            reason = f"neither the value nor its reduction {shown(which)} was saved then"
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions, reason)
        if not known:
            self._head(place, step_num, mode)  # a value that is not there is the graver news
            hint = did_you_mean(reduction_name, REDUCTIONS)
            all_known = ", ".join(REDUCTIONS)
            raise SMDebugValueError(f"There is no reduction {shown(reduction_name)}: use one of {all_known}.{hint}")
        value = self._read(place, step_num, mode)
        if value.dtype.kind not in "biufcV":
            raise UFuncTypeError(f"Tensor {shown(self.name)} holds {value.dtype.name}, which has no {reduction_name}.")
        return _core.reduction(value, reduction_name, abs)

    def reduction_values(
        self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], Any]:
        """The reductions that were saved at a step, by (name, of the absolute value). None are computed."""
        mode = as_mode(mode)
        step = self._locate(step_num, mode, worker)
        stored = self._index.stored_reductions(self.name, step, worker)
        return {(name, absolute): self._read(place, step_num, mode) for name, absolute, place in stored}

    # ----------------------------------------------------------------------------------------------------- shapes

    def shape(self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        """The shape at a step: the one that was saved, or that of the value, of which only the head is read."""
        mode = as_mode(mode)
        step = self._locate(step_num, mode, worker)
        saved = self._index.shape_of(self.name, step, worker)
        if saved is not None:
            return saved
        place = self._index.find(self.name, step, worker)
        if place is None:
            raise ShapeUnavailableForStep(self.name, step_num, mode)
        try:
            return self._head(place, step_num, mode)[1]
        except TensorUnavailableForStep:
            raise ShapeUnavailableForStep(self.name, step_num, mode) from None

    def shapes(self, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> dict[int, tuple[int, ...]]:
        """The shape at each step of a mode, by step."""
        return {step: self.shape(step, mode, worker) for step in self.steps(mode)}

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The dtype of the newest value; None where only reductions or shapes were saved."""
        self.trial.maybe_refresh(self.name)
        self.trial._run.load()
        for step in reversed(self._index.steps_of(self.name)):
            place = self._index.find(self.name, step)
            if place is not None:
                return dtype_named(self._head(place, step, _GLOBAL)[0])
        return None

    def _head(self, place: Any, step_num: int, mode: ModeKeys) -> tuple[str, tuple[int, ...]]:
        run = self.trial._run
        try:
            return run.head(place)
        except (DataError, RunIOError):
            value = self._read(place, step_num, mode)
            return value.dtype.name, value.shape

    @property
    def original_name(self) -> str | None:
        """The name that the framework gave it, where the hook kept it."""
        self.trial._run.load()
        return self._index.original_name(self.name)

    # ------------------------------------------------------------------------------------------ steps and workers

    def steps(self, mode: ModeKeys | str = _GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Steps at which the tensor (its value, a reduction or its shape) was saved, ascending, in the count of the mode."""
        self.trial.maybe_refresh(self.name)
        return list(self._steps(as_mode(mode), show_incomplete_steps))

    def _steps(self, mode: ModeKeys, show_incomplete_steps: bool = False) -> list[int]:
        trial, name = self.trial, self.name
        trial._run.load()

        def every() -> list[int]:
            return self._index.steps_of(name) if mode == _GLOBAL else self._index.mode_steps(mode.value, name)

        every_step = trial._remembered(("steps of", name, mode), every)
        if show_incomplete_steps:
            return every_step
        return trial._remembered(("complete of", name, mode), lambda: trial._only_complete(every_step, mode))

    def prev_steps(self, step: int, n: int | None = None, mode: ModeKeys | str = _GLOBAL) -> list[int]:
        """The last ``n`` steps up to and with ``step`` (None: all of them), ascending."""
        if n is not None and n < 0:
            raise ValueError(f"n must be 0 or more, or None, not {n}.")
        steps = self.steps(mode)
        end = bisect_right(steps, step)
        return steps[0 if n is None else max(0, end - n) : end]

    def workers(self, step_num: int, mode: ModeKeys | str = _GLOBAL) -> list[str]:
        """Workers that saved it at a step, sorted by character."""
        mode = as_mode(mode)
        step = self._step_with_it(step_num, mode, None)
        if step is None:
            self.trial.maybe_refresh(self.name)
            step = self._step_with_it(step_num, mode, None)
        if step is None:
            raise TensorUnavailableForStep(self.name, step_num, mode, reason=self._why_not(step_num, mode))
        return self._index.workers_of(self.name, step)

    def step(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Gone from smdebug itself: use :meth:`value`, :meth:`reduction_value` or :meth:`shape`."""
        raise SMDebugNotImplementedError(
            "tensor.step(…) is gone: use tensor.value(step) or tensor.reduction_value(step, name)."
        )

    # ------------------------------------------------------------------------------------------------------- rest

    @property
    def plot(self) -> TensorPlots:
        """Matplotlib pictures of it: :class:`~smdwidgets.plots.TensorPlots`."""
        from smdwidgets.plots import TensorPlots  # what draws stands above what reads

        return TensorPlots(self)

    def _close(self) -> None:
        trial = self.trial

        def refuse(name: str, step: int, worker: str | None = None) -> NoReturn:
            trial._refuse()

        self._fetch = refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_trial, (self.trial, self.name)

    def __repr__(self) -> str:
        return show.tensor_text(self)

    def _repr_html_(self) -> str:
        return show.tensor_html(self)


def _of_trial(trial: Trial, name: str) -> Tensor:
    """A pickled tensor is its trial, opened again, and its name."""
    return trial.tensor(name)

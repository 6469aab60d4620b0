"""Steps, values and reductions of one tensor, by step of a mode.

A query resolves its step once: to the location of a record, to the shards of a sharded tensor, or to an error that says
why there is no value. Records are then read by :meth:`SavedTensor._read`, the only place that waits and tries again.
"""

from __future__ import annotations

from bisect import bisect_right
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smdwidgets import _core
from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import (
    DataError,
    IncompleteShardsError,
    RunFileMissing,
    RunIOError,
    ShapeUnavailableForStep,
    SMDebugTypeError,
    SMDebugValueError,
    StepUnavailable,
    TensorUnavailableForStep,
    UFuncTypeError,
)
from smdwidgets.modes import ModeKeys, as_mode, as_step
from smdwidgets.trials.missing import wait_for_event_file
from smdwidgets.trials.reader import RunReader
from smdwidgets.trials.resolver import StepResolver
from smdwidgets.trials.run import REDUCTIONS, dtype_named
from smdwidgets.trials.samples import sample_of, steps_with_samples
from smdwidgets.trials.shards import Sharded

_GLOBAL = ModeKeys.GLOBAL


class _Saved(NamedTuple):
    """What was saved of a tensor at a step.

    Attributes:
        step: global step.
        step_num: the step of ``mode`` that was asked for, for messages.
        mode: mode of ``step_num``.
        worker: the selected worker; None: the first that has a value.
        sharded: the shards of a sharded tensor, unless a worker was selected.
        location: the location of the value in the index; None if only reductions or the shape were saved.
    """

    step: int
    step_num: int
    mode: ModeKeys
    worker: str | None
    sharded: Sharded | None
    location: Any


class SavedTensor:
    """A tensor of a run: the steps at which it was saved, and its values."""

    __slots__ = ("_caches", "_reader", "_resolver", "name")

    def __init__(self, name: str, reader: RunReader, caches: bool = True) -> None:
        self.name = name
        self._reader = reader
        self._resolver = StepResolver(reader, name)
        #: Whether values may be kept in memory after they were read.
        self._caches = caches

    # ------------------------------------------------------------------------------------------------------- steps

    def steps(self, mode: ModeKeys | str = _GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the steps of a mode at which the tensor was saved, in ascending order.

        Steps with only a reduction or the shape are included.
        """
        reader, mode = self._reader, as_mode(mode)
        reader.maybe_refresh(self.name)
        return list(
            reader.steps_of(self.name, mode) if show_incomplete_steps else reader.complete_steps_of(self.name, mode)
        )

    def prev_steps(self, step: int, n: int | None = None, mode: ModeKeys | str = _GLOBAL) -> list[int]:
        """Return the last ``n`` steps up to ``step`` (inclusive), in ascending order.

        ``n=None`` returns all of them.
        """
        step = as_step(step)
        if n is not None and as_step(n, "n") < 0:
            raise ValueError(f"n must be >= 0 or None, got {n}")
        steps = self.steps(mode)
        end = bisect_right(steps, step)
        return steps[0 if n is None else max(0, end - n) : end]

    def workers(self, step_num: int, mode: ModeKeys | str = _GLOBAL) -> list[str]:
        """Return the workers that saved the tensor at a step, sorted."""
        return self._resolver.workers(as_step(step_num, "step_num"), as_mode(mode))

    def global_step(self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> int:
        """Return the global step of a step at which the tensor was saved.

        If a worker is selected, it must have saved the tensor.

        Raises the error of :meth:`value` if it was not saved.
        """
        return self._resolver.global_step(as_step(step_num, "step_num"), as_mode(mode), worker)

    # ------------------------------------------------------------------------------------------------------ values

    def steps_with_value(self, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> list[int]:
        """Return the steps of a mode at which a value was saved.

        Steps with statistics or reductions only are left out.

        Args:
            mode: mode of the steps.
            worker: name of a worker that must have saved it; None: any.
        """
        reader, mode = self._reader, as_mode(mode)
        return [
            step
            for step in self.steps(mode)
            if (at := reader.global_step(mode, step)) is not None and reader.index.find(self.name, at, worker)
        ]

    def _last_with_value(self, mode: ModeKeys | str, worker: str | None) -> int:
        mode = as_mode(mode)
        steps = self.steps(mode)
        for step in reversed(steps):
            at = self._reader.global_step(mode, step)
            if at is not None and self._reader.index.find(self.name, at, worker) is not None:
                return step
        if steps:  # its error says why there is no value
            self.value(steps[-1], mode, worker)
        saved = "no value was saved" if mode == _GLOBAL else f"no value was saved in mode {mode.name}"
        raise SMDebugValueError(f"tensor {shown(self.name)} has no last value: {saved}")

    def value(
        self,
        step_num: int | EllipsisType = ...,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        copy: bool = False,
    ) -> NDArray[Any]:
        """Return the value at a step of ``mode``; without a step, the last one.

        ``worker=None`` selects the first worker by name that has a value. A sharded tensor is assembled from the shards
        of all workers; ``worker=`` selects one shard.

        The array is writable and shares no memory. ``copy`` is accepted for compatibility and has no effect.

        Raises :class:`StepUnavailable`, :class:`StepNotYetAvailable`, :class:`TensorUnavailableForStep`,
        :class:`InvalidWorker`, :class:`~smdwidgets.exceptions.IncompleteShardsError` if shards are missing, or
        :class:`~smdwidgets.exceptions.DataError` if the record is damaged.
        """
        # The common case is one call into the core, without checking for new steps.
        if type(step_num) is not int:
            if isinstance(step_num, EllipsisType):
                step_num = self._last_with_value(mode, worker)
            step_num = as_step(step_num, "step_num")
        reader = self._reader
        if mode is _GLOBAL:
            step: int | None = step_num
        else:
            mode = as_mode(mode)
            step = reader.global_step(mode, step_num)
        if step is not None:
            try:
                value = (reader.fetch if self._caches else reader.fetch_once)(self.name, step, worker)
            except (DataError, RunIOError, OverflowError, UnicodeEncodeError):
                value = None  # reading it again recovers or raises
            if value is not None:
                return value
        saved = self._saved(step_num, mode, worker)
        if saved.sharded is not None and self._has_values(saved.sharded):
            return self._assembled(saved)
        return self._read(saved, saved.location)

    def values(self, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> dict[int, NDArray[Any]]:
        """Return the value at each step of a mode, by step.

        ``trial.values`` reads many tensors at once.
        """
        return {step: self.value(step, mode, worker) for step in self.steps(mode)}

    def rows(
        self,
        step_num: int,
        start: int,
        stop: int,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        verify: str = "record",
    ) -> NDArray[Any]:
        """Return ``value(step_num)[start:stop]``, and read no more than needed.

        Only this part is held in memory. ``verify="record"`` reads the whole record in pieces if it has a checksum.
        ``"none"`` reads only these rows, without their checksum.

        >>> trial.tensor("embedding").rows(1000, 0, 128, verify="none").shape     # doctest: +SKIP
        (128, 4096)
        """
        saved = self._saved(step_num, mode, worker)
        rows = slice(as_step(start, "start"), as_step(stop, "stop"))
        if saved.sharded is None and saved.location is not None:
            _, shape = self._head(saved)
            if shape:
                first, last, _ = rows.indices(shape[0])
                try:
                    part = self._reader.run.part(saved.location, first, max(first, last), verify != "none")
                except (DataError, RunIOError):
                    part = None  # `value` recovers or raises
                if part is not None:
                    return part
        value: NDArray[Any] = self.value(step_num, mode, worker)[rows]
        return value

    # ----------------------------------------------------------------------------------------------------- samples

    def sample_steps(self, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> list[int]:
        """Return the steps of a mode with a sample of the elements, in ascending order.

        They include steps whose value was deleted. Only runs with a capture plan, in a directory, have samples.
        """
        return steps_with_samples(self._reader, self.name, as_mode(mode), worker)

    def sample(self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> NDArray[Any]:
        """Return at most 4,096 elements of the tensor, in one dimension.

        They lie at equal distances. A capture plan keeps them of more steps than values, also of those whose value was
        deleted or is too large to be saved. A tensor of at most 4,096 elements is whole; it has samples since values
        began to be deleted. ``worker=None`` selects the first worker by name that has a sample.

        Raises :class:`TensorUnavailableForStep` if there is none at this step.
        """
        step = as_step(step_num, "step_num")
        return sample_of(self._reader, self.name, step, as_mode(mode), worker).elements

    def quantiles(
        self, step_num: int, q: ArrayLike, mode: ModeKeys | str = _GLOBAL, worker: str | None = None
    ) -> NDArray[np.float64]:
        """Return quantiles of the finite elements at a step; NaN if there are none.

        They are those of the value where it exists. Else they are estimates from the :meth:`sample`: the share of
        elements below one is off by about 0.8 percentage points at the median of a large tensor (one standard
        deviation).

        Args:
            step_num: step of the mode.
            q: numbers from 0 to 1.
            mode: mode of the step.
            worker: name of a worker.

        >>> trial.tensor("fc1.weight").quantiles(500, [0.05, 0.5, 0.95])         # doctest: +SKIP
        array([-0.061,  0.   ,  0.062])

        Raises :class:`TensorUnavailableForStep` if neither value nor sample exists.
        """
        shares = np.asarray(q, np.float64)
        if not ((shares >= 0) & (shares <= 1)).all():
            raise SMDebugValueError("quantiles must be numbers from 0 to 1")
        try:
            elements = self.value(step_num, mode, worker)
        except (TensorUnavailableForStep, StepUnavailable) as missing:
            try:
                elements = self.sample(step_num, mode, worker)
            except TensorUnavailableForStep:
                raise missing from None
        if elements.dtype.kind not in "biufV":
            raise SMDebugTypeError(f"tensor {shown(self.name)} of dtype {elements.dtype.name} has no order")
        numbers = elements.astype(np.float64).reshape(-1)
        finite = numbers[np.isfinite(numbers)]
        return np.asarray(np.quantile(finite, shares) if finite.size else np.full(shares.shape, np.nan))

    def coverage(self, step_num: int, mode: ModeKeys | str = _GLOBAL) -> float:
        """Return the share of the tensor's elements that were saved at a step.

        It is less than 1 if shards of a sharded tensor are missing.
        """
        sharded = self._saved(step_num, mode, None).sharded
        if sharded is None:
            return 1.0
        step, index = sharded.step, self._reader.index
        return sharded.coverage(
            lambda worker: self._has_value(step, worker) or bool(index.stored_reductions(self.name, step, worker))
        )

    # ----------------------------------------------------------------------------------------------- shape and dtype

    def shape(self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        """Return the shape at a step: the saved one, else that of the value.

        Only the header of the value is read.
        """
        saved = self._saved(step_num, mode, worker)
        if saved.sharded is not None:
            return saved.sharded.shape
        shape = self._reader.index.shape_of(self.name, saved.step, worker)
        if shape is not None:
            return shape
        try:
            return self._head(saved)[1]
        except TensorUnavailableForStep:
            raise ShapeUnavailableForStep(self.name, saved.step_num, saved.mode) from None

    def shapes(self, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> dict[int, tuple[int, ...]]:
        """Return the shape at each step of a mode, by step."""
        return {step: self.shape(step, mode, worker) for step in self.steps(mode)}

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Dtype of the newest value; None if no values were saved."""
        reader = self._reader
        reader.maybe_refresh(self.name)
        reader.load()
        for step in reversed(reader.index.steps_of(self.name)):
            location = reader.index.find(self.name, step)
            if location is not None:
                return dtype_named(self._head(_Saved(step, step, _GLOBAL, None, None, location))[0])
        return None

    @property
    def original_name(self) -> str | None:
        """Name of the tensor in the framework, if the hook saved it."""
        self._reader.load()
        return self._reader.index.original_name(self.name)

    def signature(self, step: int, worker: str | None = None) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return dtype and shape of the value at a global step, from its header."""
        saved = self._saved(step, _GLOBAL, worker)
        dtype, shape = self._head(saved)
        return dtype_named(dtype), shape if saved.sharded is None else saved.sharded.shape

    # -------------------------------------------------------------------------------------------------- reductions

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        abs: bool = False,
    ) -> Any:
        """Return a reduction: the saved one, else computed from the value.

        ``reduction_name`` is min, max, mean, std, variance, sum, prod, l1 or l2. ``abs`` applies it to absolute values.
        Computed std and variance divide by n; norms are over all elements.
        """
        saved = self._saved(step_num, mode, worker)
        known = reduction_name in REDUCTIONS
        if known and saved.sharded is not None:
            return self._sharded_reduction(saved, saved.sharded, reduction_name, abs)
        index = self._reader.index
        stored = index.stored_reduction(self.name, saved.step, reduction_name, abs, worker) if known else None
        if stored is not None:
            return self._read(saved, stored)
        if saved.location is None:
            which = f"{'abs_' if abs else ''}{reduction_name}"
            raise self._missing(saved, f"neither the value nor its reduction {shown(which)} was saved")
        if not known:
            self._head(saved)  # an unreadable value takes precedence as an error
            hint = did_you_mean(reduction_name, REDUCTIONS)
            choice = ", ".join(REDUCTIONS)
            raise SMDebugValueError(f"invalid reduction {shown(reduction_name)}; choose from {choice}.{hint}")
        value = self._read(saved, saved.location)
        if value.dtype.kind not in "biufcV":
            raise UFuncTypeError(
                f"cannot compute {reduction_name} of tensor {shown(self.name)}: dtype {value.dtype.name} is not numeric"
            )
        return _core.reduction(value, reduction_name, abs)

    def reduction_values(
        self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], Any]:
        """Return the saved reductions at a step, by (name, abs). Computes none."""
        saved = self._saved(step_num, mode, worker)
        sharded = saved.sharded
        if sharded is None:
            return self._stored(saved, worker)
        of_shards = {shard: self._stored(saved, shard) for shard in sharded.shards}
        keys = dict.fromkeys(key for stored in of_shards.values() for key in stored)
        combined = {(op, absolute): sharded.reduce(of_shards, op, absolute) for op, absolute in keys}
        return {key: value for key, value in combined.items() if value is not None}

    def _stored(self, saved: _Saved, worker: str | None) -> dict[tuple[str, bool], NDArray[Any]]:
        """Return the saved reductions of a worker."""
        stored = self._reader.index.stored_reductions(self.name, saved.step, worker)
        return {(op, absolute): self._read(saved, location) for op, absolute, location in stored}

    def _sharded_reduction(self, saved: _Saved, sharded: Sharded, reduction_name: str, absolute: bool) -> Any:
        if self._has_values(sharded):
            return _core.reduction(self._assembled(saved), reduction_name, absolute)
        of_shards = {shard: self._stored(saved, shard) for shard in sharded.shards}
        combined = sharded.reduce(of_shards, reduction_name, absolute)
        if combined is None:
            sharded.select(lambda shard: bool(of_shards[shard]))  # raises if shards are missing
            raise self._missing(saved, f"the saved reductions of its shards cannot be combined to {reduction_name}")
        return combined

    # ----------------------------------------------------------------------------------------------------- reading

    def _saved(self, step_num: int, mode: ModeKeys | str, worker: str | None) -> _Saved:
        """Return what was saved at a step. Raises an error that says why there is nothing."""
        step_num, mode = as_step(step_num, "step_num"), as_mode(mode)
        step = self._resolver.global_step(step_num, mode, worker)
        sharded = self._reader.run.sharded(self.name, step) if worker is None else None
        return _Saved(step, step_num, mode, worker, sharded, self._reader.index.find(self.name, step, worker))

    def _missing(self, saved: _Saved, reason: str = "") -> TensorUnavailableForStep:
        """Return the error for a value that was not saved, or was deleted."""
        deleted = self._resolver.deleted(saved.step, saved.step_num, saved.mode)
        if deleted is not None:
            return deleted
        has_reductions = bool(self._reader.index.stored_reductions(self.name, saved.step, saved.worker))
        return TensorUnavailableForStep(self.name, saved.step_num, saved.mode, has_reductions, reason)

    def _has_value(self, step: int, worker: str) -> bool:
        return self._reader.index.find(self.name, step, worker) is not None

    def _has_values(self, sharded: Sharded) -> bool:
        return any(self._has_value(sharded.step, worker) for worker in sharded.shards)

    def _assembled(self, saved: _Saved) -> NDArray[Any]:
        """Return the value of a sharded tensor.

        Check once for shards that were written since the last refresh.
        """
        reader, step = self._reader, saved.step
        for last_attempt in (False, True):
            sharded = reader.run.sharded(self.name, step) or saved.sharded
            assert sharded is not None  # the caller has checked it
            try:
                return sharded.assemble(
                    lambda worker: self._read(saved, reader.index.find(self.name, step, worker)),
                    lambda worker: self._has_value(step, worker),
                )
            except IncompleteShardsError:
                if last_attempt:
                    raise
                reader.maybe_refresh(self.name)
        raise AssertionError("the second attempt returns or raises")

    def _read(self, saved: _Saved, location: Any) -> NDArray[Any]:
        """Read a record.

        Wait for a missing file, and read a step again that was overwritten.
        """
        if location is None:
            raise self._missing(saved)
        run = self._reader.run
        error: DataError | RunIOError
        for last_attempt in (False, True):
            try:
                return run.value(location)
            except RunIOError as failure:
                if not isinstance(failure, RunFileMissing) and run.file_there(location.event_key):
                    raise
                error = failure
                changed = run.reread(saved.step) and self._reader.index.find(self.name, saved.step, location.worker)
                if changed and changed.event_key == location.event_key:
                    changed = None
            except DataError as failure:
                error = failure
                changed = run.reread(saved.step) and self._reader.index.find(self.name, saved.step, location.worker)
            if changed and not last_attempt:
                location = changed
                continue
            deleted = self._resolver.deleted(saved.step, saved.step_num, saved.mode)
            if deleted is not None or last_attempt or isinstance(error, DataError):
                raise deleted or error from None
            wait_for_event_file(self._reader, location, self.name, saved.step_num, saved.mode)
        raise AssertionError("the second attempt returns or raises")

    def _head(self, saved: _Saved) -> tuple[str, tuple[int, ...]]:
        """Return dtype and shape of a value, from its header."""
        if saved.location is None:
            raise self._missing(saved)
        try:
            return self._reader.head(saved.location)
        except (DataError, RunIOError):
            value = self._read(saved, saved.location)
            return value.dtype.name, value.shape

"""Values of one tensor, and their shapes and dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import (
    DataError,
    IncompleteShardsError,
    RunFileMissing,
    RunIOError,
    ShapeUnavailableForStep,
    StepDeleted,
    StepUnavailable,
    TensorUnavailableForStep,
)
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials.missing import wait_for_event_file
from smdwidgets.trials.run import dtype_named
from smdwidgets.trials.shards import Sharded
from smdwidgets.trials.tensor_steps import TensorSteps

_GLOBAL = ModeKeys.GLOBAL


class TensorValues(TensorSteps):
    """A tensor whose values can be read."""

    __slots__ = ()

    def value(
        self,
        step_num: int,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        *,
        copy: bool = False,
    ) -> NDArray[Any]:
        """Return the value at a step of ``mode``.

        ``worker=None`` selects the first worker by name that has a value. A sharded tensor is assembled from the shards of all
        workers; ``worker=`` selects one shard.

        The array is writable and shares no memory. ``copy`` is accepted for compatibility and has no effect.

        Raises :class:`StepUnavailable`, :class:`StepNotYetAvailable`, :class:`TensorUnavailableForStep`,
        :class:`InvalidWorker`, :class:`~smdwidgets.exceptions.IncompleteShardsError` if shards are missing, or
        :class:`~smdwidgets.exceptions.DataError` if the record is damaged.
        """
        # The common case is one call into the core, without checking for new steps.
        if mode is _GLOBAL:
            step: int | None = step_num
        else:
            mode = as_mode(mode)
            step = self.trial._global_step(mode, step_num)
        if step is not None:
            try:
                value = self._fetch(self.name, step, worker)
            except (DataError, RunIOError, OverflowError, UnicodeEncodeError):
                value = None  # _value_or_raise recovers or raises
            if value is not None:
                return value
        return self._value_or_raise(step_num, mode, worker)

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

        Only this part is held in memory. ``verify="record"`` reads the whole record in pieces if it has a checksum. ``"none"`` reads only these rows, without
        their checksum.

        >>> trial.tensor("embedding").rows(1000, 0, 128, verify="none").shape     # doctest: +SKIP
        (128, 4096)
        """
        mode = as_mode(mode)
        step = self._resolver.global_step(step_num, mode, worker)
        place = None if self._sharded(step, worker) is not None else self._index.find(self.name, step, worker)
        if place is not None:
            _, shape = self._head(place, step_num, mode)
            if shape:
                first, last, _ = slice(start, stop).indices(shape[0])
                try:
                    part = self.trial._run.part(place, first, max(first, last), verify != "none")
                except (DataError, RunIOError):
                    part = None  # `value` recovers or raises
                if part is not None:
                    return part
        value: NDArray[Any] = self.value(step_num, mode, worker)[start:stop]
        return value

    def coverage(self, step_num: int, mode: ModeKeys | str = _GLOBAL) -> float:
        """Return the share of the tensor's elements that were saved at a step.

        It is less than 1 if shards of a sharded tensor are missing.
        """
        sharded = self._sharded(self._resolver.global_step(step_num, as_mode(mode), None), None)
        if sharded is None:
            return 1.0

        def has(worker: str) -> bool:
            at = (self.name, sharded.step, worker)
            return self._index.find(*at) is not None or bool(self._index.stored_reductions(*at))

        return sharded.coverage(has)

    # ----------------------------------------------------------------------------------------------------- shapes

    def shape(self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        """Return the shape at a step: the saved one, else that of the value.

        Only the header of the value is read.
        """
        mode = as_mode(mode)
        step = self._resolver.global_step(step_num, mode, worker)
        sharded = self._sharded(step, worker)
        if sharded is not None:
            return sharded.shape
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
        """Return the shape at each step of a mode, by step."""
        return {step: self.shape(step, mode, worker) for step in self.steps(mode)}

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Dtype of the newest value; None if no values were saved."""
        self.trial.maybe_refresh(self.name)
        self.trial._run.load()
        for step in reversed(self._index.steps_of(self.name)):
            place = self._index.find(self.name, step)
            if place is not None:
                return dtype_named(self._head(place, step, _GLOBAL)[0])
        return None

    @property
    def original_name(self) -> str | None:
        """Name of the tensor in the framework, if the hook saved it."""
        self.trial._run.load()
        return self._index.original_name(self.name)

    # ---------------------------------------------------------------------------------------------------- reading

    def _value_or_raise(self, step_num: int, mode: ModeKeys, worker: str | None) -> NDArray[Any]:
        with self._telling_deleted(step_num, mode):
            return self._find_value(step_num, mode, worker)

    @contextmanager
    def _telling_deleted(self, step_num: int, mode: ModeKeys) -> Iterator[None]:
        """Raise StepDeleted where nothing is found because the step's values were deleted."""
        try:
            yield
        except (DataError, StepUnavailable, TensorUnavailableForStep) as error:
            raise self._deleted(step_num, mode) or error from None

    def _deleted(self, step_num: int, mode: ModeKeys, step: int | None = None) -> StepDeleted | None:
        """Return the error for a step whose values were deleted, or None."""
        if step is None:
            step = step_num if mode == ModeKeys.GLOBAL else self.trial._global_step(mode, step_num)
        every = None if step is None else self.trial._run.deleted(step)
        return None if every is None else StepDeleted(self.name, step_num, mode, every)

    def _find_value(self, step_num: int, mode: ModeKeys, worker: str | None) -> NDArray[Any]:
        step = self._resolver.global_step(step_num, mode, worker)
        sharded = self._sharded(step, worker)
        if sharded is not None and self._has_values(sharded):
            return self._assembled(sharded, step_num, mode)
        place = self._index.find(self.name, step, worker)
        if place is None:
            has_reductions = bool(self._index.stored_reductions(self.name, step, worker))
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions)
        return self._read(place, step_num, mode)

    def _sharded(self, step: int, worker: str | None) -> Sharded | None:
        return self.trial._run.sharded(self.name, step) if worker is None else None

    def _has_values(self, sharded: Sharded) -> bool:
        return any(self._index.find(self.name, sharded.step, worker) for worker in sharded.shards)

    def _assembled(self, sharded: Sharded, step_num: int, mode: ModeKeys) -> NDArray[Any]:
        """Return the value of a sharded tensor.

        Check once for shards that were written since the last refresh.
        """

        def read(worker: str) -> NDArray[Any]:
            return self._read(self._index.find(self.name, sharded.step, worker), step_num, mode)

        def has(worker: str) -> bool:
            return self._index.find(self.name, sharded.step, worker) is not None

        try:
            return sharded.assemble(read, has)
        except IncompleteShardsError:
            self.trial.maybe_refresh(self.name)
            return (self._sharded(sharded.step, None) or sharded).assemble(read, has)

    def _read(self, place: Any, step_num: int, mode: ModeKeys) -> NDArray[Any]:
        """Read a value; wait for a missing file, and retry if the step was overwritten."""
        try:
            return self.trial._run.value(place)
        except RunIOError as error:
            if not isinstance(error, RunFileMissing) and self.trial._run.file_there(place.event_key):
                raise
            if (deleted := self._deleted(step_num, mode, place.step)) is not None:
                raise deleted from None
            wait_for_event_file(self.trial, place, self.name, step_num, mode)
            return self.trial._run.value(place)
        except DataError as error:
            again = self.trial._run.reread(place.step) and self._index.find(self.name, place.step, place.worker)
            if not again:
                raise self._deleted(step_num, mode, place.step) or error from None
            return self.trial._run.value(again)

    def _head(self, place: Any, step_num: int, mode: ModeKeys) -> tuple[str, tuple[int, ...]]:
        run = self.trial._run
        try:
            return run.head(place)
        except (DataError, RunIOError):
            value = self._read(place, step_num, mode)
            return value.dtype.name, value.shape

    def _signature(self, step: int, worker: str | None) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return dtype and shape of the value at a global step, from its header."""
        sharded = self._sharded(step, worker)
        name, shape = self._head(self._index.find(self.name, step, worker), step, _GLOBAL)
        return dtype_named(name), shape if sharded is None else sharded.shape

"""Append the statistics of each step's tensors to the run's statistics file.

Runs on the writer's thread. All tensors of a batch go to the core in one call, which releases the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.hooks.capture.arrays import Staging, TensorCopy
from smdwidgets.hooks.capture.captured import Captured, StepKey, StepStatistics
from smdwidgets.hooks.writing.growing_pyramid import GrowingPyramid

__all__ = ["StatisticsRecorder"]


class StatisticsRecorder:
    """Appends statistics; keeps each parameter's last value to compare it.

    Args:
        root: directory of the run.
        worker: name of the worker.
        staging: owns the memory of the copies.
        is_parameter: whether the change of a tensor since the step before that has it is computed, by its name.
        wrote: called with the number of bytes that were appended.
        appends: whether the statistics of a tensor are appended, by its name. All are returned.
    """

    def __init__(
        self,
        root: Path,
        worker: str,
        staging: Staging,
        is_parameter: Callable[[str], bool],
        wrote: Callable[[int], None] = lambda nbytes: None,
        appends: Callable[[str], bool] | None = None,
    ) -> None:
        self._is_parameter = is_parameter
        self._appends = appends
        self._root, self._worker = root, worker
        self._staging = staging
        self._wrote = wrote
        #: Opened when there is something to append, because another worker may still delete an earlier run.
        self._writer: _core.StatisticsWriter | None = None
        self._written = 0
        self._pyramid = GrowingPyramid(root, worker)
        self._ids: dict[str, int] = {}
        #: The last copy of each parameter, with its step number.
        self._previous: dict[str, tuple[int, TensorCopy]] = {}

    def add(
        self, steps: Sequence[tuple[StepKey, Sequence[Captured]]], failed: Callable[[OSError], object]
    ) -> list[StepStatistics | None]:
        """Append the statistics of tensors of some steps, and return those of each step.

        They are computed and appended together: for a few numbers, each call takes longer than what it does.

        Args:
            steps: the steps, in order.
            failed: called if they cannot be appended.
        """
        chosen = [
            (key, one, one.copy)
            for key, captured in steps
            for one in captured
            if one.spec.statistics and one.copy is not None and one.copy.dtype != "str"
        ]
        if not chosen:
            return [None] * len(steps)
        columns = self._columns([(key[0], one, copy) for key, one, copy in chosen])
        try:
            self._append(chosen, columns)
        except OSError as error:
            failed(error)
        names: dict[StepKey, list[str]] = {}
        for key, one, _ in chosen:
            names.setdefault(key, []).append(one.name)
        if len(names) == 1:
            return [StepStatistics(names[key], columns) if key in names else None for key, _ in steps]
        described: list[StepStatistics | None] = []
        begin = 0
        for key, _ in steps:
            end = begin + len(names.get(key, ()))
            of_step = {name: column[begin:end] for name, column in columns.items()}
            described.append(StepStatistics(names[key], of_step) if key in names else None)
            begin = end
        return described

    def _append(
        self, chosen: Sequence[tuple[StepKey, Captured, TensorCopy]], columns: Mapping[str, NDArray[Any]]
    ) -> None:
        rows = [row for row, (_, one, _) in enumerate(chosen) if self._appends is None or self._appends(one.name)]
        if not rows:
            return
        writer = self._open()
        ids = [self._id(writer, *chosen[row][1:]) for row in rows]
        kept = dict(columns) if len(rows) == len(chosen) else {name: column[rows] for name, column in columns.items()}
        keys = [chosen[row][0] for row in rows]
        step, mode, mode_step = keys[0]
        try:
            if keys[-1] == keys[0]:
                writer.append(step, ids, kept, mode.value, mode_step)
            else:
                modes = [mode.value for _, mode, _ in keys]
                writer.append_steps([step for step, _, _ in keys], modes, [each for _, _, each in keys], ids, kept)
        finally:
            self._account()
        self._pyramid.grew(len(rows), len(self._ids))

    def flush(self) -> None:
        """Make visible what was appended."""
        if self._writer is not None:
            self._writer.flush()
            self._account()

    def flush_if_due(self) -> None:
        """Make visible what was appended some seconds ago."""
        due = None if self._writer is None else self._writer.seconds_until_flush()
        if due is not None and due <= 0:
            self.flush()

    def reopen(self) -> None:
        """Begin another file, because the directory was removed."""
        writer, self._writer, self._written = self._writer, None, 0
        if writer is not None:
            with suppress(OSError):
                writer.close()
        self._ids.clear()
        self._pyramid.restart()

    def close(self) -> None:
        """Close the file, and release the parameters that were kept."""
        previous, self._previous = self._previous, {}
        for _, copy in previous.values():
            self._release(copy)
        self._pyramid.stop()
        if self._writer is not None:
            self._writer.close()

    # ------------------------------------------------------------------------------------------------------- inside

    def _columns(self, chosen: Sequence[tuple[int, Captured, TensorCopy]]) -> dict[str, NDArray[Any]]:
        """Return statistics of copies, each of a step, by the device or the core."""
        of_core = [row for row, (_, _, copy) in enumerate(chosen) if copy.statistics is None]
        before, replaced = [], []
        for row in of_core:
            before.append(self._before(*chosen[row]))
            replaced += self._remember(*chosen[row])
        try:
            columns = _core.statistics_of(
                [chosen[row][2].array for row in of_core], before, [chosen[row][2].dtype for row in of_core]
            )
        finally:
            for copy in replaced:
                self._release(copy)
        if len(of_core) == len(chosen):
            return columns
        for _, one, copy in chosen:
            if copy.statistics is not None:
                self._forget(one.name)
        of_device = {row: copy.statistics() for row, (_, _, copy) in enumerate(chosen) if copy.statistics is not None}
        every = {name: np.empty(len(chosen), column.dtype) for name, column in columns.items()}
        for name, column in every.items():
            column[of_core] = columns[name]
            column[[*of_device]] = [numbers[name] for numbers in of_device.values()]
        return every

    def _open(self) -> _core.StatisticsWriter:
        if self._writer is None:
            self._writer = _core.StatisticsWriter(self._root, self._worker)
        return self._writer

    def _id(self, writer: _core.StatisticsWriter, one: Captured, copy: TensorCopy) -> int:
        number = self._ids.get(one.name)
        if number is None:
            number = self._ids[one.name] = writer.add(one.name, copy.dtype, copy.shape, one.spec.kind)
        return number

    def _account(self) -> None:
        written = 0 if self._writer is None else self._writer.written + self._pyramid.size
        before, self._written = self._written, written
        if self._written > before:
            self._wrote(self._written - before)

    def _before(self, step: int, one: Captured, copy: TensorCopy) -> NDArray[Any] | None:
        """Return a parameter as it was at the step before that has it, or None."""
        earlier, before = self._previous.get(one.name, (step, None))
        if before is None or earlier >= step:  # the training went back to an earlier step
            return None
        return before.array if (before.dtype, before.shape) == (copy.dtype, copy.shape) else None

    def _remember(self, step: int, one: Captured, copy: TensorCopy) -> list[TensorCopy]:
        """Keep a copy of a parameter; return the one before, still to be compared."""
        if not self._is_parameter(one.name):
            return []
        if copy.slab is not None:
            self._staging.retain(copy.slab)
        _, before = self._previous.get(one.name, (0, None))
        self._previous[one.name] = step, copy
        return [] if before is None else [before]

    def _forget(self, name: str) -> None:
        """Give up the copy of a parameter that has been compared here until now."""
        _, before = self._previous.pop(name, (0, None))
        if before is not None:
            self._release(before)

    def _release(self, copy: TensorCopy) -> None:
        if copy.slab is not None:
            self._staging.release(copy.slab)

"""Append the statistics of each step's tensors to the run's statistics file.

Runs on the writer's thread. All tensors of a batch go to the core in one call, which releases the GIL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.hooks.capture.arrays import SLAB, Slab, Staging, TensorCopy
from smdwidgets.hooks.capture.captured import Captured, StepKey, StepStatistics
from smdwidgets.hooks.capture.in_place import LARGE, part_of
from smdwidgets.hooks.writing.growing_pyramid import GrowingPyramid

__all__ = ["StatisticsRecorder"]


class _Previous(NamedTuple):
    """The elements of a parameter at a step, or a part of them.

    They lie in the slab if there is one.
    """

    step: int
    elements: NDArray[Any]
    dtype: str
    shape: tuple[int, ...]
    slab: Slab | None
    is_whole: bool


class StatisticsRecorder:
    """Appends statistics; keeps each parameter's last value to compare it.

    Of large parameters, a part of the elements is kept if all of them would take too much memory.

    Args:
        root: directory of the run.
        worker: name of the worker.
        staging: owns the memory of the copies.
        is_parameter: whether the change of a tensor since the step before that has it is computed, by its name.
        most_bytes: bytes of whole parameters that are kept at most.
        wrote: called with the number of bytes that were appended.
        appends: whether the statistics of a tensor are appended, by its name. All are returned.
    """

    def __init__(
        self,
        root: Path,
        worker: str,
        staging: Staging,
        is_parameter: Callable[[str], bool],
        most_bytes: int = 0,
        wrote: Callable[[int], None] = lambda nbytes: None,
        appends: Callable[[str], bool] | None = None,
    ) -> None:
        self._is_parameter = is_parameter
        self._most_bytes = most_bytes
        self._appends = appends
        self._root, self._worker = root, worker
        self._staging = staging
        self._wrote = wrote
        #: Opened when there is something to append, because another worker may still delete an earlier run.
        self._writer: _core.StatisticsWriter | None = None
        self._written = 0
        self._pyramid = GrowingPyramid(root, worker)
        self._ids: dict[str, int] = {}
        #: What is kept of each parameter, to be compared with its next copy.
        self._previous: dict[str, _Previous] = {}
        #: Parameters of which only a part of the elements is kept, and bytes of the others.
        self._in_part: set[str] = set()
        self._kept_bytes = 0

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
        for name in list(self._previous):
            self._forget(name)
        self._pyramid.stop()
        if self._writer is not None:
            self._writer.close()

    # ------------------------------------------------------------------------------------------------------- inside

    def _columns(self, chosen: Sequence[tuple[int, Captured, TensorCopy]]) -> dict[str, NDArray[Any]]:
        """Return statistics of copies, each of a step.

        The core computes those that were not computed before.
        """
        of_core = [row for row, (_, _, copy) in enumerate(chosen) if copy.statistics is None]
        before: list[NDArray[Any] | None] = [None] * len(of_core)
        #: Rows, elements and earlier elements of the parameters of which a part is compared.
        parts: list[tuple[int, NDArray[Any], NDArray[Any] | None]] = []
        replaced: list[_Previous] = []
        places = {row: place for place, row in enumerate(of_core)}
        for row, (step, one, copy) in enumerate(chosen):
            elements = self._compared(one, copy)
            if elements is None:
                if copy.statistics is not None:
                    self._forget(one.name)
                continue
            earlier = self._replace(step, one.name, copy, elements, replaced)
            if one.name in self._in_part:
                parts.append((row, elements, earlier))
            else:
                before[places[row]] = earlier
        try:
            columns = _core.statistics_of(
                [*(chosen[row][2].array for row in of_core), *(elements for _, elements, _ in parts)],
                [*before, *(earlier for _, _, earlier in parts)],
                [*(chosen[row][2].dtype for row in of_core), *(chosen[row][2].dtype for row, _, _ in parts)],
            )
        finally:
            for each in replaced:
                self._release(each)
        if len(of_core) == len(chosen) and not parts:
            return columns
        described = {row: copy.statistics() for row, (_, _, copy) in enumerate(chosen) if copy.statistics is not None}
        every = {name: np.empty(len(chosen), column.dtype) for name, column in columns.items()}
        for name, column in every.items():
            column[of_core] = columns[name][: len(of_core)]
            column[[*described]] = [numbers[name] for numbers in described.values()]
        for place, (row, elements, _) in enumerate(parts, len(of_core)):
            every["update"][row] = columns["update"][place] * math.sqrt(prod(chosen[row][2].shape) / elements.size)
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

    def _compared(self, one: Captured, copy: TensorCopy) -> NDArray[Any] | None:
        """Return the elements of a parameter whose change is measured, all or a part."""
        if not self._is_parameter(one.name) or not (copy.statistics is None or copy.part is not None):
            return None
        if one.name not in self._in_part:
            if copy.part is None and (
                copy.array.nbytes < LARGE
                or one.name in self._previous
                or self._kept_bytes + copy.array.nbytes <= self._most_bytes
            ):
                return copy.array
            self._in_part.add(one.name)
        return part_of(copy.array, copy.shape) if copy.part is None else copy.part

    def _replace(
        self, step: int, name: str, copy: TensorCopy, elements: NDArray[Any], replaced: list[_Previous]
    ) -> NDArray[Any] | None:
        """Keep elements of a parameter; return those of the step before, or None.

        What was kept before is appended to ``replaced``: it is still to be compared.
        """
        before = self._previous.get(name)
        is_whole, slab, kept = elements is copy.array, None, elements
        if is_whole and copy.slab is not None and elements.nbytes > SLAB // 2:
            slab = copy.slab
            self._staging.retain(slab)
        elif is_whole:  # other tensors lie in the slab
            kept = elements.copy()
        self._kept_bytes += elements.nbytes if is_whole else 0
        self._previous[name] = _Previous(step, kept, copy.dtype, copy.shape, slab, is_whole)
        if before is None:
            return None
        replaced.append(before)
        if before.step >= step or (before.dtype, before.shape) != (copy.dtype, copy.shape):
            return None  # the training went back to an earlier step, or has another parameter of this name
        earlier = before.elements
        return earlier if earlier.size == elements.size else part_of(earlier, before.shape)

    def _forget(self, name: str) -> None:
        """Give up what was kept of a parameter."""
        before = self._previous.pop(name, None)
        if before is not None:
            self._release(before)

    def _release(self, before: _Previous) -> None:
        self._kept_bytes -= before.elements.nbytes if before.is_whole else 0
        if before.slab is not None:
            self._staging.release(before.slab)

"""TensorBoard export: one folder per mode, with scalars, histograms and text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exports.names import file_name
from smdwidgets.exports.records import Record
from smdwidgets.hooks.writing.tensorboard import TensorBoardExport
from smdwidgets.modes import ModeKeys
from smdwidgets.trials.widening import widened


class TensorBoardWriter:
    """Write one TensorBoard log per mode.

    Logs are in ``<folder>/<MODE>/``, or in ``<folder>/<worker>/<MODE>/`` for several workers. Tensors with one element
    become scalars, larger tensors become histograms, strings become text. TensorBoard stores scalars as float32.
    Complex numbers are written as magnitudes. Reductions that were saved in place of a value become scalars named
    ``<tensor>/<reduction>``. Steps are mode steps.
    """

    def __init__(self, path: Path, workers: int) -> None:
        self._path = path
        self._several = workers > 1
        self._logs: dict[str, TensorBoardExport] = {}
        self._now = time.time()

    def write(self, batch: Sequence[Record]) -> None:
        """Write one event per record."""
        for record in batch:
            log = self._log(record.worker)
            tag = record.tensor.encode("utf-8", "backslashreplace").decode()
            at = (record.mode_step, ModeKeys[record.mode], self._now if record.time is None else record.time)
            value = None if record.value is None else _numbers(record.value)
            for name, reduced in record.reductions.items():
                log.scalar(f"{tag}/{name}", reduced, *at)
            if value is not None and value.size == 1:
                log.scalar(tag, float(value.reshape(-1)[0]), *at)
            elif value is not None:
                log.histogram(tag, value, *at)
            elif record.value is not None:
                log.text(tag, [_bytes(cell) for cell in record.value.reshape(-1).tolist()], *at)

    def _log(self, worker: str) -> TensorBoardExport:
        folder = file_name(worker) if self._several else ""
        log = self._logs.get(folder)
        if log is None:
            log = self._logs[folder] = TensorBoardExport(self._path / folder)
        return log

    def close(self) -> None:
        """Close the files."""
        for log in self._logs.values():
            log.close()


def _numbers(value: NDArray[Any]) -> NDArray[Any] | None:
    if value.dtype.kind in "OSU":
        return None
    if value.dtype.kind == "c":
        magnitudes: NDArray[Any] = np.abs(value)
        return magnitudes
    if value.dtype.kind == "b":
        return value.astype(np.uint8)
    return widened(value)


def _bytes(cell: object) -> bytes:
    return cell if isinstance(cell, bytes) else str(cell).encode("utf-8", "backslashreplace")

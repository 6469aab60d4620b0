"""Parquet export: a tidy table with one row per record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exports.records import Record
from smdwidgets.sources.arrow import arrow_and_parquet

#: Integers up to this magnitude are exact as float64.
_EXACT = 1 << 53


class ParquetWriter:
    """Append batches as row groups.

    Columns: step, mode, mode_step, worker, tensor, dtype, shape, values (the elements in C order, as float64), text
    (values that float64 cannot represent: strings, complex numbers, integers beyond 2**53), reductions (saved in place
    of a value), wall_time (seconds since 1970).
    """

    def __init__(self, path: Path) -> None:
        self._arrow, parquet = arrow_and_parquet("Parquet export")
        pa = self._arrow
        self._schema = pa.schema(
            [
                ("step", pa.int64()),
                ("mode", pa.string()),
                ("mode_step", pa.int64()),
                ("worker", pa.string()),
                ("tensor", pa.string()),
                ("dtype", pa.string()),
                ("shape", pa.list_(pa.int64())),
                ("values", pa.large_list(pa.float64())),
                ("text", pa.large_list(pa.string())),
                ("reductions", pa.map_(pa.string(), pa.float64())),
                ("wall_time", pa.float64()),
            ]
        )
        self._writer = parquet.ParquetWriter(
            path, self._schema, compression="zstd", use_dictionary=["mode", "worker", "tensor", "dtype"]
        )

    def write(self, batch: Sequence[Record]) -> None:
        """Write one row group."""
        if not batch:
            return
        pa = self._arrow
        numbers = [_numbers(record.value) for record in batch]
        text = [
            _text(record.value) if record.value is not None and exact is None else None
            for record, exact in zip(batch, numbers, strict=True)
        ]
        columns = [
            [record.step for record in batch],
            [record.mode for record in batch],
            [record.mode_step for record in batch],
            [_valid(record.worker) for record in batch],
            [_valid(record.tensor) for record in batch],
            [None if record.value is None else _dtype(record.value) for record in batch],
            [None if record.shape is None else list(record.shape) for record in batch],
            self._lists(numbers),
            text,
            [list(record.reductions.items()) or None for record in batch],
            [record.time for record in batch],
        ]
        arrays = [
            column if isinstance(column, pa.Array) else pa.array(column, field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def _lists(self, numbers: Sequence[NDArray[np.float64] | None]) -> Any:
        """Return the arrays as one Arrow column, without a Python object per element."""
        pa = self._arrow
        ends = np.cumsum([0, *(0 if each is None else each.size for each in numbers)], dtype=np.int64)
        flat = np.concatenate([np.empty(0), *(each for each in numbers if each is not None)])
        missing = np.array([*(each is None for each in numbers), False])
        return pa.LargeListArray.from_arrays(pa.array(ends, mask=missing), pa.array(flat))

    def close(self) -> None:
        """Write the file footer."""
        self._writer.close()


def _numbers(value: NDArray[Any] | None) -> NDArray[np.float64] | None:
    """Return the elements as float64, or None if the conversion is not exact."""
    if value is None or value.dtype.kind in "cOSU":
        return None
    flat = value.reshape(-1)
    if value.dtype.kind in "iu" and value.dtype.itemsize == 8 and flat.size:
        low, high = int(flat.min()), int(flat.max())
        if low < -_EXACT or high > _EXACT:
            return None
    return flat.astype(np.float64)


def _text(value: NDArray[Any]) -> list[str]:
    cells = value.reshape(-1).tolist()
    return [cell.decode("utf-8", "replace") if isinstance(cell, bytes) else _valid(str(cell)) for cell in cells]


def _dtype(value: NDArray[Any]) -> str:
    return "str" if value.dtype.kind in "OSU" else value.dtype.name


def _valid(text: str) -> str:
    """Return text that is valid UTF-8, with lone surrogates escaped."""
    return text.encode("utf-8", "backslashreplace").decode()

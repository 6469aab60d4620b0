"""Columns: the table that queries of many tensors and steps return."""

from __future__ import annotations

import html
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import did_you_mean, shown

if TYPE_CHECKING:
    import pandas
    import pyarrow


class Failure(NamedTuple):
    """A record that could not be read, and the error."""

    name: str
    step: int
    worker: str | None
    error: BaseException


class Columns(dict[str, NDArray[Any]]):
    """A table as a dictionary of NumPy arrays of equal length.

    pandas, Polars, DuckDB and PyArrow take it as it is: ``pandas.DataFrame(table)``, ``polars.DataFrame(table)``.
    ``to_pandas()`` and ``to_arrow()`` also convert columns with arrays in their cells. Records that could not be read
    are in ``errors`` and have no row. ``last_step`` is the last global step that the run had when it was read: a run
    that grows meanwhile is read up to this step. It is None for tables that no sweep made.

    >>> table = Columns({"step": np.array([0, 10]), "mean": np.array([0.5, 0.25])})
    >>> float(table["mean"].max())
    0.5
    """

    #: Maximum rows in a repr.
    _rows = 10

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], errors: list[Failure] | None = None, last_step: int | None = None
    ) -> None:
        super().__init__(columns)
        self.errors = errors or []
        self.last_step = last_step
        if len({len(column) for column in self.values()}) > 1:
            lengths = {name: len(column) for name, column in self.items()}
            raise ValueError(f"columns must have equal lengths, got {lengths}")

    def __missing__(self, name: object) -> NDArray[Any]:
        hint = did_you_mean(name, self) if isinstance(name, str) else ""
        raise KeyError(f"no column {shown(name)}; choose from {', '.join(self)}.{hint}")

    @property
    def num_rows(self) -> int:
        """Number of rows. ``len`` is the number of columns, as of any dictionary."""
        return len(next(iter(self.values()), ()))

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a DataFrame. Requires pandas."""
        import pandas

        return pandas.DataFrame({name: _cells(column) for name, column in self.items()})

    def to_arrow(self) -> pyarrow.Table:
        """Return the table as a PyArrow table. Requires pyarrow.

        Arrays of equal shape become nested lists. If shapes differ, each row is a flat list in C order, and the column
        ``<name>_shape`` contains the shapes.
        """
        import pyarrow

        arrays = {}
        for name, column in self.items():
            ragged = column.dtype == object and any(isinstance(cell, np.ndarray) for cell in column)
            if ragged:
                arrays[name] = pyarrow.array([np.asarray(cell).reshape(-1).tolist() for cell in column])
                arrays[f"{name}_shape"] = pyarrow.array([list(np.shape(cell)) for cell in column])
            else:
                arrays[name] = _arrow(column)
        return pyarrow.table(arrays)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export through Arrow's PyCapsule interface. Requires pyarrow.

        Used by ``polars.DataFrame(columns)`` and ``duckdb.sql("from columns")``.
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        """Export through the dataframe interchange protocol. Requires pyarrow."""
        return self.to_arrow().__dataframe__(nan_as_null, allow_copy)

    def _shown_rows(self) -> list[list[str]]:
        return [
            [(_time if name == "wall_time" else _cell)(column[row]) for name, column in self.items()]
            for row in range(min(self.num_rows, self._rows))
        ]

    def _more(self) -> str:
        left, failed = self.num_rows - self._rows, len(self.errors)
        more = [f"{left} more row{'s' if left > 1 else ''}"] if left > 0 else []
        more += [f"{failed} unreadable record{'s' if failed > 1 else ''}, see .errors"] if failed else []
        return "; ".join(more)

    def __repr__(self) -> str:
        rows = [list(self), *self._shown_rows()]
        widths = [max(len(row[at]) for row in rows) for at in range(len(self))]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        lines += [f"… {self._more()}"] if self._more() else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self)
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._shown_rows())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        more = f"<p>… {html.escape(self._more())}</p>" if self._more() else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cells(column: NDArray[Any]) -> Any:
    """Convert a column for pandas, which accepts only one-dimensional columns."""
    return column if column.ndim == 1 else list(column)


def _arrow(column: NDArray[Any]) -> Any:
    import pyarrow

    if column.ndim == 1 and column.dtype.kind in "biuf" and column.dtype.itemsize <= 8 and column.dtype.isbuiltin == 1:
        return pyarrow.array(column)
    return pyarrow.array(column.tolist())


def _time(value: object) -> str:
    """Return a Unix time as a local date and time.

    With 6 digits, all steps of a training would have the same time.
    """
    try:
        return datetime.fromtimestamp(float(value)).isoformat(" ", "milliseconds")  # type: ignore[arg-type]
    except (ValueError, OverflowError, OSError, TypeError):
        return _cell(value)


def _cell(value: object) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        return f"{value.dtype.name} {value.shape}"
    if isinstance(value, np.ndarray):
        value = value[()]
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    text = str(value)
    return text if len(text) <= 40 and text.isprintable() else shown(text, 40)

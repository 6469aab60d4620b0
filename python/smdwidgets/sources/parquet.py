"""Parquet tables of a training, and the Parquet exports of Neptune.

A table is read like one of CSV: wide with a column for each curve, or long with names in a column of text. The exports
of `smdwidgets export --to parquet` are long tables whose numbers are lists. In Neptune's export, a row is one value of
one attribute of one run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import byte_size, listed, shown, visible
from smdwidgets.exceptions import CorruptDataError, DataError, RunIOError, SMDebugError
from smdwidgets.sources.arrow import MissingPyarrow, arrow_and_parquet
from smdwidgets.sources.columns import LARGEST_STEP, GrowingColumns, Rows, curves_of, last_of_step
from smdwidgets.sources.layout import step_column
from smdwidgets.sources.long_tables import Texts
from smdwidgets.sources.source import Refusal, Scalars, Source
from smdwidgets.sources.tree import Tree, Version
from smdwidgets.sources.whole_files import CurveFiles, WholeFiles

_MAGIC: Final = b"PAR1"
_SUFFIXES: Final = (".parquet", ".pq")
#: Name of the catalog of runs, directly below their prefix. It is no run.
CATALOG: Final = "smdwidgets-catalog.parquet"
#: Bytes of a file's metadata beyond which it is refused.
_LARGEST_FOOTER: Final = 64 << 20
#: Bytes of one column in one group of rows, after decompression, beyond which a file is refused.
_LARGEST_CHUNK: Final = 1 << 30
#: Numbers of a file that are read; a few bytes can stand for billions of equal ones.
_MOST_NUMBERS: Final = 50_000_000
#: Rows that are read at once.
_ROWS: Final = 1 << 16
#: Columns by which an export of Neptune is recognized.
_NEPTUNE: Final = frozenset(("run_id", "attribute_path", "attribute_type", "step", "float_value"))
#: Types of single values in an export of Neptune, and the column that has them.
_SETTINGS: Final = {
    "float": "float_value",
    "int": "int_value",
    "string": "string_value",
    "bool": "bool_value",
    "datetime": "datetime_value",
    "string_set": "string_set_value",
}
_SERIES: Final = "float_series"


class _File:
    """The columns and rows of one file.

    Raises :class:`~smdwidgets.exceptions.DataError`, with the path, for a damaged one.
    """

    def __init__(self, tree: Tree, key: str) -> None:
        self.path = tree.path(key)
        self._arrow, parquet = arrow_and_parquet(f"the Parquet file {shown(self.path, 400)}")
        size = tree.size(key) or 0
        end = tree.read(key, max(0, size - 8), 8)
        footer = int.from_bytes(end[:4], "little")
        if size < 12 or end[4:] != _MAGIC:
            raise CorruptDataError(f"{self.path}, byte {size:,}: the file ends without metadata: it is incomplete")
        if footer > min(size - 12, _LARGEST_FOOTER):
            raise CorruptDataError(
                f"{self.path}, byte {size - 8:,}: metadata of {footer:,} bytes exceed the file or the limit of {_LARGEST_FOOTER:,}"
            )
        try:
            self._file = parquet.ParquetFile(
                tree.open(key),
                memory_map=False,
                pre_buffer=False,
                page_checksum_verification=True,
                thrift_string_size_limit=_LARGEST_FOOTER,
                thrift_container_size_limit=_LARGEST_FOOTER,
            )
            self.schema = self._file.schema_arrow
            self.rows = int(self._file.metadata.num_rows)
        except (self._arrow.ArrowException, OSError, ValueError, OverflowError) as error:
            raise CorruptDataError(f"{self.path}: damaged Parquet file: {visible(error, 300)}") from None

    def is_number(self, name: str) -> bool:
        """Return whether a column has numbers, or lists of them."""
        types, kind = self._arrow.types, self.schema.field(name).type
        kind = kind.value_type if types.is_list(kind) or types.is_large_list(kind) else kind
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))

    def is_text(self, name: str) -> bool:
        """Return whether a column has texts."""
        types, kind = self._arrow.types, self.schema.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return bool(types.is_string(kind) or types.is_large_string(kind))

    def is_time(self, name: str) -> bool:
        """Return whether a column has times."""
        return bool(self._arrow.types.is_timestamp(self.schema.field(name).type))

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield rows of some columns.

        Raises :class:`~smdwidgets.exceptions.DataError`, with the group of rows.
        """
        metadata = self._file.metadata
        for group in range(metadata.num_row_groups):
            about = metadata.row_group(group)
            for at in range(about.num_columns):
                chunk = about.column(at)
                if not 0 <= chunk.total_uncompressed_size <= _LARGEST_CHUNK:
                    raise CorruptDataError(
                        f"{self.path}: column {shown(chunk.path_in_schema, 80)} of row group {group} has "
                        f"{chunk.total_uncompressed_size:,} bytes; the limit is {byte_size(_LARGEST_CHUNK)}"
                    )
            try:
                yield from self._file.iter_batches(
                    batch_size=_ROWS, row_groups=[group], columns=list(names), use_threads=False
                )
            except (self._arrow.ArrowException, OSError, ValueError, OverflowError, RunIOError) as error:
                raise CorruptDataError(
                    f"{self.path}, row group {group}: damaged Parquet file: {visible(error, 300)}"
                ) from None

    def numbers(self, column: Any) -> tuple[NDArray[np.int64], NDArray[np.float64], int]:
        """Return rows and numbers of a column, and how many lists are longer."""
        pa, kind = self._arrow, column.type
        rows = np.arange(len(column))
        longer = 0
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            lengths = pa.compute.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
            longer = int((lengths > 1).sum())
            single = lengths == 1
            rows, column = rows[single], column.filter(pa.array(single)).flatten()
        if pa.types.is_timestamp(column.type):
            values = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
            return *_present(rows, values.cast(pa.float64(), safe=False)), longer
        at, numbers = _present(rows, column.cast(pa.float64(), safe=False))
        return at, numbers, longer

    def texts(self, column: Any) -> Texts:
        """Return the texts of a column."""
        pa = self._arrow
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        rows = np.arange(len(column))[encoded.is_valid().to_numpy(zero_copy_only=False)]
        codes = encoded.indices.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
        return Texts(rows, codes, encoded.dictionary.to_pylist())


def _present(rows: NDArray[np.int64], column: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    there = column.is_valid().to_numpy(zero_copy_only=False)
    return rows[there], column.drop_null().to_numpy(zero_copy_only=False).astype(np.float64)


def _opened(tree: Tree, key: str) -> _File | None:
    """Return a file; None if it is no readable Parquet file."""
    if key.rpartition("/")[2] == CATALOG or tree.head(key, len(_MAGIC)) != _MAGIC:
        return None
    try:
        return _File(tree, key)
    except (DataError, RunIOError, MissingPyarrow):
        return None


def _is_table(tree: Tree, key: str) -> bool:
    file = _opened(tree, key)
    if file is None or _is_neptune(file):
        return False
    numbers = [name for name in file.schema.names if file.is_number(name)]
    step = step_column(numbers)
    return step is not None and len(numbers) > 1


def _is_neptune(file: _File) -> bool:
    return set(file.schema.names) >= _NEPTUNE


def _why_not(tree: Tree, key: str) -> Refusal | None:
    """Return why a Parquet file is not read."""
    if not key.lower().endswith(_SUFFIXES) or tree.head(key, len(_MAGIC)) != _MAGIC:
        return None
    if key.rpartition("/")[2] == CATALOG:
        return Refusal("a catalog of runs")
    try:
        file = _File(tree, key)
    except MissingPyarrow:
        return Refusal("a Parquet file, which needs pyarrow; run: pip install 'smdwidgets[parquet]'")
    except SMDebugError as error:
        return Refusal(str(error).removeprefix(tree.path(key)).lstrip(",: "), True)
    columns = listed([shown(name, 40) for name in file.schema.names], 6)
    return Refusal(
        f"no table of a training: none of its columns of numbers is named step, epoch or iteration: {columns}"
    )


def _name(run: str, files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else run or files[0]


class ParquetTables:
    """The format of Parquet tables: all in a directory are one run."""

    name = "Parquet table"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the tables of each directory."""
        runs: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.named(*_SUFFIXES):
            if tree.recognizes(self.name, key, partial(_is_table, tree, key)):
                runs[key.rpartition("/")[0]].append(key)
        return runs

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the tables of one directory."""
        return ParquetSource(tree, run, files)

    def why_not(self, tree: Tree, key: str) -> Refusal | None:
        """Return why a Parquet file is not read."""
        return _why_not(tree, key)


class ParquetSource(CurveFiles):
    """The tables of one run."""

    def __init__(self, tree: Tree, run: str, files: Sequence[str]) -> None:
        super().__init__(tree, _name(run, files), files)

    def _read(self, key: str, version: Version) -> None:
        file = _File(self._tree, key)
        names = file.schema.names
        # The shape of a tensor that `smdwidgets export` wrote is no curve.
        unread = {"shape"} if {"tensor", "shape", "values"} <= set(names) else set()
        readable = [name for name in names if file.is_number(name) or file.is_text(name) or file.is_time(name)]
        kept = [name for name in readable if name not in unread]
        columns, longer, numbers = GrowingColumns(), 0, 0
        for batch in file.batches(kept):
            cells: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
            texts: dict[str, Texts] = {}
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if file.is_text(name):
                    texts[name] = file.texts(column)
                    continue
                at, values, lists = file.numbers(column)
                longer += lists
                numbers += len(at)
                cells[name] = at, values / 1e6 if file.is_time(name) else values
            columns.append(Rows(len(column), cells, texts))
            if numbers > _MOST_NUMBERS:
                break
        notes = [f"{longer:,} cells have several numbers and are not read"] if longer else []
        if numbers > _MOST_NUMBERS:
            notes.append(
                f"the first {columns.rows:,} of {file.rows:,} rows are read; the limit is {_MOST_NUMBERS:,} numbers"
            )
        curves = curves_of(columns.joined(), fills_gaps=True)
        self._curves[key] = curves._replace(notes=[*notes, *curves.notes])


class NeptuneExports:
    """The format of Neptune's exports: each run has rows in one or several files."""

    name = "Neptune export"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the files of each run, which is named by its directory and its id."""
        runs: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.named(*_SUFFIXES):
            file = _opened(tree, key)
            if file is None or not _is_neptune(file):
                continue
            folder = key.rpartition("/")[0]
            try:
                ids = dict.fromkeys(
                    name for batch in file.batches(["run_id"]) for name in batch.column(0).unique().to_pylist()
                )
            except DataError:
                if tree.is_file:
                    raise
                continue
            for name in ids:
                plain = str(name).replace("/", "_")
                runs[f"{folder}/{plain}" if folder else plain].append(key)
        return runs

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of one run."""
        return NeptuneSource(tree, run, files)


class NeptuneSource(WholeFiles):
    """The rows of one run in the files of an export."""

    def __init__(self, tree: Tree, run: str, files: Sequence[str]) -> None:
        super().__init__(tree, _name(run, files), files)
        self._run = run.rpartition("/")[2]
        self._series: dict[str, dict[str, list[tuple[NDArray[np.float64], ...]]]] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        self._left_out: dict[str, set[str]] = {}

    def _read(self, key: str, version: Version) -> None:
        file = _File(self._tree, key)
        pa, _ = arrow_and_parquet("Neptune's export")
        names = ["run_id", "attribute_path", "attribute_type", "step", "timestamp", *_SETTINGS.values()]
        names = [name for name in names if name in file.schema.names]
        series: defaultdict[str, list[tuple[NDArray[np.float64], ...]]] = defaultdict(list)
        settings: dict[str, Any] = {}
        left_out: set[str] = set()
        for batch in file.batches(names):
            ids = batch["run_id"].cast(pa.string()).to_pylist()
            mine = batch.filter(pa.array([str(one).replace("/", "_") == self._run for one in ids], pa.bool_()))
            kinds = mine["attribute_type"].cast(pa.string())
            for kind in kinds.unique().to_pylist():
                part = mine.filter(pa.compute.equal(kinds, kind))
                if kind == _SERIES:
                    for name, columns in _of_series(file, part):
                        series[name].append(columns)
                elif kind in _SETTINGS and _SETTINGS[kind] in names:
                    paths = part["attribute_path"].cast(pa.string()).to_pylist()
                    settings |= dict(zip(paths, map(_plain, part[_SETTINGS[kind]].to_pylist()), strict=True))
                else:
                    left_out.add(str(kind))
        self._series[key], self._settings[key], self._left_out[key] = dict(series), settings, left_out

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the series of numbers."""
        names = dict.fromkeys(name for of_file in self._series.values() for name in of_file)
        curves = {}
        for name in names:
            parts = [part for of_file in self._series.values() for part in of_file.get(name, ())]
            steps, times, values = (np.concatenate(column) for column in zip(*parts, strict=True))
            order = np.argsort(steps, kind="stable")
            steps, times, values = steps[order], times[order], values[order]
            there = (steps >= 0) & (steps < LARGEST_STEP)
            steps, times, values = steps[there], times[there], values[there]
            if (steps != np.floor(steps)).any():  # Neptune's steps may be fractions
                whole = np.arange(len(steps))
            else:
                whole = steps.astype(np.int64)
            keep = last_of_step(whole)
            curves[visible(name, 400)] = Scalars(whole[keep], values[keep], times[keep])
        return curves

    def hparams(self) -> Mapping[str, Any]:
        """Return the single values: settings, scores, names."""
        return {name: value for of_file in self._settings.values() for name, value in of_file.items()}

    def identity(self) -> Mapping[str, str]:
        """Return name, owner and group of the run."""
        names = {"sys/name": "name", "sys/owner": "owner", "sys/group_tags": "group"}
        return {names[name]: str(value) for name, value in self.hparams().items() if name in names and value}

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return the types of attributes that are not read."""
        return [
            (key, f"{self._tree.path(key)}: not read: attributes of the type {listed(sorted(kinds), 8)}")
            for key, kinds in self._left_out.items()
            if kinds
        ]


def _of_series(file: _File, part: Any) -> Iterator[tuple[str, tuple[NDArray[np.float64], ...]]]:
    """Yield name, and steps, times and values, of each series in some rows."""
    paths = file.texts(part["attribute_path"])
    steps, times, values = np.full((3, len(part)), math.nan)
    for column, name in ((steps, "step"), (times, "timestamp"), (values, "float_value")):
        if name in part.schema.names:
            at, numbers, _ = file.numbers(part[name])
            column[at] = numbers / 1e6 if file.is_time(name) else numbers
    order = np.argsort(paths.codes, kind="stable")
    ends = np.flatnonzero(np.diff(paths.codes[order])) + 1
    for rows in np.split(order, ends):
        if len(rows):
            at = paths.at[rows]
            yield paths.words[paths.codes[rows[0]]], (steps[at], times[at], values[at])


def _plain(value: Any) -> Any:
    """Return a setting as a number, a text or a boolean."""
    if isinstance(value, list | tuple | set):
        return ", ".join(map(str, value))
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

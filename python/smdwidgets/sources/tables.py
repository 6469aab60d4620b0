"""Tables of numbers by step: CSV, TSV, JSON lines, also while they grow.

A table has a column of steps or epochs; Lightning's ``metrics.csv``, Keras' ``CSVLogger``, YOLO's ``results.csv``,
Stable-Baselines' ``progress.csv`` and DVCLive's TSV files are such tables.
"""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from smdwidgets._text import visible
from smdwidgets.exceptions import RunIOError
from smdwidgets.naming.scalars import ROLE_WORDS, Role, describe
from smdwidgets.sources.columns import (
    NO_ROWS,
    Curves,
    GrowingColumns,
    Rows,
    agree,
    curves_of,
    rows_of_cells,
    rows_of_objects,
    with_steps,
)
from smdwidgets.sources.known_tables import known_table
from smdwidgets.sources.layout import (
    Layout,
    distinct,
    json_row,
    layout_of,
    quoting_of,
    split,
    step_column,
    step_in,
    without_controls,
)
from smdwidgets.sources.settings import Settings, read_settings
from smdwidgets.sources.source import Scalars, Source
from smdwidgets.sources.tree import HEAD, TAIL, Tree
from smdwidgets.sources.unnumbered import unnumbered

SUFFIXES: Final = (".csv", ".tsv", ".tab", ".dat", ".jsonl", ".ndjson", ".json", ".txt", ".log")
#: Files beside a table with the settings of its run.
_SETTINGS: Final = ("hparams.yaml", "params.yaml", "args.yaml")
#: DVCLive writes each metric to a separate file below this directory.
_ONE_METRIC_EACH: Final = "plots/metrics/"
#: CatBoost's tables of one data set, and the data.
_OF_CATBOOST: Final = {"learn_error.tsv": "train/", "test_error.tsv": "test/"}
#: The name of a curve that TensorBoard exports to a file with the columns ``Wall time, Step, Value``.
_OF_TENSORBOARD: Final = re.compile(r"-tag-([^/]+)\.csv$")
#: Columns that are read of one table.
MOST_COLUMNS: Final = 10_000
#: Bytes of a first line.
_LONGEST_HEADER: Final = 32 << 20
#: Bytes that are parsed at once.
_PIECE: Final = 8 << 20
#: Seconds after which a last line without a line end counts as complete.
_COMPLETE_AFTER: Final = 5.0


class Tables:
    """The format of tables."""

    name = "table"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the tables of each directory."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.named(*SUFFIXES):
            if tree.recognizes(self.name, key, partial(_is_table, tree, key)):
                found[_place(key)[0]].append(key)
        return found

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the tables of one directory."""
        return TableSource(tree, run, files)


def _place(key: str) -> tuple[str, str]:
    """Return the run of a table, and the prefix of the names of its columns.

    >>> _place("dvclive/plots/metrics/train/loss.tsv"), _place("logs/val.csv"), _place("metrics.csv")
    (('dvclive', 'train/'), ('logs', 'val/'), ('', ''))
    """
    folder, slash, _ = f"/{key}".rpartition("/" + _ONE_METRIC_EACH)
    if slash:
        below = key[len(folder + slash) - 1 :]
        return folder.lstrip("/"), below.rpartition("/")[0] + ("/" if "/" in below else "")
    run, _, name = key.rpartition("/")
    stem = name.partition(".")[0]
    return run, _OF_CATBOOST.get(name, f"{stem}/" if stem.lower() in ROLE_WORDS else "")


def _is_table(tree: Tree, key: str) -> bool:
    return table_layout(_beginning(tree, key), key) is not None


def table_layout(beginning: bytes, key: str) -> Layout | None:
    """Return the layout of a table of a training, or None for any other file.

    >>> table_layout(b"step,loss\\n1,2\\n", "a.csv").header, table_layout(b"name,age\\nann,1\\n", "a.csv")
    ('step,loss', None)
    """
    return known_table(beginning) or layout_of(beginning) or unnumbered(beginning, _stem(key))


def _stem(key: str) -> str:
    return key.rpartition("/")[2].rpartition(".")[0]


def _beginning(tree: Tree, key: str) -> bytes:
    """Return the beginning of a file, of a table with all names of columns."""
    head = tree.head(key)
    if len(head) < HEAD or b"\n" in head or not key.endswith((".csv", ".tsv")):
        return head
    return tree.head(key, _LONGEST_HEADER).partition(b"\n")[0] + b"\n"


class TableSource(Source):
    """The tables of one run."""

    def __init__(self, tree: Tree, run: str, files: Sequence[str]) -> None:
        self.name = files[0] if len(files) == 1 else run or "tables"
        self._tree = tree
        self._tables = [_Table(tree, key) for key in files]
        base = run + "/" if run else ""
        self._settings = [base + name for name in _SETTINGS]

    def refresh(self) -> bool:
        """Read new rows."""
        changed = False
        for table in self._tables:
            changed |= table.refresh()
        return changed

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the columns of all tables, with the file if two share a name."""
        found: dict[str, Scalars] = {}
        for table in self._tables:
            columns = table.scalars()
            prefix = _place(table.key)[1]
            if prefix and any(describe(name).role is not Role.NONE for name in columns):
                prefix = ""  # the columns tell themselves what they were measured on
            for name, scalars in columns.items():
                own = prefix + name
                if own in found:
                    joined = _joined(found[own], scalars)
                    if joined is None:
                        own = f"{own} ({table.key.rpartition('/')[2]})"
                    scalars = joined or scalars
                found[own] = scalars
        return found

    def hparams(self) -> Mapping[str, Any]:
        """Return the settings in a file beside the table."""
        settings = [self._read_settings(key) for key in self._settings if self._tree.size(key)]
        return {name: value for file in settings for name, value in file.values.items()}

    def _read_settings(self, key: str) -> Settings:
        return read_settings(self._tree.head(key).decode("utf-8", "replace"))

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age([table.key for table in self._tables])

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return what could not be read."""
        return [(table.key, message) for table in self._tables for message in table.problems]

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return the tables and settings that are not read, or not all of them."""
        tables = [(table.key, message) for table in self._tables for message in table.unsupported]
        notes = [(key, self._read_settings(key).note) for key in self._settings if self._tree.size(key)]
        return [*tables, *((key, f"{self._tree.path(key)}: {note}") for key, note in notes if note)]


def _joined(one: Scalars, other: Scalars) -> Scalars | None:
    """Return the longer of two scalars with the same numbers; None if they differ.

    >>> short, long = (Scalars(np.arange(count), np.arange(count) / 2) for count in (2, 3))
    >>> _joined(short, long).steps.tolist(), _joined(short, Scalars(np.arange(3), np.arange(3)))
    ([0, 1, 2], None)
    """
    if not agree(one, other):
        return None
    longer, shorter = (one, other) if len(one.steps) >= len(other.steps) else (other, one)
    return longer if np.isin(shorter.steps, longer.steps).all() else None


class _Table:
    """One file, which may grow or be rewritten."""

    def __init__(self, tree: Tree, key: str) -> None:
        self.key = key
        self._tree = tree
        self._version: tuple[int, int, int] | None = None
        self._layout: Layout | None = None
        self._start_over()

    def _start_over(self) -> None:
        self._columns = GrowingColumns()
        self._names: list[str] = []
        #: The cells of the first line.
        self._heading: list[str] = []
        #: Offset of the first line that was not read.
        self._end = 0
        self._tail = b""
        #: The last line, if it has no line end.
        self._open_line = NO_ROWS
        #: The scalars of the rows that were read.
        self._curves: Curves | None = None
        self._pending = False
        self._bad_rows = 0
        self._first_bad = 0
        self.problems: list[str] = []
        self.unsupported: list[str] = []

    def refresh(self) -> bool:
        """Read new rows; read everything if the file was rewritten."""
        version = self._tree.version(self.key)
        if version is None:
            return False  # what was read of a deleted file is kept
        if version == self._version and not self._pending:
            return False
        try:
            changed = self._read_new(version[0])
        except RunIOError as error:
            self.problems = [str(error)]
            return True
        self._version = version
        return changed

    def _read_new(self, size: int) -> bool:
        head = _beginning(self._tree, self.key)
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            self.unsupported = [f"{self._tree.path(self.key)}: UTF-16 is not supported; convert the file to UTF-8"]
            return True
        layout = table_layout(head, self.key)
        if layout is None and self._tail:
            layout = self._layout  # rows below may be no rows of a table; a table that was read remains one
        rewritten = layout != self._layout or size < self._end
        if not rewritten and self._tail and not self._tree.still_has(self.key, self._tail, self._end):
            rewritten, layout = True, table_layout(head, self.key)
        if rewritten:
            self._start_over()
            self._layout = layout
            self._begin(layout)
        if self._layout is None:
            return rewritten
        before = self._columns.rows, self._open_line.length
        while self._read_piece():
            pass
        self._curves = None
        self._note_problems()
        return rewritten or (self._columns.rows, self._open_line.length) != before or bool(self._open_line.length)

    def _begin(self, layout: Layout | None) -> None:
        if layout is None or layout.json_lines:
            return
        self._end = layout.start
        self._heading = [name.strip() for name in split(layout.header, layout.separator)]
        names = [*layout.names] or distinct(self._heading)
        if len(names) > MOST_COLUMNS:
            step = step_column(names)
            self.unsupported.append(
                f"{self._tree.path(self.key)}, line 1: {len(names):,} columns; the first {MOST_COLUMNS:,} are read"
            )
            self._step_beyond = names.index(step) if step in names[MOST_COLUMNS:] else None
        self._names = names

    def _read_piece(self) -> bool:
        """Read the next lines. Return whether there may be more."""
        size, taken = _PIECE, b""
        line_end = b"\n" if self._layout is None else self._layout.line_end
        while True:
            taken = self._tree.read(self.key, self._end, size)
            whole = taken[: taken.rfind(line_end) + 1]
            if not self._is_json and whole.count(b'"') % 2:
                # The last line end may be within quotes.
                cut = whole.rfind(line_end, 0, whole.rfind(b'"'))
                balanced = whole[: cut + 1]
                whole = balanced if balanced.count(b'"') % 2 == 0 and len(taken) == size else whole
            if whole or len(taken) < size:
                break
            size *= 4  # a very long line
        if whole:
            self._columns.append(self._parsed(whole))
            self._end += len(whole)
            self._tail = whole[-TAIL:]
        if len(taken) == size:
            return True
        rest = taken[len(whole) :]
        self._pending = bool(rest.strip())
        self._open_line = NO_ROWS
        if self._pending and (self._tree.age([self.key]) or 0) >= _COMPLETE_AFTER:
            self._pending = False
            bad = self._bad_rows, self._first_bad
            self._open_line = self._parsed(rest)
            self._bad_rows, self._first_bad = bad
        return False

    @property
    def _is_json(self) -> bool:
        return self._layout is not None and self._layout.json_lines

    def _parsed(self, data: bytes) -> Rows:
        """Return the rows in some lines."""
        text = without_controls(data.decode("utf-8", "replace")).removeprefix("\ufeff").replace("\0", "")
        if self._is_json:
            rows = [json_row(line) for line in text.split("\n") if line.strip()]
            good = [row for row in rows if row is not None]
            self._count_bad(len(rows) - len(good))
            return rows_of_objects(good)
        lines = self._cells(text)
        width = len(self._names)
        kept = [cells for cells in lines if len(cells) == width]
        if len(kept) < len(lines):
            # A row may lack its last cells, or end with a separator.
            usable = [cells for cells in lines if cells and not (len(cells) == 1 and not cells[0].strip())]
            self._count_bad(sum(1 for cells in usable if len(cells) != width and any(map(str.strip, cells[width:]))))
            kept = [(cells + [""] * width)[:width] for cells in usable]
        if kept and [cell.strip() for cell in kept[0]] == self._heading:
            kept = kept[1:]
        columns = [at for at in range(min(width, MOST_COLUMNS)) if self._names[at]]
        if width > MOST_COLUMNS and self._step_beyond is not None:
            columns.append(self._step_beyond)
        by_name = {self._names[at]: [cells[at] for cells in kept] for at in columns}
        step = step_column(by_name)
        if step is not None:
            by_name[step] = [step_in(cell) for cell in by_name[step]]
        return rows_of_cells(by_name, len(kept))

    _step_beyond: int | None = None

    def _cells(self, text: str) -> list[list[str]]:
        separator = None if self._layout is None else self._layout.separator
        if separator is None:
            return [line.split() for line in text.split("\n")]
        try:
            lines = csv.reader(
                io.StringIO(text, newline=""), delimiter=separator, quoting=quoting_of(text), skipinitialspace=True
            )
            return list(lines)
        except csv.Error:  # a cell of more than 128 KiB
            return [line.split(separator) for line in text.split("\n")]

    def _count_bad(self, count: int) -> None:
        if count and not self._bad_rows:
            self._first_bad = self._end
        self._bad_rows += count

    def _note_problems(self) -> None:
        path = self._tree.path(self.key)
        own = (f"{path}, from byte ", f"{path}: ")
        self.problems = [one for one in self.problems if not one.startswith(own)]
        self.unsupported = [one for one in self.unsupported if not one.startswith(own)]
        if self._bad_rows:
            what = "are not JSON objects" if self._is_json else "have more cells than the header"
            self.problems.append(f"{own[0]}{self._first_bad}: {self._bad_rows:,} rows {what}")
        curves = self._read_curves()
        self.problems += [own[1] + one for one in curves.problems]
        self.unsupported += [own[1] + one for one in curves.notes]

    def _read_curves(self) -> Curves:
        if self._curves is None:
            rows = self._columns.joined(self._open_line)
            summed = "" if self._layout is None else self._layout.summed
            self._curves = curves_of(with_steps(rows, summed) if summed else rows, fills_gaps=not self._is_json)
        return self._curves

    def scalars(self) -> dict[str, Scalars]:
        """Return the scalars by column, or by name if the table is long."""
        scalars_by_name = {visible(name, 400): scalars for name, scalars in self._read_curves().scalars.items()}
        stem = _stem(self.key)
        if [*scalars_by_name] != ["Value"] or stem.lower() in ROLE_WORDS:
            return scalars_by_name
        # The file has the name of the curve, or the one that TensorBoard gives it.
        export = _OF_TENSORBOARD.search(self.key)
        return {visible(export[1] if export else stem, 400): scalars_by_name["Value"]}

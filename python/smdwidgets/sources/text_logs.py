"""Text logs: the lines of known trainers, or names and numbers that repeat."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

import numpy as np

from smdwidgets._text import shown
from smdwidgets.exceptions import RunIOError
from smdwidgets.sources.growing_lines import GrowingLines, parts_of
from smdwidgets.sources.log_columns import ColumnReader
from smdwidgets.sources.log_lines import Reader
from smdwidgets.sources.log_pairs import LONGEST_LINE, Row, has_numbers
from smdwidgets.sources.log_trainers import TRAINERS, Trainer
from smdwidgets.sources.markdown_tables import MarkdownTables
from smdwidgets.sources.source import Scalars, Source
from smdwidgets.sources.step_columns import StepColumns
from smdwidgets.sources.tables import table_layout
from smdwidgets.sources.tree import HEAD, Tree
from smdwidgets.sources.utf16 import as_utf8, encoding_of

SUFFIXES: Final = (".log", ".txt", ".out", ".err", ".stdout", ".stderr")
#: Bytes in which the lines of a trainer are looked for. Some print all their settings first.
_SEARCHED: Final = 2 << 20
#: Lines by which a log is recognized.
ENOUGH: Final = 3
#: Lines of numbers after which a trainer is known.
_SURE: Final = 50
#: Lines with the same number after which there is no trainer if none of it came before.
_SURE_OF_NONE: Final = 1000
#: Larger numbers of steps in a text are cut.
_LARGEST_STEP: Final = 2**53
#: Rows that become columns at once.
_ROWS: Final = 50_000
#: Names in the lines of CatBoost that do not say what they measure.
_CATBOOST: Final = {"learn", "test", "best"}
#: What the lines of trainers contain, with the number of the trainer.
_MARKS: Final = tuple((line.mark, at) for at, trainer in enumerate(TRAINERS) for line in trainer.lines)
#: Name of the reader for lines of no known trainer.
_ANY: Final = "names and numbers that repeat"
#: Endings of texts whose tables are read, and nothing else where they have any.
MARKDOWN: Final = (".md", ".markdown")


class TextLogs:
    """The format of text logs. It counts where a directory has no other."""

    name = "text log"
    #: Whether the files count only where no other format has any.
    is_last_resort = True

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the logs of each directory."""
        logs: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.keys if tree.is_file else tree.named(*SUFFIXES, *MARKDOWN):
            if tree.recognizes(self.name, key, partial(_is_log, tree, key)):
                logs[key.rpartition("/")[0]].append(key)
        return logs

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the logs of one directory."""
        return TextLogSource(tree, files)


def _is_log(tree: Tree, key: str) -> bool:
    data = tree.head(key)
    head = _text(data)
    if b"\0" in head or table_layout(head, key) is not None:
        return False
    if key.lower().endswith(MARKDOWN):
        has_tables = _has_tables(tree, key)
        if has_tables or not tree.is_file:  # else it is a page that mentions numbers
            return has_tables
    if _trainer_of_text(head) is not None:
        return True
    return len(data) == HEAD and _trainer_of_text(_text(tree.head(key, _SEARCHED))) is not None


def _has_tables(tree: Tree, key: str) -> bool:
    """Whether a text has tables of a training in Markdown."""
    return _are_tables(_text(tree.head(key, _SEARCHED)))


@lru_cache(maxsize=4)  # as below
def _are_tables(text: bytes) -> bool:
    tables = MarkdownTables()
    return sum(tables.read(line) is not None for line in _lines(text)) >= ENOUGH


def _text(beginning: bytes) -> bytes:
    return as_utf8(beginning, encoding_of(beginning))


@lru_cache(maxsize=4)  # a log is looked at when it is listed, opened and read
def _trainer_of_text(text: bytes) -> Trainer | str | None:
    return trainer_of(_lines(text))


def _trainer_in(tree: Tree, key: str) -> Trainer | str | None:
    """Return the trainer of a log.

    The beginning is enough where it has lines of a known one.
    """
    trainer = _trainer_of_text(_text(tree.head(key)))
    return trainer if isinstance(trainer, Trainer) else _trainer_of_text(_text(tree.head(key, _SEARCHED)))


def _lines(data: bytes) -> Iterable[str]:
    for line in data.split(b"\n"):
        if len(line) <= LONGEST_LINE:
            yield from parts_of(line)


def trainer_of(lines: Iterable[str]) -> Trainer | str | None:
    """Return the trainer that printed a text.

    It is ``""`` for another log, and None for text that is no log.

    >>> trainer_of(f"[{i}]\\ttrain-rmse:0.5" for i in range(5)).name
    'XGBoost'
    >>> trainer_of(f"epoch {i}: loss 0.5" for i in range(5)), trainer_of(["numpy==2.1"] * 5)
    ('', None)
    """
    readers = [Reader(trainer) for trainer in TRAINERS]
    lines_of: Counter[int] = Counter()
    in_block: set[int] = set()
    any_reader, names = ColumnReader(), Counter[str]()
    for line in lines:
        if len(line) > LONGEST_LINE:
            continue
        # A line is none of most trainers, and asking all of them takes longer than all else.
        asked = sorted(in_block | {at for mark, at in _MARKS if mark in line})
        rows = [at for at in asked if readers[at].read(line) is not None]
        in_block = {at for at in asked if readers[at].in_block}
        lines_of.update(rows)
        if rows and lines_of[rows[0]] >= _SURE:
            break
        if any(readers[at].recognized and readers[at].has_step for at in asked):
            continue
        if (row := any_reader.read(line)) is not None:
            names.update(row.values.keys())
            if not lines_of and any(names[name] >= _SURE_OF_NONE for name in row.values):
                break
    # Lines of a trainer without any that has a step are not its own: "Validation accuracy: 0.5".
    if lines_of := Counter({at: count for at, count in lines_of.items() if readers[at].has_step}):
        best = max(lines_of, key=lambda at: lines_of[at])
        if lines_of[best] > 1 and lines_of[best] >= max(names.values(), default=0):
            return TRAINERS[best]
    return "" if max(names.values(), default=0) >= ENOUGH else None


class TextLogSource(Source):
    """The logs of one run."""

    def __init__(self, tree: Tree, files: Sequence[str]) -> None:
        self._tree = tree
        self._logs = [_Log(tree, key) for key in files]
        self.name = files[0] if len(files) == 1 else files[0].rpartition("/")[0] or "text logs"

    def refresh(self) -> bool:
        """Read new lines."""
        changed = [log.refresh() for log in self._logs]
        return any(changed)

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the numbers by name, with the file if two logs share a name."""
        series: dict[str, Scalars] = {}
        for log in self._logs:
            for name, scalars in log.scalars().items():
                own = name if name not in series else f"{name} ({log.key.rpartition('/')[2]})"
                series[own] = scalars
        return series

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age([log.key for log in self._logs])

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return what could not be read."""
        return [(log.key, log.problem) for log in self._logs if log.problem]

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return how each log was read, and which numbers were left out."""
        return [(log.key, f"{self._tree.path(log.key)}: {note}") for log in self._logs for note in log.notes()]


def _of_catboost(series: Mapping[str, Scalars]) -> dict[str, Scalars]:
    """Return the numbers of CatBoost with names that say what they are.

    Its lines do not name the function. It is a loss if the best value is the least one.
    """
    best, test = series["best"].values, series["test"].values
    is_loss = not len(best) or not len(test) or best[-1] <= np.nanmin(test)
    names = {
        of: f"{role}/{'loss' if is_loss else 'score'}" for of, role in (("learn", "train"), ("test", "validation"))
    }
    return {names.get(name, name): one for name, one in series.items()}


class _Log:
    """One file, which may grow or be rewritten."""

    def __init__(self, tree: Tree, key: str) -> None:
        self.key = key
        self.problem = ""
        self._tree = tree
        self._lines = GrowingLines(tree, key)
        self._start_over()

    def _start_over(self) -> None:
        self._columns = StepColumns()
        self._reader: Reader | ColumnReader | MarkdownTables | None = None
        self._how = ""
        self._left_out = 0
        self._first_left_out = (0, "")

    def refresh(self) -> bool:
        """Read new lines; read everything if the file was rewritten."""
        if not self._lines.changed():
            return False
        try:
            rewritten = self._lines.rewritten()
            if rewritten:
                self._start_over()
            before = self._columns.rows
            self._read_new()
        except RunIOError as error:
            self.problem = str(error)
            return True
        self.problem = ""
        return rewritten or self._columns.rows != before

    def _read_new(self) -> None:
        if self._reader is None and self.key.lower().endswith(MARKDOWN) and _has_tables(self._tree, self.key):
            self._reader, self._how = MarkdownTables(), "tables of Markdown"
        if self._reader is None:
            trainer = _trainer_in(self._tree, self.key)
            if trainer is None:
                return
            self._reader = Reader(trainer) if isinstance(trainer, Trainer) else ColumnReader()
            self._how = f"lines of {trainer.name}" if isinstance(trainer, Trainer) else _ANY
        rows: list[Row] = []
        for number, line in self._lines.new():
            if len(line) > LONGEST_LINE:
                self._leave_out(number, line[:200])
                continue
            row = self._reader.read(line)
            if row is None and not (isinstance(self._reader, Reader) and self._reader.recognized):
                row = self._reader.beside(line) if isinstance(self._reader, Reader) else None
                if row is None and not isinstance(self._reader, MarkdownTables) and has_numbers(line):
                    self._leave_out(number, line)
            if row is not None:
                rows.append(row)
            if len(rows) >= _ROWS:
                self._append(rows)
                rows = []
        self._append(rows)

    def _leave_out(self, number: int, line: str) -> None:
        if not self._left_out:
            self._first_left_out = number, line
        self._left_out += 1

    def _append(self, rows: Sequence[Row]) -> None:
        self._columns.append([row.values for row in rows], [min(row.step, _LARGEST_STEP) for row in rows])

    def scalars(self) -> dict[str, Scalars]:
        """Return the numbers by name; of no known trainer, those that repeat."""
        series = self._columns.scalars(least=1 if isinstance(self._reader, Reader) else 2)
        return _of_catboost(series) if series.keys() >= _CATBOOST else series

    def notes(self) -> list[str]:
        """Return how the log was read, if numbers were left out."""
        notes = []
        if self._left_out:
            number, line = self._first_left_out
            what = "line with numbers is" if self._left_out == 1 else "lines with numbers are"
            notes.append(
                f"read as {self._how}; {self._left_out:,} other {what} not read, the first is line {number:,}: {shown(line.strip(), 100)}"
            )
        return notes + self._columns.notes

"""TensorBoard event files as a run.

The index is :class:`smdwidgets._core.EventLog`. It stores scalars as columns and the file locations of all other
values.
"""
# Methods are described in `Run`.
# ruff: noqa: D102

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._patterns import Patterns
from smdwidgets.config.collection import Collection
from smdwidgets.config.collection_manager import CollectionManager
from smdwidgets.exceptions import DataError, RunFileMissing, RunIOError, RunNotFound, UFuncTypeError
from smdwidgets.modes import ModeKeys
from smdwidgets.naming.scalars import Kind, kinds_of
from smdwidgets.storage.local import LocalStorage
from smdwidgets.storage.protocol import Range, Storage, reads_at_once
from smdwidgets.trials.run import (
    REDUCTIONS,
    SWEEP,
    CollectionFiles,
    Course,
    Getter,
    Reductions,
    Row,
    Run,
    Selection,
    SweepOptions,
    Values,
)
from smdwidgets.trials.statistics.tensorboard import histogram_statistics, with_statistics
from smdwidgets.trials.tables import Table, key_columns
from smdwidgets.trials.tensorboard.layout import Directory, FirstTags, is_event_file, runs_of
from smdwidgets.trials.tensorboard.numbers import MOST, Numbers
from smdwidgets.trials.tensorboard.values import value_of

#: Seconds without writes after which a run is considered ended.
QUIET = 3600.0
#: Bytes of a file by which it is recognized. They contain the time at which it was begun.
_HEAD = 48
#: Seconds between two checks of a run in a bucket for another run in the same place.
_CHECK_REPLACED_EVERY = 10.0

#: A sweep reads all numbers at once unless it reads fewer than this part of the log.
_PARTS: Final = 64

_KINDS: Final = {
    "scalar": "scalars",
    "histogram": "histograms",
    "image": "images",
    "audio": "audio",
    "text": "text",
    "hparams": "hparams",
    "pr_curve": "pr_curves",
    "tensor": "tensors",
}
#: Kinds of scalars by the collection that they are also in.
_BY_NAME: Final = {"losses": Kind.LOSS, "metrics": Kind.METRIC}


class TensorBoardRun(Run):
    """One run of a log: a directory of event files, or one directory per mode."""

    damage = "unusable records"
    undamaged = "all other records were read"

    def __init__(
        self,
        storage: Storage,
        directories: Sequence[Directory],
        run: str = "",
        *,
        first_step: int | None = None,
        end_step: int | None = None,
        keep_orphans: bool = False,
        live: bool | None = None,
        cache: str | None = None,
        hold: bool = False,
        files: Sequence[str] | None = None,
    ) -> None:
        self.storage = storage
        self.path = "/".join([storage.url.rstrip("/"), run]) if run else storage.url
        self._name = run
        self._directories = list(directories)
        kept = None if cache is None else (cache, storage.url)
        self._log_options = keep_orphans, first_step, end_step, kept, hold
        #: The files to read; None: all. Takes effect when the run starts over.
        self.chosen_files = None if files is None else list(files)
        self._hold = hold
        self._live = live
        self._patterns = Patterns()
        self.start_over()

    @property
    def directories(self) -> list[Directory]:
        """The directories of the run."""
        return self._directories

    def start_over(self) -> None:
        self.log = _core.EventLog(self._lanes(), *self._log_options, self.chosen_files)
        self.index = self.log
        self._first_tag = FirstTags(self.storage)
        self._collections_names = -1
        self._kinds: dict[str, str] = {}
        #: The numbers of the log, and its generation when they were read.
        self._numbers: tuple[int, Numbers | None] = -1, None
        self._fetched = _core.Fetched(self._fetch, reads_at_once(self.storage))
        self._files: _core.Files | _core.Fetched = self._fetched
        self._sizes: dict[str, int] = {}
        self._next_check = time.monotonic() + _CHECK_REPLACED_EVERY

    def _lanes(self) -> list[tuple[str, str, int, str]]:
        """Return the directories of the log, as `_core.EventLog` expects them."""
        return [(one.path, one.worker, one.mode.value, one.suffix) for one in self._directories]

    # ----------------------------------------------------------------------------------------------------- replacing

    def replaced_at(self) -> float | None:
        if self._hold or time.monotonic() < self._next_check:
            return None
        self._next_check = time.monotonic() + _CHECK_REPLACED_EVERY
        keys = set(self._listed())
        if any(key in keys and self._sizes.get(key, read) >= read for key, read, _ in self.log.files() if read):
            return None
        return self._begun(keys)

    def _begun(self, keys: Iterable[str]) -> float | None:
        """Return when the first of these files was last written; None without one."""
        ages = [self.storage.age(key) for key in keys if is_event_file(key)]
        known = [age for age in ages if age is not None]
        return time.time() - max(known) if known and any(read for _, read, _ in self.log.files()) else None

    # ------------------------------------------------------------------------------------------------- refreshing

    def check(self) -> None:
        if not any(is_event_file(key) for key in self._listed()):
            raise RunNotFound(self.path, "no TensorBoard event files found")

    def _listed(self) -> Iterator[str]:
        """Yield the keys of the run and store sizes, so that only grown files are read."""
        prefix = self._name + "/" if self._name else ""
        listing = getattr(self.storage, "listing", None)
        if listing is None:
            yield from self.storage.list(prefix)
            return
        for found in listing(prefix, measured=is_event_file):
            if found.size is not None:
                self._sizes[found.key] = found.size
            yield found.key

    def refresh(self) -> None:
        keys = [key for key in self._listed() if is_event_file(key)]
        self._lay_out(keys)
        self.log.add_keys(keys)
        self.log.refresh(self._fetched)

    def _lay_out(self, keys: Sequence[str]) -> None:
        """Update the directories: validation starts after the first epoch, for example."""
        directories = runs_of(keys, self._first_tag).get(self._name)
        if directories is not None and directories != self._directories:
            self._directories = directories
            self.log.lay_out(self._lanes())

    def _fetch(self, key: str, offset: int, length: int) -> bytes:
        size = self._sizes.get(key)
        if size is not None:
            length = min(length, size - offset)
            if length <= 0:
                return b""
        [data] = self.storage.read_ranges([Range(key, offset, length)])
        return bytes(data)

    @property
    def numbers_steps(self) -> bool:
        return any(directory.mode != ModeKeys.GLOBAL for directory in self._directories)

    def end_age(self) -> float | None:
        if self._live is not None:
            return None if self._live else QUIET
        age = self.silence()
        return None if age is None or age < QUIET else age

    def says_ended(self) -> bool:
        return False  # event files have no end marker

    def silence(self) -> float | None:
        ages = (self.storage.age(key) for key, read, _ in self.log.files() if read)
        return min((age for age in ages if age is not None), default=None)

    def collections(self) -> CollectionFiles | None:
        self.refreshed_for_collections = self.log.generation == 0
        if self.refreshed_for_collections:
            self.refresh()
        if self.log.num_names() == self._collections_names:
            return None
        series = self.log.series()
        self._collections_names = len(series)
        manager = CollectionManager(create_default=True)
        manager.add(Collection("all", include_regex=[".*"]))
        for name, _, kind, _, _ in series:
            manager.get(_KINDS[kind]).add_tensor_name(name)
        kinds = kinds_of(name for name, _, kind, _, _ in series if kind == "scalar")
        for collection, of_kind in _BY_NAME.items():
            members = [name for name, kind in kinds.items() if kind is of_kind]
            manager.add(Collection(collection, tensor_names=members))
        return CollectionFiles(manager, frozenset(self.log.workers()), 1)

    # ---------------------------------------------------------------------------------------------------- reading

    def getter(self) -> Getter:
        number, find = self.log.number, self.log.find

        def get(name: str, step: int, worker: str | None = None) -> NDArray[Any] | None:
            found = number(name, step, worker)
            if found is not None:
                return np.array(found)
            entry = find(name, step, worker)
            return None if entry is None else self.value(entry)

        return get

    def events(self, entries: Sequence[_core.Logged]) -> list[_core.Event]:
        """Return the events of non-scalar values."""
        stored = [self.log.stored_value(entry) for entry in entries]
        wanted = [entry for entry, data in zip(entries, stored, strict=True) if data is None]
        read = iter(self._read(wanted) if wanted else ())
        return [
            _core.event_of(next(read) if data is None else data, entry.step, entry.wall_time)
            for entry, data in zip(entries, stored, strict=True)
        ]

    def _read(self, entries: Sequence[_core.Logged]) -> list[bytes]:
        read = self.storage.read_ranges([Range(entry.event_key, entry.offset, entry.length) for entry in entries])
        for entry, data in zip(entries, read, strict=True):
            if len(data) < entry.length:
                raise RunIOError(
                    f"{entry.event_key}, byte {entry.offset}: truncated data: expected {entry.length} bytes, got {len(data)}; the file was "
                    "truncated after it was indexed; reopen the run"
                )
        return [entry.checked(bytes(data)) for entry, data in zip(entries, read, strict=True)]

    def value(self, entry: _core.Logged) -> NDArray[Any]:
        if entry.number is not None:
            return np.array(entry.number)
        [event] = self.events([entry])
        return _decoded(entry, event)

    def head(self, entry: _core.Logged) -> tuple[str, tuple[int, ...]]:
        return super().head(entry) if entry.number is None else ("float64", ())

    def reductions(self, selection: Selection, wanted: Reductions, options: SweepOptions = SWEEP) -> Table:
        every = [*REDUCTIONS, *(f"abs_{op}" for op in REDUCTIONS)]
        kinds = every if wanted.kinds is None else list(wanted.kinds)
        rows = self._rows(selection)
        errors: dict[int, BaseException] = {}
        table = np.full((len(kinds), len(rows)), np.nan)
        counted = np.full((5, len(rows)), -1, dtype=np.int64)
        operations = [(kind.removeprefix("abs_").removesuffix("_norm"), kind.startswith("abs_")) for kind in kinds]
        for begin, end in self._batches(rows):
            part = rows[begin:end]
            values, failed = self.values(part, options)
            errors |= {begin + at: error for at, error in failed}
            if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype == np.float64:
                _reduce_numbers(values, operations, table[:, begin:end], counted[:, begin:end])
                continue
            for row, value in enumerate(values, begin):
                if value is None:
                    continue
                if np.asarray(value).dtype.kind not in "biufcV":
                    errors[row] = UFuncTypeError(
                        f"cannot reduce tensor {rows[row][0]!r}: dtype {np.asarray(value).dtype.name} is not numeric"
                    )
                    continue
                found = _core.reduce(np.ascontiguousarray(value), names=operations)
                table[:, row] = [np.nan if (one := found[key]) is None else float(one) for key in operations]
                about = _core.stats(np.ascontiguousarray(value)) if wanted.counts else {}
                counted[:, row] = [about.get(key, -1) for key in ("n", "nan", "pos_inf", "neg_inf", "zeros")]
        columns = key_columns(rows, self.log.mode_of) | dict(zip(kinds, table, strict=True))
        if wanted.counts:
            columns |= dict(zip(("size", "nan", "pos_inf", "neg_inf", "zero"), counted, strict=True))
        if wanted.coverage:
            columns["coverage"] = np.ones(len(rows))
        columns["error"] = sorted(errors.items())
        return columns

    def _rows(self, selection: Selection) -> list[Row]:
        """Return the rows that a sweep reads."""
        names, steps, workers = selection
        wanted = None if steps is None else set(steps)
        return [
            (name, step, worker)
            for name in names
            for step in self.log.steps_of(name)
            if wanted is None or step in wanted
            for worker in self.log.workers_of(name, step)[: 1 if workers is None else None]
            if not workers or worker in workers
        ]

    def _batches(self, rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows whose values are read at once."""
        yield 0, len(rows)

    def statistics(self, selection: Selection, options: SweepOptions = SWEEP) -> Table:
        numbers = self._numbers_of(selection)
        if numbers is not None:
            return numbers
        found = self.reductions(selection, Reductions(("min", "max", "mean", "std", "l1", "l2"), counts=True), options)
        return histogram_statistics(self, with_statistics(found), options)

    def _numbers_of(self, selection: Selection) -> Table | None:
        """Return the statistics of numbers; None if some are not all in memory.

        Of very many series, a call for each row would take most of the time.
        """
        names, steps, workers = selection
        most = self.log.num_names() * self.log.num_steps()
        # What a live log has added is read row by row.
        is_part = steps is not None and len(names) * len(steps) * _PARTS < most
        if workers is None or len(workers) or self.numbers_steps or self._log_options[0] or most > MOST or is_part:
            return None
        generation, numbers = self._numbers
        if numbers is None or generation != self.log.generation:
            generation = self.log.generation  # before they are read: what is added meanwhile is read again
            # A name may have other values, too.
            scalars = {name for name, _, kind, _, _ in self.log.series() if kind == "scalar"}
            numbers = Numbers.of(self.log, scalars)
            self._numbers = generation, numbers
        if not numbers.places.keys() >= set(names):
            return None
        columns, values = numbers.table(names, steps)
        kinds = ("min", "max", "mean", "std", "l1", "l2")
        table, counted = np.empty((len(kinds), len(values))), np.empty((5, len(values)), np.int64)
        _reduce_numbers(values, [(kind, False) for kind in kinds], table, counted)
        columns |= {"mode": np.full(len(values), ModeKeys.GLOBAL.value), **dict(zip(kinds, table, strict=True))}
        columns |= dict(zip(("size", "nan", "pos_inf", "neg_inf", "zero"), counted, strict=True))
        return with_statistics({**columns, "error": []})

    def values(self, rows: Sequence[Row], options: SweepOptions = SWEEP) -> Values:
        running = options._replace(cancel=options.cancel or _core.Cancel())
        found, failed = self.log.values(self._files, rows, **running._asdict())
        if isinstance(found, np.ndarray):
            return found, failed
        values: list[NDArray[Any] | None] = []
        for at, one in enumerate(found):
            if isinstance(one, tuple):
                if options.is_cancelled():
                    raise KeyboardInterrupt
                try:
                    values.append(_decoded(*one))
                except DataError as error:
                    values.append(None)
                    failed.append((at, error))
            else:
                values.append(np.array(one) if isinstance(one, float) else one)
        return values if failed else alike(values), sorted(failed, key=lambda failure: failure[0])

    def course(self, name: str, worker: str | None = None, superseded: bool = False) -> Course:
        steps, _, times, values, lanes = self.log.course(name, None, superseded)
        if worker:
            workers = np.array([name for name, _ in self.log.directories()], dtype=object)
            mine = workers[lanes] == worker
            steps, times, values = steps[mine], times[mine], values[mine]
        order = np.argsort(steps, kind="stable")
        return Course(steps[order], times[order], values[order])

    def kind_of(self, name: str) -> str:
        if name not in self._kinds:
            self._kinds = {name: kind for name, _, kind, _, _ in self.log.series()}
        return self._kinds.get(name, "")


class LocalTensorBoardRun(TensorBoardRun):
    """A run in a local directory. Reads only files that have changed."""

    def __init__(self, root: str, directories: Sequence[Directory], **options: Any) -> None:
        self._root = root
        super().__init__(LocalStorage(root), directories, **options)

    def start_over(self) -> None:
        super().start_over()
        self._files = _core.Files(self._root)
        self._directory_times: dict[str, int] = {}
        #: The first bytes of the files that were read.
        self._heads: dict[str, bytes] = {}

    def replaced_at(self) -> float | None:
        if self._hold:  # the files may be changed
            return None
        try:
            if any(self._head(key) == head for key, head in self._heads.items()):
                return None
        except OSError:
            return None  # the file system does not respond, so the state is unknown
        return self._begun(self._listed())

    def _head(self, key: str) -> bytes | None:
        try:
            with open(os.path.join(self._root, key), "rb") as file:
                return file.read(len(self._heads.get(key, bytes(_HEAD))))
        except FileNotFoundError:
            return None

    def check(self) -> None:
        if not os.path.isdir(self._root):
            raise RunNotFound(self._root)

    def refresh(self) -> None:
        if self._directories_changed():
            self._lay_out(list(self._listed()))
        self.log.refresh_local(self._root)
        files = self.log.files()
        if len(files) > len(self._heads):
            for key, read, _ in files:
                if read and key not in self._heads and (head := self._head(key)):
                    self._heads[key] = head

    def _directories_changed(self) -> bool:
        """Return whether the run may have new directories, by directory times."""
        now, top = time.time_ns(), os.path.join(self._root, self._name)
        seen = {path: _written(path) for path in self._directory_times or [top]}
        # A change within the resolution of the previous check is not visible in the time.
        if seen == self._directory_times and all(
            now - written >= _core.FILE_TIME_GRANULARITY for written in seen.values()
        ):
            return False
        self._directory_times = {folder: _written(folder) for folder, _, _ in os.walk(top)}
        return True

    def events(self, entries: Sequence[_core.Logged]) -> list[_core.Event]:
        try:
            return super().events(entries)
        except RunFileMissing:
            self.check()
            raise


def alike(values: list[NDArray[Any] | None]) -> NDArray[Any] | list[NDArray[Any] | None]:
    """Return one array if all values have one dtype and shape.

    >>> alike([np.zeros(2), np.ones(2)]).shape
    (2, 2)
    """
    present = [value for value in values if value is not None]
    is_one = len({(value.dtype, value.shape) for value in present}) == 1 and len(present) == len(values)
    return np.stack(present) if is_one else values


def _written(path: str) -> int:
    """Return the mtime of a directory in nanoseconds, or 0 if it does not exist."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _decoded(entry: _core.Logged, event: _core.Event) -> NDArray[Any]:
    """Decode an event. Errors contain the file and offset."""
    try:
        return value_of(event, entry.kind)
    except DataError as error:
        raise type(error)(f"{entry.event_key}, byte {entry.offset}: {error}") from None


def _reduce_numbers(
    values: NDArray[np.float64],
    operations: Sequence[tuple[str, bool]],
    table: NDArray[np.float64],
    counted: NDArray[np.int64],
) -> None:
    """Compute the reductions of scalars: the value, its magnitude, or zero."""
    magnitude = np.abs(values)
    spread = np.where(np.isfinite(values), 0.0, np.nan)
    for row, (operation, absolute) in enumerate(operations):
        if operation in ("std", "variance"):
            table[row] = spread
        else:
            table[row] = magnitude if absolute or operation in ("l1", "l2") else values
    counted[:] = [np.ones(len(values)), np.isnan(values), values == np.inf, values == -np.inf, values == 0]

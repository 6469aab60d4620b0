"""A run that files of several formats describe, TensorBoard's among them.

Scalars of all sources are columns of one :class:`smdwidgets._core.EventLog`, beside those of event files. Tensors are
read from their files when they are needed.
"""
# Methods are described in `Run`.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.exceptions import (
    CorruptDataError,
    DataError,
    RunFileMissing,
    RunIOError,
    RunNotFound,
    UnsupportedDataError,
)
from smdwidgets.modes import ModeKeys
from smdwidgets.sources import Scalars, Source, StoredHistogram, StoredTensor, Tree, files_in, open_source
from smdwidgets.sources.archive import check_crc
from smdwidgets.sources.columns import agree
from smdwidgets.sources.registry import described
from smdwidgets.sources.store_tree import StoreTree
from smdwidgets.trials.discovery import logs_of_sources
from smdwidgets.trials.run import (
    SWEEP,
    CollectionFiles,
    RecordedStatistics,
    Row,
    Selection,
    SweepOptions,
    Values,
    dtype_named,
)
from smdwidgets.trials.statistics.checkpoint import stored_statistics
from smdwidgets.trials.statistics.source import SourceStatistics
from smdwidgets.trials.tables import Table, joined
from smdwidgets.trials.tensorboard.layout import Directory, FirstTags, is_event_file, runs_of
from smdwidgets.trials.tensorboard.run import LocalTensorBoardRun, TensorBoardRun, alike

#: Bytes of tensors that are read at once for their reductions.
_BATCH: Final = 64 << 20
#: Name patterns of tensors by collection, as hooks have them.
_WEIGHTS: Final = {
    "biases": [r"(?i)bias$", r"(?i)(^|[._/])(beta|running_mean)$"],
    "weights": [r"(?i)(weight|kernel|embeddings?|gamma)(_[a-z0-9]+)?$"],
}
#: Those of tensors of which only statistics were logged.
_LOGGED: Final = _WEIGHTS | {"gradients": [r"(?i)(^|[._/])(gradient|[wd]?grad)$"]}


class _Stored(NamedTuple):
    """A tensor or histogram, and the source that has it."""

    place: StoredTensor | StoredHistogram
    source: Source


class SourceRun(TensorBoardRun):
    """A run with the sources that the known formats find in its files."""

    damage = "parts of files that cannot be read"
    undamaged = "the rest was read"

    tree: Tree
    _run_name: str

    def _look(self, tree: Tree, run_name: str) -> list[Directory]:
        """Find the sources in a tree. Return the directories of event files."""
        self.tree, self._run_name = tree, run_name
        self._found: dict[str, list[str]] = {}
        #: The source of each format.
        self._sources: dict[str, Source] = {}
        self._failed: dict[str, str] = {}
        self._find_sources()
        return self._event_directories(tree.keys, FirstTags(tree.storage))

    def _event_directories(self, keys: Sequence[str], first_tag: FirstTags) -> list[Directory]:
        """Return the directories of event files that belong to this run."""
        if self.tree.is_file:
            return []
        logs = runs_of(keys, first_tag)
        chosen = logs_of_sources(logs, self._runs_in_tree).get("")
        return [] if chosen is None else logs[chosen]

    # ----------------------------------------------------------------------------------------------------- refreshing

    def start_over(self) -> None:
        super().start_over()
        #: Tensors and histograms by name and step.
        self._stored: dict[tuple[str, int], _Stored] = {}
        self._stored_names: frozenset[str] = frozenset()
        #: The names of those that are tensors.
        self._tensor_names: frozenset[str] = frozenset()
        self._recorded: SourceStatistics | None = None
        self._read_before = False
        #: The file of each format under which the log has its rows.
        self._key_of: dict[str, str] = {}

    def _lanes(self) -> list[tuple[str, str, int, str]]:
        own = [(_lane(format), "worker_0", ModeKeys.GLOBAL.value, "") for format in self._sources]
        return [*super()._lanes(), *own]

    def _lay_out(self, keys: Sequence[str]) -> None:
        directories = self._event_directories(keys, self._first_tag)
        if directories != self._directories:
            self._directories = directories
            self.log.lay_out(self._lanes())

    def _find_sources(self) -> bool:
        """Open the sources of new files. Return whether there are any."""
        self._runs_in_tree = files_in(self.tree)
        changed = False
        for format, files in self._runs_in_tree.get(self._run_name, {}).items():
            if self._found.get(format) == list(files):
                continue
            try:
                opened = open_source(format, self.tree, self._run_name, files)
            except Exception as error:  # of a format that is not part of this package
                self._failed[format] = f"cannot open {shown(files[0])} as {format}: {described(error)}"
                continue
            if format in self._sources:
                self._sources[format].close()
            self._found[format], self._sources[format] = list(files), opened
            changed = True
        return changed

    def check(self) -> None:
        if not self._sources and not self.log.files():
            raise RunNotFound(self.path, "the files of the run were removed")

    def refresh(self) -> None:
        again = not self._read_before
        if self.tree.changed(_core.FILE_TIME_GRANULARITY):
            self.tree.scan()
            if self._find_sources():
                self.log.lay_out(self._lanes())
                again = True
        super().refresh()
        if self._refresh_sources() or again:
            self._read_before = True
            self._take_rows()

    def _refresh_sources(self) -> bool:
        changed = False
        for source in self._sources.values():
            try:
                changed |= source.refresh()
                self._failed.pop(source.name, None)
            except (DataError, RunIOError, OSError) as error:
                self._failed[source.name] = str(error)
            except Exception as error:  # of a format that is not part of this package
                self._failed[source.name] = f"cannot read {shown(source.name)}: {described(error)}"
        return changed

    def _take_rows(self) -> None:
        """Put the rows of all sources into the log."""
        taken = {name: self._logged(name) for name, _, kind, _, _ in self.log.series() if kind == "scalar"}
        stored: dict[tuple[str, int], _Stored] = {}
        for format, source in self._sources.items():
            rows: list[Any] = []
            for name, scalars in source.scalars().items():
                if (known := taken.get(name)) is not None and (other := known()) is not None:
                    if agree(other, scalars):
                        continue  # two loggers wrote the same numbers
                    name = self._free(f"{name} ({source.name})", taken)
                taken[name] = _constant(scalars)
                rows.append(_row_of(name, scalars))
            tensors: dict[str, list[StoredTensor]] = {}
            # The steps of a series ascend: one that does not would be a restart.
            for tensor in sorted(source.tensors(), key=lambda tensor: tensor.step):
                # A step may have a copy in another format.
                if (tensor.name, tensor.step) not in stored:
                    stored[tensor.name, tensor.step] = _Stored(tensor, source)
                    tensors.setdefault(tensor.name, []).append(tensor)
            rows += [_places_of(name, places) for name, places in tensors.items()]
            histograms: dict[str, list[StoredHistogram]] = {}
            for place in sorted(source.histograms(), key=lambda place: place.step):
                name = f"{place.name} (histogram)" if place.name in taken else place.name
                if (name, place.step) not in stored:
                    stored[name, place.step] = _Stored(place, source)
                    histograms.setdefault(name, []).append(place)
            rows += [_places_of(name, places, are_histograms=True) for name, places in histograms.items()]
            # Before the log has them, so that a reader finds the location of every tensor.
            self._stored |= stored
            self._note_names()
            if self._key_of.setdefault(format, source.name) != source.name:
                self.log.set_rows(_lane(format), self._key_of[format], [])
                self._key_of[format] = source.name
            self.log.set_rows(_lane(format), source.name, rows)
        self._stored = stored
        self._note_names()
        recorded = [statistics for source in self._sources.values() if (statistics := source.statistics())]
        self._recorded = SourceStatistics(recorded, self.log.mode_of) if recorded else None

    def _note_names(self) -> None:
        self._stored_names = frozenset(name for name, _ in self._stored)
        self._tensor_names = frozenset(
            name for (name, _), one in self._stored.items() if isinstance(one.place, StoredTensor)
        )

    def _logged(self, name: str) -> Callable[[], Scalars | None]:
        """Return a function for the scalars of event files of this name."""

        def read() -> Scalars | None:
            _, steps, times, values, lanes = self.log.course(name)
            own = lanes < len(self._directories)
            return Scalars(steps[own], values[own], times[own]) if own.any() else None

        return read

    @staticmethod
    def _free(name: str, taken: Mapping[str, object]) -> str:
        while name in taken:
            name += "'"
        return name

    def replaced_at(self) -> float | None:
        return super().replaced_at() if any(read for _, read, _ in self.log.files()) else None

    def end_age(self) -> float | None:
        if self._live is None and self.says_ended():
            return self.silence() or 0.0
        return super().end_age()

    def says_ended(self) -> bool:
        return any(source.ended() for source in self._sources.values())

    def silence(self) -> float | None:
        ages = [super().silence(), *(source.age() for source in self._sources.values())]
        return min((age for age in ages if age is not None), default=None)

    def problems(self) -> list[tuple[str, str]]:
        found = [problem for source in self._sources.values() for problem in source.unsupported()]
        return super().problems() + sorted(self.source_faults() + found)

    def source_faults(self) -> list[tuple[str, str]]:
        """Return the damaged and incomplete files, besides event files."""
        found = [problem for source in self._sources.values() for problem in source.problems()]
        return list(self._failed.items()) + found

    def sources(self) -> dict[str, Source]:
        """Return the source of each format."""
        return dict(self._sources)

    def hparams(self) -> dict[str, Any]:
        """Return the hyperparameters that the sources contain."""
        return {name: value for source in self._sources.values() for name, value in source.hparams().items()}

    def identity(self) -> dict[str, str]:
        """Return who made the run and from what."""
        return {name: value for source in self._sources.values() for name, value in source.identity().items()}

    def source_names(self) -> list[str]:
        """Return the files or stores that the run is read from, besides event files."""
        return [source.name for source in self._sources.values()]

    def collections(self) -> CollectionFiles | None:
        found = super().collections()
        if found is not None:
            recorded = [] if self._recorded is None else self._recorded.names()
            for names, chosen in ((sorted(self._tensor_names), _WEIGHTS), (recorded, _LOGGED)):
                for collection, patterns in chosen.items():
                    for name in self._patterns.matching(patterns, names) if names else []:
                        found.manager.get(collection).add_tensor_name(name)
        return found

    # -------------------------------------------------------------------------------------------------------- tensors

    def _stored_at(self, entry: _core.Logged) -> _Stored | None:
        if entry.kind not in ("tensor", "histogram") or not self._stored:
            return None
        step = (self.log.mode_of(entry.step) or (0, entry.step))[1]
        return self._stored.get((self.log.original_name(entry.name) or entry.name, step))

    def value(self, entry: _core.Logged) -> NDArray[Any]:
        stored = self._stored_at(entry)
        if stored is None:
            return super().value(entry)
        place, source = stored
        return self._read_tensor(place, source) if isinstance(place, StoredTensor) else source.histogram(place)

    def head(self, entry: _core.Logged) -> tuple[str, tuple[int, ...]]:
        stored = self._stored_at(entry)
        place = None if stored is None else stored.place
        return (place.dtype, place.shape) if isinstance(place, StoredTensor) else super().head(entry)

    def events(self, entries: Sequence[_core.Logged]) -> list[_core.Event]:
        if any(self._stored_at(entry) is not None for entry in entries):
            raise UnsupportedDataError("only values of event files have events; use trial.tensor(name).value(step)")
        return super().events(entries)

    def file_there(self, key: str) -> bool:
        return any(source.name == key for source in self._sources.values()) or super().file_there(key)

    def kind_of(self, name: str) -> str:
        return "" if name in self._tensor_names else super().kind_of(name)

    def _read_tensor(self, tensor: StoredTensor, source: Source) -> NDArray[Any]:
        if not tensor.regions:
            return self._read_elements(tensor)
        # All regions are found before memory of the size that the metadata claim is taken.
        places = [source.locate(tensor, region) for region in tensor.regions]
        if len(places) == 1:
            return self._read_elements(places[0])
        value = np.empty(tensor.shape, dtype_named(tensor.dtype))
        for region, place in zip(tensor.regions, places, strict=True):
            part = tuple(slice(at, at + extent) for at, extent in zip(region.begin, region.shape, strict=True))
            value[part] = self._read_elements(place)
        return value

    def _read_elements(self, tensor: StoredTensor) -> NDArray[Any]:
        dtype = dtype_named(tensor.dtype)
        try:
            data = self.tree.read_exactly(tensor.key, tensor.offset, tensor.length)
        except RunFileMissing as error:  # it will not come back, as a file that is still to be written
            raise CorruptDataError(f"{error}: the checkpoint was deleted") from None
        check_crc(
            data, tensor.checksum, f"{self.tree.path(tensor.key)}, byte {tensor.offset}: tensor {shown(tensor.name)}"
        )
        flat = np.frombuffer(bytearray(data), dtype)  # writable, and of this array only
        if tensor.strides is None:
            return flat.reshape(tensor.shape)
        strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
        return np.lib.stride_tricks.as_strided(flat, tensor.shape, strides).copy()

    def values(self, rows: Sequence[Row], options: SweepOptions = SWEEP) -> Values:
        if not self._stored_names or not any(name in self._stored_names for name, _, _ in rows):
            return super().values(rows, options)
        others = [at for at, (name, _, _) in enumerate(rows) if name not in self._stored_names]
        logged, failures = super().values([rows[at] for at in others], options._replace(progress=None))
        values: list[NDArray[Any] | None] = [None] * len(rows)
        failed = [(others[at], error) for at, error in failures]
        ahead = 0
        for at, value in zip(others, logged, strict=True):
            values[at] = None if value is None else np.asarray(value)
        for at, (name, step, worker) in enumerate(rows):
            if options.is_cancelled():
                raise KeyboardInterrupt
            entry = self.log.find(name, step, worker) if name in self._stored_names else None
            if at >= ahead:
                ahead = at + self._fetch_ahead(rows[at:])
            if entry is not None:
                try:
                    values[at] = self.value(entry)
                except (DataError, RunIOError) as error:
                    failed.append((at, error))
            if options.progress is not None:
                options.progress(at + 1, len(rows))
        # Tensors may be large: they are not copied.
        of_tensors = any(name in self._tensor_names for name, _, _ in rows)
        return values if failed or of_tensors else alike(values), sorted(failed, key=lambda failure: failure[0])

    def statistics(self, selection: Selection, options: SweepOptions = SWEEP) -> Table:
        others = [name for name in selection.names if name not in self._tensor_names]
        table = super().statistics(selection._replace(names=others), options)
        rows = self._rows(selection._replace(names=[name for name in selection.names if name in self._tensor_names]))
        if not rows:
            return table

        at = ahead = 0

        def read(row: Row) -> NDArray[Any]:
            nonlocal at, ahead
            if at >= ahead:
                ahead = at + self._fetch_ahead(rows[at:])
            at += 1
            entry = self.log.find(*row)
            if entry is None:
                raise CorruptDataError(f"the checkpoint with {shown(row[0])} at step {row[1]} was deleted")
            return self.value(entry)

        own = stored_statistics(rows, read, self.log.mode_of, options.is_cancelled)
        return joined([table, {name: own[name] for name in table}]) if len(others) else own

    def statistics_file(self) -> RecordedStatistics | None:
        return self._recorded

    def _fetch_ahead(self, rows: Sequence[Row]) -> int:
        """Read the next stored tensors at once, if each read waits for a server.

        Return how many rows they are.
        """
        if not isinstance(self.tree, StoreTree):
            return len(rows)
        parts: list[tuple[str, int, int]] = []
        count = size = 0
        for name, step, worker in rows:
            entry = self.log.find(name, step, worker) if name in self._stored_names else None
            stored = None if entry is None else self._stored_at(entry)
            if stored is not None and isinstance(place := stored.place, StoredTensor):
                size += place.length
                if parts and size > _BATCH:
                    break
                parts += [(one.key, one.offset, one.length) for one in place.regions or (place,)]
            count += 1
        self.tree.fetch_ahead(parts)
        return count

    def _batches(self, rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
        begin = size = 0
        for at, (name, step, worker) in enumerate(rows):
            if name in self._stored_names and (entry := self.log.find(name, step, worker)) is not None:
                size += entry.length
                if size > _BATCH and at > begin:
                    yield begin, at
                    begin, size = at, entry.length
        yield begin, len(rows)

    def close(self) -> None:
        for source in self._sources.values():
            source.close()
        super().close()


class LocalSourceRun(SourceRun, LocalTensorBoardRun):
    """A run in one directory, or a file with runs."""

    def __init__(self, root: str, run: str = "", **options: Any) -> None:
        place, name = _place_of(root, run)
        tree = Tree(place)
        super().__init__(tree.root, self._look(tree, name), **options)
        self.path = str(Path(root, *run.split("/"))) if run else root

    def _directories_changed(self) -> bool:
        return not self.tree.is_file and super()._directories_changed()


class StoredSourceRun(SourceRun):
    """A run below the prefix of a store, or in one of its objects."""

    def __init__(self, tree: StoreTree, run: str, **options: Any) -> None:
        super().__init__(tree.storage, self._look(tree, run), **options)
        self.path = "/".join([tree.root, *tree.keys[: tree.is_file], *([run] if run else [])])

    def _listed(self) -> Iterator[str]:
        for key in self.tree.keys:
            if is_event_file(key) and (size := self.tree.size(key)) is not None:
                self._sizes[key] = size
            yield key


def _place_of(root: str, run: str) -> tuple[str, str]:
    """Return the directory of a run, or its store, and its name in the store."""
    parts = run.split("/") if run else []
    inside: list[str] = []
    while parts and not Path(root, *parts).exists():
        inside.insert(0, parts.pop())
    return str(Path(root, *parts)), "/".join(inside)


def _lane(format: str) -> str:
    """Return the name of a format among the directories of a log.

    >>> _lane("table")
    'table/'
    """
    return format + "/"


def _constant(scalars: Scalars) -> Callable[[], Scalars | None]:
    return lambda: scalars


def _row_of(
    name: str, scalars: Scalars
) -> tuple[str, NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], None, bool]:
    times = np.full(len(scalars.steps), np.nan) if scalars.wall_times is None else scalars.wall_times
    return (
        name,
        np.ascontiguousarray(scalars.steps, np.int64),
        np.ascontiguousarray(times, np.float64),
        np.ascontiguousarray(scalars.values, np.float64),
        None,
        False,
    )


def _places_of(
    name: str, tensors: Sequence[StoredTensor] | Sequence[StoredHistogram], are_histograms: bool = False
) -> tuple[str, NDArray[np.int64], NDArray[np.float64], None, list[tuple[int, int]], bool]:
    steps = np.array([tensor.step for tensor in tensors], np.int64)
    times = np.array([tensor.wall_time for tensor in tensors], np.float64)
    return name, steps, times, None, [(tensor.offset, tensor.length) for tensor in tensors], are_histograms

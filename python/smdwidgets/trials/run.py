"""Interfaces of a run's index and data, for :class:`Trial` and :class:`Tensor`.

:class:`Trial` and :class:`Tensor` work in steps, modes and collections. :class:`Index` finds tensors in a run,
:class:`Run` reads them. To support another format or storage, implement Run: it lists new steps, reads values, and
reports when the run has ended.
"""
# The methods of the protocols are documented at `StatisticsFile` and `StatisticsCache`.
# ruff: noqa: D102

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.checks.record import CheckRecords
from smdwidgets.config.collection_manager import CollectionManager
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.run_end import RunEnd
from smdwidgets.signals.record import Signals
from smdwidgets.storage.protocol import Storage
from smdwidgets.trials.incidents import IncidentFiles
from smdwidgets.trials.shards import Sharded
from smdwidgets.trials.tables import Table

#: Names of reductions, in storage and display order.
REDUCTIONS: Final = ("min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2")

#: Type of :meth:`Run.getter`: value by name, global step and worker (None: the first that has a value).
Getter = Callable[[str, int, "str | None"], "NDArray[Any] | None"]
Progress = Callable[[int, int], object]
#: (name, global step, worker), as `_core.values` expects them.
Row = tuple[str, int, "str | None"]
#: The values of rows, one array if all have one dtype and shape, and the errors of rows that failed.
Values = tuple["NDArray[Any] | list[NDArray[Any] | None]", list[tuple[int, BaseException]]]


class Selection(NamedTuple):
    """What a sweep reads.

    Attributes:
        names: tensors.
        steps: global steps; None: all.
        workers: None: the first that has the tensor; empty: all.
    """

    names: Sequence[str]
    steps: Sequence[int] | None = None
    workers: Sequence[str] | None = None


class Reductions(NamedTuple):
    """Columns of a sweep of reductions.

    Attributes:
        kinds: names such as ``abs_max``; None: all.
        counts: whether to add the numbers of elements, zeros, NaNs and infinities.
        coverage: whether to add the share of each tensor's elements that were saved.
    """

    kinds: Sequence[str] | None
    counts: bool = False
    coverage: bool = False


class SweepOptions(NamedTuple):
    """How a sweep runs.

    Attributes:
        threads: None: one per core.
        progress: called with what is finished and the total.
        cancel: set when the caller gives up.
    """

    threads: int | None = None
    progress: Progress | None = None
    cancel: _core.Cancel | None = None

    def is_cancelled(self) -> bool:
        """Return whether the caller has given up."""
        return self.cancel is not None and self.cancel.is_set()


#: The usual options.
SWEEP: Final = SweepOptions()


#: Index of a run: steps, tensors and their locations. Modes are numbers; as an argument, None and 4 (GLOBAL) select all
#: modes. Steps are global steps, in ascending order.
Index = _core.Catalog | _core.EventLog


class RecordedStatistics(Protocol):
    """The statistics that the training wrote; see `StatisticsFile`."""

    def names(self) -> list[str]: ...
    def workers(self) -> list[str]: ...
    def size(self) -> tuple[int, int, int]: ...
    def scan(
        self, after: int, progress: Callable[[int, int], object]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
    def pyramid(self, worker: str) -> _core.Pyramid | None: ...
    def read(
        self,
        names: Sequence[str] | None = None,
        steps: Sequence[int] | None = None,
        workers: Sequence[str] | None = None,
        mode: int | None = None,
    ) -> Table: ...


class CachedStatistics(Protocol):
    """Statistics that were computed before; see `StatisticsCache`."""

    def records(self) -> int: ...
    def read(self, names: list[str]) -> Table | None: ...
    def add(self, table: Table, until: int) -> None: ...


class PyramidKeeper(Protocol):
    """Pyramids outside of the run; see `KeptPyramids`."""

    def get(self, file: Any, worker: str) -> _core.Pyramid | None: ...
    def make(self, file: Any, worker: str, progress: Callable[[int, int], object]) -> _core.Pyramid | None: ...


class Course(NamedTuple):
    """When the values of a tensor were written, and the values if they are scalars."""

    steps: NDArray[np.int64]
    #: Unix seconds
    times: NDArray[np.float64]
    #: NaN unless the tensor is a scalar.
    values: NDArray[np.float64]


class CollectionFiles(NamedTuple):
    """Merged content of a run's collection files."""

    manager: CollectionManager
    workers: frozenset[str]
    files: int


class Run(ABC):
    """One run: its index and its data. Thread-safe once opened."""

    #: Directory or URL of the run.
    path: str
    storage: Storage
    index: Index
    #: The index of a run in smdebug's format. Only such a run can be swept by other processes, and verified.
    catalog: _core.Catalog | None = None
    #: Last complete step: no files will be added at it or before. Set by the trial, which knows the number of workers;
    #: -1 lists all steps.
    settled: int = -1
    #: Whether the content of some steps has not been read into the index.
    partly_read: bool = False
    #: Whether the last call of `collections` read what is new: some formats have collections of what they contain.
    refreshed_for_collections: bool = False
    #: Description of its problems in a repr, after their number.
    damage: str = "unreadable index files"
    #: What was read in spite of a problem, for the log.
    undamaged: str = "the other index files were read"

    @abstractmethod
    def check(self) -> None:
        """Raise :class:`~smdwidgets.exceptions.RunNotFound` if there is no run.

        A directory in which a run is about to start counts as a run.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Update the index. The cost depends on the number of new steps only."""

    def load(self, steps: Sequence[int] | None = None) -> None:  # noqa: B027 - `refresh` may read everything
        """Read the names, modes and locations of these steps (None: all) into the index."""

    def has(self, name: str) -> bool:
        """Return whether a tensor exists, reading as little of the index as possible."""
        return self.index.has(name)

    def reread(self, step: int) -> bool:
        """Re-read the index of a step that a restarted training may have overwritten.

        Returns whether the caller should retry.
        """
        return False

    def deleted(self, step: int) -> int | None:
        """Return the spacing of steps with values; None if this step was not deleted."""
        return None

    @property
    def numbers_steps(self) -> bool:
        """Whether global steps are computed from steps and modes."""
        return False

    @abstractmethod
    def end_age(self) -> float | None:
        """Return the seconds since the run ended, or None if it has not ended."""

    def silence(self) -> float | None:
        """Return the seconds since the last write, or None if unknown.

        Only runs without an end marker, such as logs, know it.
        """
        return None

    def end(self) -> RunEnd | None:
        """Return how the run ended, or None if it has not ended."""
        return None if self.end_age() is None else RunEnd()

    def declares_workers(self) -> bool:
        """Return whether the collections name all workers.

        A log gets further ones while it grows.
        """
        return False

    def says_ended(self) -> bool:
        """Return whether the run says that it ended.

        A log that was not written for long may only be silent.
        """
        return self.end() is not None

    def incidents(self) -> IncidentFiles:
        """Return the incidents of the run.

        Steps that were written because of a new one are read again.
        """
        return IncidentFiles([], [])

    def checks(self) -> CheckRecords:
        """Return the checks that the hook of the training has written."""
        return CheckRecords()

    def signals(self) -> Signals:
        """Return the signals that the hook of the training has written."""
        return Signals()

    def replaced_at(self) -> float | None:
        """Return when another run started in the same place.

        The result is in Unix seconds, or None if it is the same run.
        """
        return None

    def start_over(self) -> None:
        """Forget everything that was read.

        ``index`` and ``getter`` are new objects afterwards.
        """
        raise NotImplementedError

    @abstractmethod
    def collections(self) -> CollectionFiles | None:
        """Return the merged collection files, or None if nothing is new."""

    def getter(self) -> Getter:
        """Return the function that reads single values, for :meth:`Tensor.value`.

        Each call of the function returns a writable array that shares no memory. It raises
        :class:`~smdwidgets.exceptions.RunFileMissing` if the index has a location whose file does not exist.
        """

        def get(name: str, step: int, worker: str | None = None) -> NDArray[Any] | None:
            place = self.index.find(name, step, worker)
            return None if place is None else self.value(place)

        return get

    def passing(self) -> Getter:
        """Return a getter that does not cache, for values that are read once."""
        return self.getter()

    @abstractmethod
    def value(self, place: Any) -> NDArray[Any]:
        """Return the value of an index entry as a writable array that shares no memory."""

    def head(self, place: Any) -> tuple[str, tuple[int, ...]]:
        """Return the name of the dtype, and the shape, if possible from the first bytes."""
        value = self.value(place)
        return value.dtype.name, value.shape

    def part(self, place: Any, start: int, stop: int, verify: bool) -> NDArray[Any] | None:
        """Return rows of the value of an index entry, along the first axis.

        With ``verify``, the whole record is read in pieces and checked. None if only the whole value can be read.
        """
        return None

    def file_there(self, key: str) -> bool:
        """Return whether a file exists that the index names."""
        return self.storage.exists(key)

    @abstractmethod
    def reductions(self, selection: Selection, wanted: Reductions, options: SweepOptions = SWEEP) -> Table:
        """Return reductions as :func:`smdwidgets._core.sweep` does."""

    @abstractmethod
    def statistics(self, selection: Selection, options: SweepOptions = SWEEP) -> Table:
        """Return statistics of values as :func:`smdwidgets._core.sweep_statistics` does."""

    def statistics_file(self) -> RecordedStatistics | None:
        """Return the refreshed statistics files, or None if the format has none."""
        return None

    def statistics_cache(self, scope: str) -> CachedStatistics | None:
        """Return the cache of computed statistics for a selection of workers.

        None if statistics of this run are not cached.
        """
        return None

    def kept_pyramids(self) -> PyramidKeeper | None:
        """Return the pyramids that are kept outside of the run; None if none are."""
        return None

    @abstractmethod
    def values(self, rows: Sequence[Row], options: SweepOptions = SWEEP) -> Values:
        """Return values as :func:`smdwidgets._core.values` does."""

    def problems(self) -> list[tuple[str, str]]:
        """Return the files that cannot be read, or parts of them, as (file, message)."""
        return self.index.problems()

    def has_file(self, key: str) -> bool:
        """Return whether a file of the run still exists, as far as that is known."""
        return True

    def samples(self) -> Run | None:
        """Return the run inside this one that has samples of its tensors, or None."""
        return None

    def sharded(self, name: str, step: int) -> Sharded | None:
        """Return the shards of a tensor at a global step, or None if it is not sharded."""
        return None

    def is_sharded(self, name: str, step: int) -> bool:
        """Return whether a tensor is sharded at a global step.

        Does not check the positions of its shards.
        """
        return False

    def course(self, name: str, worker: str | None = None, superseded: bool = False) -> Course:
        """Return the rows of a tensor, ascending by step; empty if they have no times.

        ``superseded`` selects the rows that a restart from an earlier step superseded.
        """
        return Course(np.empty(0, np.int64), np.empty(0), np.empty(0))

    def kind_of(self, name: str) -> str:
        """Return the kind of a tensor in a TensorBoard log, such as ``scalar``.

        Empty for runs in other formats.
        """
        return ""

    def verify(self, steps: Sequence[int] | None = None, options: SweepOptions = SWEEP) -> dict[str, Any]:
        """Verify records as :func:`smdwidgets._core.verify` does."""
        raise SMDebugTypeError(f"verify needs a run that a hook saved, got {type(self).__name__} {self.path}")

    def close(self) -> None:
        """Close files and connections. Arrays returned earlier stay valid."""
        self.storage.close()


def possible(step: int) -> bool:
    """Return whether a number is a valid step for the Rust core.

    Logs may have negative steps.

    >>> possible(-1), possible(0), possible(2**63)
    (True, True, False)
    """
    return -(2**63) <= step < 2**63


def is_text(name: str) -> bool:
    """Return whether a name is valid Unicode. The Rust core rejects lone surrogates.

    >>> is_text("w"), is_text("\\ud800")
    (True, False)
    """
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a name; ``bfloat16`` and similar need ``ml_dtypes``.

    >>> dtype_named("float32")
    dtype('float32')
    """
    if name.startswith("str"):  # the name of a NumPy dtype of strings has their length
        return np.dtype(np.str_)
    try:
        return np.dtype(name)
    except TypeError:
        from smdwidgets.exceptions import UnsupportedDataError

        try:
            import ml_dtypes

            extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return extended
        except (ImportError, AttributeError):
            raise UnsupportedDataError(f"numpy has no dtype {name}; install the package ml_dtypes") from None

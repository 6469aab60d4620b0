"""Interfaces of a run's index and data, for :class:`Trial` and :class:`Tensor`.

:class:`Trial` and :class:`Tensor` work in steps, modes and collections. :class:`Index` finds tensors in a run, :class:`Run`
reads them. To support another format or storage, implement Run: it lists new steps, reads values, and reports when the run
has ended.
"""
# The methods of `Index` are documented at `smdwidgets._core.Catalog`.
# ruff: noqa: D102

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.config.collection_manager import CollectionManager
from smdwidgets.run_end import RunEnd
from smdwidgets.trials.incidents import IncidentFiles
from smdwidgets.trials.shards import Sharded
from smdwidgets.trials.statistics_cache import StatisticsCache
from smdwidgets.trials.statistics_file import StatisticsFile

#: Names of reductions, in storage and display order.
REDUCTIONS: Final = ("min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2")

#: Type of :meth:`Run.getter`: value by name, global step and worker (None: the first that has a value).
Getter = Callable[[str, int, "str | None"], "NDArray[Any] | None"]
Progress = Callable[[int, int], object]
#: (name, global step, worker), as `_core.values` expects them.
Row = tuple[str, int, "str | None"]


class Place(Protocol):
    """Location of one value."""

    @property
    def event_key(self) -> str: ...
    @property
    def worker(self) -> str: ...
    @property
    def step(self) -> int: ...


class Index(Protocol):
    """Index of a run: steps, tensors and their locations.

    :class:`smdwidgets._core.Catalog` implements it for smdebug's format. Modes are numbers; as an argument, None and 4
    (GLOBAL) select all modes. Steps are global steps, in ascending order.
    """

    @property
    def generation(self) -> int: ...
    def steps(self, mode: int | None = None) -> list[int]: ...
    def num_steps(self) -> int: ...
    def last_step(self) -> int | None: ...
    def has_step(self, step: int) -> bool: ...
    def count_after(self, step: int) -> int: ...
    def complete_until(self, num_workers: int) -> int: ...
    def workers(self) -> list[str]: ...
    def workers_at(self, step: int) -> list[str]: ...
    def modes(self) -> list[int]: ...
    def mode_of(self, step: int) -> tuple[int, int] | None: ...
    def mode_steps(self, mode: int, name: str | None = None) -> list[int]: ...
    def global_step(self, mode: int, mode_step: int, latest: bool = False) -> int | None: ...
    def names(self) -> list[str]: ...
    def names_at(self, step: int, worker: str | None = None) -> list[str]: ...
    def names_in_mode(self, mode: int) -> list[str]: ...
    def has(self, name: str) -> bool: ...
    def steps_of(self, name: str, mode: int | None = None) -> list[int]: ...
    def workers_of(self, name: str, step: int) -> list[str]: ...
    def find(self, name: str, step: int, worker: str | None = None) -> Any: ...
    def stored_reductions(self, name: str, step: int, worker: str | None = None) -> list[tuple[str, bool, Any]]: ...
    def stored_reduction(self, name: str, step: int, op: str, abs: bool, worker: str | None = None) -> Any: ...
    def shape_of(self, name: str, step: int, worker: str | None = None) -> tuple[int, ...] | None: ...
    def original_name(self, name: str) -> str | None: ...
    def problems(self) -> list[tuple[str, str]]: ...


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
    index: Index
    #: Last complete step: no files will be added at it or before. Set by the trial, which knows the number of workers; -1
    #: lists all steps.
    settled: int = -1
    #: Description of its problems in a repr, after their number.
    damage: str = "unreadable index files"

    @abstractmethod
    def check(self) -> None:
        """Raise :class:`~smdwidgets.exceptions.RunNotFound` if there is no run.

        A directory in which a run is about to start counts as a run.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Update the index. The cost depends on the number of new steps only."""

    @abstractmethod
    def load(self, steps: Sequence[int] | None = None) -> None:
        """Read the names, modes and locations of these steps (None: all) into the index."""

    @property
    @abstractmethod
    def partly_read(self) -> bool:
        """Whether the content of some steps has not been read into the index."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Return whether a tensor exists, reading as little of the index as possible."""

    @abstractmethod
    def reread(self, step: int) -> bool:
        """Re-read the index of a step that a restarted training may have overwritten.

        Returns whether the caller should retry.
        """

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

    def incidents(self) -> IncidentFiles:
        """Return the incidents of the run.

        Steps that were written because of a new one are read again.
        """
        return IncidentFiles([], [])

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

    @abstractmethod
    def getter(self) -> Getter:
        """Return the function that reads single values, for :meth:`Tensor.value`.

        Each call of the function returns a writable array that shares no memory. It raises
        :class:`~smdwidgets.exceptions.RunFileMissing` if the index has a location whose file does not exist.
        """

    def passing(self) -> Getter:
        """Return a getter that does not cache, for values that are read once."""
        return self.getter()

    @abstractmethod
    def value(self, place: Any) -> NDArray[Any]:
        """Return the value of an index entry as a writable array that shares no memory."""

    @abstractmethod
    def head(self, place: Any) -> tuple[str, tuple[int, ...]]:
        """Return the name of the dtype, and the shape, without reading the whole value."""

    def part(self, place: Any, start: int, stop: int, verify: bool) -> NDArray[Any] | None:
        """Return rows of the value of an index entry, along the first axis.

        With ``verify``, the whole record is read in pieces and checked. None if only the whole value can be read.
        """
        return None

    @abstractmethod
    def file_there(self, key: str) -> bool:
        """Return whether a file exists that the index names."""

    @abstractmethod
    def reductions(
        self,
        names: Sequence[str],
        steps: Sequence[int] | None,
        workers: Sequence[str] | None,
        reductions: Sequence[str] | None,
        *,
        counts: bool = False,
        coverage: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
        cancel: _core.Cancel | None = None,
    ) -> dict[str, Any]:
        """Return reductions as :func:`smdwidgets._core.sweep` does.

        ``coverage``: add the share of each tensor's elements that were saved.
        """

    @abstractmethod
    def statistics(
        self,
        names: Sequence[str],
        steps: Sequence[int] | None,
        workers: Sequence[str] | None,
        *,
        threads: int | None = None,
        progress: Progress | None = None,
        cancel: _core.Cancel | None = None,
    ) -> dict[str, Any]:
        """Return statistics of values as :func:`smdwidgets._core.sweep_statistics` does."""

    def statistics_file(self) -> StatisticsFile | None:
        """Return the refreshed statistics files, or None if the format has none."""
        return None

    def statistics_cache(self, scope: str) -> StatisticsCache | None:
        """Return the cache of computed statistics for a selection of workers.

        None if statistics of this run are not cached.
        """
        return None

    @abstractmethod
    def values(
        self, rows: Sequence[Row], *, threads: int | None = None, progress: Progress | None = None
    ) -> tuple[NDArray[Any] | list[NDArray[Any] | None], list[tuple[int, BaseException]]]:
        """Return values as :func:`smdwidgets._core.values` does."""

    def problems(self) -> list[tuple[str, str]]:
        """Return the files that cannot be read, or parts of them, as (file, message)."""
        return self.index.problems()

    def has_file(self, key: str) -> bool:
        """Return whether a file of the run still exists, as far as that is known."""
        return True

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

    @abstractmethod
    def close(self) -> None:
        """Close files and connections. Arrays returned earlier stay valid."""


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

"""The seam between the programming model above and the bytes of a run below.

:class:`Trial` and :class:`Tensor` answer in steps, modes and collections. What a run holds they ask of its *index*, and where
the bytes come from is the business of a :class:`Run`. A new kind of run is a new Run: it lists what is new, reads what is
asked for, and knows when the run has ended.
"""
# The questions of `Index` are described at `smdwidgets._core.Catalog`.
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

#: Names of reductions, in the order in which they are stored and shown.
REDUCTIONS: Final = ("min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2")

#: A value: what :meth:`Run.getter` returns, by name, global step and worker (None: the first that has one).
Getter = Callable[[str, int, "str | None"], "NDArray[Any] | None"]
Progress = Callable[[int, int], object]
#: (name, global step, worker), as the core's sweeps take them.
Row = tuple[str, int, "str | None"]


class Place(Protocol):
    """Where one value lies."""

    @property
    def event_key(self) -> str: ...
    @property
    def worker(self) -> str: ...
    @property
    def step(self) -> int: ...


class Index(Protocol):
    """What lies where in a run. :class:`smdwidgets._core.Catalog` is the one of smdebug's format.

    Modes are numbers; where one is asked for, None and 4 (GLOBAL) mean all. Steps are global steps, in ascending order.
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


class CollectionFiles(NamedTuple):
    """What the collection files of a run say together."""

    manager: CollectionManager
    workers: frozenset[str]
    files: int


class Run(ABC):
    """One run: its index and its bytes. Safe to use from many threads, once opened."""

    #: The run as a person would name it: a directory, a URL.
    path: str
    index: Index
    #: Every worker has passed this step: nothing new will come at it or before. Set by the trial, which knows how many
    #: workers there are; -1 asks for everything.
    settled: int = -1
    #: What its problems are, after their number.
    damage: str = "index files can't be read"

    @abstractmethod
    def check(self) -> None:
        """Raise :class:`~smdwidgets.exceptions.RunNotFound` if there is no run, and none in the making."""

    @abstractmethod
    def refresh(self) -> None:
        """See what is new. Costs the news, not the run."""

    @abstractmethod
    def load(self, steps: Sequence[int] | None = None) -> None:
        """Make sure that the index knows what these steps hold, or all of them: names, modes and places."""

    @property
    @abstractmethod
    def partly_read(self) -> bool:
        """Whether some steps are known by number only."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether a tensor of this name exists, reading no more of the index than it takes to say yes."""

    @abstractmethod
    def reread(self, step: int) -> bool:
        """Look again at a step that may have been written anew (a training that was restarted). Whether to try again."""

    @abstractmethod
    def end_age(self) -> float | None:
        """Seconds since the run ended, None while it has not."""

    def end(self) -> RunEnd | None:
        """How the run ended, None while it has not."""
        return None if self.end_age() is None else RunEnd()

    @abstractmethod
    def collections(self) -> CollectionFiles | None:
        """What the collection files say; None while there are none, or none that are new since the last call."""

    @abstractmethod
    def getter(self) -> Getter:
        """The one function that every single value goes through: as short a way to the bytes as there is.

        Each call returns a writable array whose memory nothing else uses.

        It raises :class:`~smdwidgets.exceptions.RunFileMissing` where the index knows of a value whose file is not there.
        """

    def passing(self) -> Getter:
        """The same for values that are looked at once, as pictures of all steps look at theirs: none is kept for the next question."""
        return self.getter()

    @abstractmethod
    def value(self, place: Any) -> NDArray[Any]:
        """The value at a place that the index gave: a writable array whose memory nothing else uses."""

    @abstractmethod
    def head(self, place: Any) -> tuple[str, tuple[int, ...]]:
        """Its dtype's name and shape, reading little more."""

    @abstractmethod
    def file_there(self, key: str) -> bool:
        """Whether a file that the index speaks of is there."""

    @abstractmethod
    def reductions(
        self,
        names: Sequence[str],
        steps: Sequence[int] | None,
        workers: Sequence[str] | None,
        reductions: Sequence[str] | None,
        *,
        counts: bool = False,
        threads: int | None = None,
        progress: Progress | None = None,
        cancel: _core.Cancel | None = None,
    ) -> dict[str, Any]:
        """Reductions of many tensors at many steps, as :func:`smdwidgets._core.sweep` gives them."""

    @abstractmethod
    def values(
        self, rows: Sequence[Row], *, threads: int | None = None, progress: Progress | None = None
    ) -> tuple[NDArray[Any] | list[NDArray[Any] | None], list[tuple[int, BaseException]]]:
        """Values of many rows, as :func:`smdwidgets._core.values` gives them."""

    def kind_of(self, name: str) -> str:
        """What a log says that a tensor is: ``scalar``, ``histogram``, ``image`` …; empty where nothing is said."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections. Arrays handed out stay valid."""


def possible(step: int) -> bool:
    """Whether a number can be that of a step at all; the core takes no others.

    >>> possible(-1), possible(0), possible(2**63)
    (False, True, False)
    """
    return 0 <= step < 2**63


def is_text(name: str) -> bool:
    """Whether a name can be that of anything in a run: the core knows only text, and half of a surrogate pair is none.

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
    """The numpy dtype of a name that the core gives; ``bfloat16`` and the like need the ``ml_dtypes`` package.

    >>> dtype_named("float32")
    dtype('float32')
    """
    if name in ("str", "string"):
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
            raise UnsupportedDataError(
                f"numpy has no dtype {name}: install the package ml_dtypes to read it."
            ) from None

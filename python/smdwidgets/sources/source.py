"""Interfaces of a format: find the files of runs, and read those of one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smdwidgets.sources.tree import Tree


@dataclass(frozen=True)
class Scalars:
    """The rows of one scalar, in the order written.

    A step that is not greater than the step before supersedes the earlier rows from that step on, as after a restart.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    #: Seconds since 1970; NaN or None if unknown.
    wall_times: NDArray[np.float64] | None = None


TensorStatistics = Mapping[str, Mapping[str, Mapping[str, Scalars]]]
"""Statistics of tensors by worker, tensor, and column of :meth:`smdwidgets.Trial.statistics`."""


class Region(NamedTuple):
    """The location of a region of a tensor in one of several files."""

    #: The first element in each dimension.
    begin: tuple[int, ...]
    shape: tuple[int, ...]
    #: Path of the file relative to the directory that was opened.
    key: str
    #: Offset and length of what :meth:`Source.locate` reads to find the elements.
    offset: int
    length: int


class StoredTensor(NamedTuple):
    """The location of a tensor in a file."""

    name: str
    step: int
    #: Name of the NumPy dtype; ``bfloat16`` and similar need ``ml_dtypes``.
    dtype: str
    shape: tuple[int, ...]
    #: Path of the file relative to the directory that was opened.
    key: str
    offset: int
    length: int
    #: Seconds since 1970; NaN if unknown.
    wall_time: float = float("nan")
    #: Strides in elements, for a tensor that is not in C order.
    strides: tuple[int, ...] | None = None
    #: CRC-32 of these bytes; None if the format has none of them.
    checksum: int | None = None
    #: Regions that the tensor is joined from, each exactly once, in place of one file.
    regions: tuple[Region, ...] = ()


class StoredHistogram(NamedTuple):
    """The location of a histogram in a file."""

    name: str
    step: int
    #: Path of the file relative to the directory that was opened.
    key: str
    offset: int
    length: int
    #: Seconds since 1970; NaN if unknown.
    wall_time: float = float("nan")


class Refusal(NamedTuple):
    """Why a file is not read."""

    reason: str
    #: Whether the file was one of a training before it was damaged.
    is_damaged: bool = False


class Verified(NamedTuple):
    """What a source found when it read the content of its files."""

    #: Records whose checksums were computed.
    checksums: int
    #: Damage, as (file, message).
    faults: Sequence[tuple[str, str]]


class Source(ABC):
    """The files of one run in one format. It is used by one thread at a time.

    Only :meth:`refresh` is required; the results of the other methods may change when it returns True.
    """

    #: Name of the source in messages, usually the path of its file.
    name: str

    @abstractmethod
    def refresh(self) -> bool:
        """Read what was written since the last call. Return whether anything changed."""

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the scalars by name."""
        return {}

    def tensors(self) -> Sequence[StoredTensor]:
        """Return the locations of the tensors, from which values are read later."""
        return ()

    def locate(self, tensor: StoredTensor, region: Region) -> StoredTensor:
        """Return the location of the elements of a tensor's region.

        Several threads may call this at once. Raises :class:`~smdwidgets.exceptions.DataError` if it is damaged.
        """
        raise NotImplementedError(f"{type(self).__name__} has no tensors in regions")

    def statistics(self) -> TensorStatistics:
        """Return the statistics of tensors whose values are in no file.

        They are by worker, tensor and column.
        """
        return {}

    def histograms(self) -> Sequence[StoredHistogram]:
        """Return the locations of the histograms, of which :meth:`histogram` reads one."""
        return ()

    def histogram(self, place: StoredHistogram) -> NDArray[np.float64]:
        """Return a histogram as rows of left edge, right edge and count.

        Several threads may call this at once. Raises :class:`~smdwidgets.exceptions.DataError` if it is damaged.
        """
        raise NotImplementedError(f"{type(self).__name__} has no histograms")

    def hparams(self) -> Mapping[str, Any]:
        """Return the hyperparameters of the run by name."""
        return {}

    def identity(self) -> Mapping[str, str]:
        """Return who made the run and from what, as far as the format tells.

        The keys are ``name``, ``owner``, ``group`` and ``commit``.
        """
        return {}

    def ended(self) -> bool | None:
        """Return whether the run has ended; None if the format does not tell."""
        return None

    def age(self) -> float | None:
        """Return the seconds since the last write, or None if unknown."""
        return None

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return damaged and incomplete files, as (file, message)."""
        return ()

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return files that are not damaged, but are not read or only in part."""
        return ()

    def verify(self) -> Verified | None:
        """Read all content and compare checksums; None if the format has none."""
        return None

    def close(self) -> None:  # noqa: B027  # most sources hold nothing open
        """Close files."""


class Format(Protocol):
    """A format that one module adds, see :func:`smdwidgets.sources.register`.

    A format may have a method ``why_not(tree, key)``. It returns the :class:`Refusal` of a file that looks like one of
    the format, but that :meth:`find` does not return, or None for other files. The error for a place without a run
    quotes it.

    A format with the attribute ``is_last_resort = True`` counts only in runs where no other format has files.
    """

    #: Name of the format, such as ``"table"``.
    name: str

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the files of each run, by the run's directory.

        The empty name is the tree's root. Must not raise for unreadable or foreign files: it ignores them.
        """

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the files of one run."""

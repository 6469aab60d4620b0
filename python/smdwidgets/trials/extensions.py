"""Interfaces of plots and exports, which higher layers implement."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from smdwidgets import _extensions
from smdwidgets._extensions import Extension
from smdwidgets._text import byte_size
from smdwidgets.modes import ModeKeys
from smdwidgets.trials.columns import Failure
from smdwidgets.trials.run import Progress

if TYPE_CHECKING:
    import dask.array
    import dask.dataframe
    import xarray
    from matplotlib.axes import Axes

TrialT_contra = TypeVar("TrialT_contra", contravariant=True)


class TensorPlotter(Protocol):
    """The type of ``tensor.plot``.

    Implemented by :class:`smdwidgets.plots.TensorPlots`.
    """

    def histogram(
        self, step: int | None = None, *, bins: int = 128, scale: str = "linear", ax: Axes | None = None
    ) -> Axes:
        """Plot a histogram of the elements at a step (None: the newest).

        ``scale`` is linear, log or symlog.
        """
        ...

    def distribution(self, steps: Sequence[int] | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot the median and bands of percentiles over steps (None: all)."""
        ...

    def heatmap(
        self, step: int | None = None, *, pool: str = "maxabs", cells: int = 1 << 16, ax: Axes | None = None
    ) -> Axes:
        """Plot the plane of the last two axes at a step (None: the newest).

        Larger planes are pooled to at most ``cells`` cells.
        """
        ...


class TrialPlotter(Protocol[TrialT_contra]):
    """The type of ``trial.plot``; implemented by :class:`smdwidgets.plots.TrialPlots`."""

    def scalars(self, regex: str | Sequence[str] = ".*", *, ax: Axes | None = None) -> Axes:
        """Plot scalars with matching names over global steps, one line per mode."""
        ...

    def compare(
        self,
        others: TrialT_contra | Sequence[TrialT_contra],
        regex: str | Sequence[str] = "loss",
        *,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot scalars with matching names of this run and of others."""
        ...


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    >>> Exported(Path("run.npz"), "npz", records=30, tensors=3, steps=10, bytes=12_000)
    run.npz: 30 records of 3 tensors at 10 steps, 12.0 kB
    """

    path: Path
    format: str
    records: int
    tensors: int
    steps: int
    bytes: int
    errors: list[Failure] = field(default_factory=list)

    def __repr__(self) -> str:
        text = f"{self.path}: {self.records:,} records of {self.tensors:,} tensors at {self.steps:,} steps, {byte_size(self.bytes)}"
        return text + (f"; {len(self.errors):,} unreadable records, see .errors" if self.errors else "")


class Exporter(Protocol):
    """The type of :func:`smdwidgets.exports.export`."""

    def __call__(
        self,
        trial: Any,
        to: str,
        out: str | os.PathLike[str] | None = None,
        *,
        tensors: str | Sequence[str] | None = None,
        steps: range | Iterable[int] | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        workers: str | Sequence[str] | None = None,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Exported:
        """Write a run, or a part of it, in another format."""
        ...


class LazyReader(Protocol):
    """The type of :mod:`smdwidgets.dask`."""

    def to_dask(
        self,
        tensor: Any,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        chunk_bytes: int = ...,
        verify: str = "record",
    ) -> dask.array.Array:
        """Return the values of a tensor as an array of Dask."""
        ...

    def to_xarray(
        self,
        trial: Any,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        chunk_bytes: int = ...,
        verify: str = "record",
    ) -> xarray.Dataset:
        """Return tensors as a dataset of xarray."""
        ...

    def to_dask_dataframe(
        self,
        trial: Any,
        names: Iterable[str] | str | None = None,
        steps: Iterable[int] | int | None = None,
        columns: Iterable[str] | str | None = None,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        *,
        by: str = "names",
        partition_rows: int = ...,
        errors: str = "raise",
    ) -> dask.dataframe.DataFrame:
        """Return statistics as a data frame of Dask."""
        ...


tensor_plotter: Extension[Callable[[Any], TensorPlotter]] = _extensions.tensor_plotter
trial_plotter: Extension[Callable[[Any], TrialPlotter[Any]]] = _extensions.trial_plotter
exporter: Extension[Exporter] = _extensions.exporter
lazy_reader: Extension[LazyReader] = _extensions.lazy_reader

"""Interfaces of plots and exports, which higher layers implement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from smdwidgets import _extensions
from smdwidgets._extensions import Extension
from smdwidgets._text import byte_size
from smdwidgets.trials.columns import Failure

if TYPE_CHECKING:
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


tensor_plotter: Extension[Callable[[Any], TensorPlotter]] = _extensions.tensor_plotter
trial_plotter: Extension[Callable[[Any], TrialPlotter[Any]]] = _extensions.trial_plotter
#: :func:`smdwidgets.exports.export`
exporter: Extension[Callable[..., Exported]] = _extensions.exporter
#: The module :mod:`smdwidgets.dask`.
lazy_reader: Extension[Any] = _extensions.lazy_reader

"""Matplotlib plots of tensors and runs, from the same data as the widgets.

Each function accepts ``ax=``, returns the Axes, and does not call ``show``. Requires matplotlib:
``pip install 'smdwidgets[plots]'``.

>>> trial.tensor("fc1.weight").plot.histogram(step=100)        # doctest: +SKIP
>>> trial.plot.scalars("loss").figure.savefig("loss.pdf")      # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from smdwidgets._text import natural, shown
from smdwidgets.exceptions import SMDebugRuntimeError, SMDebugValueError, TensorUnavailable
from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.frames import PERCENTILES, Frame, HistogramWanted, Wanted, make_frame
from smdwidgets.pictures.plane import ImageWanted
from smdwidgets.pictures.view import TensorView
from smdwidgets.signals import SIGNAL_KINDS, SignalKind, Signals
from smdwidgets.trials.trial import Tensor, Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Last palette code of a finite value; codes above it are -inf, +inf and NaN.
_LAST_COLOUR = 252
#: Layers that are named beside the rows of a signal.
_LAYER_LABELS = 24


def _axes(ax: Axes | None) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise SMDebugRuntimeError("plots require matplotlib; run: pip install 'smdwidgets[plots]'") from None
    return pyplot.subplots()[1]


def _label(name: str) -> str:
    """Escape a name for matplotlib, which interprets dollar signs as math text."""
    text = shown(name)
    return (text[1:-1] if text[-1:] in "'\"" else text).replace("$", r"\$")


class TensorPlots:
    """Plots of a tensor: ``tensor.plot``.

    Steps are global steps. An empty ``worker`` selects the first by name.
    """

    def __init__(self, tensor: Tensor, worker: str = "") -> None:
        self._view = TensorView(tensor.trial, tensor.name, worker)

    def _step(self, step: int | None) -> int:
        if step is not None:
            return step
        steps = self._view.steps()
        if not steps:
            raise TensorUnavailable(self._view.name)
        return steps[-1]

    def _frame(self, step: int, wanted: Wanted, edges: Any = None) -> Frame:
        frame = make_frame(self._view, step, wanted, edges)
        if frame.error is not None:
            # Read the value again, since this raises the specific exception.
            self._view.value(step)
            raise SMDebugRuntimeError(frame.error["message"])
        return frame

    def histogram(
        self, step: int | None = None, *, bins: int = 128, scale: str = "linear", ax: Axes | None = None
    ) -> Axes:
        """Plot a histogram of the elements at a step (None: the newest).

        ``scale`` is linear, log or symlog. Where the value is missing, counts are estimated from the sample, and the
        title says so.
        """
        ax = _axes(ax)
        step = self._step(step)
        frame = self._frame(step, Wanted(histogram=HistogramWanted(scale, bins, "own"), image=None, percentiles=False))
        if frame.hist is None or frame.edges is None:
            raise SMDebugValueError(
                f"cannot plot a histogram of {shown(self._view.name)} at step {step}: it has no numeric elements"
            )
        ax.stairs(frame.hist, frame.edges, fill=True)
        if scale == "log":
            ax.set_xscale("log")
        elif scale == "symlog":
            largest = float(np.abs(frame.edges).max())
            ax.set_xscale("asinh", linear_width=largest / 1e3)
            power = 10.0 ** np.floor(np.log10(largest))
            ax.set_xticks([-power, -power / 10, 0, power / 10, power])
        ax.set(xlabel="|value|" if scale == "log" else "value", ylabel="elements")
        title = f"{_label(self._view.name)}, step {step}"
        if frame.sampled:
            title += f" (from a sample of {frame.sampled:,} of {prod(frame.shape):,} elements)"
        ax.set_title(title)
        return ax

    def distribution(self, steps: Sequence[int] | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot the median and percentile bands over steps (None: all).

        The bands are 25 to 75, 5 to 95 and 1 to 99.
        """
        ax = _axes(ax)
        wanted = Wanted(histogram=None, image=None)
        found = [
            (frame.step, frame.percentiles)
            for step in (self._view.steps() if steps is None else steps)
            if (frame := self._frame(step, wanted)).percentiles is not None
        ]
        if not found:
            raise SMDebugValueError(f"cannot plot {shown(self._view.name)}: no values were saved at these steps")
        at = [step for step, _ in found]
        rows = np.array([percentiles for _, percentiles in found])
        for low, alpha in ((0, 0.15), (1, 0.35), (2, 0.6)):
            high, label = 6 - low, f"{PERCENTILES[low]:g} % to {PERCENTILES[6 - low]:g} %"
            # Exclude the inner bands, so that the colour matches the legend.
            for edge, inner in ((low, low + 1), (high, high - 1)):
                ax.fill_between(
                    at, rows[:, edge], rows[:, inner], alpha=alpha, color="C0", linewidth=0,
                    label=label if edge == low else None,
                )  # fmt: skip
        ax.plot(at, rows[:, 3], color="C0", label="median")
        ax.set(xlabel="step", ylabel="value", title=_label(self._view.name))
        ax.margins(x=0)
        ax.legend(loc="upper left")  # values usually spread during training, so there is space at the start
        return ax

    def heatmap(
        self, step: int | None = None, *, pool: str = "maxabs", cells: int = 1 << 16, ax: Axes | None = None
    ) -> Axes:
        """Plot the plane of the last two axes at a step (None: the newest).

        Larger planes are pooled to at most ``cells`` cells.
        """
        ax = _axes(ax)
        step = self._step(step)
        image = ImageWanted(pool=pool, cells=cells)
        frame = self._frame(step, Wanted(histogram=None, image=image, percentiles=False))
        if frame.image is None:
            raise SMDebugValueError(
                f"cannot plot a heatmap of {shown(self._view.name)} at step {step}: it has no numeric elements"
            )
        low, high = frame.image.limits
        codes = frame.image.codes.astype(np.float64)
        values = np.where(codes <= _LAST_COLOUR, low + (high - low) * codes / _LAST_COLOUR, np.nan)
        rows, columns = frame.image.size
        if low < 0 < high:
            colours: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -max(-low, high), "vmax": max(-low, high)}
        else:
            colours = {"cmap": "viridis", "vmin": low, "vmax": high}
        shown_image = ax.imshow(
            values,
            extent=(-0.5, columns - 0.5, rows - 0.5, -0.5),
            interpolation="nearest",
            aspect="auto",
            **colours,
        )
        ax.figure.colorbar(shown_image, ax=ax)
        ax.locator_params(integer=True)
        ax.set_title(f"{_label(self._view.name)}, step {step}")
        return ax


class TrialPlots:
    """Plots of a run: ``trial.plot``."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def scalars(self, regex: str | Sequence[str] = ".*", *, ax: Axes | None = None) -> Axes:
        """Plot scalars with matching names over global steps, one line per mode."""
        ax = _axes(ax)
        if not _curves(ax, self._trial, regex, ""):
            raise SMDebugValueError(f"no scalar tensor matches {shown(regex)}")
        ax.set(xlabel="step", ylabel="value", title=_label(self._trial.name))
        ax.legend()
        return ax

    def signals(self, kind: str, worker: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot a signal of large models over steps.

        Each row is a head, expert, block or tensor, grouped by layer. Red lines are the limits of the diagnosis: on the
        scale of colours, and in a row where it first exceeds the smallest one.

        Args:
            kind: identifier of the kind, such as ``"attention_max"``.
            worker: worker that recorded it; default: all, below each other.
            ax: axes to draw in; default: a new figure.
        """
        signals = self._trial.signals().of(kind, worker)
        if not len(signals):
            reason = signals.off.get(kind, "it was not recorded")
            raise SMDebugValueError(f"cannot plot the signal {shown(kind)} of run {shown(self._trial.name)}: {reason}")
        ax = _axes(ax)
        _show_signals(ax, signals, SIGNAL_KINDS[kind])
        return ax

    def compare(
        self, others: Trial | Sequence[Trial], regex: str | Sequence[str] = "loss", *, ax: Axes | None = None
    ) -> Axes:
        """Plot scalars with matching names of this run and of others."""
        ax = _axes(ax)
        trials = [self._trial, *([others] if not isinstance(others, Sequence) else others)]
        if not sum(_curves(ax, trial, regex, f"{trial.name}: ") for trial in trials):
            raise SMDebugValueError(f"no scalar tensor matches {shown(regex)} in any of the runs")
        ax.set(xlabel="step", ylabel="value")
        ax.legend()
        return ax


def _show_signals(ax: Any, signals: Signals, kind: SignalKind) -> None:
    from matplotlib import colors

    values, steps = signals.values, signals.steps
    rows = np.concatenate([layer[: one.values.shape[1]] for layer, one in zip(values, signals, strict=True)])
    finite = rows[np.isfinite(rows)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    norm: Any
    if kind.centre is not None:
        around = max(high - kind.centre, kind.centre - low) or 1.0
        norm, colours = colors.TwoSlopeNorm(kind.centre, min(low, kind.centre - 0.01), kind.centre + around), "RdBu_r"
    elif kind.is_logarithmic and high > 0:
        least = float(finite[finite > 0].min())
        norm, colours = colors.LogNorm(least, max(high, least * 1.01, *(one * 1.1 for one in kind.limits))), "viridis"
    else:
        norm, colours = colors.Normalize(low, high), "viridis"
    middles = (steps[1:] + steps[:-1]) / 2
    edges = np.concatenate([[steps[0] - 0.5], middles, [steps[-1] + 0.5]])
    image = ax.pcolormesh(edges, np.arange(len(rows) + 1), rows, norm=norm, cmap=colours)
    bar = ax.figure.colorbar(image, ax=ax, label=kind.meaning)
    for limit in kind.limits:
        if norm.vmin < limit < norm.vmax:
            bar.ax.axhline(limit, color="C3")
    if kind.limits:  # where a row first exceeds the limit
        with np.errstate(invalid="ignore"):
            above = rows > kind.limits[0]
        for row in np.flatnonzero(above.any(axis=1)):
            ax.plot([edges[np.argmax(above[row])]] * 2, [row, row + 1], color="C3")
    ends = np.cumsum([one.values.shape[1] for one in signals])
    for end in ends[:-1]:
        ax.axhline(end, color="white", linewidth=1)
    shown_at = np.unique(np.linspace(0, len(ends) - 1, min(len(ends), _LAYER_LABELS)).astype(int))
    starts = np.concatenate([[0], ends[:-1]])
    ax.set_yticks([(starts[at] + ends[at]) / 2 for at in shown_at], [_label(signals[at].layer) for at in shown_at])
    ax.invert_yaxis()
    ax.set(xlabel="step", title=f"{kind.id} by {kind.rows or 'step'}")


def _curves(ax: Any, trial: Trial, regex: str | Sequence[str], prefix: str) -> int:
    """Draw the curves and return their number."""
    names = sorted(trial.tensor_names(regex=regex), key=natural)
    if not names:
        return 0
    table = trial.reductions(names, reductions=["mean"], counts=True)
    drawn = 0
    # A size of -1 means that only reductions were saved.
    single = (table["size"] == 1) | (table["size"] == -1)
    for name in names:
        mine = single & (table["name"] == name)
        for mode in dict.fromkeys(table["mode"][mine].tolist()):
            rows = mine & (table["mode"] == mode)
            several = len(np.unique(table["mode"][mine])) > 1
            label = _label(prefix + name) + (f" ({_mode_name(mode)})" if several else "")
            ax.plot(table["step"][rows], table["mean"][rows], label=label)
            drawn += 1
    return drawn


def _mode_name(mode: Any) -> str:
    return str(ModeKeys(int(mode)).name) if isinstance(mode, int | np.integer) else str(mode)

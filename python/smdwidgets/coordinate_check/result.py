"""How the size of each layer depends on the width of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import json_number, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GROWS", "NOT_FINITE", "STEADY", "VANISHES", "CoordinateCheck", "LayerScaling", "judged"]

STEADY: Final = "steady"
GROWS: Final = "grows"
VANISHES: Final = "vanishes"
NOT_FINITE: Final = "not finite"
#: Layers that a text names.
_SHOWN: Final = 40

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LayerScaling:
    """How the output of one layer scales with the width of the model.

    A slope is the exponent of the width: with slope 1, a model of twice the width has twice the value.

    Attributes:
        name: name of the module, as in ``model.named_modules()``; ``"output"`` is that of the model.
        sizes: mean absolute output, one row per width, one column per number of updates from 0 on.
        changes: mean absolute difference from the output before the first update; NaN if batches differ.
        start_slope: slope of the size before the first update.
        slope: slope of the size after the last update.
        change_slope: slope of the change after the last update; NaN if there is none.
        verdict: ``"steady"``, ``"grows"``, ``"vanishes"`` or ``"not finite"``.
    """

    name: str
    sizes: Doubles
    changes: Doubles
    start_slope: float
    slope: float
    change_slope: float
    verdict: str


@dataclass(frozen=True, eq=False)
class CoordinateCheck:
    """The result of a coordinate check.

    Attributes:
        widths: the widths, ascending.
        steps: updates of each model.
        seeds: models that were trained for each width.
        tolerance: slopes between its negative and itself are steady.
        layers: the layers in forward order.
    """

    widths: tuple[int, ...]
    steps: int
    seeds: int
    tolerance: float
    layers: tuple[LayerScaling, ...]

    @property
    def passed(self) -> bool:
        """Whether all layers are steady."""
        return not self.failing

    @property
    def failing(self) -> list[LayerScaling]:
        """The layers that are not steady, in forward order."""
        return [one for one in self.layers if one.verdict != STEADY]

    @property
    def summary(self) -> str:
        """The result in one or two sentences."""
        span = f"from width {self.widths[0]:,} to {self.widths[-1]:,}"
        if self.passed:
            return f"All {len(self.layers)} layers keep their size {span}, before and after {self.steps} updates."
        infinite = [one for one in self.failing if one.verdict == NOT_FINITE]
        if infinite:
            return f"`{infinite[0].name}` has values that are not finite; nothing can be said of its scaling."
        ratio = self.widths[-1] / self.widths[0]
        growing = [one for one in self.failing if one.verdict == GROWS]
        parts = []
        if growing:
            worst = max(growing, key=_largest_slope)
            factor = ratio ** _largest_slope(worst)
            parts.append(
                f"{len(growing)} of {len(self.layers)} layers grow with the width, `{worst.name}` {factor:,.1f} times {span}. A learning rate "
                "that suits a narrow model is too large for a wide one: with Adam, divide the rate of hidden matrices by "
                "the width, and multiply the output by 1 / width."
            )
        vanishing = [one for one in self.failing if one.verdict == VANISHES]
        if vanishing:
            least = min(vanishing, key=lambda one: one.change_slope)
            parts.append(
                f"{len(vanishing)} of {len(self.layers)} layers learn less the wider the model is, `{least.name}` "
                f"{ratio**-least.change_slope:,.1f} times less {span}."
            )
        return " ".join(parts)

    def table(self) -> dict[str, NDArray[Any]]:
        """Return the columns of a table with one line per layer.

        ``pandas.DataFrame`` and ``polars.DataFrame`` accept them.
        """
        numbers = ("start_slope", "slope", "change_slope")
        return {
            "layer": np.array([one.name for one in self.layers], object),
            "narrow": np.array([one.sizes[0, -1] for one in self.layers]),
            "wide": np.array([one.sizes[-1, -1] for one in self.layers]),
            **{name: np.array([getattr(one, name) for one in self.layers], float) for name in numbers},
            "verdict": np.array([one.verdict for one in self.layers], object),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON has it; numbers that are not finite are text."""
        return {
            "passed": self.passed,
            "summary": self.summary,
            "widths": list(self.widths),
            "steps": self.steps,
            "seeds": self.seeds,
            "tolerance": self.tolerance,
            "layers": [
                {
                    "name": one.name,
                    "verdict": one.verdict,
                    "start_slope": json_number(one.start_slope),
                    "slope": json_number(one.slope),
                    "change_slope": json_number(one.change_slope),
                    "sizes": [[json_number(value) for value in row] for row in one.sizes.tolist()],
                    "changes": [[json_number(value) for value in row] for row in one.changes.tolist()],
                }
                for one in self.layers
            ],
        }

    def __repr__(self) -> str:
        result = "passed" if self.passed else "FAILED"
        head = f"coordinate check {result}: {len(self.widths)} widths, {self.steps} updates, {self.seeds} seed{'s' * (self.seeds > 1)}"
        shown = sorted(self.layers, key=lambda one: one.verdict == STEADY)[:_SHOWN]
        shown = [one for one in self.layers if one in shown]
        first, last = f"at {self.widths[0]}", f"at {self.widths[-1]}"
        rows: list[tuple[str, ...]] = [("layer", first, last, "slope at start", f"after {self.steps}", "of change", "")]
        rows += [
            (
                visible(one.name, 60),
                f"{one.sizes[0, -1]:.3g}",
                f"{one.sizes[-1, -1]:.3g}",
                *(
                    "" if math.isnan(slope) else f"{round(slope, 2) + 0.0:+.2f}"
                    for slope in (one.start_slope, one.slope, one.change_slope)
                ),
                one.verdict,
            )
            for one in shown
        ]
        wide = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(
                text.ljust(size) if column in (0, 6) else text.rjust(size)
                for column, (text, size) in enumerate(zip(row, wide, strict=True))
            )
            for row in rows
        ]
        more = [f"and {len(self.layers) - len(shown)} steady layers"] if len(self.layers) > len(shown) else []
        return "\n".join([head, "", *(line.rstrip() for line in lines), *more, "", self.summary])

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Plot the size of each layer after the last update over the width.

        It needs Matplotlib.
        Layers that are not steady are drawn in colour with their names, dashed where they vanish.

        Args:
            ax: axes to draw on; default: new ones.
        """
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=(7, 4.5), layout="constrained").subplots()
        failing = 0
        for one in self.layers:
            vanishes = one.verdict == VANISHES
            values = (one.changes if vanishes else one.sizes)[:, -1]
            if one.verdict == STEADY:
                ax.plot(self.widths, values, color="0.65", linewidth=1, marker=".")
            else:
                what = "change of " if vanishes else ""
                label = f"{what}{visible(one.name, 40)}: {one.verdict}" if failing < 12 else None
                ax.plot(self.widths, values, marker="o", linestyle="--" if vanishes else "-", label=label)
                failing += 1
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks(self.widths, [f"{width:,}" for width in self.widths])
        ax.set_xlabel("width")
        ax.set_ylabel(f"mean absolute output after {self.steps} updates")
        ax.set_title(
            "all layers keep their size"
            if self.passed
            else f"{failing} of {len(self.layers)} layers depend on the width"
        )
        if failing:
            ax.legend(fontsize="small")
        return ax


def judged(
    widths: Sequence[int], sizes: Mapping[str, Doubles], changes: Mapping[str, Doubles], tolerance: float
) -> tuple[LayerScaling, ...]:
    """Judge layers by the slopes of their sizes.

    Args:
        widths: the widths.
        sizes: by layer: size by width and number of updates.
        changes: by layer: change by width and number of updates.
        tolerance: slopes between its negative and itself are steady.

    >>> rows = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]])
    >>> [layer] = judged([8, 16, 32], {"fc": rows}, {"fc": rows * np.nan}, 0.25)
    >>> layer.slope, layer.verdict
    (1.0, 'grows')
    """
    layers = []
    for name, size in sizes.items():
        change = changes[name]
        start, slope, change_slope = (_slope(widths, column) for column in (size[:, 0], size[:, -1], change[:, -1]))
        if not np.isfinite(size).all():
            verdict = NOT_FINITE
        elif max(start, slope, _or(change_slope, 0)) > tolerance:
            verdict = GROWS
        elif change_slope < -tolerance:
            verdict = VANISHES
        else:
            verdict = STEADY
        layers.append(LayerScaling(name, size, change, start, slope, change_slope, verdict))
    return tuple(layers)


def _slope(widths: Sequence[int], values: Doubles) -> float:
    """Return the exponent of the width; NaN unless all values are positive."""
    if not (np.isfinite(values).all() and (values > 0).all()):
        return math.nan
    return round(float(np.polyfit(np.log(widths), np.log(values), 1)[0]), 12)


def _largest_slope(layer: LayerScaling) -> float:
    return max(_or(layer.start_slope, 0), _or(layer.slope, 0), _or(layer.change_slope, 0))


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value

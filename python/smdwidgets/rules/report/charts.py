"""Draw charts as SVG text.

Colours are CSS classes, so that the style sheet of a page sets them for light and dark themes. All text from a run is
escaped. The output has no style attributes and no scripts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import markup
from smdwidgets.rules.findings import number

__all__ = ["STYLE", "bars", "heat", "lines"]

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 44
#: Number of distinct colours; further series repeat them with dashed lines.
COLOURS = 8
#: Maximum number of points of a line; longer lines are thinned evenly, with both ends kept.
MOST_POINTS = 2000
MOST_BARS = 40
LABEL = 28

#: Style of charts inside an element with class smdw-report. The theme is that of the notebook, or else of the browser.
STYLE = """
.smdw-report{--ink:var(--jp-content-font-color1,#1b1f24);--soft:var(--jp-content-font-color2,#5b6570);
--line:var(--jp-border-color2,#d5dae0);--page:var(--jp-layout-color0,#fff);--c0:#0072b2;--c1:#d55e00;--c2:#009e73;
--c3:#cc79a7;--c4:#56b4e9;--c5:#e69f00;--c6:#7a5195;--c7:#5b6570}
@media(prefers-color-scheme:dark){.smdw-report{--ink:var(--jp-content-font-color1,#e6e9ed);--soft:var(--jp-content-font-color2,#9aa5b1);
--line:var(--jp-border-color2,#3a424b);--page:var(--jp-layout-color0,#16191d);--c0:#4aa8e0;--c1:#f08a45;
--c2:#35c79c;--c3:#e3a0c5;--c4:#8accf2;--c5:#f2bd4b;--c6:#b08ad0;--c7:#9aa5b1}}
.smdw-chart{max-width:100%;height:auto;font:12px system-ui,sans-serif;display:block}
.smdw-chart text{fill:var(--soft)}.smdw-chart .title{fill:var(--ink)}.smdw-chart .grid{stroke:var(--line);stroke-width:1}
.smdw-chart .axis{stroke:var(--soft);stroke-width:1}.smdw-chart path{fill:none;stroke-width:1.75;stroke-linejoin:round}
.smdw-chart .s0{stroke:var(--c0)}.smdw-chart .s1{stroke:var(--c1)}.smdw-chart .s2{stroke:var(--c2)}.smdw-chart .s3{stroke:var(--c3)}
.smdw-chart .s4{stroke:var(--c4)}.smdw-chart .s5{stroke:var(--c5)}.smdw-chart .s6{stroke:var(--c6)}.smdw-chart .s7{stroke:var(--c7)}
.smdw-chart .dashed{stroke-dasharray:5 4}.smdw-chart .diagonal{stroke:var(--line);stroke-dasharray:3 3}
.smdw-chart rect.bar{fill:var(--c0)}.smdw-chart rect.cell{fill:var(--c0);stroke:var(--page)}.smdw-chart .on{fill:#fff}.smdw-chart .off{fill:var(--ink)}
"""


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]], x_label: str, y_label: str, *, diagonal: bool = False
) -> str:
    """Draw curves over a common x axis, with a legend."""
    finite = {
        name: pair
        for name, (x, y) in series.items()
        if (pair := _finite(np.asarray(x, float), np.asarray(y, float)))[0].size
    }
    if not finite:
        return _empty("No finite values")
    x_low, x_high = _range([x for x, _ in finite.values()])
    y_low, y_high = _range([y for _, y in finite.values()])
    y_high += 0.05 * (y_high - y_low)  # margin above the highest point
    parts = _frame(x_low, x_high, y_low, y_high, x_label, y_label)
    if diagonal:
        parts.append(
            f'<path class="diagonal" d="M{_x(0, x_low, x_high):.1f} {_y(0, y_low, y_high):.1f}L{_x(1, x_low, x_high):.1f} {_y(1, y_low, y_high):.1f}"/>'
        )
    for at, (name, (x, y)) in enumerate(finite.items()):
        points = "L".join(f"{_x(a, x_low, x_high):.1f} {_y(b, y_low, y_high):.1f}" for a, b in zip(x, y, strict=True))
        dashed = " dashed" if at // COLOURS % 2 else ""
        start = points if len(x) > 1 else f"{points}h3"
        parts.append(f'<path class="s{at % COLOURS}{dashed}" d="M{start}"><title>{markup(name)}</title></path>')
    height = HEIGHT + _legend(parts, list(finite))
    return _svg(parts, height, f"{y_label} over {x_label}: {', '.join(finite)}")


def bars(values: Mapping[str, float], x_label: str) -> str:
    """Draw one horizontal bar per name, in the given order."""
    shown = {name: value for name, value in list(values.items())[:MOST_BARS] if math.isfinite(value)}
    if not shown:
        return _empty("No finite values")
    left = 170
    top = max(max(shown.values()), 0.0) or 1.0
    row = 20
    parts = []
    for at, (name, value) in enumerate(shown.items()):
        length = (WIDTH - left - 90) * max(value, 0.0) / top
        y = TOP + at * row
        label = name if len(name) <= LABEL else f"…{name[-LABEL + 1 :]}"
        parts.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{markup(label)}<title>{markup(name)}</title></text>'
        )
        parts.append(f'<rect class="bar" x="{left}" y="{y + 2}" width="{length:.1f}" height="{row - 6}" rx="2"/>')
        parts.append(f'<text x="{left + length + 6:.1f}" y="{y + 12}">{markup(number(value))}</text>')
    height = TOP + len(shown) * row + 24
    more = f" (first {MOST_BARS} of {len(values)})" if len(values) > MOST_BARS else ""
    parts.append(f'<text x="{left}" y="{height - 8}">{markup(x_label + more)}</text>')
    return _svg(parts, height, x_label)


def heat(matrix: NDArray[np.int64], x_label: str, y_label: str) -> str:
    """Draw a matrix of counts; the shade of a cell is its share of the row."""
    size = len(matrix)
    cell = max(min(48, 480 // max(size, 1)), 14)
    left, top = 64, 34
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    parts = [
        f'<text class="title" x="{left}" y="14">{markup(x_label)}</text>',
        f'<text class="title" x="14" y="{top + size * cell / 2:.0f}" transform="rotate(-90 14 {top + size * cell / 2:.0f})" text-anchor="middle">{markup(y_label)}</text>',
    ]
    for row in range(size):
        parts.append(f'<text x="{left - 8}" y="{top + row * cell + cell / 2 + 4:.0f}" text-anchor="end">{row}</text>')
        parts.append(f'<text x="{left + row * cell + cell / 2:.0f}" y="{top - 6}" text-anchor="middle">{row}</text>')
        for column in range(size):
            x, y = left + column * cell, top + row * cell
            parts.append(
                f'<rect class="cell" x="{x}" y="{y}" width="{cell}" height="{cell}" fill-opacity="{0.04 + 0.96 * share[row, column]:.3f}">'
                f"<title>label {row}, prediction {column}: {matrix[row, column]}</title></rect>"
            )
            if cell >= 26:
                shade = "on" if share[row, column] > 0.5 else "off"
                parts.append(
                    f'<text class="{shade}" x="{x + cell / 2:.0f}" y="{y + cell / 2 + 4:.0f}" text-anchor="middle">{matrix[row, column]}</text>'
                )
    return _svg(parts, top + size * cell + 8, f"{y_label} by {x_label}", max(left + size * cell + 8, 200))


def _finite(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    keep = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if len(keep) > MOST_POINTS:
        keep = keep[np.linspace(0, len(keep) - 1, MOST_POINTS).astype(np.intp)]
    return x[keep], y[keep]


def _range(arrays: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    low, high = min(float(each.min()) for each in arrays), max(float(each.max()) for each in arrays)
    if low == high:
        pad = abs(low) * 0.05 or 1.0
        return low - pad, high + pad
    return low, high


def _x(value: float, low: float, high: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / (high - low)


def _y(value: float, low: float, high: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / (high - low)


def _ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers within the range."""
    step = 10.0 ** math.floor(math.log10((high - low) / count))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= count)
    return [round(at * step, 12) for at in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _frame(x_low: float, x_high: float, y_low: float, y_high: float, x_label: str, y_label: str) -> list[str]:
    parts = []
    # Truncated to the height of the chart, because names of metrics can be long.
    y_label = y_label if len(y_label) <= 40 else f"…{y_label[-39:]}"
    for tick in _ticks(y_low, y_high):
        y = _y(tick, y_low, y_high)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{number(tick)}</text>')
    parts += [
        f'<text x="{_x(tick, x_low, x_high):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number(tick)}</text>'
        for tick in _ticks(x_low, x_high, 8)
    ]
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    parts.append(
        f'<text class="title" x="{(LEFT + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{markup(x_label)}</text>'
    )
    middle = (TOP + base) / 2
    parts.append(
        f'<text class="title" x="14" y="{middle:.0f}" transform="rotate(-90 14 {middle:.0f})" text-anchor="middle">{markup(y_label)}</text>'
    )
    return parts


def _legend(parts: list[str], names: Sequence[str]) -> int:
    """Draw the legend below the chart, in two columns, and return its height."""
    for at, name in enumerate(names):
        x, y = LEFT + (at % 2) * 290, HEIGHT + 14 + (at // 2) * 18
        label = name if len(name) <= 40 else f"…{name[-39:]}"
        dashed = " dashed" if at // COLOURS % 2 else ""
        parts.append(
            f'<path class="s{at % COLOURS}{dashed}" d="M{x} {y - 4}h22"/><text x="{x + 28}" y="{y}">{markup(label)}</text>'
        )
    return 24 + (len(names) + 1) // 2 * 18


def _svg(parts: Sequence[str], height: float, label: str, width: int = WIDTH) -> str:
    return (
        f'<svg class="smdw-chart" xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height:.0f}" role="img" '
        f'aria-label="{markup(label[:300])}">{"".join(parts)}</svg>'
    )


def _empty(why: str) -> str:
    return f"<p>{markup(why)}</p>"

"""Draw a run as an SVG picture.

It has the map of the tensors in the rows of the explorer, the curve of the loss, the steps at which rules fired, and
the axis of steps, in the page's light colours. Used by stills and stories, which render without a browser.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import markup, visible
from smdwidgets.naming.tensors import modules
from smdwidgets.pictures.overview import collection_members
from smdwidgets.survey import RuleFirings, Survey
from smdwidgets.survey.bins import DOMAINS, INFINITE, NAN, SUDDEN, level_of
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.widgets.protocol import SCHEMA

WIDTH = 960
_GUTTER, _RIGHT = 230, 64
_ROW, _MOST_ROWS, _LEAST_ROW, _MAP_HEIGHT = 14, 42, 4, 420
_LOSS_HEIGHT, _LANE = 44, 13
_LABEL = 34
"""Characters of a name beside the map."""
_MOST_NAMES = 2000
"""Tensors of rows beyond which a part of them is drawn."""
_MOST_LANES = 3
_FEW_ROWS = 24
"""Rows of a model whose modules are all open."""
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_MOST_MARKS = 4000
_STRONGEST = 12.0
_NAN = f"#{SCHEMA['colours']['not_finite']['nan']}"
_INK, _QUIET, _RULE, _ACCENT = "#1c2024", "#5d6570", "#d5d9de", "#0a5fb4"

_MISSING = np.array([247, 247, 247], np.uint8)
"""Colour of cells without a value."""

_STATISTICS = {
    "growth": ("blue-red", "", "", "size relative to start"),
    "surprise": ("blue-red", "−12", "+12 usual spreads", "surprise (size against the last steps)"),
    "size": ("cividis", "small", "large", "size (root mean square, logarithmic)"),
    "l2": ("cividis", "small", "large", "L2 norm (logarithmic)"),
    "update": ("cividis", "small", "large", "update ratio (logarithmic)"),
    "zeros": ("density", "no zeros", "all zero", "share of zeros"),
    "not_finite": ("density", "all finite", "none finite", "share not finite"),
}
"""By statistic: its colour map, the meaning of the map's ends, and its name."""
assert set(_STATISTICS) == set(DOMAINS)


def colour_map(name: str) -> NDArray[np.uint8]:
    """Return the 256 colours of a colour map of the page, of shape (256, 3).

    >>> colour_map("grey")[[0, 255]].tolist()
    [[16, 16, 16], [244, 244, 244]]
    """
    stops = np.array([list(bytes.fromhex(stop)) for stop in SCHEMA["colours"]["maps"][name].split()], np.float64)
    positions = np.linspace(0, len(stops) - 1, 256)
    channels = [np.interp(positions, np.arange(len(stops)), channel) for channel in stops.T]
    colours: NDArray[np.uint8] = np.rint(np.stack(channels, axis=1)).astype(np.uint8)
    return colours


@dataclass(frozen=True)
class Marks:
    """What a picture points out.

    Attributes:
        step: the step in view, if any.
        tensor: the tensor in view, or "".
        names: tensors whose names are shown first.
        bookmarks: marked steps.
        lasting: words for the states of tensors, with their first step and their last one or None.
    """

    step: int | None = None
    tensor: str = ""
    names: tuple[str, ...] = ()
    bookmarks: tuple[int, ...] = ()
    lasting: Mapping[str, tuple[str, int, int | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Row:
    """A tensor, or a module whose tensors share a row."""

    label: str
    names: tuple[str, ...]


def draw(
    survey: Survey,
    *,
    title: str,
    loss: str = "",
    rules: Sequence[RuleFirings] = (),
    marks: Marks | None = None,
    tensors: Sequence[str] | None = None,
    span: tuple[float, float] | None = None,
    stat: str = "growth",
    worker: str = "",
) -> str | None:
    """Return the picture of a run as SVG, or None before the first step.

    Args:
        survey: the statistics of the run, as far as they were read.
        title: the first line.
        loss: the scalar above the axis; "" for none.
        rules: what rules found.
        marks: what to point out.
        tensors: the rows; by default those of the explorer, which folds modules without a marked tensor.
        span: first and last step; by default all.
        stat: the statistic that the map colours.
        worker: the worker; "" for the first one.
    """
    ends = survey.steps()
    if ends is None:
        return None
    marks = marks or Marks()
    first, last = ends if span is None else (max(ends[0], int(span[0])), min(ends[1], int(span[1])))
    if last < first:
        first, last = ends
    axis = _Axis(first, last, _level(survey, first, last))
    page = _Page(axis)
    page.text(8, 18, title, 13, _INK, "600")
    page.y = 30
    rows = _rows(survey, marks) if tensors is None else [_Row(name, (name,)) for name in tensors]
    scale = _Scale(survey, stat)
    if rows:
        _draw_map(page, survey, rows, worker, scale, marks)
    if loss:
        _draw_loss(page, survey, loss)
    _draw_rules(page, rules)
    _draw_axis(page, marks)
    if rows:
        _draw_legend(page, scale)
    return page.svg(title)


# ---------------------------------------------------------------------------------------------------------------- page


class _Axis:
    """Steps and bins along the width."""

    def __init__(self, first: int, last: int, level: int) -> None:
        self.first, self.last, self.level = first, last, level
        self.begin = first >> level
        self.count = (last >> level) - self.begin + 1
        self.width = WIDTH - _GUTTER - _RIGHT

    def x(self, step: float) -> float:
        """Return the middle of a step, or of the bin that begins there."""
        return self.edge((step - (self.begin << self.level)) / (1 << self.level) + 0.5)

    def edge(self, place: float) -> float:
        """Return the left edge of a bin."""
        return _GUTTER + self.width * place / self.count


def _level(survey: Survey, first: int, last: int) -> int:
    """Return a level whose bins fit, and are as wide as the distance of steps."""
    level = level_of(first, last, WIDTH - _GUTTER - _RIGHT)
    saved = [step for step in survey.trial.reader.index.steps() if first <= step <= last]
    if len(saved) > 1:
        distance = int(np.median(np.diff(np.asarray(saved, np.int64))))
        level = max(level, max(0, distance.bit_length() - 1))
    return level


class _Page:
    """The parts of a picture, from top to bottom."""

    def __init__(self, axis: _Axis) -> None:
        self.axis = axis
        self.y = 0.0
        self.top = 0.0
        self._parts: list[str] = []

    def add(self, part: str) -> None:
        self._parts.append(part)

    def rect(self, x: float, y: float, width: float, height: float, colour: str, more: str = "") -> None:
        self.add(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"{more}/>')

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: str, width: float = 1) -> None:
        self.add(
            f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{colour}" stroke-width="{width}" fill="none"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 11,
        colour: str = _QUIET,
        weight: str = "400",
        end: str = "start",
    ) -> None:
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" font-weight="{weight}" '
            f'text-anchor="{end}">{markup(text, 200)}</text>'
        )

    def svg(self, title: str) -> str:
        height = round(self.y)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'role="img" font-family="system-ui,-apple-system,Segoe UI,Roboto,sans-serif"><title>{markup(title, 200)}</title>'
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>{"".join(self._parts)}</svg>'
        )


# ----------------------------------------------------------------------------------------------------------------- map


def _rows(survey: Survey, marks: Marks) -> list[_Row]:
    """Return a row per module, and those of tensors as the explorer unfolds them.

    These are of the module of the first marked tensor, or of all modules if they are few.
    """
    names = survey.names()
    with no_refresh(survey.trial):
        folded = modules(names, collection_members(survey.trial, names))
    all_open = sum(len(members) + (len(members) > 1) for _, members in folded) <= _FEW_ROWS
    marked = next(iter([*marks.names, marks.tensor]), "")
    rows: list[_Row] = []
    for module, members in folded:
        of_module = tuple(names[index] for index in members)
        if len(members) == 1:
            rows.append(_Row(of_module[0], of_module))
            continue
        rows.append(_Row(module, of_module))
        if all_open or marked in of_module:
            rows += [_Row(name.replace(module, "", 1).replace("/.", "/").lstrip("./"), (name,)) for name in of_module]
    return rows


class _Scale:
    """What the colours of a statistic mean."""

    def __init__(self, survey: Survey, stat: str) -> None:
        self.stat = stat
        self.map, self.low, self.high, self.title = _STATISTICS[stat]
        self.limit = survey.table.growth_limit() if stat == "growth" else 1.0
        if stat == "growth":
            self.low, self.high = factor_text(-self.limit), f"{factor_text(self.limit)} its start"

    def word(self, value: float) -> str:
        """Return a value in a word; "" if it is none."""
        if np.isnan(value) or self.stat == "surprise":
            return ""
        if self.stat == "growth":
            return "0" if value <= DOMAINS["growth"][0] else factor_text(value)
        return f"{value:.0%}" if self.stat in {"zeros", "not_finite"} else f"{10.0**value:.2g}"


def factor_text(decades: float) -> str:
    """Return a factor as text, as the page does.

    >>> factor_text(0.0), factor_text(0.28), factor_text(-0.602), factor_text(6.0), factor_text(6.3)
    ('×1', '×1.9', '÷4', '×10⁶', '×2·10⁶')
    """
    size = abs(decades)
    sign = "×" if decades > 0 else "÷"
    if size < 3.97:
        factor = f"{float(f'{10**size:.{1 if size < 1 else 2}e}'):g}"
        return "×1" if factor == "1" else f"{sign}{factor}"
    whole = int(size + 0.022)
    digit = round(10 ** (size - whole))
    return f"{sign}{f'{digit}·' if digit > 1 else ''}10{str(whole).translate(_SUPERSCRIPTS)}"


def _draw_map(page: _Page, survey: Survey, rows: list[_Row], worker: str, scale: _Scale, marks: Marks) -> None:
    axis, stat = page.axis, scale.stat
    names = [name for row in rows for name in row.names]
    owners = np.repeat(np.arange(len(rows)), [len(row.names) for row in rows])
    if len(names) > _MOST_NAMES:
        every = len(names) // _MOST_NAMES + 1
        kept = {marks.tensor, *marks.names}
        chosen = [at for at, name in enumerate(names) if at % every == 0 or name in kept]
        names, owners = [names[at] for at in chosen], owners[chosen]
    bins = survey.bins(names, worker, 0, stat, axis.level, axis.begin, axis.count)
    dense = len(rows) > _MOST_ROWS
    drawn = min(len(rows), _MAP_HEIGHT // _LEAST_ROW) if dense else len(rows)
    height = _ROW if not dense else max(_LEAST_ROW, _MAP_HEIGHT / drawn)
    groups = owners * drawn // len(rows)
    shown = _merged_rows(bins.farthest(stat), groups, drawn)
    amount, flags = np.zeros((drawn, axis.count), np.int64), np.zeros((drawn, axis.count), np.uint8)
    np.maximum.at(amount, groups, bins.n)
    np.bitwise_or.at(flags, groups, bins.flag)
    _fill_gaps(shown, amount)
    page.top = top = page.y
    data = _core.encode_png(_pixels(shown, amount, scale))
    page.rect(_GUTTER, top, axis.width, drawn * height, "#f7f7f7")
    page.add(
        f'<image x="{_GUTTER}" y="{top:.1f}" width="{axis.width}" height="{drawn * height:.1f}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{base64.b64encode(data).decode("ascii")}"/>'
    )
    if not dense:
        for row in range(1, drawn):
            page.rect(_GUTTER, top + row * height - 0.5, axis.width, 1, "#fff")
    bad = (flags & (NAN | INFINITE)) != 0
    _draw_sudden(page, (flags & SUDDEN) != 0, height)
    states = _draw_lasting(page, names, groups, height, marks)
    _draw_not_finite(page, bad & (amount > 0), amount > 0, height)
    _draw_names(page, rows, drawn, height, marks)
    if not dense:
        _draw_ends(page, shown, amount, flags, states, scale)
    page.y += drawn * height + 8


def _merged_rows(values: NDArray[np.float32], groups: NDArray[np.intp], rows: int) -> NDArray[np.float32]:
    """Return for each group of rows the value farthest from zero."""
    merged = np.full((rows, values.shape[1]), np.nan, np.float32)
    for at, row in zip(groups, values, strict=True):
        with np.errstate(invalid="ignore"):
            farther = np.isnan(merged[at]) | (np.abs(row) > np.abs(merged[at]))
        merged[at] = np.where(farther & ~np.isnan(row), row, merged[at])
    return merged


def _fill_gaps(shown: NDArray[np.float32], amount: NDArray[np.int64]) -> None:
    """Extend each saved step of a row to the next one, unless it is far away."""
    for row, saved in zip(shown, amount, strict=True):
        places = np.flatnonzero(saved)
        if len(places) < 2:
            continue
        widest = 2 * int(np.median(np.diff(places)))
        for distance in range(1, min(widest, 64)):
            after = places + distance
            after = after[after < len(row)]
            empty = after[saved[after] == 0]
            row[empty] = row[empty - distance]


def _pixels(shown: NDArray[np.float32], amount: NDArray[np.int64], scale: _Scale) -> NDArray[np.uint8]:
    """Return the colours of the cells."""
    stat = scale.stat
    missing = np.isnan(shown)
    position = np.nan_to_num(shown)
    if stat == "surprise":
        usual = np.minimum(np.sqrt(2 * np.log(100.0 * np.maximum(1, amount))), _STRONGEST - 1)
        strength = np.clip((np.abs(position) - usual) / (_STRONGEST - usual), 0, 1)
        position = 0.5 + 0.5 * strength * np.sign(position)
    elif stat == "growth":
        position = 0.5 + 0.5 * position / scale.limit
    elif stat not in {"zeros", "not_finite"}:
        finite = shown[np.isfinite(shown)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        position = (position - low) / max(high - low, 1e-9)
    pixels = colour_map(scale.map)[np.rint(255 * np.clip(position, 0, 1)).astype(np.uint8)]
    pixels[missing] = _MISSING
    return pixels


def _draw_not_finite(page: _Page, bad: NDArray[np.bool_], saved: NDArray[np.bool_], height: float) -> None:
    """Draw a block where values stop being finite, and a line while they are not."""
    axis, drawn = page.axis, 0
    for row in np.flatnonzero(bad.any(axis=1)):
        top = page.top + row * height
        for begin, end in _episodes(bad[row], saved[row]):
            drawn += 1
            if drawn > _MOST_MARKS:
                return
            x, x1 = axis.edge(begin), axis.edge(end)
            thick = max(1.0, min(4.0, height / 2))
            page.rect(x, top + (height - thick) / 2, max(1.0, x1 - x), thick, _NAN)
            page.rect(x, top, 5, max(height, 1.0), _NAN)


def _episodes(bad: NDArray[np.bool_], saved: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return where a row is bad.

    Bins without saved steps continue what is before them.

    >>> _episodes(np.array([0, 1, 0, 1, 0, 0], bool), np.array([1, 1, 0, 1, 0, 1], bool))
    [(1, 5)]
    """
    places = np.flatnonzero(saved)
    states = bad[places].astype(np.int8)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], states, [0]])))
    ends = np.append(places, len(bad))
    return [(int(places[begin]), int(ends[end])) for begin, end in zip(edges[::2], edges[1::2], strict=True)]


def _draw_sudden(page: _Page, sudden: NDArray[np.bool_], height: float) -> None:
    """Draw a bar where the size of a row changes suddenly."""
    for row, place in np.argwhere(sudden & ~np.roll(sudden, 1, axis=1))[:_MOST_MARKS].tolist():
        page.rect(page.axis.edge(place), page.top + row * height, 2, height, _INK)


def _draw_lasting(
    page: _Page, names: list[str], groups: NDArray[np.intp], height: float, marks: Marks
) -> dict[int, str]:
    """Draw a line below states that last.

    Return the words of those that last to the end.
    """
    axis, words = page.axis, {}
    for name, row in zip(names, groups.tolist(), strict=True):
        if name not in marks.lasting or row in words:
            continue
        word, first, last = marks.lasting[name]
        # The last steps of a run can be evaluation, which saves fewer tensors.
        to_end = last is None or last >= axis.last - 0.03 * (axis.last - axis.first)
        x = max(_GUTTER, axis.x(first))
        x1 = WIDTH - _RIGHT if to_end or last is None else min(WIDTH - _RIGHT, axis.x(last))
        if x1 > x:
            bottom = page.top + (row + 1) * height - 1
            page.rect(x, bottom - 2, x1 - x, 2, _INK)
            page.rect(x, bottom + 1 - height, 3, height - 1, _INK)
        if to_end:
            words[row] = word
    return words


def _draw_ends(
    page: _Page,
    shown: NDArray[np.float32],
    amount: NDArray[np.int64],
    flags: NDArray[np.uint8],
    states: Mapping[int, str],
    scale: _Scale,
) -> None:
    """Write how each row ends."""
    for row, saved in enumerate(amount > 0):
        places = np.flatnonzero(saved)
        if not len(places):
            continue
        flag, value = int(flags[row, places[-1]]), float(shown[row, places[-1]])
        y = page.top + (row + 1) * _ROW - 3.5
        if flag & (NAN | INFINITE):
            page.text(WIDTH - _RIGHT + 5, y, "NaN" if flag & NAN else "Inf", 10.5, _NAN, "600")
        elif row in states:
            page.text(WIDTH - _RIGHT + 5, y, states[row], 10.5, _INK, "600")
        else:
            beyond = scale.stat == "growth" and abs(value) > scale.limit
            page.text(
                WIDTH - _RIGHT + 5, y, scale.word(value), 10.5, _INK if beyond else _QUIET, "600" if beyond else "400"
            )


def _draw_names(page: _Page, rows: list[_Row], drawn: int, height: float, marks: Marks) -> None:
    """Write the names of rows, first the marked ones, none over another."""
    marked = [name for name in (marks.tensor, *marks.names) if name]
    order = {name: at for at, name in reversed(list(enumerate(marked)))}

    def rank(row: _Row) -> int:
        return min((order[name] for name in row.names if name in order), default=len(order))

    single = sorted(range(len(rows)), key=lambda at: (len(rows[at].names) > 1, rank(rows[at])))
    room = max(height, 13.0)
    taken: list[float] = []
    for at in single if height < _ROW else range(len(rows)):
        row = rows[at]
        is_marked = len(row.names) == 1 and row.names[0] in order
        middle = page.top + (at * drawn // len(rows) + 0.5) * height
        if any(abs(middle - other) < room - 0.5 for other in taken):
            continue
        taken.append(middle)
        bold = is_marked or (len(row.names) > 1 and height >= _ROW)
        colour = _INK if bold else _QUIET
        page.text(_GUTTER - 8, middle + 4, _short(row.label), 11, colour, "600" if bold else "400", "end")


def _short(name: str) -> str:
    """Cut the beginning of a long name: the last parts tell names apart.

    >>> _short("model.decoder.layers.17.self_attn.k_proj.weight")
    '…layers.17.self_attn.k_proj.weight'
    """
    text = visible(name)
    return text if len(text) <= _LABEL else f"…{text[1 - _LABEL :].lstrip('./')}"


# ------------------------------------------------------------------------------------------------------------ timeline


def _draw_loss(page: _Page, survey: Survey, name: str) -> None:
    records, rows = survey.table.records(), survey.table.rows_of(name, "")
    if not rows:
        return
    axis = page.axis
    mine = (records["row"] == rows[0]) & (records["step"] >= axis.first) & (records["step"] <= axis.last)
    steps, values = records["step"][mine], records["mean"][mine].astype(np.float64)
    finite = np.isfinite(values)
    if not finite.any():
        return
    low, high = float(values[finite].min()), float(values[finite].max())
    top, inner = page.y, _LOSS_HEIGHT - 8
    page.line(_GUTTER, top + _LOSS_HEIGHT, WIDTH - _RIGHT, top + _LOSS_HEIGHT, _RULE)
    every = max(1, len(steps) // 2000)
    points: list[str] = []
    command = "M"
    for step, value in zip(steps[::every].tolist(), values[::every].tolist(), strict=True):
        if not np.isfinite(value):
            command = "M"
            continue
        y = top + 4 + inner * (0.5 if high == low else (high - value) / (high - low))
        points.append(f"{command}{axis.x(step):.1f} {y:.1f}")
        command = "L"
    page.add(f'<path d="{"".join(points)}" stroke="{_ACCENT}" stroke-width="1.5" fill="none" stroke-linejoin="round"/>')
    page.text(8, top + _LOSS_HEIGHT / 2 + 4, _short(name), 11, _INK)
    if high != low:
        page.text(_GUTTER - 8, top + 10, f"{high:.3g}", 10, end="end")
        page.text(_GUTTER - 8, top + _LOSS_HEIGHT - 2, f"{low:.3g}", 10, end="end")
    page.y += _LOSS_HEIGHT + 6


def _draw_rules(page: _Page, rules: Iterable[RuleFirings]) -> None:
    fired = [rule for rule in rules if rule.steps]
    for rule in fired[:_MOST_LANES]:
        page.rect(_GUTTER, page.y, page.axis.width, _LANE - 3, "#f1f2f4")
        for begin, end in _segments(page.axis, rule.steps):
            page.rect(begin, page.y, end - begin, _LANE - 3, "#b3261e")
        label = f"▲ {rule.rule}  {len(rule.steps):,} {'step' if len(rule.steps) == 1 else 'steps'}"
        page.text(8, page.y + 9, label[:48], 11, _INK)
        page.y += _LANE
    if len(fired) > _MOST_LANES:
        page.text(8, page.y + 9, f"+{len(fired) - _MOST_LANES} more", 11)
        page.y += _LANE
    page.y += 2 if fired else 0


def _segments(axis: _Axis, steps: Iterable[int]) -> list[tuple[float, float]]:
    """Return the ends of marks of steps in view, and merge close marks."""
    segments: list[tuple[float, float]] = []
    for step in sorted(step for step in steps if axis.first <= step <= axis.last):
        begin = max(axis.x(step) - 1.5, _GUTTER)
        if segments and begin - segments[-1][1] < 3:
            segments[-1] = (segments[-1][0], begin + 3)
        else:
            segments.append((begin, begin + 3))
    return segments


def _draw_axis(page: _Page, marks: Marks) -> None:
    axis, y = page.axis, page.y + 4
    for step in marks.bookmarks:
        if axis.first <= step <= axis.last:
            page.line(axis.x(step), page.top, axis.x(step), y, "#8f6a00")
    page.line(_GUTTER, y, WIDTH - _RIGHT, y, _RULE)
    shown = marks.step if marks.step is not None and axis.first <= marks.step <= axis.last else None
    at = axis.x(shown) if shown is not None else None
    for tick in _ticks(axis.first, axis.last):
        x = axis.x(tick)
        page.line(x, y, x, y + 4, _QUIET)
        if at is None or abs(x - at) > 48:
            page.text(x, y + 16, f"{tick:,}", 11, end="middle")
    if at is not None:
        page.line(at, page.top, at, y + 4, _INK, 1.2)
        label = f"step {shown:,}"
        half = 4 + 3.2 * len(label)
        middle = min(max(at, _GUTTER + half), WIDTH - _RIGHT - half)
        page.rect(middle - half, y + 4, 2 * half, 17, _INK, ' rx="3"')
        page.text(middle, y + 16, label, 11, "#fff", "600", "middle")
    page.text(8, y + 16, "step", 11)
    page.y = y + 26


def _ticks(first: int, last: int) -> list[int]:
    """Return about six round steps.

    >>> _ticks(0, 500)
    [0, 100, 200, 300, 400, 500]
    """
    rough = max(1.0, (last - first) / 6)
    power = 10 ** int(np.floor(np.log10(rough)))
    distance = max(1, int(next(power * each for each in (1, 2, 5, 10) if power * each >= rough)))
    return list(range(-(-first // distance) * distance, last + 1, distance))


def _draw_legend(page: _Page, scale: _Scale) -> None:
    low, high = scale.low, scale.high
    y, x = page.y, WIDTH - _RIGHT - 110.0 - 6.5 * len(high)
    for part, colour in enumerate(colour_map(scale.map)[np.linspace(0, 255, 22).astype(int)]):
        page.rect(x + part * 5, y, 5.2, 9, f"#{bytes(colour).hex()}")
    page.text(x - 6, y + 9, low, 11, end="end")
    page.text(x + 116, y + 9, high, 11)
    x -= 30 + 6.2 * len(low)
    page.text(x, y + 9, "sudden change", 11, end="end")
    x -= 92
    page.rect(x, y, 2, 9, _INK)
    page.text(x - 14, y + 9, "NaN or inf", 11, end="end")
    page.rect(x - 80, y, 5, 9, _NAN)
    page.text(_GUTTER, y + 9, f"Colour: {scale.title}", 11)
    page.y = y + 18

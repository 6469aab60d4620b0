"""Tables of runs as text and as HTML that follows a light or dark theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from smdwidgets._text import markup, visible

#: Rows that are shown; columns of hyperparameters that are shown.
_ROWS, _TEXT_ROWS, _HPARAMS = 200, 30, 8
#: Characters of a cell.
_CELL = 60
_WIDTH, _HEIGHT = 72, 18

#: Text has the colour of the page around it, so that it is readable on light and dark pages alike.
STYLE = """
.smd-runs{--smd-line:var(--jp-brand-color1,#1e88e5);--smd-bad:var(--jp-error-color1,#d32f2f);
--smd-good:var(--jp-success-color1,#388e3c);--smd-warn:var(--jp-warn-color1,#ef6c00);font-size:13px;max-height:40em;overflow:auto}
.smd-runs table{border-collapse:collapse;margin:0}
.smd-runs th,.smd-runs td{text-align:right;padding:.25em .8em;white-space:nowrap;border-bottom:1px solid
color-mix(in srgb,currentColor 14%,transparent)}
.smd-runs th{font-weight:600;position:sticky;top:0;background:var(--jp-layout-color0,Canvas)}
.smd-runs .l{text-align:left}
.smd-runs td{font-variant-numeric:tabular-nums}
.smd-runs tbody tr:hover{background:color-mix(in srgb,currentColor 6%,transparent)}
.smd-runs i{display:inline-block;width:.6em;height:.6em;border-radius:50%;margin-right:.45em;background:currentColor;opacity:.35}
.smd-runs i.running{background:var(--smd-good);opacity:1}
.smd-runs i.stalled,.smd-runs i.interrupted{background:var(--smd-warn);opacity:1}
.smd-runs i.unreadable,.smd-runs i.error{background:var(--smd-bad);opacity:1}
.smd-runs svg{vertical-align:middle;margin-left:.6em;overflow:visible}
.smd-runs polyline{fill:none;stroke:var(--smd-line);stroke-width:1.3;stroke-linejoin:round}
.smd-runs small{opacity:.7}
.smd-runs p{margin:.3em 0}
"""


class Row(Protocol):
    """A run, as a table shows it."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def error(self) -> str | None:
        """Why the run could not be read, or None."""

    @property
    def findings(self) -> list[str] | None:
        """Titles of findings, or None."""

    def curve(self, tag: str) -> list[float]:
        """Return some values of a curve."""

    def lookup(self, name: str, function: str | None = None) -> Any:
        """Return a value by name."""


class RowTable(NamedTuple):
    """Rows and columns to show."""

    root: str
    rows: Sequence[Row]
    columns: list[str]
    tags: list[str]
    cells: list[list[Any]]


class Groups(NamedTuple):
    """Groups to show.

    The names and columns, and the key, number of runs and texts of each group.
    """

    names: list[str]
    columns: list[str]
    groups: list[tuple[tuple[Any, ...], int, list[Any]]]


def text(table: RowTable, limit: int) -> str:
    """Return a table of runs as aligned text."""
    at = _shown_columns(table)
    columns = [table.columns[each] for each in at]
    rows = [[_cell(table.columns[each], cells[each]) for each in at] for cells in table.cells[:limit]]
    return _text(f"{_count(len(table.rows), 'run')} in {table.root}", columns, rows, len(table.rows) - limit)


def html(table: RowTable) -> str:
    """Return a table of runs as HTML."""
    at = _shown_columns(table)
    columns = [table.columns[each] for each in at]
    head = "".join(f'<th class="{_side(column)}">{markup(_label(column), _CELL)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(_html_cell(row, table.columns[each], cells[each], table.tags) for each in at)}</tr>"
        for row, cells in zip(table.rows[:_ROWS], table.cells, strict=False)
    )
    more = f"<p><small>… and {len(table.rows) - _ROWS:,} more</small></p>" if len(table.rows) > _ROWS else ""
    left = len(table.columns) - len(columns)
    more += f"<p><small>{left:,} more columns: see .columns and .to_pandas()</small></p>" if left else ""
    title = f"<p><b>{_count(len(table.rows), 'run')}</b> <small>{markup(table.root, 200)}</small></p>"
    return _page(title, head, body, more)


def groups_text(groups: Groups) -> str:
    """Return groups of runs as aligned text."""
    columns = [*groups.names, "runs", *map(_label, groups.columns)]
    rows = [_group_cells(groups, at) for at in range(min(len(groups.groups), _TEXT_ROWS))]
    return _text(_count(len(groups.groups), "group"), columns, rows, len(groups.groups) - _TEXT_ROWS)


def groups_html(groups: Groups) -> str:
    """Return groups of runs as HTML."""
    columns = [*groups.names, "runs", *map(_label, groups.columns)]
    sides = ["l" if at < len(groups.names) else "" for at in range(len(columns))]
    head = "".join(f'<th class="{side}">{markup(each, _CELL)}</th>' for side, each in zip(sides, columns, strict=True))
    body = ""
    for at in range(min(len(groups.groups), _ROWS)):
        pairs = zip(sides, _group_cells(groups, at), strict=True)
        cells = "".join(f'<td class="{side}">{markup(each, _CELL)}</td>' for side, each in pairs)
        body += f"<tr>{cells}</tr>"
    title = f"<p><b>{_count(len(groups.groups), 'group')}</b> <small>mean ± standard deviation</small></p>"
    return _page(title, head, body, "")


def _page(title: str, head: str, body: str, more: str) -> str:
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="smd-runs"><style>{STYLE}</style>{title}{table}{more}</div>'


def _shown_columns(table: RowTable) -> list[int]:
    """Return the columns that are shown.

    Of hyperparameters these are the ones that differ, up to a limit.
    """
    hparams = [at for at, column in enumerate(table.columns) if column.startswith("hparams.")]
    different = [at for at in hparams if len({repr(cells[at]) for cells in table.cells}) > 1]
    hidden = set(hparams) - set((different or hparams)[:_HPARAMS])
    return [at for at in range(len(table.columns)) if at not in hidden]


def _html_cell(row: Row, column: str, value: Any, tags: Sequence[str]) -> str:
    content = markup(_cell(column, value), _CELL)
    if column == "state":
        content = f'<i class="{markup(str(value).split(":")[0], 20)}"></i>{content}'
    if column == "name" and row.error:
        content += f" <small>{markup(row.error, 120)}</small>"
    if column in tags:
        content += _sparkline(row.curve(column))
    if column == "findings" and row.findings:
        content = f'<span title="{markup("; ".join(row.findings), 500)}">{content}</span>'
    return f'<td class="{_side(column)}">{content}</td>'


def _sparkline(curve: Sequence[float]) -> str:
    if len(curve) < 2:
        return f'<svg width="{_WIDTH}" height="{_HEIGHT}" aria-hidden="true"></svg>'
    low, high = min(curve), max(curve)
    span = (high - low) or 1.0
    points = " ".join(
        f"{at * _WIDTH / (len(curve) - 1):.1f},{_HEIGHT - (value - low) / span * _HEIGHT:.1f}"
        for at, value in enumerate(curve)
    )
    return f'<svg width="{_WIDTH}" height="{_HEIGHT}" aria-hidden="true"><polyline points="{points}"/></svg>'


def _side(column: str) -> str:
    return "l" if column in ("name", "kind", "state") else ""


def _label(column: str) -> str:
    return column.removeprefix("hparams.")


def _cell(column: str, value: Any) -> str:
    if value is None:
        return "–"
    if column == "started":
        return datetime.fromtimestamp(value).strftime("%Y-%m-%d %H:%M")
    if column == "duration":
        return _duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return visible(value, _CELL)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if math.isfinite(value) else {math.inf: "inf", -math.inf: "-inf"}.get(value, "NaN")


def _duration(seconds: float) -> str:
    """Format a duration.

    >>> _duration(5.4), _duration(3725), _duration(200000)
    ('5 s', '1 h 02 min', '2 d 07 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60):02d} s"
    if minutes < 2880:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60:02d} h"


def _group_cells(groups: Groups, at: int) -> list[str]:
    key, runs, spreads = groups.groups[at]
    cells = [_cell("", part) for part in key] + [f"{runs:,}"]
    for column, spread in zip(groups.columns, spreads, strict=True):
        cells.append("–" if spread is None else _duration(spread.mean) if column == "duration" else str(spread))
    return cells


def _text(title: str, columns: Sequence[str], rows: list[list[str]], left: int) -> str:
    labels = [_label(column) for column in columns]
    widths = [max(len(row[at]) for row in [labels, *rows]) for at in range(len(labels))]
    lines = [
        "  ".join(
            cell.ljust(width) if _side(column) or not at else cell.rjust(width)
            for at, (cell, width, column) in enumerate(zip(row, widths, columns, strict=True))
        ).rstrip()
        for row in [labels, *rows]
    ]
    return "\n".join([title, *(lines if rows else []), *([f"… and {left:,} more"] if left > 0 else [])])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")

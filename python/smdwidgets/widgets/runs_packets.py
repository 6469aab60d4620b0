"""Packets of the table of runs: about 600 bytes a run."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from smdwidgets._text import json_number, visible
from smdwidgets.pictures.packet import pack
from smdwidgets.run_table.curves import BINS, unpack_curve
from smdwidgets.run_table.discovery import FoundRun
from smdwidgets.run_table.live import LiveTable, Progress
from smdwidgets.run_table.table import Run, best_of, main_tags

#: Runs in one packet.
_RUNS: Final = 100
#: Characters of a name, a message and a value; curves that can be chosen; hyperparameters of a run.
_NAME, _MESSAGE, _VALUE, _TAGS, _HPARAMS = 300, 300, 100, 200, 100
#: Significant digits of a number that the table shows.
_DIGITS: Final = 7

Rows = Sequence[tuple[int, FoundRun, Run | None]]


class RunsPackets:
    """Sends the rows of a table of runs once, and later what changed."""

    def __init__(self, table: LiveTable) -> None:
        self.table = table
        self._chosen = ""
        self._tag = ""
        self._version = 0
        self._progress = Progress()
        self._lock = threading.Lock()

    def all(self, chosen: str | None = None) -> list[bytes]:
        """Return packets with all rows, the best run first.

        Args:
            chosen: the curve to show; None: the one that was chosen last.
        """
        with self._lock:
            if chosen is not None:
                self._chosen = chosen
            return self._all()

    def updates(self) -> list[bytes]:
        """Return packets with what changed since the last ones."""
        with self._lock:
            return self._since(replace=False)

    def _all(self) -> list[bytes]:
        self._version = 0
        return self._since(replace=True)

    def _since(self, replace: bool) -> list[bytes]:
        version, changed, progress = self.table.changes(self._version)
        if not replace and not changed and progress == self._progress:
            return []
        tags = self.table_tags() if changed or replace else []
        tag = self._tag if not tags and not replace else self._chosen if self._chosen in tags else (tags or [""])[0]
        if tag != self._tag and not replace:  # the curve that most runs have is another one now
            return self._all()
        self._tag, self._version, self._progress = tag, version, progress
        sign = -1 if best_of(tag) == "max" else 1
        rows = sorted(changed, key=lambda row: _rank(row[2], tag, sign))
        groups = [rows[at : at + _RUNS] for at in range(0, len(rows), _RUNS)] or [rows]
        about = {"root": visible(self.table.root, 500), "tag": visible(tag, _NAME), "high": best_of(tag) == "max"}
        return [
            self._pack(group, {**about, "append": not replace or at > 0}, tags if at == 0 else None)
            for at, group in enumerate(groups)
        ]

    def table_tags(self) -> list[str]:
        """Return the curves of the runs, those that most runs have first."""
        return main_tags(self.table.read_runs())[:_TAGS]

    def _pack(self, rows: Rows, head: dict[str, Any], tags: list[str] | None) -> bytes:
        progress = self._progress
        known = [run for _, _, run in rows]
        statistics = [[_number(run, self._tag, name) for run in known] for name in ("best", "last", "not_finite")]
        head |= {
            "kind": "runs",
            "total": len(self.table),
            "doing": progress.doing,
            "done": progress.done,
            "of": progress.total,
            "numbers": [number for number, _, _ in rows],
            "name": [visible(found.name, _NAME) for _, found, _ in rows],
            "state": _shortened(["reading" if run is None else _state(run) for run in known]),
            "steps": _shortened([None if run is None else run.lookup("steps") for run in known]),
            "best": statistics[0],
            "last": statistics[1],
            "not_finite": _shortened(statistics[2]),
            "duration": _shortened([_rounded(None if run is None else run.lookup("duration")) for run in known]),
            "findings": _shortened([None if run is None else run.lookup("findings") for run in known]),
            "hparams": dict(_hparams(known)),
            "notes": dict(_notes(rows)),
        }
        if tags is not None:
            head["tags"] = [visible(tag, _NAME) for tag in tags]
        curves = [None if run is None else unpack_curve(run.bins(self._tag)) for run in known]
        shape = (len(rows), BINS)
        lo, hi = np.zeros(shape, np.uint16), np.zeros(shape, np.uint16)
        level, first, ends = np.zeros(len(rows), np.uint8), np.zeros(len(rows)), np.zeros((len(rows), 2))
        for at, curve in enumerate(curves):
            if curve is not None:
                lo[at, : len(curve.lo)], hi[at, : len(curve.hi)] = curve.lo, curve.hi
                level[at], first[at], ends[at] = curve.level, curve.first, (curve.low, curve.high)
        return pack(head, {"level": level, "first": first, "ends": ends, "lo": lo, "hi": hi})


def _rank(run: Run | None, tag: str, sign: int) -> tuple[bool, float]:
    best = None if run is None else run.statistic(tag, "best")
    return best is None or math.isnan(best), sign * (best or 0.0)


def _number(run: Run | None, tag: str, statistic: str) -> float | str | None:
    return None if run is None else _rounded(run.statistic(tag, statistic))


def _rounded(value: Any) -> float | str | None:
    """Return a number with few digits; NaN and infinities are strings."""
    if value is None or isinstance(value, str):
        return value
    return json_number(float(f"{value:.{_DIGITS}g}"))


def _state(run: Run) -> str:
    state = str(run.lookup("state"))
    return {"unreadable": "error", "interrupted": "stalled"}.get(state, visible(state, 30))


def _hparams(runs: Sequence[Run | None]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the values of each hyperparameter."""
    given = [{} if run is None else run.hparams for run in runs]
    names = list(dict.fromkeys(name for one in given for name in one))[:_HPARAMS]
    for name in names:
        yield visible(name, _VALUE), _shortened([_value(one.get(name)) for one in given])


def _value(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    return _rounded(value) if isinstance(value, int | float) else visible(value, _VALUE)


def _notes(rows: Rows) -> Iterator[tuple[str, list[str]]]:
    """Yield the error of a run that could not be read, or the titles of its findings."""
    for number, _, run in rows:
        if run is not None and (run.error or run.findings):
            texts = [run.error] if run.error else (run.findings or [])
            yield str(number), [visible(text, _MESSAGE) for text in texts[:5]]


def _shortened(values: list[Any]) -> list[Any]:
    """Return one value if all are equal."""
    first = repr(values[0]) if values else ""
    return values[:1] if all(repr(value) == first for value in values) else values

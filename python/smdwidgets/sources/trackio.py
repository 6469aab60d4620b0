"""Runs in trackio's databases: one SQLite file for each project."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from smdwidgets._text import visible
from smdwidgets.exceptions import RunIOError
from smdwidgets.sources.layout import flat
from smdwidgets.sources.source import Scalars, Source
from smdwidgets.sources.sqlite import columns_of, databases, query, tables_of
from smdwidgets.sources.step_columns import StepColumns
from smdwidgets.sources.tree import Tree

_TABLE: Final = "metrics"
_NEEDED: Final = frozenset({"id", "timestamp", "run_name", "step", "metrics"})
#: Columns that tell runs apart. Older versions had names only.
_RUN_COLUMNS: Final = ("run_id", "run_name")


#: Names of a run that are read. A name is written with each of its numbers, so that the file limits them, too.
_MOST_NAMES: Final = 200_000


class TrackioDatabase:
    """The format of trackio's databases."""

    name = "trackio database"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the database of each run, which is named by the file and the run."""
        runs: dict[str, Sequence[str]] = {}
        for key, tables in databases(tree):
            if _TABLE not in tables or not columns_of(tree, key, _TABLE) >= _NEEDED:
                continue  # another application's database
            base = "" if tree.is_file else f"{key}/"
            runs |= {f"{base}{name}": [key] for name in _run_names(tree, key)}
        return runs

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of one run."""
        return TrackioSource(tree, run if tree.is_file else run.removeprefix(f"{files[0]}/"), files[0])


def _run_column(tree: Tree, key: str) -> str:
    columns = columns_of(tree, key, _TABLE)
    return next(name for name in _RUN_COLUMNS if name in columns)


def _run_names(tree: Tree, key: str) -> dict[str, str]:
    """Return the identity of each run by its name; runs of one name are numbered.

    Slashes would look like folders.
    """
    column = _run_column(tree, key)
    names: dict[str, str] = {}
    rows = query(tree, key, f"SELECT {column}, MAX(run_name) FROM {_TABLE} GROUP BY {column} ORDER BY MIN(id)")
    for identity, name in rows:
        plain = str(name).replace("/", "_") or "run"
        number = 1
        while (own := plain if number == 1 else f"{plain} ({number})") in names:
            number += 1
        names[own] = str(identity)
    return names


class TrackioSource(Source):
    """One run of a database, which is only read."""

    def __init__(self, tree: Tree, run: str, key: str) -> None:
        self.name = f"{key}/{run}"
        self._tree = tree
        self._key = key
        self._run = run
        self._last = -1
        self._columns = StepColumns(_MOST_NAMES)
        #: The column that tells runs apart, and its value for this run; found once.
        self._where: tuple[str, str] | None = None
        self._settings: dict[str, Any] = {}
        self._media: set[str] = set()
        self._written: float | None = None
        self._problem = ""

    def refresh(self) -> bool:
        """Read the rows that were added since the last call."""
        tree, key = self._tree, self._key
        try:
            if self._where is None:
                self._where = _run_column(tree, key), _run_names(tree, key).get(self._run, self._run)
            column, identity = self._where
            rows = query(
                tree,
                key,
                f"SELECT id, timestamp, step, metrics FROM {_TABLE} WHERE {column} = ? AND id > ? ORDER BY id",
                identity,
                self._last,
            )
            if rows and "configs" in tables_of(tree, key) and column in columns_of(tree, key, "configs"):
                self._read_settings(query(tree, key, f"SELECT config FROM configs WHERE {column} = ?", identity))
        except RunIOError as error:
            changed, self._problem = str(error) != self._problem, str(error)
            return changed  # a locked database is read at the next call
        changed, self._problem = bool(rows or self._problem), ""
        if rows:
            self._append(rows)
        return changed

    def _append(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._last = int(rows[-1][0])
        values = []
        for *_, text in rows:
            metrics = _object(text)
            self._media |= {str(name) for name, value in metrics.items() if _is_media(value)}
            values.append(flat({name: value for name, value in metrics.items() if not _is_media(value)}))
        times = [_seconds(timestamp) for _, timestamp, _, _ in rows]
        self._written = max(times)
        self._columns.append(values, [int(step) for _, _, step, _ in rows], times)

    def _read_settings(self, rows: Sequence[tuple[Any, ...]]) -> None:
        settings = flat(_object(rows[0][0])) if rows else {}
        self._settings = {name: value for name, value in settings.items() if not name.startswith("_")}

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the metrics."""
        return self._columns.scalars()

    def hparams(self) -> Mapping[str, Any]:
        """Return the configuration of the run."""
        return self._settings

    def age(self) -> float | None:
        """Return the seconds since the last row. Other runs write to the same file."""
        known = self._written is not None and math.isfinite(self._written)
        return max(0.0, time.time() - self._written) if known and self._written is not None else None

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return why the database cannot be read."""
        return [(self._key, self._problem)] if self._problem else []

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return the names of images and tables, which are not read."""
        names = ", ".join(visible(name, 40) for name in sorted(self._media)[:6])
        notes = [f"images and tables are not read: {names}"] if names else []
        return [(self._key, f"{self._tree.path(self._key)}: {note}") for note in notes + self._columns.notes]


def _object(text: object) -> dict[str, Any]:
    try:
        content = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _is_media(value: object) -> bool:
    return isinstance(value, dict) and "_type" in value


def _seconds(timestamp: object) -> float:
    """Return the time of an ISO date in seconds since 1970, or NaN.

    >>> _seconds("1970-01-01T00:01:00+00:00"), _seconds("yesterday")
    (60.0, nan)
    """
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp()
    except (ValueError, OverflowError):
        return math.nan

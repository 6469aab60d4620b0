"""Runs in MLflow's stores: text files in ``mlruns/``, and a SQLite database."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from smdwidgets._text import listed, shown
from smdwidgets.exceptions import RunIOError
from smdwidgets.sources.columns import LARGEST_STEP, invalid_steps, last_of_step
from smdwidgets.sources.settings import plain_value, read_settings
from smdwidgets.sources.source import Refusal, Scalars, Source
from smdwidgets.sources.sqlite import databases, is_database, query, tables_of
from smdwidgets.sources.tree import Tree, Version
from smdwidgets.sources.whole_files import WholeFiles

#: States in which a run has ended, as MLflow's files and database write them.
_ENDED: Final = frozenset({"3", "4", "5", "FINISHED", "FAILED", "KILLED"})
#: Tags that MLflow sets itself, and what they are called in the catalog of runs.
_IDENTITY: Final = {"mlflow.runName": "name", "mlflow.user": "owner", "mlflow.source.git.commit": "commit"}
_TABLES: Final = frozenset(["runs", "metrics", "params", "tags", "experiments"])
#: Bytes of a metric's file that are read at once.
_PIECE: Final = 8 << 20


class MlflowFiles:
    """The format of MLflow's text files: a directory for each run."""

    name = "mlflow files"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the files of each run."""
        runs = {
            key.rpartition("/")[0]
            for key in tree.named(".yaml")
            if key.rpartition("/")[2] == "meta.yaml" and b"run_id:" in tree.head(key, 4096)
        }
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.keys if runs else ():
            for run in _above(key):
                if run in runs:
                    below = key[len(run) + 1 if run else 0 :]
                    if below == "meta.yaml" or below.startswith(("metrics/", "params/", "tags/")):
                        found[run].append(key)
                    break
        return found

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of one run."""
        return MlflowFileSource(tree, run, files)


def _above(key: str) -> Iterator[str]:
    """Yield the directories above a file, the innermost first.

    >>> list(_above("a/b/c"))
    ['a/b', 'a', '']
    """
    while key:
        key = key.rpartition("/")[0]
        yield key


class MlflowFileSource(WholeFiles):
    """The text files of one run.

    A line of a metric has the time in milliseconds, the value and the step.
    """

    def __init__(self, tree: Tree, run: str, files: Sequence[str]) -> None:
        base = run + "/" if run else ""
        self._meta = base + "meta.yaml"
        self._metrics = {key: key[len(base + "metrics/") :] for key in files if key.startswith(base + "metrics/")}
        self._settings = {
            kind: {key[len(base + kind) + 1 :]: key for key in files if key.startswith(f"{base}{kind}/")}
            for kind in ("params", "tags")
        }
        self._scalars: dict[str, Scalars] = {}
        self._about: dict[str, Any] = {}
        super().__init__(tree, run or "meta.yaml", [self._meta, *self._metrics])

    def refresh(self) -> bool:
        """Read the files that changed."""
        self._tree.read_heads(self._files)
        return super().refresh()

    def _read(self, key: str, version: Version) -> None:
        if key == self._meta:
            self._about = read_settings(self._tree.head(key).decode("utf-8", "replace")).values
        else:
            self._scalars[self._metrics[key]] = self._metric(key, version[0])

    def _metric(self, key: str, size: int) -> Scalars:
        rows, bad = [], 0
        at, rest = 0, b""
        while at < size:
            piece = self._tree.read(key, at, min(_PIECE, size - at))
            if not piece:
                break
            at += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                row = _row(line)
                if row is not None:
                    rows.append(row)
                elif line.strip():
                    bad += 1
        if bad:
            self._problems[key] = f"{self._tree.path(key)}: {bad:,} lines are not: time, value, step"
        elif problem := _without_step(rows):
            self._problems[key] = f"{self._tree.path(key)}: {problem}"
        return _scalars(rows)

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the metrics."""
        return self._scalars

    def hparams(self) -> Mapping[str, Any]:
        """Return the parameters, and the tags that MLflow did not set itself."""
        settings: dict[str, Any] = {}
        self._tree.read_heads([key for of_kind in self._settings.values() for key in of_kind.values()])
        for kind, of_kind in self._settings.items():
            for name, key in of_kind.items():
                if kind == "params" or not name.startswith("mlflow."):
                    settings[name] = plain_value(self._tree.head(key).decode("utf-8", "replace").strip())
        return settings

    def identity(self) -> Mapping[str, str]:
        """Return name, user and commit of the run."""
        tags = {name: key for name, key in self._settings["tags"].items() if name in _IDENTITY}
        values = {name: self._tree.head(key, 4096).decode("utf-8", "replace").strip() for name, key in tags.items()}
        values |= {"mlflow.user": str(self._about["user_id"])} if self._about.get("user_id") else {}
        return {_IDENTITY[name]: value for name, value in values.items() if value}

    def ended(self) -> bool | None:
        """Return whether MLflow's status is that of an ended run."""
        return str(self._about.get("status")) in _ENDED or None


def _row(line: bytes) -> tuple[float, float, int] | None:
    """Return time, value and step of a line; a line of an old version has no step.

    >>> _row(b"1700000000000 0.5 20"), _row(b"1700000000000 nan"), _row(b"text")
    ((1700000000.0, 0.5, 20), (1700000000.0, nan, 0), None)
    """
    parts = line.split()
    try:
        if len(parts) in (2, 3):
            return float(parts[0]) / 1000, float(parts[1]), int(parts[2]) if len(parts) == 3 else 0
    except (ValueError, OverflowError):
        pass
    return None


def _scalars(rows: Sequence[tuple[float, float, int]]) -> Scalars:
    """Return a metric by step, written in any order; the last write counts."""
    kept = [row for row in rows if 0 <= row[2] < LARGEST_STEP]
    times = np.array([row[0] for row in kept], np.float64)
    steps = np.array([row[2] for row in kept], np.int64)
    order = np.lexsort((np.arange(len(kept)), times, steps))
    order = order[last_of_step(steps[order])]
    return Scalars(steps[order], np.array([row[1] for row in kept], np.float64)[order], times[order])


def _without_step(rows: Sequence[tuple[float, float, int]]) -> str:
    """Return how many rows are not read because of their step, or ""."""
    beyond = [row[2] for row in rows if not 0 <= row[2] < LARGEST_STEP]
    return invalid_steps(len(beyond), beyond[0]) if beyond else ""


class MlflowDatabase:
    """The format of MLflow's SQLite database, which holds many runs."""

    name = "mlflow database"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the database of each run, which is named by the file and the run."""
        files: dict[str, Sequence[str]] = {}
        for key, tables in databases(tree):
            if not tables >= _TABLES:
                continue  # another application's database
            try:
                runs = query(tree, key, "SELECT run_uuid FROM runs WHERE lifecycle_stage = 'active'")
            except RunIOError:
                if tree.is_file:
                    raise
                continue  # it is damaged, and hides no other one
            base = "" if tree.is_file else key + "/"
            files |= {f"{base}{run}": [key] for (run,) in runs}
        return files

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of one run."""
        return MlflowDatabaseSource(tree, run.rpartition("/")[2], files[0])

    def why_not(self, tree: Tree, key: str) -> Refusal | None:
        """Return what is wrong with a SQLite database."""
        if not is_database(tree, key):
            return None
        try:
            tables = tables_of(tree, key)
            query(tree, key, "SELECT count(*) FROM runs" if "runs" in tables else "PRAGMA quick_check(1)")
        except RunIOError as error:
            return Refusal(str(error).removeprefix(f"{shown(tree.path(key), 400)}: "), True)
        missing = sorted(_TABLES - tables)
        if not missing:
            return Refusal("MLflow's database has no active run")
        if {"runs", "experiments"} <= tables:
            return Refusal(f"MLflow's database lacks the table {listed(missing)}", True)
        return Refusal("a SQLite database of another program")


class MlflowDatabaseSource(Source):
    """One run of a database, which is only read."""

    def __init__(self, tree: Tree, run: str, key: str) -> None:
        self._tree = tree
        self._key = key
        self._run = run
        self._last = -1
        self._rows: dict[str, list[tuple[float, float, int]]] = {}
        self._status = ""
        self._written: float | None = None
        self._problem = ""
        self.name = f"{key}/{run}"
        self._read_params: dict[str, Any] = {}
        self._identity: dict[str, str] = {}

    def refresh(self) -> bool:
        """Read the metrics that were added since the last call."""
        try:
            new = query(
                self._tree,
                self._key,
                "SELECT rowid, key, timestamp, CASE WHEN is_nan THEN 'nan' ELSE value END, step FROM metrics "
                "WHERE run_uuid = ? AND rowid > ? ORDER BY rowid",
                self._run,
                self._last,
            )
            [(status, start, end)] = query(
                self._tree,
                self._key,
                "SELECT status, start_time, end_time FROM runs WHERE run_uuid = ?",
                self._run,
            ) or [("", None, None)]
            changed = bool(new) or status != self._status or bool(self._problem)
            if changed:
                settings = {
                    table: query(self._tree, self._key, f"SELECT key, value FROM {table} WHERE run_uuid = ?", self._run)
                    for table in ("tags", "params")
                }
                self._read_params = {
                    name: plain_value(str(value))
                    for table, rows in settings.items()
                    for name, value in rows
                    if table == "params" or not str(name).startswith("mlflow.")
                }
                self._identity = {_IDENTITY[name]: str(value) for name, value in settings["tags"] if name in _IDENTITY}
        except RunIOError as error:
            self._problem = str(error)  # a locked database is read at the next call
            return False
        self._problem, self._status = "", str(status)
        for row, name, timestamp, value, step in new:
            self._rows.setdefault(str(name), []).append((float(timestamp) / 1000, _number(value), int(step)))
            self._last = row
        times = [rows[-1][0] for rows in self._rows.values()] + [at / 1000 for at in (end or start,) if at]
        self._written = max(times, default=None)
        return changed

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the metrics."""
        return {name: _scalars(rows) for name, rows in self._rows.items()}

    def hparams(self) -> Mapping[str, Any]:
        """Return the parameters, and the tags that MLflow did not set itself."""
        return self._read_params

    def identity(self) -> Mapping[str, str]:
        """Return name, user and commit of the run."""
        return self._identity

    def ended(self) -> bool | None:
        """Return whether MLflow's status is that of an ended run."""
        return self._status in _ENDED or None

    def age(self) -> float | None:
        """Return the seconds since the last metric. Other runs write to the same file."""
        return None if self._written is None else max(0.0, time.time() - self._written)

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return why the database cannot be read."""
        if self._problem:
            return [(self._key, self._problem)]
        beyond = {name: problem for name, rows in self._rows.items() if (problem := _without_step(rows))}
        path = self._tree.path(self._key)
        return [(self._key, f"{path}: metric {shown(name)}: {problem}") for name, problem in beyond.items()]


def _number(value: Any) -> float:
    """Return a metric. MLflow stores infinities as the largest numbers."""
    number = float(value)
    return float(np.copysign(np.inf, number)) if abs(number) >= 1.7976931348623157e308 else number

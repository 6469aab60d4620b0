"""The rows of a table of runs, read and updated in the background."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from smdwidgets.run_table.discovery import FoundRun, find_runs
from smdwidgets.run_table.index import RunIndex
from smdwidgets.run_table.summary import Summary, findings_of, flat, summarize
from smdwidgets.run_table.table import Run, RunTable
from smdwidgets.trials import Trial, create_trial

logger = logging.getLogger("smdwidgets.widgets")

#: Seconds between looks for new data, and how many times the duration of a look they are at least.
PAUSE, SHARE = 2.0, 20
#: Runs that are read at once.
THREADS = 4
#: Runs that are read between two looks at whether to stop.
_BATCH = 32


@dataclass
class _Row:
    """A run of the table, and what is known of it."""

    found: FoundRun
    summary: Summary | None = None
    signature: str = ""
    #: Increases with every change.
    version: int = 0
    #: Whether the findings were asked for.
    asked: bool = False
    findings: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class Progress:
    """What the thread does: ``reading``, ``diagnosing``, ``stopped`` or nothing."""

    doing: str = ""
    done: int = 0
    total: int = 0


@dataclass
class _Shared:
    """The state that threads share."""

    rows: list[_Row] = field(default_factory=list)
    version: int = 0
    progress: Progress = field(default_factory=Progress)


class LiveTable:
    """The rows of a table of runs. Thread-safe.

    A run keeps its number. Runs that appear later are appended.

    Args:
        root: the directory, or a word for the list of runs.
        runs: the runs that are known, with their summaries.
        find: finds the runs again; their paths identify them.
        hparams: hyperparameters by name of the run, which replace those of the run.
        index: stores the summaries.
    """

    def __init__(
        self,
        root: str,
        runs: Sequence[tuple[FoundRun, Summary | None]],
        find: Callable[[], Sequence[FoundRun]],
        hparams: Mapping[str, Mapping[str, Any]] | None = None,
        index: RunIndex | None = None,
    ) -> None:
        self.root = root
        self._find = find
        self._hparams = {name: flat(given) for name, given in (hparams or {}).items()}
        self._index = index
        self._lock = threading.Lock()
        self._state = _Shared()
        self._stop = threading.Event()
        self._closed = False
        self._busy = False
        self._paused = False
        self._next_look = 0.0
        for found, summary in runs:
            self._state.rows.append(_Row(found, summary, found.signature if summary is not None else "", version=1))
        self._state.version = 1

    # ------------------------------------------------------------------------------------------------------------ state

    def __len__(self) -> int:
        with self._lock:
            return len(self._state.rows)

    def names(self) -> list[str]:
        """Return the name of each run by number."""
        with self._lock:
            return [row.found.name for row in self._state.rows]

    def open(self, number: int) -> Trial:
        """Open a run."""
        with self._lock:
            found = self._state.rows[number].found
        trial = found.open()
        if not found.shared:
            trial.name = found.name  # the name in the table, which differs from those of other runs
        return trial

    def run(self, number: int) -> Run | None:
        """Return a row of the table; None if the run was not read yet."""
        with self._lock:
            return self._run(self._state.rows[number])

    def read_runs(self) -> list[Run]:
        """Return the rows of the runs that were read."""
        with self._lock:
            return [run for row in self._state.rows if (run := self._run(row)) is not None]

    def changes(self, version: int) -> tuple[int, list[tuple[int, FoundRun, Run | None]], Progress]:
        """Return the version, the runs that changed after a version, and progress."""
        with self._lock:
            state = self._state
            changed = [(at, row.found, self._run(row)) for at, row in enumerate(state.rows) if row.version > version]
            return state.version, changed, state.progress

    def _run(self, row: _Row) -> Run | None:
        if row.summary is None:
            return None
        summary = row.summary
        given = self._hparams.get(row.found.name)
        if given is not None:
            summary = {**summary, "hparams": {**summary["hparams"], **given}}
        if row.findings is not None:
            summary = {**summary, "findings": row.findings}
        return Run(row.found, summary)

    # --------------------------------------------------------------------------------------------------------- commands

    def check(self) -> None:
        """Start reading what is new in the background, unless that is running."""
        with self._lock:
            if self._busy or self._closed or self._paused or not self._is_due():
                return
            self._stop.clear()
            self._busy = True
        threading.Thread(target=self._work, name="smdwidgets-runs", daemon=True).start()

    def _is_due(self) -> bool:
        return time.monotonic() >= self._next_look or any(map(_is_missing, self._state.rows))

    def stop(self) -> None:
        """Stop reading and diagnosing. The rows that are known stay.

        If no row is left to read, the table still follows its runs.
        """
        with self._lock:
            for row in self._state.rows:
                row.asked = row.findings is not None
            self._paused = any(row.summary is None for row in self._state.rows)
            self._report("stopped" if self._paused else "")
            self._stop.set()

    def resume(self) -> None:
        """Continue reading."""
        with self._lock:
            self._paused = False
            self._stop.clear()
        self.check()

    def diagnose(self, numbers: Sequence[int]) -> None:
        """Diagnose runs in the background."""
        with self._lock:
            for number in numbers:
                if 0 <= number < len(self._state.rows):
                    self._state.rows[number].asked = True
        self.resume()

    def close(self) -> None:
        """Stop all work."""
        with self._lock:
            self._closed = True
            self._stop.set()

    @property
    def is_current(self) -> bool:
        """Whether nothing is left to read."""
        with self._lock:
            return not self._busy and not any(map(_is_missing, self._state.rows))

    # ------------------------------------------------------------------------------------------------------- background

    def _work(self) -> None:
        try:
            if time.monotonic() >= self._next_look:
                self._look()
            self._read()
            self._diagnose()
        except Exception:  # a failure of the walk; the next look tries again
            logger.debug("cannot update the table of runs", exc_info=True)
        finally:
            with self._lock:
                self._busy = False

    def _look(self) -> None:
        """Find new runs, and runs whose files have changed."""
        begin = time.monotonic()
        found = {run.path: run for run in self._find()}
        with self._lock:
            known = set()
            for row in self._state.rows:
                known.add(row.found.path)
                now = found.get(row.found.path)
                if now is not None:  # the last state of a run that has vanished stays
                    row.found = replace(now, name=row.found.name)
            for path, run in found.items():
                if path not in known:
                    self._state.version += 1
                    self._state.rows.append(_Row(run, version=self._state.version))
            now_ = time.monotonic()
            self._next_look = now_ + max(PAUSE, SHARE * (now_ - begin))

    def _read(self) -> None:
        with self._lock:
            missing = [row for row in self._state.rows if row.summary is None or row.signature != row.found.signature]
            total = len(missing)
            # A change of a few runs is not worth a progress bar.
            shown = sum(row.summary is None for row in missing) > 0
        if not missing:
            return
        with ThreadPoolExecutor(THREADS, thread_name_prefix="smdwidgets-runs") as pool:
            for start in range(0, total, _BATCH):
                if self._stop.is_set():
                    return
                if shown:
                    with self._lock:
                        self._report("reading", start, total)
                batch = missing[start : start + _BATCH]
                list(pool.map(self._summarize, batch))
                self._store(batch)
        with self._lock:
            self._report()

    def _summarize(self, row: _Row) -> None:
        if self._stop.is_set():
            return
        found = row.found
        try:
            summary = summarize(found, with_findings=False)
        except Exception as error:  # a trial of a user can raise any exception
            logger.debug("cannot read %s", found.path, exc_info=True)
            summary = {"error": f"{type(error).__name__}: {error}", "tags": {}, "hparams": {}}
        with self._lock:
            row.summary, row.signature = summary, found.signature
            self._changed(row)

    def _store(self, rows: Sequence[_Row]) -> None:
        if self._index is not None:
            known = {row.found.path: (row.signature, row.summary) for row in rows if row.summary}
            self._index.write(self.root, {path: one for path, one in known.items() if "error" not in one[1]})

    def _diagnose(self) -> None:
        with self._lock:
            asked = [row for row in self._state.rows if row.asked and row.findings is None]
        for done, row in enumerate(asked):
            if self._stop.is_set():
                return
            with self._lock:
                self._report("diagnosing", done, len(asked))
            findings = _diagnosed(row.found)
            with self._lock:
                row.findings = findings
                self._changed(row)
        if asked:
            with self._lock:
                self._report()

    def _report(self, doing: str = "", done: int = 0, total: int = 0) -> None:
        self._state.progress = Progress(doing, done, total)

    def _changed(self, row: _Row) -> None:
        self._state.version += 1
        row.version = self._state.version


def _is_missing(row: _Row) -> bool:
    return row.summary is None or row.signature != row.found.signature or (row.asked and row.findings is None)


def _diagnosed(found: FoundRun) -> list[dict[str, Any]]:
    try:
        trial = found.open()
        try:
            return findings_of(trial)
        finally:
            if not found.shared:
                trial.close()
    except Exception as error:  # the row shows why there is no diagnosis
        logger.debug("cannot diagnose %s", found.path, exc_info=True)
        return [{"title": f"Not diagnosed: {type(error).__name__}: {error}"[:300]}]


def given_runs(given: Sequence[Any], *, look: bool = True) -> list[FoundRun]:
    """Return runs for a list of paths and trials.

    Their names are the shortest ends of their paths that differ. Without ``look``, nothing is read.
    """
    paths = [str(one.path) if isinstance(one, Trial) else str(one) for one in given]
    return [_given_run(one, path, name, look) for one, path, name in zip(given, paths, _names(paths), strict=True)]


def _given_run(one: Any, path: str, name: str, look: bool) -> FoundRun:
    if not look:
        opened = (lambda: one) if isinstance(one, Trial) else partial(create_trial, path)
        return FoundRun(name, path, "", "", 0.0, opened, shared=isinstance(one, Trial))
    if isinstance(one, Trial):
        state = f"{one.restarts} {len(one.steps())} {one.loaded_all_steps}"
        return FoundRun(name, path, "", state, time.time(), lambda: one, shared=True)
    below = find_runs(path) if os.path.isdir(path) else []
    if len(below) == 1 and Path(below[0].path) == Path(path):
        return replace(below[0], name=name)
    signature = " ".join(run.signature for run in below)
    return FoundRun(
        name, path, "", signature, max((run.written for run in below), default=0), partial(create_trial, path)
    )


def _names(paths: Sequence[str]) -> list[str]:
    parts = [[part for part in path.replace("\\", "/").split("/") if part] or [path] for path in paths]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(set(paths)):
            return names
    return list(paths)


def live_table(table: RunTable, hparams: Mapping[str, Mapping[str, Any]] | None = None) -> LiveTable:
    """Return the live rows of a table.

    One of all runs below a directory gets those that appear later; a selection of them does not.
    """
    known = [(row.found, row.summary) for row in table]
    paths = {found.path for found, _ in known}
    root, complete = table.root, table.complete

    def find() -> list[FoundRun]:
        return [run for run in find_runs(root) if complete or run.path in paths]

    return LiveTable(root, known, find, hparams, RunIndex())

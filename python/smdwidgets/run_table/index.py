"""Index of run summaries in the user's cache directory.

The index is an SQLite database. It can be deleted at any time; a damaged, locked or unwritable one is not an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from smdwidgets.run_table.summary import VERSION, Summary
from smdwidgets.trials.tensorboard.trial import cache_directory

#: Seconds to wait for another process that writes.
_PATIENCE = 0.5
#: Entries above which the least recently used ones are removed.
_MOST = 200_000

_TABLE = (
    "CREATE TABLE IF NOT EXISTS runs (path TEXT PRIMARY KEY, root TEXT, signature TEXT, version INTEGER, used REAL, summary TEXT);"
    "CREATE INDEX IF NOT EXISTS by_root ON runs (root)"
)


class RunIndex:
    """Summaries of runs by path and signature.

    Args:
        path: file of the database; None: in the user's cache directory.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = default_path() if path is None else Path(path)

    def read(self, root: str) -> dict[str, tuple[str, Summary]]:
        """Return signature and summary of the known runs of a root, by path."""
        found: dict[str, tuple[str, Summary]] = {}
        with contextlib.suppress(sqlite3.Error, OSError), contextlib.closing(self._connect(write=False)) as database:
            query = "SELECT path, signature, summary FROM runs WHERE root = ? AND version = ?"
            for path, signature, text in database.execute(query, (root, VERSION)):
                with contextlib.suppress(ValueError, TypeError, RecursionError):
                    summary = json.loads(text)
                    if _is_summary(summary):
                        found[path] = signature, summary
        return found

    def write(self, root: str, summaries: Mapping[str, tuple[str, Summary]]) -> None:
        """Store summaries with their signatures, by path. A failure is not an error."""
        if not summaries:
            return
        now = time.time()
        rows = [
            (path, root, signature, VERSION, now, json.dumps(summary, separators=(",", ":")))
            for path, (signature, summary) in summaries.items()
        ]
        for _ in range(2):
            try:
                with contextlib.closing(self._connect(write=True)) as database, database:
                    self._store(database, rows)
                return
            except sqlite3.OperationalError:
                return  # locked, or the disk is full
            except sqlite3.DatabaseError:
                with contextlib.suppress(OSError):  # damaged: begin again
                    self._path.unlink()
            except (sqlite3.Error, OSError):
                return

    @staticmethod
    def _store(database: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> None:
        database.executescript(_TABLE)
        database.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", rows)
        [[count]] = database.execute("SELECT count(*) FROM runs")
        if count > _MOST:
            old = "DELETE FROM runs WHERE path IN (SELECT path FROM runs ORDER BY used LIMIT ?)"
            database.execute(old, (count - _MOST,))

    def _connect(self, write: bool) -> sqlite3.Connection:
        if write:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return sqlite3.connect(self._path, timeout=_PATIENCE)
        return sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE)


def default_path() -> Path:
    """Return the file of the index in the user's cache directory.

    >>> default_path().name
    'runs.sqlite'
    """
    return Path(str(cache_directory(True))).parent / "runs.sqlite"


def _is_summary(summary: Any) -> bool:
    if not isinstance(summary, dict):
        return False
    tags, hparams = summary.get("tags"), summary.get("hparams")
    return isinstance(tags, dict) and isinstance(hparams, dict) and all(isinstance(one, dict) for one in tags.values())

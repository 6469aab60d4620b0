"""Runs that W&B wrote to disk, such as ``wandb/offline-run-…/run-….wandb``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from smdwidgets import _core
from smdwidgets._text import listed, shown
from smdwidgets.exceptions import RunIOError
from smdwidgets.sources.layout import flat
from smdwidgets.sources.source import Scalars, Source
from smdwidgets.sources.step_columns import MOST_NAMES, StepColumns
from smdwidgets.sources.tree import TAIL, Tree

#: What a file begins with: a name, a number, and the version 0.
MAGIC: Final = b":W&B\xe1\xbe\x00"
#: Bytes that are read at once: whole blocks.
_PIECE: Final = 128 * _core.WandbReader.BLOCK
#: Keys of a run's identity, by what the run says of itself.
_IDENTITY: Final = {"name": "name", "entity": "owner", "group": "group", "commit": "commit"}
#: What of it is a setting.
_SETTINGS: Final = ("name", "group", "project", "job_type")


class WandbFiles:
    """The format of W&B's files: one for each run."""

    name = "W&B run"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the file of each run, by its directory."""
        runs: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.named(".wandb"):
            if tree.head(key, len(MAGIC)) == MAGIC:
                runs[key.rpartition("/")[0]].append(key)
        return runs

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of one run."""
        return WandbSource(tree, files[0])


class WandbSource(Source):
    """One file, which may grow."""

    def __init__(self, tree: Tree, key: str) -> None:
        self.name = key
        self._tree = tree
        self._version: tuple[int, int, int] | None = None
        self._problem = ""
        self._start_over()

    def _start_over(self) -> None:
        self._reader = _core.WandbReader(len(MAGIC), MOST_NAMES)
        #: The bytes before the offset of the reader.
        self._tail = b""
        self._columns = StepColumns()
        self._settings: dict[str, Any] = {}
        self._identity: dict[str, str] = {}
        self._has_exit = False

    def refresh(self) -> bool:
        """Read the records that were added since the last call."""
        version = self._tree.version(self.name)
        if version is None or version == self._version:
            return False
        self._version, self._problem = version, ""
        before = self._reader.at
        try:
            if not self._tree.still_has(self.name, self._tail, before):
                self._start_over()
                before = -1
            self._read_new()
        except RunIOError as error:
            self._problem = str(error)
            return True
        return self._reader.at != before

    def _read_new(self) -> None:
        is_last = False
        while not is_last:
            start = self._reader.at - self._reader.at % self._reader.BLOCK
            piece = self._tree.read(self.name, start, _PIECE)
            is_last = len(piece) < _PIECE
            self._reader.feed(piece, start)
            read = self._reader.at - start
            self._tail = piece[max(0, read - TAIL) : read] or self._tail
            self._take()

    def _take(self) -> None:
        """Take what the reader found."""
        steps, times, columns, settings, facts, has_exit = self._reader.take()
        self._columns.append_columns({name: (at, values) for name, at, values in columns}, steps, times)
        for name, text in settings:
            try:
                self._settings |= flat({name: json.loads(text)})
            except (ValueError, RecursionError):
                continue
        self._identity |= {_IDENTITY[fact]: text for fact, text in facts if fact in _IDENTITY}
        self._settings |= {f"wandb.{fact}": text for fact, text in facts if fact in _SETTINGS}
        if tags := [text for fact, text in facts if fact == "tag"]:
            self._settings["wandb.tags"] = ", ".join(dict.fromkeys(tags))
        self._has_exit |= has_exit

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the numbers of the history by name.

        Names of parts are joined by dots, as in W&B.
        """
        return self._columns.scalars()

    def hparams(self) -> Mapping[str, Any]:
        """Return the configuration, and name, group, project, type and tags of the run."""
        return self._settings

    def identity(self) -> Mapping[str, str]:
        """Return name, team and group of the run, and the commit of its code."""
        return self._identity

    def ended(self) -> bool | None:
        """Return whether the run has written that it ended."""
        return self._has_exit or None

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age([self.name])

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return what could not be read."""
        path = self._tree.path(self.name)
        found, more = self._reader.damage()
        damage = [f"{path}, byte {at:,}: {reason}" for at, reason in found]
        if more:
            damage.append(f"{path}: {more:,} more faults")
        return [(self.name, message) for message in ([self._problem] if self._problem else []) + damage]

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return the names of histograms, images and tables, which are not read."""
        path = self._tree.path(self.name)
        notes = []
        if media := self._reader.media():
            names = listed([shown(name, 40) for name in media], 6)
            notes.append((self.name, f"{path}: histograms, images and tables are not read: {names}"))
        return notes + [(self.name, f"{path}: {note}") for note in self._columns.notes]

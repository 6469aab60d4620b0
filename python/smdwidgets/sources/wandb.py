"""Runs that W&B wrote to disk, such as ``wandb/offline-run-…/run-….wandb``."""

from __future__ import annotations

import json
import math
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from smdwidgets._text import listed, shown
from smdwidgets.exceptions import RunIOError
from smdwidgets.sources.columns import LARGEST_STEP
from smdwidgets.sources.layout import flat
from smdwidgets.sources.source import Scalars, Source
from smdwidgets.sources.step_columns import StepColumns
from smdwidgets.sources.tree import Tree
from smdwidgets.sources.wandb_file import MAGIC, RecordFile, fields

# Numbers of the fields of a record, of an item of the history or the settings, and of a run.
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
_KEY, _NESTED_KEY, _BOOLEAN, _INTEGER, _NUMBER, _VALUE_JSON = 1, 2, 4, 5, 6, 16
_RUN_CONFIG, _RUN_GROUP, _RUN_NAME, _RUN_TAGS = 4, 6, 8, 10
_STEP, _TIME = "_step", "_timestamp"
#: Rows that become columns at once.
_ROWS: Final = 50_000


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
        self._file = RecordFile(tree, key)
        self._version: tuple[int, int, int] | None = None
        self._problem = ""
        self._start_over()

    def _start_over(self) -> None:
        self._columns = StepColumns()
        self._media: set[str] = set()
        self._settings: dict[str, Any] = {}
        self._has_exit = False
        self._step = -1

    def refresh(self) -> bool:
        """Read the records that were added since the last call."""
        version = self._tree.version(self.name)
        if version is None or version == self._version:
            return False
        self._version, self._problem = version, ""
        before = self._file.end
        try:
            if self._file.is_replaced():
                self._file.start_over()
                self._start_over()
                before = -1
            self._read_new()
        except RunIOError as error:
            self._problem = str(error)
            return True
        return self._file.end != before

    def _read_new(self) -> None:
        rows: list[dict[str, float]] = []
        for record in self._file.new():
            for number, content in fields(record):
                if not isinstance(content, bytes):
                    continue
                if number == _HISTORY:
                    rows.append(self._row(content))
                elif number == _CONFIG:
                    self._settings |= _settings(content)
                elif number == _RUN:
                    self._read_run(content)
                elif number == _EXIT:
                    self._has_exit = True
            if len(rows) >= _ROWS:
                self._append(rows)
                rows = []
        self._append(rows)

    def _read_run(self, content: bytes) -> None:
        tags = []
        for number, value in fields(content):
            if not isinstance(value, bytes):
                continue
            if number == _RUN_CONFIG:
                self._settings |= _settings(value)
            elif number in (_RUN_NAME, _RUN_GROUP) and value:
                self._settings["wandb.name" if number == _RUN_NAME else "wandb.group"] = _text(value)
            elif number == _RUN_TAGS:
                tags.append(_text(value))
        if tags:
            self._settings["wandb.tags"] = ", ".join(tags)

    def _row(self, content: bytes) -> dict[str, float]:
        """Return the numbers of a step, without those of histograms and images."""
        row: dict[str, float] = {}
        media: set[str] = set()
        for keys, value in _items(content):
            if len(keys) > 1 and keys[-1] == "_type":
                media.add(keys[0])
            elif isinstance(value, float):
                row[".".join(keys)] = value
        for name in media:
            row = {other: value for other, value in row.items() if not other.startswith(name + ".")}
        self._media |= media
        return row

    def _append(self, rows: Sequence[dict[str, float]]) -> None:
        steps = []
        for row in rows:
            step = row.get(_STEP, math.nan)
            self._step = int(step) if math.isfinite(step) and abs(step) < LARGEST_STEP else self._step + 1
            steps.append(self._step)
        times = [row.get(_TIME, math.nan) for row in rows]
        numbers = [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
        self._columns.append(numbers, steps, times)

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the numbers of the history by name.

        Names of parts are joined by dots, as in W&B.
        """
        return self._columns.scalars()

    def hparams(self) -> Mapping[str, Any]:
        """Return the configuration, and the name, group and tags of the run."""
        return self._settings

    def ended(self) -> bool | None:
        """Return whether the run has written that it ended."""
        return self._has_exit or None

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age([self.name])

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return what could not be read."""
        path = self._tree.path(self.name)
        damage = [
            f"{path}, byte {at:,}: {reason}; the rest of its block is skipped" for at, reason in self._file.damage
        ]
        return [(self.name, message) for message in ([self._problem] if self._problem else []) + damage]

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return the names of histograms, images and tables, which are not read."""
        path = self._tree.path(self.name)
        notes = []
        if self._media:
            names = listed([shown(name, 40) for name in sorted(self._media)], 6)
            notes.append((self.name, f"{path}: histograms, images and tables are not read: {names}"))
        return notes + [(self.name, f"{path}: {note}") for note in self._columns.notes]


def _items(content: bytes) -> Iterator[tuple[list[str], float | bytes | None]]:
    """Yield the parts of the name of each item, and its number or JSON text."""
    for number, item in fields(content):
        if number != 1 or not isinstance(item, bytes):
            continue
        keys: list[str] = []
        value: float | bytes | None = None
        for part, given in fields(item):
            if isinstance(given, int):
                if part == _INTEGER:
                    value = float(given - 2**64 if given >= 2**63 else given)
            elif part in (_KEY, _NESTED_KEY):
                keys.append(_text(given))
            elif part == _NUMBER and len(given) == 8:
                value = float(struct.unpack("<d", given)[0])
            elif part == _VALUE_JSON:
                value = _number(given)
        if keys:
            yield keys, value


def _number(text: bytes) -> float | bytes:
    """Return the number that a JSON text spells, or else the text.

    >>> _number(b"1.5"), _number(b"NaN"), _number(b'"Infinity"'), _number(b"true")
    (1.5, nan, inf, b'true')
    """
    plain = text[1:-1] if text in (b'"NaN"', b'"Infinity"', b'"-Infinity"') else text
    try:
        return float(plain) if plain[:1] in b"-0123456789NI" and plain else text
    except ValueError:
        return text


def _settings(content: bytes) -> dict[str, Any]:
    """Return the values of a configuration by name."""
    settings: dict[str, Any] = {}
    for number, item in fields(content):
        if number != 1 or not isinstance(item, bytes):
            continue
        keys = [
            _text(value) for part, value in fields(item) if part in (_KEY, _NESTED_KEY) and isinstance(value, bytes)
        ]
        texts = [value for part, value in fields(item) if part == _VALUE_JSON and isinstance(value, bytes)]
        if not keys or not texts or keys[0] == "_wandb":
            continue
        try:
            value = json.loads(texts[-1])
        except (ValueError, RecursionError):
            continue
        settings |= flat({"/".join(keys): value})
    return settings


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")

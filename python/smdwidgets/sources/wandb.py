"""Runs that W&B wrote to disk, such as ``wandb/offline-run-…/run-….wandb``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import listed, shown, visible
from smdwidgets.exceptions import CorruptDataError, DataError, RunIOError
from smdwidgets.sources.columns import LARGEST_STEP
from smdwidgets.sources.layout import flat
from smdwidgets.sources.source import Scalars, Source, StoredHistogram, Verified
from smdwidgets.sources.step_columns import MOST_NAMES, StepColumns
from smdwidgets.sources.tree import TAIL, Tree

#: What a file begins with: a name, a number, and the version 0.
MAGIC: Final = b":W&B\xe1\xbe\x00"
#: Bytes that are read at once: whole blocks.
_PIECE: Final = 128 * _core.WandbReader.BLOCK
#: Keys of a run's identity, by what the run says of itself.
_IDENTITY: Final = {"name": "name", "entity": "owner", "group": "group", "commit": "commit"}
#: What of it is a setting.
_SETTINGS: Final = ("name", "group", "project", "job_type", "notes")
#: Seconds without a write after which the file of a run does not grow any more.
_QUIET: Final = 3600.0
#: The longest list of a histogram in JSON.
_LONGEST_LIST: Final = 16 << 20


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
        #: Samples of the system.
        self._system = StepColumns()
        #: Histograms by name, as in the file, and step.
        self._histograms: defaultdict[str, dict[int, StoredHistogram]] = defaultdict(dict)
        #: Values in JSON that the run noted as its results.
        self._summary: dict[str, bytes] = {}
        #: Step and time of the last row.
        self._last = 0, float("nan")
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
        history, system, histograms, summary, settings, facts, has_exit = self._reader.take()
        for (steps, times, columns), to in ((history, self._columns), (system, self._system)):
            if len(steps):
                to.append_columns({name: (at, values) for name, at, values in columns}, steps, times)
        steps, times, _ = history
        for name, rows, records in histograms:
            for row, (offset, length) in zip(rows.tolist(), records, strict=True):
                if 0 <= (step := int(steps[row])) < LARGEST_STEP:
                    place = StoredHistogram(visible(name, 400), step, self.name, offset, length, float(times[row]))
                    self._histograms[name][step] = place
        if len(steps):
            self._last = int(steps[-1]), float(times[-1])
        for name, value in summary:
            if value is None:
                self._summary.pop(name, None)
            elif name in self._summary or len(self._summary) < MOST_NAMES:
                self._summary[name] = value
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
        """Return the numbers of the history, the system and the summary by name.

        Names of parts are joined by dots, as in W&B. Those of the system begin with ``system``; a sample has the step
        of the row before. The summary counts when the run has ended.
        """
        curves = {f"system.{name}": one for name, one in self._system.scalars().items()} | self._columns.scalars()
        return curves | (self._results(curves) if self._has_exit else {})

    def _results(self, curves: Mapping[str, Scalars]) -> dict[str, Scalars]:
        """Return the numbers of the summary that no curve ends with."""
        step, time = self._last
        if not 0 <= step < LARGEST_STEP:
            return {}
        results: dict[str, Scalars] = {}
        for name, number in _numbers_of(self._summary):
            shown_name = visible(name, 400)
            if (curve := curves.get(shown_name)) is not None:
                if np.array_equal(curve.values[-1:], [number], equal_nan=True):
                    continue
                shown_name += " (summary)"
            results[shown_name] = Scalars(np.array([step]), np.array([number]), np.array([time]))
        return results

    def histograms(self) -> Sequence[StoredHistogram]:
        """Return where the histograms are; a step has one of each name."""
        return [place for places in self._histograms.values() for place in places.values()]

    def histogram(self, place: StoredHistogram) -> NDArray[np.float64]:
        """Read a histogram; the checksums of its record are compared."""
        block = _core.WandbReader.BLOCK
        start = place.offset - place.offset % block
        piece = self._tree.read_exactly(self.name, start, place.offset + place.length - start)
        names = [place.name] if place.name in self._histograms else list(self._histograms)
        # The name may have characters that are not shown.
        name = next((one for one in names if visible(one, 400) == place.name), place.name)
        try:
            return _buckets(_core.WandbReader.parts(piece, place.offset - start, name))
        except DataError as error:
            where = f"{self._tree.path(self.name)}, byte {place.offset}"
            raise CorruptDataError(f"{where}: histogram {shown(place.name)}: {error}") from None

    def verify(self) -> Verified:
        """Return the number of checksums, and damaged histograms.

        All checksums are compared while the file is read; :meth:`problems` has those that differ.
        """
        faults = []
        for place in self.histograms():
            try:
                self.histogram(place)
            except DataError as error:
                faults.append((self.name, str(error)))
        left = 0 if self._version is None else self._version[0] - self._reader.at
        # Less than a header fits at the end of a block.
        is_padding = left == -self._reader.at % self._reader.BLOCK < 7
        damage, _ = self._reader.damage()
        is_known = bool(damage) and damage[-1][0] >= self._reader.at
        if left > 0 and not is_padding and not is_known and (self._has_exit or (self.age() or 0) > _QUIET):
            path = self._tree.path(self.name)
            text = f"{path}, byte {self._reader.at}: {left} bytes dropped: the process that wrote them did not finish"
            faults.append((self.name, text))
        return Verified(self._reader.checked, faults)

    def hparams(self) -> Mapping[str, Any]:
        """Return the configuration, and what the run says of itself."""
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
        damage = [f"{path}, byte {at}: {reason}" for at, reason in found]
        if more:
            damage.append(f"{path}: {more:,} more faults")
        return [(self.name, message) for message in ([self._problem] if self._problem else []) + damage]

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return the names of images and tables, which are not read."""
        path = self._tree.path(self.name)
        notes = []
        if media := self._reader.media():
            names = listed([shown(name, 40) for name in media], 6)
            notes.append((self.name, f"{path}: images and tables are not read: {names}"))
        return notes + [(self.name, f"{path}: {note}") for note in self._columns.notes]


def _numbers_of(summary: Mapping[str, bytes]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a summary and of objects in it.

    >>> list(_numbers_of({"acc": b'{"max": 2}', "n": b'"NaN"', "note": b'"x"', "h._type": b'"histogram"', "h.y": b"1"}))
    [('acc.max', 2.0), ('n', nan)]
    """
    media = tuple(name.removesuffix("_type") for name in summary if name.endswith("._type"))
    for name, text in summary.items():
        if media and name.startswith(media):
            continue
        try:
            value = json.loads(text)
            parts = flat({name: value}, separator=".") if not _is_media(value) else {}
        except (ValueError, RecursionError):
            continue
        for part, number in parts.items():
            if _is_number(number):
                yield part, float(number)


def _is_media(value: Any) -> bool:
    return isinstance(value, dict) and "_type" in value


def _is_number(value: Any) -> bool:
    """Return whether a value of JSON can be a float; integers have any size.

    >>> _is_number(10**400), _is_number("NaN"), _is_number(True), _is_number(2)
    (False, True, False, True)
    """
    if isinstance(value, str):
        return value in ("NaN", "Infinity", "-Infinity")
    if isinstance(value, int) and not isinstance(value, bool):
        return value.bit_length() <= 1023
    return isinstance(value, float)


def _buckets(parts: Sequence[tuple[str, bytes]]) -> NDArray[np.float64]:
    """Return the rows of a histogram from its parts in JSON.

    >>> _buckets([("_type", b'"histogram"'), ("values", b"[3, 1]"), ("bins", b"[0, 1, 4]")]).tolist()
    [[0.0, 1.0, 3.0], [1.0, 4.0, 1.0]]
    """
    if any(len(text) > _LONGEST_LIST for _, text in parts):
        raise CorruptDataError(f"a list of more than {_LONGEST_LIST >> 20} MiB")
    content: dict[str, Any] = {}
    try:
        for name, text in parts:
            value = json.loads(text)
            content |= value if name == "" and isinstance(value, dict) else {name: value}
        content = flat(content, separator=".")
        counts = _list(content.get("values"))
        if "bins" in content:
            edges = _list(content["bins"])
        else:
            low, width = float(content["packedBins.min"]), float(content["packedBins.size"])
            edges = np.asarray(low + width * np.arange(len(counts) + 1), np.float64)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise CorruptDataError(f"is not a histogram: {shown(str(error), 100)}") from None
    if len(edges) != len(counts) + 1:
        raise CorruptDataError(f"is not a histogram: {len(counts):,} counts for {len(edges):,} edges")
    return np.stack([edges[:-1], edges[1:], counts], axis=1)


def _list(value: Any) -> NDArray[np.float64]:
    if not isinstance(value, list):
        raise TypeError("no list of numbers")
    numbers = np.array(value, np.float64)
    if numbers.ndim != 1:
        raise TypeError("no list of numbers")
    return numbers

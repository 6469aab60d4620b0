"""Offline experiments of Comet: archives, and directories of running ones."""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from smdwidgets._text import listed, shown
from smdwidgets.exceptions import CorruptDataError, RunIOError
from smdwidgets.sources.archive import ZIP
from smdwidgets.sources.columns import LARGEST_STEP
from smdwidgets.sources.growing_lines import GrowingLines
from smdwidgets.sources.layout import flat
from smdwidgets.sources.source import Refusal, Scalars, Source
from smdwidgets.sources.step_columns import StepColumns
from smdwidgets.sources.tree import Tree, Version
from smdwidgets.sources.whole_files import WholeFiles

_ABOUT, _MESSAGES = "experiment.json", "messages.json"
#: Bytes of an archive's directory, which is at its end, in which the names are looked for.
_DIRECTORY: Final = 1 << 20
#: Bytes that are unpacked at once, the longest line that is read, and the most bytes of one archive.
_PIECE, _LONGEST, _LARGEST = 1 << 20, 1 << 20, 16 << 30
#: Settings that Comet derives from metrics.
_DERIVED: Final = "auto-logged"
_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class CometExperiments:
    """The format of Comet's offline experiments."""

    name = "Comet experiment"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return each archive, which is a run, and each directory of one that runs."""
        runs: dict[str, Sequence[str]] = {}
        for key in tree.named(".zip"):
            if tree.recognizes(self.name, key, partial(_is_archive, tree, key)):
                runs["" if tree.is_file else key] = [key]
        for key in tree.named(".json"):
            if key.rpartition("/")[2] == _MESSAGES and _message(tree.head(key).partition(b"\n")[0]) is not None:
                runs[key.rpartition("/")[0]] = [key]
        return runs

    def why_not(self, tree: Tree, key: str) -> Refusal | None:
        """Return why an archive that has the messages of Comet is not read."""
        if not key.lower().endswith(".zip") or not tree.head(key, 4).startswith(ZIP):
            return None
        size = tree.size(key) or 0
        end = tree.read(key, max(0, size - _DIRECTORY), _DIRECTORY)
        if _MESSAGES.encode() not in tree.head(key) + end:
            return None
        try:
            with tree.open(key) as file, zipfile.ZipFile(file):
                return None
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            return Refusal(f"an archive of Comet that is damaged or incomplete: {error}", is_damaged=True)

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of one experiment."""
        return CometArchive(tree, files[0]) if files[0].endswith(".zip") else CometDirectory(tree, files[0])


def _is_archive(tree: Tree, key: str) -> bool:
    if not tree.head(key, 4).startswith(ZIP):
        return False
    try:
        with tree.open(key) as file, zipfile.ZipFile(file) as archive:
            return {_ABOUT, _MESSAGES} <= set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return False


def _message(line: bytes | str) -> tuple[str, Mapping[str, Any]] | None:
    """Return type and content of a message; None for another text.

    >>> _message('{"type": "log_other", "payload": {"key": "Name"}}'), _message('{"loss": 1}')
    (('log_other', {'key': 'Name'}), None)
    """
    content = _object(line)
    kind, payload = content.get("type"), content.get("payload")
    return (kind, payload) if isinstance(kind, str) and isinstance(payload, dict) else None


def _object(text: bytes | str) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


class _Experiment:
    """What the messages of an experiment say."""

    def __init__(self) -> None:
        self.columns = StepColumns()
        self.settings: dict[str, Any] = {}
        self.identity: dict[str, str] = {}
        self.files: set[str] = set()
        self.ended = False
        self._counts: defaultdict[str, int] = defaultdict(int)

    def about(self, data: bytes) -> None:
        """Read the file about the experiment."""
        content = _object(data)
        self.ended = content.get("stop_time") is not None
        for name, own in (("project_name", "comet.project"), ("workspace", "comet.workspace")):
            if isinstance(content.get(name), str):
                self.settings[own] = content[name]
        tags = content.get("tags")
        if isinstance(tags, list) and tags:
            self.settings["comet.tags"] = ", ".join(sorted(map(str, tags[:100])))

    def read(self, lines: Iterator[str]) -> None:
        """Read messages."""
        self.columns.append_each(self._metrics(lines))

    def _metrics(self, lines: Iterator[str]) -> Iterator[tuple[dict[str, float], int, float]]:
        """Yield the metrics among messages, and note the others."""
        for line in lines:
            message = _message(line) if len(line) <= _LONGEST else None
            if message is None:
                continue
            kind, payload = message
            if kind != "metric_msg":
                self._other(kind, payload)
            elif (metric := self._metric(payload)) is not None:
                name, value, step = metric
                yield {name: value}, step, _seconds(payload.get("local_timestamp"))

    def _metric(self, payload: Mapping[str, Any]) -> tuple[str, float, int] | None:
        metric = payload.get("metric")
        if not isinstance(metric, dict) or not isinstance(metric.get("metricName"), str):
            return None
        value = _number(metric.get("metricValue"))
        if value is None:
            return None
        context = payload.get("context")
        name = f"{context}_{metric['metricName']}" if isinstance(context, str) and context else metric["metricName"]
        step = next((one for one in (metric.get("step"), metric.get("epoch")) if _is_step(one)), None)
        if step is None:
            step = self._counts[name]
            self._counts[name] += 1
        return name, value, int(step)

    def _other(self, kind: str, payload: Mapping[str, Any]) -> None:
        if kind == "parameter_msg":
            for form in ("param", "params"):
                one = payload.get(form)
                if isinstance(one, dict) and isinstance(one.get("paramName"), str) and one.get("source") != _DERIVED:
                    self.settings |= flat({one["paramName"].replace("|", "/"): one.get("paramValue")})
        elif kind == "log_other" and payload.get("key") == "Name":
            self.identity["name"] = self.settings["comet.name"] = str(payload.get("value"))[:1000]
        elif kind == "git_metadata":
            git = payload.get("git_metadata")
            if isinstance(git, dict) and isinstance(git.get("parent"), str):
                self.identity["commit"] = git["parent"][:100]
        elif kind == "file_upload":
            more = payload.get("additional_params")
            if isinstance(more, dict) and len(self.files) < 1000:
                self.files.add(str(more.get("fileName"))[:200])

    def notes(self) -> list[str]:
        """Return what is not read."""
        names = listed([shown(name, 40) for name in sorted(self.files)], 6)
        return ([f"histograms, images and files are not read: {names}"] if self.files else []) + self.columns.notes


def _number(value: object) -> float | None:
    """Return a metric's value; None if it is no number.

    >>> _number(3), _number("NaN"), _number("12"), _number("high"), _number(True)
    (3.0, nan, 12.0, None, None)
    """
    if isinstance(value, str):
        if value in _NOT_FINITE:
            return _NOT_FINITE[value]
        try:
            return float(value) if len(value) < 400 and "_" not in value else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_step(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST_STEP


def _seconds(milliseconds: object) -> float:
    return milliseconds / 1000 if isinstance(milliseconds, int | float) and abs(milliseconds) < 1e16 else math.nan


class _CometSource(Source):
    """An experiment that was read from an archive or a directory."""

    _tree: Tree
    _experiment: _Experiment

    def scalars(self) -> Mapping[str, Scalars]:
        """Return the metrics; a context such as training is a prefix, as in Comet."""
        return self._experiment.columns.scalars()

    def hparams(self) -> Mapping[str, Any]:
        """Return the parameters, and project, name and tags of the experiment."""
        return self._experiment.settings

    def identity(self) -> Mapping[str, str]:
        """Return the name, and the commit if it was recorded."""
        return self._experiment.identity

    def ended(self) -> bool | None:
        """Return whether Comet wrote the time of the end."""
        return self._experiment.ended or None

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return what is not read."""
        path = self._tree.path(self.name)
        return [(self.name, f"{path}: {note}") for note in self._experiment.notes()]


class CometArchive(_CometSource, WholeFiles):
    """The archive of an experiment that has ended."""

    def __init__(self, tree: Tree, key: str) -> None:
        super().__init__(tree, key, [key])
        self._experiment = _Experiment()

    def _read(self, key: str, version: Version) -> None:
        experiment = _Experiment()
        path = self._tree.path(key)
        try:
            with self._tree.open(key) as file, zipfile.ZipFile(file) as archive:
                if archive.getinfo(_MESSAGES).file_size > _LARGEST:
                    raise CorruptDataError(f"{path}: messages of more than {_LARGEST >> 30} GiB are not read")
                with archive.open(_ABOUT) as about:
                    experiment.about(about.read(_LONGEST))
                # What was read before damage counts.
                self._experiment = experiment
                experiment.read(_unpacked_lines(archive))
        except (
            zipfile.BadZipFile,
            zlib.error,
            KeyError,
            ValueError,
            EOFError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise CorruptDataError(f"{path}: damaged archive: {error}") from None


def _unpacked_lines(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the messages of an archive, which is unpacked piece by piece."""
    with archive.open(_MESSAGES) as stream:
        rest = b""
        while piece := stream.read(_PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            # The rest of a line that is too long is no message, either.
            rest = rest if len(rest) <= _LONGEST else b""
            yield from (line.decode("utf-8", "replace") for line in lines)
        yield rest.decode("utf-8", "replace")


class CometDirectory(_CometSource):
    """The directory of an experiment, which may still be written."""

    def __init__(self, tree: Tree, key: str) -> None:
        self.name = key
        self._tree = tree
        self._about = f"{key.rpartition('/')[0]}/{_ABOUT}".removeprefix("/")
        self._lines = GrowingLines(tree, key)
        self._experiment = _Experiment()
        self._problem = ""

    def refresh(self) -> bool:
        """Read the messages that were added since the last call."""
        if not self._lines.changed():
            return False
        try:
            if self._lines.rewritten():
                self._experiment = _Experiment()
            self._experiment.about(self._tree.head(self._about, _LONGEST))
            self._experiment.read(line for _, line in self._lines.new())
        except RunIOError as error:
            self._problem = str(error)
            return True
        self._problem = ""
        return True

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age([self.name])

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return why the messages cannot be read."""
        return [(self.name, self._problem)] if self._problem else []

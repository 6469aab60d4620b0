"""Mapping of directories with event files to runs.

A directory with event files is a run. A directory named ``train``, ``validation`` or similar is a mode of the run in
its parent directory, as written by Keras and TensorFlow estimators. A directory that ``SummaryWriter.add_scalars``
created for one curve, below the writer's directory, is part of the writer's run. So is a directory that ``add_hparams``
created, if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from smdwidgets import _core
from smdwidgets._text import natural
from smdwidgets.modes import ModeKeys
from smdwidgets.storage.protocol import Range, Storage

_MODES: Final = {
    "train": ModeKeys.TRAIN,
    "training": ModeKeys.TRAIN,
    "validation": ModeKeys.EVAL,
    "valid": ModeKeys.EVAL,
    "val": ModeKeys.EVAL,
    "eval": ModeKeys.EVAL,
    "evaluation": ModeKeys.EVAL,
    "dev": ModeKeys.EVAL,
    "test": ModeKeys.EVAL,
    "predict": ModeKeys.PREDICT,
    "global": ModeKeys.GLOBAL,
}

#: What files are that begin so.
_FOREIGN: Final = {
    b"version https://git-lfs": "a pointer of Git LFS; run git lfs pull",
    b"/annex/objects/": "a pointer of git-annex; run git annex get",
    b"fileFormatVersion:": "a metadata file of Unity",
    b"\x1f\x8b": "compressed with gzip; decompress it",
    b"PK\x03\x04": "a ZIP archive; extract it",
    b"\x28\xb5\x2f\xfd": "compressed with Zstandard; decompress it",
    b"BZh": "compressed with bzip2; decompress it",
    b"\xfd7zXZ": "compressed with xz; decompress it",
    b"<!DOCTYPE": "an HTML page",
    b"<html": "an HTML page",
    b"\x89PNG": "a PNG image",
}
#: Bytes of text.
_TEXT: Final = bytes(range(32, 127)) + b"\t\n\r" + bytes(range(128, 256))

#: Beginning of the tags of hyperparameters, and the name of the directory that `add_hparams` creates: the time.
_HPARAMS: Final = "_hparams_/"
_TIME: Final = re.compile(r"\d{9,}(\.\d+)?")
#: The metrics of `add_hparams` often have the tags of curves.
_HPARAMS_SUFFIX: Final = " (hparams)"

#: The time, the host and the process in the name of an event file. tensorboardX and TensorFlow 1 do not write the
#: process.
_NAMED: Final = re.compile(r"tfevents\.(\d{9,})(?:\.(.+\.\d+)\.(\d+)(?:\.v2)?$)?")

#: Bytes at the start of a file that are searched for its first scalar.
_BEGINNING: Final = 4096


class Directory(NamedTuple):
    """One directory of a run."""

    path: str
    worker: str
    mode: ModeKeys
    #: Suffix that is appended to its tags.
    suffix: str = ""


def is_event_file(key: str) -> bool:
    """Return whether a file name is that of a TensorBoard event file.

    >>> is_event_file("train/events.out.tfevents.1700000000.host")
    True
    >>> is_event_file("events/000000000005/000000000005_worker_0.tfevents")
    False
    """
    return _core.is_event_file(key)


def foreign_format(beginning: bytes) -> str | None:
    """Return what a file is if it begins like one that no training writes."""
    return next((what for start, what in _FOREIGN.items() if beginning.startswith(start)), None)


def foreign(beginning: bytes) -> str | None:
    """Return what a file is if it cannot be an event file, else None.

    >>> foreign(b"version https://git-lfs.github.com/spec/v1\\noid sha256:4d7a"), foreign(b"\\x18\\0\\0\\0\\0\\0\\0\\0")
    ('a pointer of Git LFS; run git lfs pull', None)
    """
    if what := foreign_format(beginning):
        return what
    # The first 8 bytes of an event file are the length of a short record, so that most of them are zero.
    if len(beginning) >= 16 and not beginning.translate(None, _TEXT):
        return "a text file"
    return None


class FirstTags:
    """First tags of directories, cached."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, str] = {}
        self._with_hparams: dict[str, bool] = {}

    def __call__(self, directory: str) -> str | None:
        """Return the tag of the first scalar in a directory, or None."""
        if directory not in self._known:
            tag = self._read(directory + "/" if directory else "")
            if tag is None:
                return None
            self._known[directory] = tag
        return self._known[directory]

    def has_hparams(self, directory: str) -> bool:
        """Return whether the first values in a directory are hyperparameters."""
        if not self._with_hparams.get(directory):
            found = False
            for _, beginning in self._beginnings(directory + "/" if directory else ""):
                found = found or any(event.tag.startswith(_HPARAMS) for event in beginning.others)
            self._with_hparams[directory] = found
        return self._with_hparams[directory]

    def _beginnings(self, prefix: str) -> Iterator[tuple[str, _core.Events]]:
        """Yield the event files in a directory, and the events at their beginning."""
        for key in self._storage.list(prefix):
            if "/" not in key[len(prefix) :] and is_event_file(key):
                [beginning] = self._storage.read_ranges([Range(key, 0, _BEGINNING)])
                yield key, _core.read_events(bytes(beginning))

    def _read(self, prefix: str) -> str | None:
        for _, beginning in self._beginnings(prefix):
            for tag in beginning.scalars:
                return tag
        return None


def runs_of(
    keys: Iterable[str], first_tag: Callable[[str], str | None] = lambda directory: None
) -> dict[str, list[Directory]]:
    """Return the directories of each run, by run; the empty name is the log's root.

    ``first_tag`` returns the first tag in a directory. It is called for directories inside another run's directory.
    :class:`FirstTags` also finds directories of hyperparameters.

    >>> [*runs_of(["a/train/x.tfevents.1", "a/validation/x.tfevents.1", "b/x.tfevents.1"])]
    ['a', 'b']
    >>> runs_of(["x.tfevents.1", "loss_good/x.tfevents.1"], lambda directory: "loss")[""][1].suffix
    '/good'
    """
    directories = {key.rpartition("/")[0] for key in keys if is_event_file(key)}
    found: dict[str, set[str]] = {}
    curves: dict[str, list[Directory]] = {}
    hparams: dict[str, list[str]] = {}
    for directory in sorted(directories):
        writer = _around(directory, directories)
        suffix = None if writer is None else _curve(directory[len(writer) :].lstrip("/"), first_tag(directory))
        if writer is not None and suffix is not None:
            curves.setdefault(writer, []).append(Directory(directory, "worker_0", ModeKeys.GLOBAL, suffix))
            continue
        if writer is not None and _is_of_hparams(directory, writer, first_tag):
            hparams.setdefault(writer, []).append(directory)
        parent, _, name = directory.rpartition("/")
        found.setdefault(parent if name.lower() in _MODES else directory, set()).add(directory)
    for writer, [directory, *others] in hparams.items():
        # Several calls of `add_hparams` are several trials of hyperparameters: separate runs, as in TensorBoard.
        if not others:
            del found[directory]
            curves.setdefault(writer, []).append(Directory(directory, "worker_0", ModeKeys.GLOBAL, _HPARAMS_SUFFIX))
    return {run: _directories(run, found[run], curves) for run in sorted(found, key=natural)}


def _is_of_hparams(directory: str, writer: str, first_tag: object) -> bool:
    """Return whether `add_hparams` of a writer created a directory.

    Its name is a time.
    """
    above, _, name = directory.rpartition("/")
    named = above == writer and _TIME.fullmatch(name) is not None
    return named and isinstance(first_tag, FirstTags) and first_tag.has_hparams(directory)


class Segment(NamedTuple):
    """One launch of a training: the event files that it wrote."""

    number: int
    #: When the first file was begun, in seconds since 1970; None if its name does not say.
    started: float | None
    files: tuple[str, ...]


def segments_of(keys: Iterable[str]) -> list[Segment]:
    """Return the launches that wrote event files, in the order of time.

    The files of a process belong to one launch, if their names contain the process. Otherwise a launch ends where a
    directory gets another file.

    >>> [one.files for one in segments_of(["a.tfevents.1600000000.host", "a.tfevents.1600000900.host"])]
    [('a.tfevents.1600000000.host',), ('a.tfevents.1600000900.host',)]
    """
    launches: list[list[_EventFile]] = []
    for file in sorted(map(_EventFile.of, filter(is_event_file, keys))):
        # A process numbers its files from 0. The same process and number again are those of another launch.
        mine = [one for one in launches if file.process and file.process == one[0].process]
        if not file.process:
            mine = [one for one in launches[-1:] if not one[0].process]
        if mine and not any(file.repeats(other) for other in mine[-1]):
            mine[-1].append(file)
        else:
            launches.append([file])
    return [
        Segment(number, launch[0].begun or None, tuple(sorted(file.key for file in launch)))
        for number, launch in enumerate(launches)
    ]


class _EventFile(NamedTuple):
    """The parts of an event file's name: when it was begun, process, number."""

    begun: float
    key: str
    process: str
    number: str

    @classmethod
    def of(cls, key: str) -> _EventFile:
        match = _NAMED.search(key.rpartition("/")[2])
        return cls(float(match[1]), key, match[2] or "", match[3] or "") if match else cls(0.0, key, "", "")

    def repeats(self, other: _EventFile) -> bool:
        """Return whether one launch cannot have written both files."""
        if self.process:
            return self.number == other.number
        return self.key.rpartition("/")[0] == other.key.rpartition("/")[0]


def _around(directory: str, directories: set[str]) -> str | None:
    """Return the nearest ancestor directory that contains event files."""
    while directory:
        directory = directory.rpartition("/")[0]
        if directory in directories:
            return directory
    return None


def _curve(below: str, tag: str | None) -> str | None:
    """Return the tag suffix of a curve of ``add_scalars``, or None.

    PyTorch names the directory ``tag_curve``, with the tag's slashes replaced; tensorboardX names it ``tag/curve``.

    >>> _curve("loss_a_train", "loss/a"), _curve("loss/a/train", "loss/a"), _curve("eval", "loss"), _curve("eval", None)
    ('/train', '/train', None, None)
    """
    for beginning in () if tag is None else (tag.replace("/", "_") + "_", tag + "/"):
        if below.startswith(beginning) and below != beginning:
            return "/" + below[len(beginning) :]
    return None


def _directories(run: str, paths: set[str], curves: dict[str, list[Directory]]) -> list[Directory]:
    modes = sorted(paths - {run})
    directories = [(path, path.rpartition("/")[2]) for path in modes]
    found = []
    for path, name in directories:
        mode = _MODES[name.lower()]
        # GLOBAL is what `smdwidgets export` names the mode of runs without one. It tells no writers apart.
        found.append(Directory(path, "worker_0" if mode is ModeKeys.GLOBAL else name, mode))
    if run in paths:
        # An estimator writes training events to the run's directory and evaluations to subdirectories.
        trained = not found or any(directory.mode == ModeKeys.TRAIN for directory in found)
        found.append(Directory(run, "worker_0", ModeKeys.GLOBAL if trained else ModeKeys.TRAIN))
    # A curve has the mode and the worker of its writer.
    found += [
        curve._replace(worker=one.worker, mode=one.mode) for one in list(found) for curve in curves.get(one.path, [])
    ]
    return sorted(found, key=lambda directory: (directory.worker, directory.path))

"""Mapping of directories with event files to runs.

A directory with event files is a run. A directory named ``train``, ``validation`` or similar is a mode of the run in its
parent directory, as written by Keras and TensorFlow estimators. A directory that ``SummaryWriter.add_scalars`` created for
one curve, below the writer's directory, is part of the writer's run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


class FirstTags:
    """First tags of directories, cached."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, str] = {}

    def __call__(self, directory: str) -> str | None:
        """Return the tag of the first scalar in a directory, or None."""
        if directory not in self._known:
            tag = self._read(directory + "/" if directory else "")
            if tag is None:
                return None
            self._known[directory] = tag
        return self._known[directory]

    def _read(self, prefix: str) -> str | None:
        for key in self._storage.list(prefix):
            if "/" not in key[len(prefix) :] and is_event_file(key):
                [beginning] = self._storage.read_ranges([Range(key, 0, _BEGINNING)])
                for tag in _core.read_events(bytes(beginning)).scalars:
                    return tag
        return None


def runs_of(
    keys: Iterable[str], first_tag: Callable[[str], str | None] = lambda directory: None
) -> dict[str, list[Directory]]:
    """Return the directories of each run, by run; the empty name is the log's root.

    ``first_tag`` returns the first tag in a directory. It is called for directories inside another run's directory.

    >>> [*runs_of(["a/train/x.tfevents.1", "a/validation/x.tfevents.1", "b/x.tfevents.1"])]
    ['a', 'b']
    >>> runs_of(["x.tfevents.1", "loss_good/x.tfevents.1"], lambda directory: "loss")[""][1].suffix
    '/good'
    """
    directories = {key.rpartition("/")[0] for key in keys if is_event_file(key)}
    found: dict[str, set[str]] = {}
    curves: dict[str, list[Directory]] = {}
    for directory in sorted(directories):
        writer = _around(directory, directories)
        suffix = None if writer is None else _curve(directory[len(writer) :].lstrip("/"), first_tag(directory))
        if writer is not None and suffix is not None:
            curves.setdefault(writer, []).append(Directory(directory, "worker_0", ModeKeys.GLOBAL, suffix))
            continue
        parent, _, name = directory.rpartition("/")
        found.setdefault(parent if name.lower() in _MODES else directory, set()).add(directory)
    return {run: _directories(run, found[run], curves) for run in sorted(found, key=natural)}


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
    found = [Directory(path, name, _MODES[name.lower()]) for path, name in directories]
    if run in paths:
        # An estimator writes training events to the run's directory and evaluations to subdirectories.
        trained = not found or any(directory.mode == ModeKeys.TRAIN for directory in found)
        found.append(Directory(run, "worker_0", ModeKeys.GLOBAL if trained else ModeKeys.TRAIN))
    # A curve has the mode and the worker of its writer.
    found += [
        curve._replace(worker=one.worker, mode=one.mode) for one in list(found) for curve in curves.get(one.path, [])
    ]
    return sorted(found, key=lambda directory: (directory.worker, directory.path))

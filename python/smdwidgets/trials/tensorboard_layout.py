"""Which directories of event files make up which run.

A directory with event files is a run. Where it is called ``train``, ``validation`` or the like, it is a mode of the run that
its parent directory is: Keras and TensorFlow's estimators write so. Where ``SummaryWriter.add_scalars`` made it, a directory for
each curve below the one of the writer, it is part of the writer's run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from smdwidgets import _core
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

#: Bytes of a file in which its first scalar is looked for.
_BEGINNING: Final = 4096


class Directory(NamedTuple):
    """One directory of a run."""

    path: str
    worker: str
    mode: ModeKeys
    #: What is put behind its tags.
    suffix: str = ""


def is_event_file(key: str) -> bool:
    """Whether a file of this name is an event file of TensorBoard's.

    >>> is_event_file("train/events.out.tfevents.1700000000.host")
    True
    >>> is_event_file("events/000000000005/000000000005_worker_0.tfevents")
    False
    """
    return _core.is_event_file(key)


class FirstTags:
    """The first tags in directories of a storage, each read once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, str] = {}

    def __call__(self, directory: str) -> str | None:
        """The tag of the first scalar in a directory; None while there is none."""
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
    """The runs that these files make up, by their directories; the empty name is the place itself.

    ``first_tag``: the first tag in a directory, which is asked for where the directory lies in that of another run.

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
    return {run: _directories(run, found[run], curves) for run in sorted(found)}


def _around(directory: str, directories: set[str]) -> str | None:
    """The nearest directory around one that holds event files itself."""
    while directory:
        directory = directory.rpartition("/")[0]
        if directory in directories:
            return directory
    return None


def _curve(below: str, tag: str | None) -> str | None:
    """What tells a curve of ``add_scalars`` from the others of its tag; None for any other directory.

    PyTorch puts it into a directory ``tag_curve`` with the tag's slashes replaced, tensorboardX into ``tag/curve``.

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
    laid = [Directory(path, name, _MODES[name.lower()]) for path, name in directories]
    if run in paths:
        # An estimator writes its training to the run itself, and evaluations to directories below.
        trained = not laid or any(directory.mode == ModeKeys.TRAIN for directory in laid)
        laid.append(Directory(run, "worker_0", ModeKeys.GLOBAL if trained else ModeKeys.TRAIN))
    # A curve is of the mode and the worker of its writer.
    laid += [
        curve._replace(worker=one.worker, mode=one.mode) for one in list(laid) for curve in curves.get(one.path, [])
    ]
    return sorted(laid, key=lambda directory: (directory.worker, directory.path))

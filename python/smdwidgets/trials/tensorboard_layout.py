"""Which directories of event files make up which run.

A directory with event files is a run. Where it is called ``train``, ``validation`` or the like, it is a mode of the run that
its parent directory is: Keras and TensorFlow's estimators write so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from smdwidgets.modes import ModeKeys

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

#: Tensor files of smdebug's format have "tfevents" in their names too.
_SMDEBUG = re.compile(r"(^|/)events/\d{12}/\d{12}_[^/]*$")


class Directory(NamedTuple):
    """One directory of a run."""

    path: str
    worker: str
    mode: ModeKeys


def is_event_file(key: str) -> bool:
    """Whether a file of this name is an event file of TensorBoard's.

    >>> is_event_file("train/events.out.tfevents.1700000000.host")
    True
    >>> is_event_file("events/000000000005/000000000005_worker_0.tfevents")
    False
    """
    return "tfevents" in key.rpartition("/")[2] and not _SMDEBUG.search(key)


def runs_of(keys: Iterable[str]) -> dict[str, list[Directory]]:
    """The runs that these files make up, by their directories; the empty name is the place itself.

    >>> [*runs_of(["a/train/x.tfevents.1", "a/validation/x.tfevents.1", "b/x.tfevents.1"])]
    ['a', 'b']
    """
    found: dict[str, set[str]] = {}
    for directory in {key.rpartition("/")[0] for key in keys if is_event_file(key)}:
        parent, _, name = directory.rpartition("/")
        found.setdefault(parent if name.lower() in _MODES else directory, set()).add(directory)
    return {run: _directories(run, found[run]) for run in sorted(found)}


def _directories(run: str, paths: set[str]) -> list[Directory]:
    names = {path.rpartition("/")[2] for path in paths - {run}}
    if not names:
        return [Directory(run, "worker_0", ModeKeys.GLOBAL)]
    # Validation begins only after the first epoch: its directory is known before it is there.
    spell = str.upper if all(name.isupper() for name in names) else str.lower
    base = run + "/" if run else ""
    expected = {name: base + name for name in names | {spell(name) for name in _MODES}}
    directories = [Directory(path, name, _MODES[name.lower()]) for name, path in expected.items()]
    if run in paths:
        # An estimator writes its training to the run itself, and evaluations to directories below.
        trained = any(_MODES[name.lower()] == ModeKeys.TRAIN for name in names)
        directories.append(Directory(run, "worker_0", ModeKeys.GLOBAL if trained else ModeKeys.TRAIN))
    return sorted(directories, key=lambda directory: directory.worker)

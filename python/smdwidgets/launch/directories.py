"""The run directories of a launch: one per training.

The first training has the directory that the user named, the next ones the same name with ``-2``, ``-3`` and so on. A
directory that contains another run is passed over. The processes of a distributed training find the same directory,
because the first of them leaves a mark in it, the file ``launch.json``.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path

from smdwidgets.run_end import END_FILE
from smdwidgets.storage.address import scheme_of

__all__ = ["MARK", "directory_of", "is_free"]

MARK = "launch.json"
#: Entries of a directory that contains a run.
_OF_A_RUN = ("collections", "index", "events", END_FILE, MARK)


def is_free(path: Path) -> bool:
    """Whether a directory contains no run."""
    return not any((path / name).exists() for name in _OF_A_RUN)


def directory_of(base: str, key: Mapping[str, object]) -> str:
    """Return the directory of a training, and mark it.

    Args:
        base: the directory of the first training; the run of a bucket is not marked.
        key: identifies the training among all trainings of all launches.
    """
    for number in itertools.count(1):
        path = base if number == 1 else f"{base}-{number}"
        if scheme_of(base):
            if number == key.get("training", 1):
                return path
            continue
        if _is_marked(Path(path), key) or (is_free(Path(path)) and _mark(Path(path), key)):
            return path
    raise AssertionError("unreachable")


def _is_marked(path: Path, key: Mapping[str, object]) -> bool:
    try:
        found = json.loads((path / MARK).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and all(found.get(name) == value for name, value in key.items())


def _mark(path: Path, key: Mapping[str, object]) -> bool:
    """Leave the mark, unless another process was faster and its key is another one."""
    path.mkdir(parents=True, exist_ok=True)
    temporary = path / f".{MARK}.{os.getpid()}"
    temporary.write_text(json.dumps(key), encoding="utf-8")
    try:
        os.link(temporary, path / MARK)  # appears whole, or not at all if it exists
    except FileExistsError:
        return _is_marked(path, key)
    except OSError:  # a file system without links
        temporary.replace(path / MARK)
    finally:
        temporary.unlink(missing_ok=True)
    return True

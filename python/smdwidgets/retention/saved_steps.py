"""The steps of a run as its index files list them: which values lie where."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

_INDEX_FILE: Final = re.compile(r"(\d+)_(.+)\.json")


class SavedStep(NamedTuple):
    """What one worker saved at one step."""

    step: int
    #: The worker, as it is in names of files.
    worker: str
    mode: str
    mode_step: int
    #: Tensors, and the lengths of their records in bytes.
    lengths: list[tuple[str, int]]
    index_file: Path


def saved_steps(path: str) -> Iterator[SavedStep]:
    """Yield the steps of a run of a hook in order.

    Index files that cannot be read are skipped.
    """
    index = Path(path, "index")
    try:
        folders = sorted(entry.path for entry in os.scandir(index) if entry.is_dir())
    except OSError:
        return
    for folder in folders:
        for file in sorted(Path(folder).iterdir()):
            name = _INDEX_FILE.fullmatch(file.name)
            if name is not None and (step := _read(file, int(name[1]), name[2])) is not None:
                yield step


def lengths_in(content: bytes, *, strict: bool = False) -> list[tuple[str, int]]:
    """Return the tensors that an index file lists, and the lengths of their records.

    A damaged file has none, unless ``strict``; then it raises.
    """
    try:
        parsed: Any = json.loads(content)
        return [(str(one["tensorname"]), int(one["length"])) for one in parsed["tensor_payload"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        if strict:
            raise
        return []


def _read(file: Path, step: int, worker: str) -> SavedStep | None:
    try:
        data = file.read_bytes()
        meta: Any = json.loads(data)["meta"]
        lengths = lengths_in(data, strict=True)
        return SavedStep(step, worker, str(meta["mode"]), int(meta["mode_step"]), lengths, file)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None

"""Delete the values of a saved step, and leave its small tensors readable.

The writer puts the tensors that are kept (losses, learning rates) first into an event file. Thinning therefore needs no
copy: the index file is replaced by one without the deleted tensors, then the event file is cut off behind the kept
ones. A reader that has the old index file finds the kept tensors where they were; for the others ``thinned.jsonl`` says
that they were deleted. The line is written first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdwidgets import _core
from smdwidgets._atomic import replace_file
from smdwidgets.hooks.capture.captured import StepKey
from smdwidgets.hooks.writing.segments import Segments

#: Directory for event files with copies, beside the files that they replace.
COPIES = "kept"

__all__ = ["COPIES", "Thinning", "event_key", "index_key", "reduced"]


def index_key(step: int, worker: str) -> str:
    """Return the key of a step's index file.

    >>> index_key(1234, "worker_0")
    'index/000000001/000000001234_worker_0.json'
    """
    return f"index/{step // 1000:09d}/{step:012d}_{_core.worker_file_name(worker)}.json"


def event_key(step: int, worker: str) -> str:
    """Return the key of a step's event file.

    >>> event_key(5, "worker_0")
    'events/000000000005/000000000005_worker_0.tfevents'
    """
    return f"events/{step:012d}/{step:012d}_{_core.worker_file_name(worker)}.tfevents"


class Thinning:
    """Deletes values of one worker's steps.

    Args:
        root: directory of the run.
        worker: name of the worker.
        log: appends a line to ``thinned.jsonl``.
        segments: has the steps without separate files.
    """

    def __init__(
        self, root: Path, worker: str, log: Callable[[dict[str, Any]], None], segments: Segments | None = None
    ) -> None:
        self._root = root
        self._worker = worker
        self._log = log
        self._segments = segments

    def thin(self, key: StepKey, first: str | None, every: int) -> bool:
        """Delete the values of a step; return whether anything is left of it.

        Args:
            key: the step.
            first: name of the first tensor to delete; those that lie before it in the event file are kept. None: delete
                all.
            every: the spacing that the step is not a multiple of, for the log.
        """
        step, mode, mode_step = key
        if self._segments is not None and step in self._segments:
            left = self._segments.keeps_any(step, first)
            self._log({"step": step, "mode": mode.name, "mode_step": mode_step, "every": every, "whole_step": not left})
            self._segments.cut(step, first)
            return left
        index_file = self._root / index_key(step, self._worker)
        index = _parse(index_file)
        kept, end = ([], 0) if index is None or first is None else _before(first, index)
        line = {"step": step, "mode": mode.name, "mode_step": mode_step, "every": every, "whole_step": not kept}
        self._log(line)
        event_file = self._root / event_key(step, self._worker)
        if not kept or index is None:
            index_file.unlink(missing_ok=True)
            event_file.unlink(missing_ok=True)
            with suppress(OSError):  # files of other workers are there
                event_file.parent.rmdir()
            return False
        replace_file(index_file, json.dumps(_of_names(index, kept)))
        with event_file.open("r+b") as events:
            events.truncate(end)
        return True

    def delete(self) -> None:
        """Delete values of thinned steps in segments, if they take much of the space."""
        if self._segments is not None:
            self._segments.delete()

    def keep(self, key: StepKey, names: Set[str], every: int) -> None:
        """Delete all values of a step but those of some tensors.

        If these lie behind others in the event file, they are copied to another one first, so that a reader finds
        either the old or the new files at any time.
        """
        index_file = self._root / index_key(key[0], self._worker)
        index = _parse(index_file)
        if index is None:
            return
        entries = sorted(index["tensor_payload"], key=lambda entry: int(entry["start_idx"]))
        first = next((entry["tensorname"] for entry in entries if entry["tensorname"] not in names), None)
        behind = [] if first is None else entries[_position(entries, first) :]
        if first is None or not any(entry["tensorname"] in names for entry in behind):
            self.thin(key, first, every)
            return
        step, mode, mode_step = key
        self._log({"step": step, "mode": mode.name, "mode_step": mode_step, "every": every, "whole_step": False})
        old = self._root / index["meta"]["event_file_name"]
        folder = old.parent if old.parent.name == COPIES else old.parent / COPIES
        index, ranges = reduced(index, names, (folder / old.name).relative_to(self._root).as_posix())
        content = b""
        with old.open("rb") as events:
            for start, length in ranges:
                events.seek(start)
                content += events.read(length)
        folder.mkdir(exist_ok=True)
        replace_file(folder / old.name, content)
        replace_file(index_file, json.dumps(index))
        if old.parent != folder:
            old.unlink(missing_ok=True)


def reduced(index: dict[str, Any], names: Set[str], event_key: str) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Return an index file of some tensors, and where their records were.

    Args:
        index: the index file of a step.
        names: the tensors.
        event_key: an event file with their records only, one after the other.
    """
    kept, ranges, end = [], [], 0
    for entry in sorted(index["tensor_payload"], key=lambda entry: int(entry["start_idx"])):
        if entry["tensorname"] in names:
            ranges.append((int(entry["start_idx"]), int(entry["length"])))
            kept.append({**entry, "start_idx": end})
            end += int(entry["length"])
    return {**_of_names(index, kept), "meta": {**index["meta"], "event_file_name": event_key}}, ranges


def _of_names(index: dict[str, Any], kept: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an index file with these entries, and what it says of their tensors."""
    names = {entry["tensorname"] for entry in kept}
    others: dict[str, Any] = {
        part: [entry for entry in index[part] if entry.get("tensorname") in names]
        for part in ("shape_payload", "shard_payload")
        if part in index
    }
    return {**index, "tensor_payload": kept, **others}


def _position(entries: list[dict[str, Any]], name: str) -> int:
    return next(at for at, entry in enumerate(entries) if entry["tensorname"] == name)


def _parse(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("tensor_payload"), list) else None


def _before(first: str, index: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Return the entries that lie before a tensor, and where they end."""
    entries = index["tensor_payload"]
    starts = [entry["start_idx"] for entry in entries if entry["tensorname"] == first]
    if not starts:  # the tensor was not written
        return entries, max((entry["start_idx"] + entry["length"] for entry in entries), default=0)
    kept = [entry for entry in entries if entry["start_idx"] < min(starts)]
    return kept, min(starts)

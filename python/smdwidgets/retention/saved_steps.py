"""A step of a run as its index file lists it."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final, NamedTuple

#: Records of at most this many bytes stay when a step is thinned: losses, learning rates, reductions.
SMALL: Final = 1024
_INDEX_FILE: Final = re.compile(r"index/\d+/(\d+)_(.+)\.json")


class SavedStep(NamedTuple):
    """What one worker saved at one step."""

    step: int
    #: The worker, as it is in names of files.
    worker: str
    mode: str
    mode_step: int
    #: Bytes of the values that are not small.
    large: int
    #: The index file and, of an object, its version.
    key: str
    etag: str
    #: The event file, and where the last record in it ends: 0 if there is none.
    events: str
    end: int


def saved_step(key: str, content: bytes, etag: str = "") -> SavedStep | None:
    """Return the step of an index file; None if it is another file or damaged.

    Steps in segments are left to the hook, which keeps them within its budget.
    """
    name = _INDEX_FILE.fullmatch(key)
    if name is None:
        return None
    try:
        parsed: Any = json.loads(content)
        meta, records = parsed["meta"], _records(parsed)
        end = max((start + length for _, start, length in records), default=0)
        large = sum(length for _, _, length in records if length > SMALL)
        events, mode_step = str(meta["event_file_name"]), int(meta["mode_step"])
        if events.startswith("segments/"):
            return None
        worker, mode = sys.intern(name[2]), sys.intern(str(meta["mode"]))
        return SavedStep(int(name[1]), worker, mode, mode_step, large, key, etag, events, end)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def lengths_in(content: bytes) -> list[tuple[str, int]]:
    """Return the tensors that an index file lists, and the lengths of their records.

    A damaged file has none.
    """
    try:
        return [(name, length) for name, _, length in _records(json.loads(content))]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []


def _records(parsed: Any) -> list[tuple[str, int, int]]:
    return [(str(one["tensorname"]), int(one["start_idx"]), int(one["length"])) for one in parsed["tensor_payload"]]

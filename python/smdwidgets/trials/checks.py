"""Read the checks of a run."""

from __future__ import annotations

import re

from smdwidgets._text import shown
from smdwidgets.checks.record import CHECKS_PREFIX, LARGEST_CHECKS, CheckRecords
from smdwidgets.exceptions import RunIOError
from smdwidgets.storage.protocol import Storage, beginning

__all__ = ["read_checks"]

_FILE = re.compile(rf"{CHECKS_PREFIX}/(?P<worker>[^/]+)\.jsonl")


def read_checks(storage: Storage) -> CheckRecords:
    """Read the files of all workers."""
    files: dict[str, bytes] = {}
    problems: list[tuple[str, str]] = []
    for key in storage.list(f"{CHECKS_PREFIX}/"):
        name = _FILE.fullmatch(key)
        if name is None:
            continue
        try:
            files[name["worker"]] = beginning(storage, key, LARGEST_CHECKS)
        except FileNotFoundError:
            continue  # the run was deleted meanwhile
        except RunIOError as error:
            problems.append((key, f"cannot read the checks {shown(key)}: {error}"))
    records = CheckRecords.parse(files)
    records.problems += problems
    return records

"""Delete the compacted index of a run, because its index files change."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from smdwidgets._atomic import temporary_sibling
from smdwidgets.storage.protocol import OWN_PREFIX

if TYPE_CHECKING:
    from smdwidgets.storage.remote import RemoteStorage

__all__ = ["forget_compacted", "forget_compacted_in"]


def forget_compacted(run: Path) -> None:
    """Delete the compacted index of a run in a directory.

    A compaction in progress fails, because the directory that it writes to is renamed first.
    """
    own = run / OWN_PREFIX
    away = temporary_sibling(own)
    with suppress(OSError):
        own.rename(away)
        own = away
    shutil.rmtree(own, ignore_errors=True)


def forget_compacted_in(storage: RemoteStorage) -> None:
    """Delete the compacted index of a run in a bucket.

    A compaction in progress fails, because the root object is not the one that it found.
    """
    storage.delete(list(storage.list(OWN_PREFIX)))

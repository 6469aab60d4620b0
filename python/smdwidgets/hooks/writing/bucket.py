"""Write runs to a bucket: write each step to a local folder, then upload it.

The event object is uploaded before its index object, so that a reader that finds an index object can read the events.
If the network is down, the training loses steps but does not wait.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.checks.record import CHECKS_PREFIX
from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.hooks.writing.capture_log import CAPTURE
from smdwidgets.hooks.writing.compacted import forget_compacted_in
from smdwidgets.incident import INCIDENTS_PREFIX
from smdwidgets.run_end import END_FILE, RunEnd
from smdwidgets.signals.record import SIGNALS_PREFIX
from smdwidgets.storage.address import WRITABLE_FORMS, parse
from smdwidgets.storage.connection import Connection

__all__ = ["Bucket"]


class Bucket:
    """A run at an address, and the local folder of its new files."""

    def __init__(self, url: str) -> None:
        if parse(url).is_web:
            raise SMDebugValueError(
                f"invalid out_dir {shown(url, 400)}: a web server can only be read; pass {WRITABLE_FORMS}"
            )
        self._storage = Connection(cache_bytes=0).storage(url)
        self.url = self._storage.url
        self.folder = Path(tempfile.mkdtemp(prefix="smdwidgets-hook-"))

    def send(self, *keys: str | None) -> None:
        """Upload files of the folder in order, and delete each after its upload."""
        for key in keys:
            if key is not None:
                path = self.folder / key
                self._storage.put(key, path)
                path.unlink()

    def copy(self, key: str) -> None:
        """Upload a file of the folder that grows, and keep it."""
        self._storage.put(key, self.folder / key)

    def keys_of(self, worker: str | None) -> list[str]:
        """Return the keys of an earlier run, of one worker or of all workers."""
        found: list[str] = []
        for prefix in (COLLECTIONS_PREFIX, "events", CAPTURE, INCIDENTS_PREFIX, "index", CHECKS_PREFIX, SIGNALS_PREFIX):
            keys = self._storage.list(f"{prefix}/")
            if worker is None:
                found += keys
            else:
                name = _core.worker_file_name(worker)
                ends = (f"_{worker}.json", f"_{worker}.tfevents", f"/{worker}_collections.json", f"/{name}.jsonl")
                mine = (f"{CAPTURE}/{name}/", f"{INCIDENTS_PREFIX}/{name}/")
                found += [key for key in keys if key.endswith(ends) or key.startswith(mine)]
        return found

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        self._storage.delete([*keys, END_FILE])

    def forget_compacted(self) -> None:
        """Delete the compacted index, because its index objects change."""
        forget_compacted_in(self._storage)

    def resume(self) -> _core.Catalog:
        """Delete the end marker, and return the catalog of the steps in the bucket."""
        self._storage.delete([END_FILE])
        catalog = _core.Catalog()
        catalog.add_keys(list(self._storage.list("index/")))
        catalog.load_many(list(self._storage.read_many(catalog.unread())))
        return catalog

    def mark_end(self, end: RunEnd) -> None:
        """Write the end marker."""
        self._storage.put(END_FILE, end.to_json())

    def withdraw_end(self) -> None:
        """Delete the end marker."""
        self._storage.delete([END_FILE])

    def close(self, end: RunEnd | None) -> None:
        """Upload the remaining files and then the end marker, if any. Delete the folder."""
        try:
            with suppress(OSError):
                left = sorted(
                    path for path in self.folder.rglob("*") if path.is_file() and path.suffix not in {".smd", ".tmp"}
                )
                self.send(*(path.relative_to(self.folder).as_posix() for path in left))
                if end is not None:
                    self.mark_end(end)
        finally:
            self._storage.close()
            shutil.rmtree(self.folder, ignore_errors=True)

"""Runs in a directory of this machine."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from smdwidgets.exceptions import OutsideRunError, RunFileMissing, RunIOError
from smdwidgets.storage.files import open_file
from smdwidgets.storage.protocol import LARGEST_WHOLE, TOO_LARGE, Range


class LocalStorage:
    """The files below one directory. Keys that lead out of it, links among them, are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open(os.path.join(folder, "training_job_end.ts"), "w").close()
    ...     storage = LocalStorage(folder)
    ...     list(storage.list(""))
    ['training_job_end.ts']
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(os.fspath(root))

    @property
    def url(self) -> str:
        """The directory."""
        return self._root

    def list(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Keys that begin with ``prefix`` and come after ``start_after``, in the order of their characters."""
        folder, _, _ = prefix.rpartition("/")
        found: list[str] = []
        for directory, folders, files in os.walk(self._path(folder) if folder else self._root, onerror=_refused):
            relative = os.path.relpath(directory, self._root).replace(os.sep, "/")
            base = "" if relative == "." else relative + "/"
            # Whole folders before the start are not entered: a refresh costs the news, not the run.
            folders[:] = [name for name in folders if base + name + "/" >= start_after[: len(base + name) + 1]]
            found += [base + name for name in files if (base + name).startswith(prefix) and base + name > start_after]
        return iter(sorted(found))

    def read(self, key: str) -> bytes:
        """A whole file."""
        try:
            with open_file(self._path(key)) as file:
                # A file with holes takes no disk to fill a reader's memory.
                if os.fstat(file.fileno()).st_size > LARGEST_WHOLE:
                    raise OSError(errno.EFBIG, TOO_LARGE, self._path(key))
                return file.read()
        except OSError as error:
            raise _said(key, error) from error

    def read_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Whole files; those that are gone are left out."""
        for key in keys:
            try:
                yield key, self.read(key)
            except FileNotFoundError:
                continue

    def read_ranges(self, ranges: Sequence[Range]) -> Sequence[bytes]:
        """Parts of files, in the order asked for."""
        parts = []
        for key, wanted in groupby(ranges, key=lambda one: one.key):
            try:
                with open_file(self._path(key)) as file:
                    # A lying length must not become an allocation.
                    size = os.fstat(file.fileno()).st_size
                    for _, offset, length in wanted:
                        file.seek(offset)
                        parts.append(file.read(max(0, min(length, size - offset))))
            except OSError as error:
                raise _said(key, error) from error
        return parts

    def exists(self, key: str) -> bool:
        """Whether there is such a file."""
        try:
            return stat.S_ISREG(os.stat(self._path(key)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _said(key, error) from error

    def age(self, key: str) -> float | None:
        """Seconds since the file was written; None if there is none."""
        try:
            return max(0.0, time.time() - os.stat(self._path(key)).st_mtime)
        except OSError:
            return None

    def close(self) -> None:
        """Nothing is held open."""

    def _path(self, key: str) -> str:
        path = os.path.join(self._root, *key.split("/"))
        inside = os.path.realpath(self._root)
        # `realpath` follows links: a link to elsewhere is not part of the run.
        if not os.path.realpath(path).startswith(inside.rstrip(os.sep) + os.sep):
            raise OutsideRunError(f"{key!r} leads out of the run {self._root!r}: it was not opened.")
        return path


def _refused(error: OSError) -> None:
    """A directory that is not there holds nothing; one that must not be read may hold anything."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise RunIOError(error.errno, error.strerror, error.filename) from error


def _said(key: str, error: OSError) -> RunIOError:
    """The error of the operating system, with the key and in our words."""
    what = f"{key!r}: {error.strerror or error}"
    return RunFileMissing(what) if isinstance(error, FileNotFoundError) else RunIOError(what)

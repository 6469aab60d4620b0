"""Storage in a local directory."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from urllib.parse import unquote, urlsplit

from smdwidgets.exceptions import OutsideRunError, RunFileMissing, RunIOError
from smdwidgets.storage.address import scheme_of
from smdwidgets.storage.files import open_file
from smdwidgets.storage.protocol import LARGEST_WHOLE, TOO_LARGE, Range


def local_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a directory; expand ``~`` and ``file://``.

    >>> local_path("file:///tmp/a%20run/")
    '/tmp/a run'
    """
    text = os.fspath(path)
    if scheme_of(text) == "file":
        parts = urlsplit(text)
        host = "" if parts.netloc in ("", "localhost") else f"//{parts.netloc}"
        if os.name == "nt":
            from urllib.request import url2pathname  # imports the modules of HTTP

            text = host + url2pathname(parts.path)
        else:
            text = host + unquote(parts.path)
    return os.path.abspath(os.path.expanduser(text))


class LocalStorage:
    """The files below one directory.

    Keys that resolve to a path outside it, also through symbolic links, raise
    :class:`~smdwidgets.exceptions.OutsideRunError`.

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
        """Return sorted keys that start with ``prefix`` and sort after ``start_after``."""
        folder, _, _ = prefix.rpartition("/")
        found: list[str] = []
        for directory, folders, files in os.walk(
            self._path(folder) if folder else self._root, onerror=_raise_unless_missing
        ):
            relative = directory[len(self._root) :].strip(os.sep).replace(os.sep, "/")
            base = relative + "/" if relative else ""
            # Skip directories before the start, so that the cost depends on the number of new files only.
            folders[:] = [name for name in folders if base + name + "/" >= start_after[: len(base + name) + 1]]
            found += [base + name for name in files if (base + name).startswith(prefix) and base + name > start_after]
        return iter(sorted(found))

    def read(self, key: str) -> bytes:
        """Return the content of a file."""
        try:
            with open_file(self._path(key)) as file:
                # A sparse file can be huge without using disk space.
                if os.fstat(file.fileno()).st_size > LARGEST_WHOLE:
                    raise OSError(errno.EFBIG, TOO_LARGE, self._path(key))
                return file.read()
        except OSError as error:
            raise _storage_error(key, error) from error

    def read_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the content of files; skip files that do not exist."""
        for key in keys:
            try:
                yield key, self.read(key)
            except FileNotFoundError:
                continue

    def read_ranges(self, ranges: Sequence[Range]) -> Sequence[bytes]:
        """Return parts of files, in the order of ``ranges``."""
        parts = []
        for key, wanted in groupby(ranges, key=lambda one: one.key):
            try:
                with open_file(self._path(key)) as file:
                    # Do not allocate more than the file size, since the length may be invalid.
                    size = os.fstat(file.fileno()).st_size
                    for _, offset, length in wanted:
                        file.seek(offset)
                        parts.append(file.read(max(0, min(length, size - offset))))
            except OSError as error:
                raise _storage_error(key, error) from error
        return parts

    def exists(self, key: str) -> bool:
        """Return whether a file exists."""
        try:
            return stat.S_ISREG(os.stat(self._path(key)).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _storage_error(key, error) from error

    def age(self, key: str) -> float | None:
        """Return the seconds since a file was written, or None if it does not exist."""
        try:
            return max(0.0, time.time() - os.stat(self._path(key)).st_mtime)
        except OSError:
            return None

    def close(self) -> None:
        """Do nothing: no files are held open."""

    def _path(self, key: str) -> str:
        parts = key.split("/")
        path = os.path.join(self._root, *parts)
        if os.name == "posix" and ".." not in parts and not self._has_links(parts):
            return path
        inside = os.path.realpath(self._root)
        # `realpath` resolves links, so that links to files outside the run are rejected.
        if not os.path.realpath(path).startswith(inside.rstrip(os.sep) + os.sep):
            raise OutsideRunError(f"key {key!r} points outside the run {self._root!r}")
        return path

    def _has_links(self, parts: Iterable[str]) -> bool:
        """Return whether a part of a key is a link, faster than `realpath`."""
        path = self._root.rstrip("/")
        for part in parts:
            path = f"{path}/{part}"
            if os.path.islink(path):
                return True
        return False


def _raise_unless_missing(error: OSError) -> None:
    """Ignore missing directories; raise other errors of `os.walk`."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise RunIOError(error.errno, error.strerror, error.filename) from error


def _storage_error(key: str, error: OSError) -> RunIOError:
    """Convert an OSError to an exception that names the key."""
    message = f"{key!r}: {error.strerror or error}"
    return RunFileMissing(message) if isinstance(error, FileNotFoundError) else RunIOError(message)

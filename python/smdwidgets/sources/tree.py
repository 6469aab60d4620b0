"""The files below a directory, listed once and read by position."""

from __future__ import annotations

import io
import os
import re
import stat
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from smdwidgets.exceptions import RunFileMissing, RunIOError, TruncatedDataError
from smdwidgets.run_end import END_FILE
from smdwidgets.storage.local import LocalStorage
from smdwidgets.storage.protocol import Storage

#: Bytes at the beginning of a file by which its format is recognized.
HEAD = 1 << 16
#: Bytes before the end of what was read by which a file that was written again is recognized.
TAIL = 64
#: Files of one kind that are opened to recognize their format; further ones are ignored.
_MOST_HEADS = 10_000

#: Entries of a directory that a hook writes, besides its claims and notes.
_OF_HOOKS = frozenset({"collections", "index", END_FILE})
#: Name of a directory of a hook's files, below one of its directories.
_STEPS = re.compile(r"\d{9,}")


def of_hook(name: str) -> bool:
    """Return whether an entry can be one of a directory that a hook writes.

    >>> of_hook("collections"), of_hook("claim_worker_0.smd"), of_hook("metrics.csv")
    (True, True, False)
    """
    return name in _OF_HOOKS or name.endswith(".smd")


def holds_steps(names: Iterable[str]) -> bool:
    """Return whether a directory with these entries can be one of a hook.

    Other programs have directories named ``index``, too.

    >>> holds_steps(["000000000"]), holds_steps(["page.html"])
    (True, False)
    """
    return any(map(_STEPS.fullmatch, names))


def is_searched(name: str) -> bool:
    """Return whether runs are looked for in a directory of this name.

    >>> is_searched("run"), is_searched(".git")
    (True, False)
    """
    return bool(name) and not name.startswith(".") and name != "__pycache__"


def _is_of_hook(entries: Iterable[os.DirEntry[str]]) -> bool:
    """Return whether a hook wrote these entries."""
    for entry in entries:
        if of_hook(entry.name):
            if entry.name not in ("collections", "index"):
                return True
            with suppress(OSError), os.scandir(entry.path) as below:
                if holds_steps(one.name for one in below):
                    return True
    return False


#: Size, time and identity of a file.
Version: TypeAlias = tuple[int, int, int]


class Tree:
    """The files below a directory, or one file.

    Keys are paths relative to the directory, with slashes. Hidden directories are ignored, as are pipes and devices,
    which could block a reader. So are the directories of hooks below it, whose logs are no tables of a training.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "metrics.csv").write_text("step,loss")
    ...     tree = Tree(folder)
    ...     tree.keys, tree.read("metrics.csv", 5, 100)
    (['metrics.csv'], b'loss')
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        path = Path(os.path.abspath(root))
        #: The directory.
        self.root = str(path)
        self._only = ""
        if path.is_file():
            self.root, self._only = str(path.parent), path.name
        #: The same files for readers of event files.
        self.storage: Storage = LocalStorage(self.root)
        self._begin()

    def _begin(self) -> None:
        #: Whether only one file was opened.
        self.is_file = bool(self._only)
        #: Directories of the runs that a hook wrote; the empty name is the root.
        self.hooks: list[str] = []
        self.keys: list[str] = []
        self._by_suffix: dict[str, list[str]] = {}
        self._times: dict[str, int] = {}
        self._answers: dict[tuple[str, str], tuple[object, bool]] = {}
        self.scan()

    def scan(self) -> None:
        """List the files again."""
        if self._only:
            self.keys = [self._only]
        else:
            self._times = {}
            self.hooks = []
            self.keys = sorted(self._walk(self.root, ""))
        self._sort_by_suffix()

    def _sort_by_suffix(self) -> None:
        by_suffix: defaultdict[str, list[str]] = defaultdict(list)
        for key in self.keys:
            dot = key.rfind(".")
            if dot > key.rfind("/") + 1:
                by_suffix[key[dot:].lower()].append(key)
        self._by_suffix = dict(by_suffix)

    def _walk(self, top: str, base: str) -> list[str]:
        found, below = [], [(top, base)]
        while below:
            folder, base = below.pop()
            try:
                self._times[folder] = os.stat(folder).st_mtime_ns
                with os.scandir(folder) as children:
                    entries = list(children)
                # A run that is about to begin in the root has empty directories.
                if _is_of_hook(entries) if base else any(of_hook(entry.name) for entry in entries):
                    self.hooks.append(base.rstrip("/"))
                    continue
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if is_searched(entry.name):
                            below.append((entry.path, base + entry.name + "/"))
                    elif entry.is_file(follow_symlinks=False) or self._is_link_inside(entry):
                        found.append(base + entry.name)
            except OSError:
                continue  # removed or unreadable
        return found

    def _is_link_inside(self, entry: os.DirEntry[str]) -> bool:
        """Return whether an entry is a link to a regular file below the directory."""
        inside = os.path.realpath(self.root).rstrip(os.sep) + os.sep
        return entry.is_symlink() and entry.is_file() and os.path.realpath(entry.path).startswith(inside)

    def changed(self, resolution: int) -> bool:
        """Return whether files may have been added since the last scan.

        A change within the resolution (nanoseconds) of the scan is not visible in a directory's time.
        """
        now = time.time_ns()
        for folder, written in self._times.items():
            try:
                if os.stat(folder).st_mtime_ns != written or now - written < resolution:
                    return True
            except OSError:
                return True
        return False

    def named(self, *suffixes: str) -> list[str]:
        """Return up to 10,000 keys with these suffixes, such as ``".csv"``."""
        found = [key for suffix in suffixes for key in self._by_suffix.get(suffix, ())]
        return sorted(found[:_MOST_HEADS])

    def has(self, key: str) -> bool:
        """Return whether a file is one of the keys."""
        at = bisect_left(self.keys, key)
        return self.keys[at : at + 1] == [key]

    def path(self, key: str) -> str:
        """Return the path of a file."""
        return os.path.join(self.root, *key.split("/"))

    def size(self, key: str) -> int | None:
        """Return the size of a regular file; None for anything else."""
        try:
            about = os.stat(self.path(key))
        except OSError:
            return None
        return about.st_size if stat.S_ISREG(about.st_mode) else None

    def version(self, key: str) -> Version | None:
        """Return size, time and identity of a file; None if it does not exist."""
        try:
            about = os.stat(self.path(key))
        except OSError:
            return None
        return (about.st_size, about.st_mtime_ns, about.st_ino) if stat.S_ISREG(about.st_mode) else None

    def recognizes(self, format: str, key: str, test: Callable[[], bool]) -> bool:
        """Return the result of a test of a file, repeated when the file changes."""
        version = self.version(key)
        known = self._answers.get((format, key))
        if known is None or known[0] != version:
            known = self._answers[format, key] = (version, test())
        return known[1]

    def age(self, keys: Sequence[str]) -> float | None:
        """Return the seconds since the last write to these files, or None if none exists."""
        written = [about[1] for key in keys if (about := self.version(key)) is not None]
        return max(0.0, time.time() - max(written) / 1e9) if written else None

    def read(self, key: str, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes; fewer if the file ends before.

        Raises :class:`~smdwidgets.exceptions.RunIOError`, with the path.
        """
        try:
            about = os.stat(self.path(key))
            if not stat.S_ISREG(about.st_mode):
                raise RunIOError(f"{self.path(key)!r}: not a regular file")
            with open(self.path(key), "rb") as file:
                file.seek(offset)
                # A length may be invalid, so no more is allocated than the file has.
                return file.read(max(0, min(length, about.st_size - offset)))
        except FileNotFoundError as error:
            raise RunFileMissing(f"{self.path(key)!r}: {error.strerror}") from error
        except OSError as error:
            if isinstance(error, RunIOError):
                raise
            raise RunIOError(f"{self.path(key)!r}: {error.strerror or error}") from error

    def still_has(self, key: str, tail: bytes, end: int) -> bool:
        """Return whether a file has these bytes before an offset.

        A reader that keeps the last `TAIL` bytes that it read recognizes a file that was written again.
        """
        return self.read(key, end - len(tail), len(tail)) == tail

    def read_exactly(self, key: str, offset: int, length: int) -> bytes:
        """Return ``length`` bytes, or raise TruncatedDataError."""
        found = self.read(key, offset, length)
        if len(found) < length:
            raise TruncatedDataError(
                f"{self.path(key)}, byte {offset}: truncated file: expected {length} bytes, got {len(found)}"
            )
        return found

    def open(self, key: str, part: tuple[int, int] | None = None) -> BinaryIO:
        """Open a file, or a part of it, for libraries that read by position.

        ``part`` is its offset and length.
        """
        return cast(BinaryIO, io.BufferedReader(_File(self, key, part), HEAD))

    def local_file(self, key: str) -> str:
        """Return the path of a local copy of a file, here its own path.

        It is for libraries that need one. Raises :class:`~smdwidgets.exceptions.RunIOError`.
        """
        return self.path(key)

    def fetch_ahead(self, ranges: Sequence[tuple[str, int, int]]) -> None:
        """Read parts of files into a cache, if each read waits for a server.

        Args:
            ranges: key, offset and length of each part.
        """

    def read_heads(self, keys: Iterable[str]) -> None:
        """Read the beginnings of files into a cache, if reads wait for a server."""

    def head(self, key: str, length: int = HEAD) -> bytes:
        """Return the beginning of a file; empty if it cannot be read."""
        try:
            return self.read(key, 0, length)
        except RunIOError:
            return b""


class _File(io.RawIOBase):
    """A file of a tree as a stream, or a part of it."""

    def __init__(self, tree: Tree, key: str, part: tuple[int, int] | None) -> None:
        super().__init__()
        self._tree, self._key, self._at = tree, key, 0
        size = tree.size(key) or 0
        self._begin, length = (0, size) if part is None else part
        self._size = max(0, min(length, size - self._begin))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, origin: int = os.SEEK_SET, /) -> int:
        at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[origin]
        if at < 0:
            raise OSError(f"{self._tree.path(self._key)}: negative position {at}")
        self._at = at
        return at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        left = max(0, self._size - self._at)
        data = self._tree.read(self._key, self._begin + self._at, min(len(buffer), left))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

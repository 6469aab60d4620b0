"""Opening files that others put there: regular ones, and nothing that could keep a reader waiting."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader

# What Windows has neither of, nor the need for.
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def open_file(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, open for reading. A pipe or a device in its place is an ``OSError``, at once.

    >>> open_file(os.devnull)
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] it is no regular file: '/dev/null'
    """
    descriptor = os.open(path, os.O_RDONLY | _AT_ONCE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise

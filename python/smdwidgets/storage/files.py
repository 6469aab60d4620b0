"""Open regular files only, since opening a pipe or a device could block."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader

# Windows lacks O_NONBLOCK and O_NOCTTY.
_NONBLOCKING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def open_file(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file for reading. Raises ``OSError`` for pipes and devices.

    >>> open_file(os.devnull)
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] not a regular file: '/dev/null'
    """
    descriptor = os.open(path, os.O_RDONLY | _NONBLOCKING)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise

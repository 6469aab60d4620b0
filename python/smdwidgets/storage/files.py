"""Open regular files, and measure directories that other processes write.

Only regular files are opened, since opening a pipe or a device could block.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

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


def size_on_disk(path: str | os.PathLike[str], enough: int | None = None) -> int:
    """Return the size of all files below a directory in bytes.

    Files and folders that vanish meanwhile, such as the temporary files of a writer, do not count.

    Args:
        path: the directory.
        enough: stop as soon as the size exceeds this number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a").write_bytes(b"12345")
    ...     size_on_disk(folder)
    5
    """
    total = 0
    for folder, _, files in os.walk(path):
        for file in files:
            try:
                total += Path(folder, file).lstat().st_size
            except OSError:
                continue
            if enough is not None and total > enough:
                return total
    return total

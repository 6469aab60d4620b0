"""The user's cache directory, and atomic writes of files and directories."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smdwidgets._atomic import replacing, temporary_sibling
from smdwidgets._text import shown
from smdwidgets.exceptions import RunIOError, SMDebugValueError


def user_cache(name: str) -> Path:
    """Return a directory in the user's cache directory.

    >>> user_cache("logs").name
    'logs'
    """
    named, usual = ("LOCALAPPDATA", "AppData/Local") if os.name == "nt" else ("XDG_CACHE_HOME", ".cache")
    return Path(os.environ.get(named) or Path.home() / usual) / "smdwidgets" / name


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path that is renamed to ``path`` if the block succeeds."""
    target = Path(path).expanduser()
    if target.is_dir():
        raise SMDebugValueError(f"cannot write {shown(os.fspath(path), 400)}: it is a directory; pass a file name")
    try:
        with replacing(target) as partial:
            yield partial
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary directory that replaces ``path`` if the block succeeds."""
    target = Path(path).expanduser()
    partial, old = temporary_sibling(target), temporary_sibling(target, "old")
    try:
        partial.mkdir()
        yield partial
        if target.exists():
            target.replace(old)
        partial.replace(target)
    except OSError as error:
        if old.exists() and not target.exists():
            old.replace(target)
        raise _unwritable(path, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _unwritable(path: str | os.PathLike[str], error: OSError) -> RunIOError:
    return RunIOError(error.errno, f"cannot write {shown(os.fspath(path), 400)}: {error.strerror or error}")

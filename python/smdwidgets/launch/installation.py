"""Arm every Python process of an environment in which SMDWIDGETS_HOOK is set.

A line in a ``.pth`` file of the environment runs when Python starts. Without the variable it does nothing else.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

from smdwidgets._files import whole_file
from smdwidgets.launch.command import BOOTSTRAP

__all__ = ["install", "path_of_file", "uninstall"]

_FILE = "smdwidgets_hook.pth"
#: It imports nothing unless the variable is set, and survives the removal of the package.
_LINE = (
    "import os, sys; d = {folder!r}; os.environ.get('SMDWIDGETS_HOOK') and os.path.isdir(d) and "
    "(sys.path.insert(0, d), __import__('_smdwidgets_finder').install(), sys.path.remove(d))\n"
)


def path_of_file() -> Path:
    """Return the path of the ``.pth`` file in the environment of this Python."""
    return Path(sysconfig.get_path("purelib")) / _FILE


def install() -> Path:
    """Write the file; return its path."""
    path = path_of_file()
    with whole_file(path) as temporary:
        temporary.write_text(_LINE.format(folder=str(BOOTSTRAP)), encoding="utf-8")
    return path


def uninstall() -> Path | None:
    """Remove the file; return its path, or None if there was none."""
    path = path_of_file()
    try:
        path.unlink()
    except FileNotFoundError:
        return None
    return path

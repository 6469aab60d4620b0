"""Where an operator was called: the line of a library, and the line of the user.

>>> place = Place("model.py", 39, "x / x.sum(1)")
>>> print(place)
model.py:39: x / x.sum(1)
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final

from smdwidgets._text import visible

__all__ = ["Place", "call_places", "is_library", "places_of_error"]

_PACKAGE: Final = str(Path(__file__).parent.parent) + os.sep
_STANDARD: Final = tuple(
    path + os.sep for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name)) is not None
)
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
#: Lines of sources are shown up to this length.
_LONGEST: Final = 160


@dataclass(frozen=True)
class Place:
    """A line of a program."""

    file: str
    line: int
    text: str = ""

    @classmethod
    def of(cls, file: str, line: int) -> Place:
        """Return a place with the text of its line, if the source is known."""
        return cls(file, line, visible(linecache.getline(file, line).strip(), _LONGEST))

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}" + (f": {self.text}" if self.text else "")


def _is_hidden(file: str, framework: str) -> bool:
    """Whether a file is of the framework, of this package or of Python itself."""
    if file.startswith((framework, _PACKAGE, "<frozen")):
        return True
    return file.startswith(_STANDARD) and not any(part in file for part in _INSTALLED)


def is_library(file: str) -> bool:
    """Whether a file is that of an installed package.

    >>> is_library("python3/site-packages/transformers/trainer.py"), is_library("train.py")
    (True, False)
    """
    return any(part in file for part in _INSTALLED)


def call_places(framework: str, frame: FrameType | None = None) -> tuple[Place | None, Place | None]:
    """Return the innermost lines outside of a framework, and of the user.

    Both are the same line where the user calls the framework.

    Args:
        framework: the directory of the framework, with a separator at its end.
        frame: where to begin; None: the caller.
    """
    return _places(_frames(sys._getframe(1) if frame is None else frame), framework)


def places_of_error(error: BaseException, framework: str) -> tuple[Place | None, Place | None]:
    """Return the innermost places of a traceback, as `call_places` does."""
    lines = list(_lines(error.__traceback__))
    return _places(reversed(lines), framework)


def _frames(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _lines(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def _places(frames: Iterator[tuple[str, int]], framework: str) -> tuple[Place | None, Place | None]:
    inner: Place | None = None
    for file, line in frames:
        if _is_hidden(file, framework):
            continue
        if not is_library(file):
            user = Place.of(file, line)
            return inner or user, user
        inner = inner or Place.of(file, line)
    return inner, None

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
from typing import Any, Final

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

    @property
    def where(self) -> str:
        """The name of the file or cell, and the line."""
        cell = _cell(self.file)
        return f"{cell} line {self.line}" if cell else f"{Path(self.file).name}:{self.line}"

    def around(self, count: int) -> list[tuple[int, str]]:
        """Return it and so many lines before and after it, with their numbers.

        The indentation that all have is left out. Empty if the source is not known.
        """
        lines = linecache.getlines(self.file)
        first = max(1, self.line - count)
        chosen = [line.expandtabs(4).rstrip() for line in lines[first - 1 : self.line + count]]
        while chosen and not chosen[-1].strip():
            chosen.pop()
        common = min((len(line) - len(line.lstrip()) for line in chosen if line.strip()), default=0)
        return [(first + number, line[common:]) for number, line in enumerate(chosen)]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        >>> Place("model.py", 39, "x / n").to_json()
        {'file': 'model.py', 'line': 39, 'text': 'x / n'}
        """
        return {"file": self.file, "line": self.line, "text": self.text}

    def __str__(self) -> str:
        return self.where + (f": {self.text}" if self.text else "")


def _cell(file: str) -> str:
    """Return the name of the notebook's cell that a file stands for.

    Such as ``Cell In[4]``; empty if it is none.
    """
    interactive = sys.modules.get("IPython.core.interactiveshell")
    kind = getattr(interactive, "InteractiveShell", None)
    if kind is None or not kind.initialized():
        return ""
    named = kind.instance().compile.format_code_name(file)
    return "" if named is None else visible(" ".join(named), 50)


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

"""What a terminal shows beyond plain text: colour, and a curve in one line.

Output that is piped stays plain, as does that of a terminal with NO_COLOR or TERM=dumb.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_ASCII: Final = "_.-=+*#@"
_BOLD, _DIM, _RED, _GREEN, _RESET = (f"\x1b[{code}m" for code in (1, 2, 31, 32, 0))
_NUMBERED: Final = re.compile(r"(\d+\. )(.*)")
_WRONG: Final = re.compile(r"(✗ )?[\d,]+ (finding|fault|problem)s?\b|error: ")
_RIGHT: Final = re.compile(r"(✓ )?(Nothing wrong seen|No faults\.|Everything required works\.)")
_MARKS: Final = {"✗": _RED, "✓": _GREEN, "–": _DIM}
_MARKED: Final = re.compile(r"( *)([✗✓–])( .*)")
#: A line that says where to read more.
_MORE: Final = "smdwidgets explain "
#: Fewest and most columns of a text.
_LEAST, _MOST = 40, 100


def is_terminal(stream: TextIO) -> bool:
    """Return whether somebody reads the stream on a terminal."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colour(stream: TextIO) -> bool:
    """Return whether the stream takes colours."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def sparkline(values: NDArray[np.float64], width: int, encoding: str | None) -> str:
    """Draw a series in one line; a place without finite values is an exclamation mark.

    >>> import numpy as np
    >>> sparkline(np.array([3.0, 2.0, 1.0, np.nan]), 10, "utf-8")
    '█▅▁!'
    >>> sparkline(np.arange(100.0), 8, "ascii")
    '_.-=+*#@'
    """
    import numpy as np  # not at the top: an error must be shown also where NumPy cannot be imported

    marks = _BLOCKS if _can(encoding, _BLOCKS) else _ASCII
    means = []
    for part in np.array_split(values, min(width, len(values))) if len(values) else []:
        finite = part[np.isfinite(part)]
        means.append(float(finite.mean()) if len(finite) == len(part) else np.nan)
    places = np.array(means)
    finite = places[np.isfinite(places)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    scale = (len(marks) - 1) / (high - low) if high > low else 0.0
    return "".join("!" if np.isnan(one) else marks[int((one - low) * scale + 0.5)] for one in places)


def curve(name: str, values: NDArray[np.float64], encoding: str | None) -> str:
    """Return one line: the name of a series, its course, and its first and last value."""
    ends = f"{values[0]:.4g} → {values[-1]:.4g}"
    arrow = ends if _can(encoding, ends) else ends.replace("→", "->")
    room = min(shutil.get_terminal_size().columns, 100) - len(name) - len(arrow) - 4
    return f"{name}  {sparkline(values, max(room, 8), encoding)}  {arrow}"


def bold(text: str) -> str:
    """Return a heading for standard output."""
    return f"{_BOLD}{text}{_RESET}" if has_colour(sys.stdout) else text


def width(stream: TextIO) -> int:
    """Return the width of a text: the terminal's, at most that of a pipe."""
    return min(max(shutil.get_terminal_size().columns, _LEAST), _MOST) if is_terminal(stream) else _MOST


def show(text: str, stream: TextIO | None = None) -> None:
    """Print the lines of a command, on a terminal in colours."""
    stream = stream or sys.stdout
    lines = text.splitlines()
    print("\n".join(coloured(lines) if has_colour(stream) else lines), file=stream)


def coloured(lines: Iterable[str]) -> Iterator[str]:
    """Colour summaries, marks of outcomes, errors, and the sentences of findings.

    >>> list(coloured(["No faults.", "1. The loss", "   rises.", "   Try: less."]))[1:3]
    ['\\x1b[31m1. \\x1b[0m\\x1b[1mThe loss\\x1b[0m', '\\x1b[1m   rises.\\x1b[0m']
    """
    sentence = False
    for line in lines:
        numbered = _NUMBERED.fullmatch(line)
        sentence = bool(numbered) or (sentence and line.startswith("   ") and not line.startswith("   Try: "))
        if _MORE in line:
            yield f"{_DIM}{line}{_RESET}"
        elif numbered:
            yield f"{_RED}{numbered[1]}{_RESET}{_BOLD}{numbered[2]}{_RESET}"
        elif sentence:
            yield f"{_BOLD}{line}{_RESET}"
        elif _WRONG.match(line):
            yield f"{_BOLD}{_RED}{line}{_RESET}"
        elif _RIGHT.match(line):
            yield f"{_BOLD}{_GREEN}{line}{_RESET}"
        elif marked := _MARKED.fullmatch(line):
            yield f"{marked[1]}{_MARKS[marked[2]]}{marked[2]}{_RESET}{marked[3]}"
        else:
            yield line


def _can(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True

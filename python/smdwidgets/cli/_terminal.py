"""What a terminal shows beyond plain text: colour, and a curve in one line.

Output that is piped stays plain, as does that of a terminal with NO_COLOR or TERM=dumb.
"""

from __future__ import annotations

import os
import re
import shutil
from typing import Final, TextIO

import numpy as np
from numpy.typing import NDArray

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_ASCII: Final = "_.-=+*#@"
_BOLD, _DIM, _RED, _GREEN, _RESET = (f"\x1b[{code}m" for code in (1, 2, 31, 32, 0))
_NUMBERED: Final = re.compile(r"(\d+\. )(.*)")


def is_terminal(stream: TextIO) -> bool:
    """Return whether somebody reads the stream on a terminal."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colour(stream: TextIO) -> bool:
    """Return whether the stream takes colours."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def sparkline(values: NDArray[np.float64], width: int, encoding: str | None) -> str:
    """Draw a series in one line; a place without finite values is an exclamation mark.

    >>> sparkline(np.array([3.0, 2.0, 1.0, np.nan]), 10, "utf-8")
    '█▅▁!'
    >>> sparkline(np.arange(100.0), 8, "ascii")
    '_.-=+*#@'
    """
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


def coloured(lines: list[str], wrong: bool) -> list[str]:
    """Colour the lines of a diagnosis: its summary, and the sentences of its findings."""
    first, *rest = lines
    found = [f"{_BOLD}{_RED if wrong else _GREEN}{first}{_RESET}"]
    for line in rest:
        if numbered := _NUMBERED.fullmatch(line):
            found.append(f"{_RED}{numbered[1]}{_RESET}{_BOLD}{numbered[2]}{_RESET}")
        elif "smdwidgets explain " in line:
            found.append(f"{_DIM}{line}{_RESET}")
        else:
            found.append(line)
    return found


def _can(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True

"""The colour of each run, the same in all widgets of a process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

COLOURS = 7
"""Number of different colours; js/src/lib/colour.ts has as many."""


class RunColours:
    """Assigns numbers of colours to runs, which keep them. Thread-safe.

    >>> colours = RunColours()
    >>> colours.of(["a", "b"]), colours.of(["b", "a"]), colours.of(["c", "b"])
    ([0, 1], [1, 0], [2, 1])
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}

    def of(self, paths: Sequence[str]) -> list[int]:
        """Return the number of a colour for each run of a widget.

        Runs that are compared have different colours, as long as there are enough of them. A single run without a
        colour gets the first one, which is not kept.
        """
        with self._lock:
            if len(paths) == 1:
                return [self._known.get(paths[0], 0)]
            taken = {self._known[path] for path in paths if path in self._known}
            found: list[int] = []
            for path in paths:
                colour = self._known.get(path)
                if colour is None or colour in found:
                    colour = self._least_used(taken)
                    self._known.setdefault(path, colour)
                taken.add(colour)
                found.append(colour)
            return found

    def _least_used(self, taken: set[int]) -> int:
        """Return the colour that the fewest runs have, of those that are not taken."""
        free = [colour for colour in range(COLOURS) if colour not in taken] or range(COLOURS)
        return min(free, key=list(self._known.values()).count)


run_colours = RunColours()

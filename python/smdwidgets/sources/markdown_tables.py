"""Tables of Markdown, such as that of the results in the card of a model."""

from __future__ import annotations

import re
from typing import Final

from smdwidgets.sources.log_pairs import Row, tells

__all__ = ["MarkdownTables", "cells_of"]

#: The line below the names of columns.
_RULE: Final = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?")
_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?i:nan|inf)")
#: Columns that number the rows, the best first.
_STEPS: Final = ("step", "steps", "iteration", "iter", "epoch", "epochs")
_LONGEST: Final = 2000


class MarkdownTables:
    """Reads tables whose columns name a step and what a training measures.

    What is written around them is no row of a training.

    >>> reader = MarkdownTables()
    >>> lines = "- Loss: 0.3", "| Training Loss | Step |", "|:---:|:---:|", "| No log | 50 |", "| 0.5 | 100 |"
    >>> [(row.step, row.values) for line in lines if (row := reader.read(line))]
    [(100, {'Training Loss': 0.5})]
    """

    def __init__(self) -> None:
        #: The cells of the last line, and the columns of the table that it belongs to.
        self._before: list[str] = []
        self._columns: list[str] = []
        self._step = -1

    def read(self, line: str) -> Row | None:
        """Return the numbers of a line; None if none is one of a training."""
        if "|" not in line or len(line) > _LONGEST:
            self._before, self._columns = [], []
            return None
        before, self._before = self._before, cells_of(line)
        if _RULE.fullmatch(line):
            names = [name.lower() for name in before]
            is_table = len(before) == len(self._before) and tells(before) and any(name in names for name in _STEPS)
            self._columns = before if is_table else []
            self._step = -1
            return None
        if len(self._before) != len(self._columns):
            return None
        numbers = {
            name: float(cell)
            for name, cell in zip(self._columns, self._before, strict=True)
            if name and _NUMBER.fullmatch(cell)
        }
        places = {name.lower(): number for name, number in numbers.items() if name.lower() in _STEPS}
        values = {name: number for name, number in numbers.items() if name.lower() not in _STEPS}
        step = next((places[name] for name in _STEPS if name in places), None)
        if step is None or not tells(values):
            return None
        # Parts of epochs are counted.
        self._step = int(step) if step.is_integer() else self._step + 1
        return Row(self._step, values)


def cells_of(line: str) -> list[str]:
    """Return what is between the bars of a line.

    >>> cells_of("| epoch |  lr  | loss |"), cells_of(" 1 | 0.1 | 0.5")
    (['epoch', 'lr', 'loss'], ['1', '0.1', '0.5'])
    """
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]

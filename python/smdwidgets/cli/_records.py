"""Print rows with named columns as JSON or as comma-separated values."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print an object for each row; numbers that JSON lacks become text."""
    names = list(columns)
    print(json.dumps([dict(zip(names, map(_plain, row), strict=True)) for row in rows], indent=2))


def print_csv(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a header and the rows; a missing value is empty."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])


def _plain(cell: Any) -> Any:
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell

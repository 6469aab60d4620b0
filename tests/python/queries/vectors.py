"""The shared cases of `tests/vectors/query.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smdwidgets.exceptions import QueryError
from smdwidgets.queries.grammar import Query
from smdwidgets.queries.table import Cell, KeyTable, Table, TensorTable, evaluate

PATH = Path(__file__).parents[2] / "vectors" / "query.json"
VECTORS: dict[str, Any] = json.loads(PATH.read_text("utf-8"))


class _Statistics:
    def __init__(self, names: list[str], statistics: dict[str, dict[str, list[Any]]]) -> None:
        self._names, self._statistics = names, statistics

    def values(self, statistic: str, rows: Sequence[int], query: Query) -> list[list[float]]:
        return [self._of_row(statistic, row, query) for row in rows]

    def _of_row(self, statistic: str, row: int, query: Query) -> list[float]:
        known = self._statistics.get(self._names[row])
        if known is None:
            return []
        low, high = query.steps or (0, None)
        values = known.get(statistic) or [None] * len(known["step"])
        return [
            math.nan if value is None else _decoded(value)
            for step, value in zip(known["step"], values, strict=True)
            if low <= step and (high is None or step <= high)
        ]


def tables(described: dict[str, Any] = VECTORS["tables"]) -> dict[str, Table]:
    """Return tables, by default those of the cases."""
    tensors, runs = described["tensors"], described["runs"]
    statistics = _Statistics(tensors["names"], tensors["statistics"])
    cells = {key: [_decoded(cell) for cell in column] for key, column in runs["keys"].items()}
    return {
        "tensors": TensorTable(tensors["names"], statistics, tensors["collections"]),
        "runs": KeyTable(runs["names"], cells, ascending=runs["ascending"]),
    }


def answer(table: Table, text: str) -> dict[str, Any]:
    """Return the result of a query, or its error, as the cases have it."""
    try:
        found = evaluate(table, text)
    except QueryError as error:
        place = {"start": error.start, "end": error.end}
        return {"error": {**place, "message": error.reason, "suggestion": error.suggestion}}
    query = found.query
    columns = [column for key, column in found.cells.items() if key != "name"]
    chosen = {
        "statistic": query.statistic,
        "steps": None if query.steps is None else [*query.steps],
        "view": query.view,
    }
    return {
        "rows": [table.names[row] for row in found.rows],
        "columns": [*found.cells],
        "values": [[_encoded(column[at]) for column in columns] for at in range(len(found.rows))],
        **{name: value for name, value in chosen.items() if value is not None},
    }


def _decoded(value: Any) -> Any:
    return float(value["number"]) if isinstance(value, dict) else value


def _encoded(cell: Cell) -> Any:
    if isinstance(cell, float) and math.isinf(cell):
        return {"number": "inf" if cell > 0 else "-inf"}
    return cell

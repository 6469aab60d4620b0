"""What `smdwidgets query` does."""

from __future__ import annotations

import argparse

from smdwidgets.cli._records import print_csv, print_json
from smdwidgets.cli._run import bytes_progress, open_run, plain, table
from smdwidgets.queries import QueryResult, query
from smdwidgets.queries.table import Cell, cell_of


def run(args: argparse.Namespace) -> int:
    """Print the tensors that the query finds."""
    with open_run(args.run) as trial, bytes_progress("query") as progress:
        result = query(trial, args.text, mode=args.mode, worker=args.worker, progress=progress)
    rows = [[cell_of(cell) for cell in row] for row in zip(*result.values(), strict=True)]
    if args.json:
        print_json(result, rows)
    elif args.csv:
        print_csv(result, rows)
    else:
        print(_text(result, rows))
    return 0


def _text(result: QueryResult, rows: list[list[Cell]]) -> str:
    summary = f"{len(rows)} of {result.total} tensors; first, last and worst: {result.statistic}"
    cells = [[plain(cell) if isinstance(cell, str) else _number(cell) for cell in row] for row in rows]
    lines = [summary, table([[*result], *cells])] if rows else [summary]
    lines += [plain(f"unreadable: {each.name} at step {each.step}: {each.error}", 400) for each in result.errors[:5]]
    return "\n".join(lines)


def _number(cell: float | None) -> str:
    return "-" if cell is None else f"{cell:.6g}"

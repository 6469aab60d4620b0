"""Find tensors of a run by name and by their statistics.

Examples:
  smdwidgets query runs/mlp 'layers.*.q_proj | l2 | top 12 by change'
  smdwidgets query runs/mlp '@gradients | nonfinite > 0 | sort by name'
  smdwidgets query runs/mlp '/weight$/ | steps 100 .. 200 | last < 1e-6' --json

Statistics are size (root mean square), l2, update, zeros, nonfinite, surprise, mean, std, min and max; keys are change, worst,
first, last, name and every statistic. docs/query.md describes the grammar.

Exit codes: 0 success, 2 the query is invalid or the run could not be opened
"""

from __future__ import annotations

import argparse

from smdwidgets.cli._records import print_csv, print_json
from smdwidgets.cli._run import bytes_progress, mode, open_run, plain, table
from smdwidgets.queries import QueryResult, query
from smdwidgets.queries.table import Cell, cell_of


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory or an s3:// address")
    parser.add_argument("text", metavar="QUERY", help="the query; quote it, because | is a pipe of the shell")
    parser.add_argument("--mode", type=mode, default="GLOBAL", help="only steps of this mode: TRAIN, EVAL or PREDICT")
    parser.add_argument("--worker", metavar="NAME", help="worker (default: the first, or all shards combined)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", action="store_true", help="print comma-separated values")


def run(args: argparse.Namespace) -> int:
    """Print the tensors that the query finds."""
    with open_run(args.run) as trial, bytes_progress("query") as progress:
        found = query(trial, args.text, mode=args.mode, worker=args.worker, progress=progress)
    rows = [[cell_of(cell) for cell in row] for row in zip(*found.values(), strict=True)]
    if args.json:
        print_json(found, rows)
    elif args.csv:
        print_csv(found, rows)
    else:
        print(_text(found, rows))
    return 0


def _text(found: QueryResult, rows: list[list[Cell]]) -> str:
    summary = f"{len(rows)} of {found.total} tensors; first, last and worst: {found.statistic}"
    cells = [[plain(cell) if isinstance(cell, str) else _number(cell) for cell in row] for row in rows]
    lines = [summary, table([[*found], *cells])] if rows else [summary]
    lines += [plain(f"unreadable: {each.name} at step {each.step}: {each.error}", 400) for each in found.errors[:5]]
    return "\n".join(lines)


def _number(cell: float | None) -> str:
    return "-" if cell is None else f"{cell:.6g}"

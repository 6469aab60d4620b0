"""Show the table of all runs below a directory: steps, curves, hyperparameters.

Runs are read once; what the table shows is kept in the user's cache directory.

Examples:
  smdwidgets runs logs
  smdwidgets runs logs --tags 'val_loss,min(val_loss)' --sort 'min(val_loss)' --limit 10
  smdwidgets runs logs --filter 'hparams.lr < 0.01 and state == "ended"' --csv > runs.csv
  smdwidgets runs logs --query 'lr < 0.01 | state = ended | top 20 by loss'
  smdwidgets runs logs --group hparams.lr
  smdwidgets runs logs --group-pattern 'seed_[0-9]+'

In a filter, a name is a column, a hyperparameter or the last value of a curve; min(name), max, best, first and count are other
values of a curve; `~` matches a regular expression.

Exit codes: 0 success, 2 the directory does not exist or an argument is invalid
"""

from __future__ import annotations

import argparse
from typing import Any

from smdwidgets.cli._records import print_csv, print_json
from smdwidgets.cli._run import plain
from smdwidgets.run_table import RunGroups, RunTable, runs

#: Rows of text without --limit.
SHOWN = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("root", metavar="ROOT", help="a directory with runs below it")
    parser.add_argument(
        "--tags", metavar="A,B", help="curves that are columns (default: up to four losses and metrics)"
    )
    parser.add_argument("--filter", metavar="EXPRESSION", help="only runs for which this is true")
    parser.add_argument(
        "--query", metavar="QUERY", help="only the runs that a query finds, in its order (docs/query.md)"
    )
    parser.add_argument("--sort", metavar="COLUMN", help="sort by a column, a hyperparameter or min(TAG) and similar")
    parser.add_argument("--descending", action="store_true", help="sort the largest first")
    parser.add_argument("--limit", type=int, metavar="N", help=f"show at most N runs (default: {SHOWN} as text)")
    parser.add_argument("--group", metavar="A,B", help="mean and standard deviation over runs with equal values")
    parser.add_argument("--group-pattern", metavar="REGEX", help="group by what the pattern finds in the names")
    parser.add_argument("--findings", action="store_true", help="diagnose each run")
    parser.add_argument("--no-cache", action="store_true", help="read every run again")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", action="store_true", help="print comma-separated values")


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    table = runs(args.root, _words(args.tags) or None, findings=args.findings, cache=not args.no_cache)
    if args.filter:
        table = table.filter(args.filter)
    if args.query:
        table = table.query(args.query)
    if args.sort:
        table = table.sort(args.sort, args.descending)
    table = table[: args.limit]
    if args.group or args.group_pattern:
        groups = table.group(_words(args.group), pattern=args.group_pattern)
        columns, rows = _of_groups(groups)
        text = repr(groups)
    else:
        columns = table.columns
        rows = [[table.cell(row, column) for column in columns] for row in table]
        text = table.to_text(args.limit or SHOWN)
    if args.json:
        print_json(columns, rows)
    elif args.csv:
        print_csv(columns, rows)
    else:
        print("\n".join(plain(line, 4000) for line in text.splitlines()))
        _print_findings(table)
    return 0


def _words(given: str | None) -> list[str]:
    return [word.strip() for word in (given or "").split(",") if word.strip()]


def _of_groups(groups: RunGroups) -> tuple[list[str], list[list[Any]]]:
    columns = [*groups.names, "runs"]
    for column in groups.columns:
        columns += [column, f"{column}.std"]
    rows = []
    for group in groups:
        row: list[Any] = [*group.key, len(group.runs)]
        for column in groups.columns:
            spread = group.numbers.get(column)
            row += [None, None] if spread is None else [spread.mean, spread.std]
        rows.append(row)
    return columns, rows


def _print_findings(table: RunTable) -> None:
    for row in table[:SHOWN]:
        for finding in row.findings or ():
            print(plain(f"{row.name}: {finding}", 1000))

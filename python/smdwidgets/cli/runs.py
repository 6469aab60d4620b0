"""What `smdwidgets runs` does."""

from __future__ import annotations

import argparse
import os
from typing import Any

from smdwidgets.cli._records import print_csv, print_json
from smdwidgets.cli._run import plain
from smdwidgets.cli.arguments.runs import SHOWN
from smdwidgets.exceptions import RunNotFound, SMDebugValueError
from smdwidgets.run_table import Run, RunGroups, RunTable, TensorsFound, runs
from smdwidgets.sources.recognition import why_no_run
from smdwidgets.storage.address import is_address
from smdwidgets.storage.local import local_path


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    if os.path.isfile(args.root):
        raise RunNotFound(args.root, "it is a file; give a directory with runs below it")
    table = runs(
        args.root,
        _words(args.tags) or None,
        findings=args.findings or args.before is not None,
        cache=not args.no_cache,
        catalog=not args.no_catalog,
    )
    if not len(table):
        reason = "no run below this prefix" if is_address(args.root) else why_no_run(local_path(args.root))
        raise RunNotFound(args.root, reason)
    for text in (args.filter, args.query):
        table = table.query(text) if text else table
    tensors: list[TensorsFound[Run]] = []
    if args.tensors:
        tensors = table.query_tensors(args.tensors, before=args.before, within=args.within)
        table = table.having({one.run.name for one in tensors})
    elif args.before is not None:
        raise SMDebugValueError("--before requires --tensors, the query of the tensors in the steps before the finding")
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
        for one in tensors[:SHOWN]:
            print(plain(str(one), 1000))
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

"""Show the table of all runs below a directory: steps, curves, hyperparameters.

Runs are read once; what the table shows is kept in the user's cache directory.

Examples:
  smdwidgets runs logs
  smdwidgets runs logs --tags 'val_loss,min(val_loss)' --sort 'min(val_loss)' --limit 10
  smdwidgets runs logs --query 'lr < 0.01 and state = ended | top 20 by loss' --csv > runs.csv
  smdwidgets runs logs --group hparams.lr
  smdwidgets runs logs --group-pattern 'seed_[0-9]+'
  smdwidgets runs s3://bucket/jobs --sort 'min(loss)'
  smdwidgets runs logs --tensors 'gradient/layer7 | l2 | worst > 10' --before diverged --within 100

In a query, a name is a column, a hyperparameter or the best value of a curve; last(name), min, max, first and count are
other values of a curve. docs/query.md describes the grammar.

Exit codes: 0 success, 2 the directory or bucket does not exist or an argument is invalid
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import at_least

#: Rows of text without --limit.
SHOWN = 100


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument(
        "root", metavar="ROOT", help="a directory or an address such as s3://bucket/prefix, with runs below it"
    )
    parser.add_argument(
        "--tags", metavar="A,B", help="curves that are columns (default: up to four losses and metrics)"
    )
    parser.add_argument("--query", metavar="QUERY", help="only the runs that a query finds, in its order")
    parser.add_argument("--filter", metavar="QUERY", help="synonym of --query")
    parser.add_argument("--sort", metavar="COLUMN", help="sort by a column, a hyperparameter or min(TAG) and similar")
    parser.add_argument("--descending", action="store_true", help="sort the largest first")
    parser.add_argument(
        "--limit", type=at_least(1), metavar="N", help=f"show at most N runs (default: {SHOWN} as text)"
    )
    parser.add_argument("--group", metavar="A,B", help="mean and standard deviation over runs with equal values")
    parser.add_argument("--group-pattern", metavar="REGEX", help="group by what the pattern finds in the names")
    parser.add_argument(
        "--tensors", metavar="QUERY", help="only runs with tensors that a query of `smdwidgets query` finds"
    )
    parser.add_argument("--before", metavar="KIND", help="with --tensors: in the steps before a finding of this kind")
    parser.add_argument(
        "--within", type=at_least(0), default=100, metavar="N", help="how many steps before it (default 100)"
    )
    parser.add_argument("--findings", action="store_true", help="diagnose each run")
    parser.add_argument("--no-catalog", action="store_true", help="list the runs, even if there is a catalog of them")
    parser.add_argument("--no-cache", action="store_true", help="read every run again")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", action="store_true", help="print comma-separated values")

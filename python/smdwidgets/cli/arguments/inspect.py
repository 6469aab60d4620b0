"""Show a run's steps, modes, workers, collections, tensors, size and state.

Examples:
  smdwidgets inspect runs/mlp
  smdwidgets inspect runs/mlp --tensors '^gradient/'
  smdwidgets inspect s3://bucket/job/debug-output --json

Exit codes: 0 success, 2 the run could not be opened
"""

from __future__ import annotations

import argparse

#: How many tensors are listed without --all.
SHOWN = 40


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory, or an address such as s3://bucket/prefix")
    parser.add_argument("--tensors", metavar="REGEX", help="only tensors whose names match")
    parser.add_argument("--all", action="store_true", help=f"list all tensors (default: the first {SHOWN})")
    parser.add_argument("--json", action="store_true", help="print JSON, with all tensors")

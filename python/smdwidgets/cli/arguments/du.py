"""Show what runs and their tensors take on disk.

Lists the runs below a directory or an address of a store, the largest first. For one run, lists its tensors.

Examples:
  smdwidgets du runs
  smdwidgets du runs/mlp --limit 50
  smdwidgets du s3://bucket/runs --json

Exit codes: 0 success, 2 there is no run
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import at_least


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("root", metavar="PATH", help="directory or address of a run, or of several")
    parser.add_argument(
        "--limit", type=at_least(1), default=20, metavar="N", help="print N runs and tensors (default 20)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a list with an object per run")

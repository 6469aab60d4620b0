"""Delete values of old runs; keep losses, statistics, incidents and findings.

Without --delete, only shows what would be deleted. Losses and other small values stay at every step, as do statistics,
samples, incidents, the first and the last step, and the steps around the findings of the diagnosis. A run that is being
written is left as it is, and so is one without a file of statistics. An interrupted deletion is continued by the same
command.

Examples:
  smdwidgets thin runs --older-than 30d
  smdwidgets thin runs --older-than 30d --every 20 --delete
  smdwidgets thin runs --budget 200GB --delete
  smdwidgets thin s3://team/runs --older-than 8w

With --budget, the oldest runs are thinned first, and no more than needed.

Exit codes: 0 success, 2 there is no run, or values could not be deleted
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import at_least


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("root", metavar="PATH", help="directory or address of a run, or of several")
    parser.add_argument(
        "--older-than",
        default="0d",
        metavar="AGE",
        help="thin runs without a write for this long, such as 12h, 30d or 8w",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--budget", metavar="SIZE", help="space that all runs may take, such as 500MB or 2TB")
    choice.add_argument(
        "--every", type=at_least(1), default=10, metavar="N", help="keep one of N saved steps (default 10)"
    )
    parser.add_argument("--without-statistics", action="store_true", help="also thin runs without a file of statistics")
    parser.add_argument("--delete", action="store_true", help="delete; without it, nothing is changed")
    parser.add_argument("--json", action="store_true", help="print JSON, a list with an object per run")

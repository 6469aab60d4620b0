"""Find tensors of a run by name and by their statistics.

Examples:
  smdwidgets query runs/mlp 'layers.*.q_proj | l2 | top 12 by change'
  smdwidgets query runs/mlp '@gradients | nonfinite > 0 | sort by name'
  smdwidgets query runs/mlp '/weight$/ | steps 100 .. 200 | last < 1e-6' --json

Statistics are size (root mean square), l2, update, zeros, nonfinite, surprise, mean, std, min and max; keys are change,
worst, first, last, name and every statistic. docs/query.md describes the grammar.

Exit codes: 0 success, 2 the query is invalid or the run could not be opened
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import mode


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory, or an address such as s3://bucket/prefix")
    parser.add_argument("text", metavar="QUERY", help="the query; quote it, because | is a pipe of the shell")
    parser.add_argument("--mode", type=mode, default="GLOBAL", help="only steps of this mode: TRAIN, EVAL or PREDICT")
    parser.add_argument("--worker", metavar="NAME", help="worker (default: the first, or all shards combined)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", action="store_true", help="print comma-separated values")

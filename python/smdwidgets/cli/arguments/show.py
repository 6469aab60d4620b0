"""Show the statistics and a histogram of one tensor at one step.

Examples:
  smdwidgets show runs/mlp fc1.weight
  smdwidgets show runs/mlp gradient/fc1.weight --step 200 --scale symlog
  smdwidgets show runs/mlp loss --mode EVAL --step 3 --json

Exit codes: 0 success, 2 the run, tensor or step does not exist
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import at_least, mode

#: Bins of a histogram without --bins.
BINS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory, or an address such as s3://bucket/prefix")
    parser.add_argument("tensor", metavar="TENSOR", help="tensor name")
    parser.add_argument("--step", type=at_least(0), metavar="N", help="step (default: the last step of the tensor)")
    parser.add_argument(
        "--mode", type=mode, default="GLOBAL", help="mode in which --step counts: TRAIN, EVAL, PREDICT or GLOBAL"
    )
    parser.add_argument(
        "--worker", default="", metavar="NAME", help="worker (default: the first worker that saved the tensor)"
    )
    parser.add_argument(
        "--scale", choices=["linear", "log", "symlog"], default="linear", help="scale of the histogram's bins"
    )
    parser.add_argument(
        "--bins",
        type=at_least(1, 1024),
        default=BINS,
        metavar="N",
        help="number of histogram bins (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")

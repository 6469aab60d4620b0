"""Verify every record of a run, its index files and its collections.

Checks framing, checksums, names, shapes, the consistency of index and events, the statistics, the collection files and
the compacted index. For TensorBoard logs, checks framing, checksums and record contents of all runs below the
directory. Of tables, trainer states and MLflow's stores, reads all rows; of checkpoints, checks the headers against the
files. Says what a file is that only has the name of one.

Examples:
  smdwidgets verify runs/mlp
  smdwidgets verify runs/mlp --steps 100:200 --json
  smdwidgets verify s3://bucket/jobs/mnist
  smdwidgets verify logs

Exit codes: 0 no faults, 1 at least one fault, 2 the run could not be opened
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import add_scheduler, at_least, step_range


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory, or an address such as s3://bucket/prefix")
    parser.add_argument("--steps", type=step_range, metavar="A:B", help="only global steps A to B (exclusive)")
    parser.add_argument(
        "--threads", type=at_least(1), metavar="N", help="number of reader threads (default: all processors)"
    )
    add_scheduler(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, with every fault")

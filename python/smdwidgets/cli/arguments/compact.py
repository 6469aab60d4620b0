"""Write a compacted index of a run, so that a run of many steps opens faster.

The index files of 1,000 steps become one small file in _smdwidgets/index-v1 of the run. Readers use it as long as the
index files are unchanged; nothing else in the run changes. Steps that may still grow are left out: repeat the command
as the run grows.

Beside statistics with more than 2 million rows, a pyramid of the map is written, or that of the hook is completed:
bins at every zoom, from which the explorer reads what it shows.

Examples:
  smdwidgets compact runs/mlp
  smdwidgets compact s3://bucket/jobs/mnist runs/mlp --json

If two compactions of a run overlap, the first one to finish is kept. The other one writes "another compaction
finished first" to standard error and exits with code 3, as does a compaction while a hook continues or overwrites the
run.

Exit codes: 0 success, 1 some complete steps could not be compacted, 2 a run could not be opened or written, 3 another
compaction finished first, or a hook continued or overwrote a run meanwhile
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("runs", metavar="RUN", nargs="+", help="a run: a directory or an s3:// address")
    parser.add_argument("--json", action="store_true", help="print JSON, a list with an object per run")

"""Keep summaries of good runs in a file, to compare others with them.

A summary has some kilobytes: settings, losses, updates, gradients and activations over time. It serves after the run
is deleted, as in CI, where `smdwidgets diagnose RUN --against baselines.json` compares a run with all of the file.

Examples:
  smdwidgets baseline add main runs/mlp
  smdwidgets baseline add main-2 s3://bucket/runs/mlp --file ci/baselines.json
  smdwidgets baseline list
  smdwidgets baseline remove main

Exit codes: 0 success, 2 there is no such run, file or name
"""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="add a good run, or replace the one of this name")
    add.add_argument("name", metavar="NAME", help="name of the baseline")
    add.add_argument("run", metavar="RUN", help="directory or address of the run")
    remove = actions.add_parser("remove", help="remove a baseline")
    remove.add_argument("name", metavar="NAME", help="name of the baseline")
    shown = actions.add_parser("list", help="list the baselines of the file")
    for name, each in (("add", add), ("remove", remove), ("list", shown)):
        each.add_argument(
            "--file",
            type=Path,
            default=Path("baselines.json"),
            metavar="FILE",
            help="the file (default baselines.json)",
        )
        each.set_defaults(action=name)

"""Look into the recorded steps around an incident, or execute them again.

Without a command, the steps and the rows of their batches are shown. With the command that trained, the script is run
again: its data loaders give the recorded batches, its model gets the recorded state, and it ends after the last step.
Each step is compared with what was recorded. With --explain, operators are traced, and the one that broke the step is
named with its line and rows. The run and its checkpoints are not written.

Examples:
  smdwidgets replay runs/mine
  smdwidgets replay runs/mine --incident 2 -- python train.py --lr 0.1
  smdwidgets replay runs/mine --explain -- python train.py
  smdwidgets replay runs/mine --json -- python -m package.train

Exit codes: 0 equal bit for bit, or nothing was executed; 1 a step differs; 2 the steps cannot be executed
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import at_least


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="directory of the run")
    parser.add_argument(
        "--incident",
        type=at_least(1),
        default=1,
        metavar="N",
        help="which incident, counted from 1 (default: the first)",
    )
    parser.add_argument(
        "--explain", action="store_true", help="name the operator, the line and the rows that broke the step"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help="the command that trained: python, a file or -m module, and its arguments",
    )

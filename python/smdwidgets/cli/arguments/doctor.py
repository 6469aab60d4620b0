"""Check this installation: versions, notebook host, missing packages.

The command also writes and reads a small run in a temporary directory. It checks the environment that it is installed
in; in a notebook cell, `smdwidgets.doctor()` checks the environment of the notebook's kernel.

Examples:
  smdwidgets doctor
  smdwidgets doctor --json

Exit codes: 0 everything required works, 1 a problem was found
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("--json", action="store_true", help="print JSON")

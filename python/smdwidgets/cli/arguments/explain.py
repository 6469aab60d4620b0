"""Explain a kind of finding: meaning, healthy range, what to try.

Without a kind, lists all kinds.

Examples:
  smdwidgets explain
  smdwidgets explain rate_too_high

Exit codes: 0 explained, 2 there is no such kind
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("kind", nargs="?", metavar="KIND", help="the kind, as in the JSON of `smdwidgets diagnose`")

"""Print the JSON schema of what a command prints with --json.

Without a command, lists the commands that have the option. Before version 1.0, fields are only added: ignore those that
you do not know. Numbers that are not finite are text.

Examples:
  smdwidgets schema
  smdwidgets schema diagnose > diagnose.schema.json

Exit codes: 0 printed, 2 the command has no option --json
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("of", nargs="?", metavar="COMMAND", help="the command, such as diagnose")

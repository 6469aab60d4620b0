"""Serve questions about runs to agents.

The server speaks the Model Context Protocol on standard input and output.

The tools list, diagnose, query, compare and picture the runs below the given directories or addresses, and no others.
They only read. Requires the package mcp: pip install 'smdwidgets[mcp]'.

Examples:
  smdwidgets mcp runs
  smdwidgets mcp runs s3://bucket/prefix

Exit codes: 0 the client disconnected, 2 a directory does not exist, or the package mcp is missing
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument(
        "roots", nargs="+", metavar="ROOT", help="directories or addresses below which agents may read runs"
    )

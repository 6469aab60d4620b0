"""What `smdwidgets mcp` does."""

from __future__ import annotations

import argparse
from pathlib import Path

from smdwidgets._text import shown
from smdwidgets.agents.server import serve
from smdwidgets.exceptions import RunNotFound
from smdwidgets.storage.address import is_address


def run(args: argparse.Namespace) -> int:
    """Serve until the client disconnects."""
    for root in args.roots:
        if not is_address(root) and not Path(root).is_dir():
            raise RunNotFound(root, f"{shown(root)} is not a directory")
    serve(args.roots)
    return 0

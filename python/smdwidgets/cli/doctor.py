"""What `smdwidgets doctor` does."""

from __future__ import annotations

import argparse

from smdwidgets.checkup import doctor
from smdwidgets.cli._terminal import show


def run(args: argparse.Namespace) -> int:
    """Print the check-up."""
    result = doctor()
    print(result.to_json()) if args.json else show(str(result))
    return 0 if result.ok else 1

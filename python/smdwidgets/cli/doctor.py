"""What `smdwidgets doctor` does."""

from __future__ import annotations

import argparse

from smdwidgets.checkup import doctor


def run(args: argparse.Namespace) -> int:
    """Print the check-up."""
    result = doctor()
    print(result.to_json() if args.json else result)
    return 0 if result.ok else 1

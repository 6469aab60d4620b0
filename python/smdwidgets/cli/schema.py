"""What `smdwidgets schema` does."""

from __future__ import annotations

import argparse
import json

from smdwidgets._text import did_you_mean, shown
from smdwidgets.cli._schemas import SCHEMAS, schema_of
from smdwidgets.exceptions import SMDebugValueError


def run(args: argparse.Namespace) -> int:
    """Print the schema of a command, or all commands that have one."""
    if args.of is None:
        print("\n".join(SCHEMAS))
        return 0
    if args.of not in SCHEMAS:
        raise SMDebugValueError(
            f"{shown(args.of)} has no option --json.{did_you_mean(args.of, SCHEMAS)} "
            "`smdwidgets schema` lists the commands that have it"
        )
    print(json.dumps(schema_of(args.of), indent=2))
    return 0

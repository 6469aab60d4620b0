"""What `smdwidgets explain` does."""

from __future__ import annotations

import argparse
import sys
import textwrap

from smdwidgets.cli._terminal import bold, width
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.finding import KINDS, kind_of
from smdwidgets.finding.document import explanation


def run(args: argparse.Namespace) -> int:
    """Print what a kind of finding means, or all kinds."""
    if args.kind is None:
        longest = max(map(len, KINDS))
        print("\n".join(f"{kind.id:{longest}}  {kind.name}" for kind in KINDS.values()))
        return 0
    try:
        kind = kind_of(args.kind)
    except ValueError as error:
        raise SMDebugValueError(f"{error} `smdwidgets explain` lists all kinds") from None
    paragraphs = (textwrap.fill(part, width(sys.stdout)) for part in explanation(kind))
    print("\n\n".join([bold(f"{kind.title} ({kind.id})"), *paragraphs, f"Documentation: docs/{kind.url}"]))
    return 0

"""What `smdwidgets du` does."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Final

from smdwidgets._text import byte_size
from smdwidgets.cli._run import plain, table
from smdwidgets.retention import disk_use

#: Parts of a run of a hook, in the order of the columns.
_PARTS: Final = ("values", "statistics", "samples", "index", "other")


def run(args: argparse.Namespace) -> int:
    """Print the runs, or the tensors of one run."""
    uses = disk_use(args.root)
    if args.json:
        print(json.dumps([asdict(one) for one in uses], indent=2))
        return 0
    rows = [["run", "size", *_PARTS, "format"]]
    for one in uses[: args.limit]:
        parts = [byte_size(one.parts[part]) if part in one.parts else "" for part in _PARTS]
        rows.append([plain(one.name), byte_size(one.size), *parts, plain(one.kind)])
    print(table(rows))
    if len(uses) > args.limit:
        print(f"… and {len(uses) - args.limit:,} more runs: --limit shows more")
    print(f"{len(uses):,} runs, {byte_size(sum(one.size for one in uses))}" if len(uses) > 1 else "")
    if len(uses) == 1 and uses[0].tensors:
        tensors = list(uses[0].tensors.items())
        print(table([["tensor", "size"], *([plain(name), byte_size(size)] for name, size in tensors[: args.limit])]))
        if len(tensors) > args.limit:
            print(f"… and {len(tensors) - args.limit:,} more tensors: --limit shows more")
    return 0

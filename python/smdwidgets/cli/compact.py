"""What `smdwidgets compact` does."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from smdwidgets._text import byte_size
from smdwidgets.cli._run import plain
from smdwidgets.exceptions import CompactionSuperseded
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Compacted, compact


def run(args: argparse.Namespace) -> int:
    """Compact the runs and print a line for each."""
    done: list[Compacted] = []
    superseded = False
    for path in args.runs:
        try:
            with Progress("compact") as progress:
                done.append(compact(path, progress=progress.update))
        except CompactionSuperseded as error:
            superseded = True
            print(plain(f"superseded: {error}", 8000), file=sys.stderr)
            continue
        if not args.json:
            print(_text(done[-1]))
    if args.json:
        print(json.dumps([asdict(each) for each in done], indent=2))
    return 3 if superseded else 1 if any(each.why for each in done) else 0


def _text(done: Compacted) -> str:
    until = f" up to step {done.last_step}" if done.steps else ""
    line = (
        f"{plain(done.path)}: {done.steps:,} steps{until} compacted in {byte_size(done.bytes)}, "
        f"{done.written:,} of {done.folders:,} folders written now"
    )
    line += f"; a pyramid of the statistics in {byte_size(done.pyramids)}" if done.pyramids else ""
    line += f"; {done.left:,} index files left out" if done.left else ""
    return line + (f": {plain(done.why, 500)}" if done.why else "")

"""What `smdwidgets export` does."""

from __future__ import annotations

import argparse
import json
import sys

from smdwidgets._text import byte_size
from smdwidgets.cli._run import open_run, plain
from smdwidgets.exports import Exported
from smdwidgets.rules.progress import Progress

#: How many skipped records are printed as text; --json lists all.
SHOWN = 10


def run(args: argparse.Namespace) -> int:
    """Write the export."""
    workers = None if args.workers is None else [name.strip() for name in args.workers.split(",") if name.strip()]
    with open_run(args.run) as trial, Progress("export") as progress:
        done = trial.export(
            args.to,
            args.output,
            tensors=args.tensors,
            steps=args.steps,
            mode=args.mode,
            workers=workers,
            force=args.force,
            progress=lambda steps, of: progress.update(steps, of, "steps"),
        )
    if args.json:
        print(json.dumps(_summary(done), indent=2))
        return 1 if done.errors else 0
    print(
        f"{plain(done.path)}: {done.records:,} records of {done.tensors:,} tensors at {done.steps:,} steps, {byte_size(done.bytes)}"
    )
    for failure in done.errors[:SHOWN]:
        print(plain(f"skipped: {failure.name} at step {failure.step}: {failure.error}", 1000), file=sys.stderr)
    if len(done.errors) > SHOWN:
        print(f"… and {len(done.errors) - SHOWN:,} more: --json lists them", file=sys.stderr)
    return 1 if done.errors else 0


def _summary(done: Exported) -> dict[str, object]:
    return {
        "path": str(done.path),
        "format": done.format,
        "records": done.records,
        "tensors": done.tensors,
        "steps": done.steps,
        "bytes": done.bytes,
        "left_out": [
            {"tensor": failure.name, "step": failure.step, "worker": failure.worker, "error": str(failure.error)}
            for failure in done.errors
        ],
    }

"""What `smdwidgets export` does."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from smdwidgets._text import byte_size
from smdwidgets.cli._run import open_run, plain
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.exports import Exported
from smdwidgets.rules.progress import Progress

#: How many skipped records are printed as text; --json lists all.
SHOWN = 10


def run(args: argparse.Namespace) -> int:
    """Write the export."""
    if args.output != "-":
        return _export(args, args.output, sys.stdout)
    if args.to == "tensorboard":
        raise SMDebugValueError("TensorBoard logs cannot be written to standard output; give a directory with -o")
    if args.json:
        raise SMDebugValueError("--json and -o - cannot both write to standard output; give a file with -o")
    if sys.stdout.isatty() and not args.to.startswith("csv"):
        raise SMDebugValueError(
            f"{args.to} is binary and not written to a terminal; redirect the output, or use -o FILE"
        )
    with tempfile.TemporaryDirectory(prefix="smdwidgets-") as folder:
        target = Path(folder, "export")
        code = _export(args, str(target), sys.stderr)
        [written] = Path(folder).iterdir()
        with written.open("rb") as content:
            shutil.copyfileobj(content, sys.stdout.buffer)
    return code


def _export(args: argparse.Namespace, output: str | None, summary: TextIO) -> int:
    """Write the export and a summary."""
    workers = None if args.workers is None else [name.strip() for name in args.workers.split(",") if name.strip()]
    with open_run(args.run) as trial, Progress("export") as progress:
        done = trial.export(
            args.to,
            output,
            tensors=args.tensors,
            steps=args.steps,
            mode=args.mode,
            workers=workers,
            signals=args.signals,
            force=args.force,
            progress=lambda steps, of: progress.update(steps, of, "steps"),
        )
    if args.json:
        print(json.dumps(_summary(done), indent=2))
        return 1 if done.errors else 0
    path = "standard output" if summary is sys.stderr else plain(done.path)
    print(
        f"{path}: {done.records:,} {'values' if args.signals else 'records'} of {done.tensors:,} "
        f"{'signals' if args.signals else 'tensors'} at {done.steps:,} steps, {byte_size(done.bytes)}",
        file=summary,
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

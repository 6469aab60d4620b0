"""Export a run's tensors to NumPy npz, Parquet, CSV or TensorBoard.

Parquet: one row per record. CSV: numbers and texts, one row per value; csv-wide: one row per step, one column per tensor. npz: one array per record, and index.jsonl with the original tensor names. TensorBoard:
single values as scalars, larger tensors as histograms, strings as text, with one directory per mode.

Examples:
  smdwidgets export runs/mlp --to parquet -o mlp.parquet
  smdwidgets export runs/mlp --to csv-wide --tensors loss
  smdwidgets export runs/mlp --to npz --tensors 'weight$' --steps 100:200
  smdwidgets export s3://bucket/jobs/mnist --to tensorboard -o logs/mnist --mode TRAIN

Exit codes: 0 export written, 1 export written but unreadable records were skipped, 2 nothing was written
"""

from __future__ import annotations

import argparse
import json
import sys

from smdwidgets._text import byte_size
from smdwidgets.cli._run import open_run, plain, step_range
from smdwidgets.exports import FORMATS, Exported
from smdwidgets.rules.progress import Progress

#: How many skipped records are printed as text; --json lists all.
SHOWN = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory or an s3:// address")
    parser.add_argument("--to", required=True, choices=list(FORMATS), help="output format")
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="output file, or directory for TensorBoard (default: named after the run)"
    )
    parser.add_argument("--tensors", metavar="REGEX", help="only tensors whose names match (default: all)")
    parser.add_argument("--steps", type=step_range, metavar="A:B", help="only steps A to B (exclusive)")
    parser.add_argument(
        "--mode", default="GLOBAL", help="only steps of this mode, numbered per mode: TRAIN, EVAL, PREDICT"
    )
    parser.add_argument("--workers", metavar="A,B", help="only these workers (default: all)")
    parser.add_argument("--force", action="store_true", help="overwrite an existing output")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")


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

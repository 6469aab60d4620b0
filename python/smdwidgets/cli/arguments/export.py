"""Export a run's tensors to NumPy npz, Parquet, CSV or TensorBoard.

Parquet: one row per record. CSV: numbers and texts, one row per value; csv-wide: one row per step, one column per
tensor. npz: one array per record, and index.jsonl with the original tensor names. TensorBoard: single values as
scalars, larger tensors as histograms, strings as text, with one directory per mode. --signals exports the signals of
large models, such as attention logits: one row per layer, head or expert, and step.

Examples:
  smdwidgets export runs/mlp --to parquet -o mlp.parquet
  smdwidgets export runs/mlp --to csv-wide --tensors loss -o -
  smdwidgets export runs/mlp --to npz --tensors 'weight$' --steps 100:200
  smdwidgets export runs/gpt --to parquet --signals
  smdwidgets export s3://bucket/jobs/mnist --to tensorboard -o logs/mnist --mode TRAIN

Exit codes: 0 export written, 1 export written but unreadable records were skipped, 2 nothing was written
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import mode, step_range

#: Output formats; a test compares them with those of `smdwidgets.exports`.
FORMATS = ("npz", "parquet", "csv", "csv-wide", "tensorboard")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory, or an address such as s3://bucket/prefix")
    parser.add_argument("--to", required=True, choices=FORMATS, help="output format")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        help="output file, or directory for TensorBoard (default: named after the run); - is standard output",
    )
    parser.add_argument("--tensors", metavar="REGEX", help="only tensors whose names match (default: all)")
    parser.add_argument("--steps", type=step_range, metavar="A:B", help="only steps A to B (exclusive)")
    parser.add_argument(
        "--mode", type=mode, default="GLOBAL", help="only steps of this mode, numbered per mode: TRAIN, EVAL, PREDICT"
    )
    parser.add_argument("--workers", metavar="A,B", help="only these workers (default: all)")
    parser.add_argument("--signals", action="store_true", help="export signals in place of tensors: parquet or csv")
    parser.add_argument("--force", action="store_true", help="overwrite an existing output")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")

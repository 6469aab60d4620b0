"""Find the first difference of two runs, in the order of execution.

Examples:
  smdwidgets bisect runs/good runs/bad
  smdwidgets bisect runs/good runs/bad --tolerance 0
  smdwidgets bisect runs/cpu runs/gpu --tolerance 1e-4 --json
  smdwidgets bisect runs/good runs/bad --run-a "python train.py" --run-b "python train.py --lr 0.1"

The first tensor that differs says where to look: an input, the output of a module, a gradient, or a parameter after
an update. With --tolerance auto, differences that another order of summation explains do not count; the output still
says where the first of them is.

--run-a and --run-b are the commands that trained. They execute the step again from what the PyTorch hook recorded with
replay=True, as smdwidgets replay does. The output then names the first operator that differs, its module and its line.

Exit codes: 0 no difference, 1 a difference, 2 the runs cannot be compared or opened
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    run = "the run: a directory, or an address such as s3://bucket/prefix"
    parser.add_argument("a", metavar="A", help=run)
    parser.add_argument("b", metavar="B", help="the run to compare it with")
    parser.add_argument(
        "--tolerance",
        metavar="auto|X",
        default="auto",
        help="relative difference up to which values are equal; 0: none (default: auto, rounding errors)",
    )
    parser.add_argument("--run-a", metavar="COMMAND", help="the command that trained A, to execute the step again")
    parser.add_argument("--run-b", metavar="COMMAND", help="the command that trained B")
    parser.add_argument("--json", action="store_true", help="print JSON")

"""Check whether activations keep their size when a PyTorch model becomes wider.

FILE is a Python file with a function make(width), which returns a model and a function that trains one step: forward
pass, backward pass and update. The command trains models of several widths for a few updates, and fits how the mean
absolute output of each layer depends on the width. A model passes if no layer grows, and none learns less, with the
width: as with the maximal update parametrization (muP), hyperparameters of a narrow model then suit a wide one.

Examples:
  smdwidgets coordcheck model.py
  smdwidgets coordcheck model.py:make_gpt --widths 128,256,512,1024 --plot widths.png
  smdwidgets coordcheck model.py --steps 10 --seeds 4 --json

Exit codes: 0 all layers keep their size, 1 a layer does not, 2 the file cannot be run
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("file", metavar="FILE[:FUNCTION]", help="the file, and the function (default: make)")
    parser.add_argument(
        "--widths", default="64,128,256,512", metavar="A,B,C", help="at least three widths (default: 64,128,256,512)"
    )
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="updates of each model (default: 5)")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="models of each width (default: 2)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.25,
        metavar="X",
        help="exponents of the width up to it pass (default: 0.25)",
    )
    parser.add_argument("--plot", metavar="IMAGE", help="also write a picture, such as widths.png or widths.svg")
    parser.add_argument("--json", action="store_true", help="print JSON")

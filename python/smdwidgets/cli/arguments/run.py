"""Run a training script and record its trainings, without a change to the script.

The script runs as it would with python: arguments, output, exit code and results are the same. One line on standard
error says where its training is recorded, and one at the end what was found. A fault that a check
of a training proves is printed at once. PyTorch (also under Transformers,
Lightning and Accelerate), Keras, XGBoost and LightGBM are recorded. Options of smdwidgets come before the script.

Examples:
  smdwidgets run train.py --lr 0.1
  smdwidgets run --out runs/mine --what weights,gradients --every 100 -m package.train
  smdwidgets run torchrun --nproc-per-node 2 train.py
  smdwidgets run --checks-only --steps 20 train.py

Exit codes: that of the script; 1 if --checks-only finds a problem; 2 if the options are invalid
"""

from __future__ import annotations

import argparse

#: Values of `--what`; a test compares them with those of `smdwidgets.launch`.
WHAT = ("losses", "weights", "gradients", "activations")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="Python file, or a program such as torchrun, with its arguments",
    )
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="MODULE",
        help="run a module, as python -m does",
    )
    parser.add_argument(
        "--out",
        default="",
        metavar="DIR",
        help="directory of the run, or an address such as s3://bucket/prefix (default: runs/SCRIPT)",
    )
    parser.add_argument(
        "--what", default="", metavar="LIST", help=f"what to save, of {','.join(WHAT)} (default: all of them)"
    )
    parser.add_argument(
        "--every", default="", metavar="N", help="save whole tensors at every Nth step (default: as the budget allows)"
    )
    parser.add_argument(
        "--budget",
        default="",
        metavar="SIZE",
        help="disk space of the run (default: 20 times the size of the model, from 100 MB to 2 GB)",
    )
    parser.add_argument(
        "--checks",
        default="",
        metavar="LIST",
        help="checks of the training: yes, no, or identifiers such as --checks=-same_batch, all but this one "
        "(default: yes)",
    )
    parser.add_argument(
        "--checks-only",
        action="store_true",
        help="record nothing; print what the checks of a training find, and stop it after some updates",
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="keep batches and states of the last steps of PyTorch, so that smdwidgets replay can execute them again",
    )
    parser.add_argument("--steps", default="", metavar="N", help="updates of the training to check (default: 50)")
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="capture plan (JSON, YAML), or a hook configuration of smdebug (JSON)",
    )

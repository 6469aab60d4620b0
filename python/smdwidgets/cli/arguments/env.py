"""Let the variable SMDWIDGETS_HOOK record trainings in this Python environment.

After `smdwidgets env install`, every Python process of the environment that has SMDWIDGETS_HOOK=DIR in its environment
records its trainings, as `smdwidgets run` does; SMDWIDGETS_WHAT, SMDWIDGETS_EVERY, SMDWIDGETS_BUDGET,
SMDWIDGETS_CONFIG and SMDWIDGETS_CHECKS are its options. Without the variable nothing changes. The command writes one
.pth file into site-packages.

Examples:
  smdwidgets env install
  SMDWIDGETS_HOOK=runs/mine python train.py
  smdwidgets env uninstall

Exit codes: 0 done, 2 the environment cannot be changed
"""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("action", choices=("install", "uninstall", "status"), help="what to do")

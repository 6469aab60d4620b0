"""Start a demo training and JupyterLab with a notebook that shows it.

A small classifier trains for two minutes in a separate process and saves every step. Its code contains two deliberate
mistakes, which rules detect. Ctrl-C stops the training and JupyterLab.

Without JupyterLab, the training runs as fast as it can, the diagnosis is printed, and the browser shows a saved page.

Examples:
  smdwidgets demo
  smdwidgets demo --no-browser --port 8899 --out ~/demo
  smdwidgets demo --headless-check

Exit codes: 0 stopped by Ctrl-C or check passed, 1 check failed, 2 the demo could not be started
"""

from __future__ import annotations

import argparse

from smdwidgets.cli.arguments._types import at_least, not_negative


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument(
        "--out", metavar="DIR", help="directory for the run and the notebooks (default: ./smdwidgets-demo)"
    )
    parser.add_argument(
        "--port",
        type=at_least(1, 65_535),
        metavar="N",
        help="JupyterLab port (default: 8888, or a free port if 8888 is in use)",
    )
    parser.add_argument("--seconds", type=not_negative, metavar="S", help="duration of the training (default: 120)")
    parser.add_argument("--no-browser", action="store_true", help="print the URL and do not open a browser")
    parser.add_argument(
        "--headless-check",
        action="store_true",
        help="start everything, execute the notebook in a kernel, print the cell outputs, and exit",
    )

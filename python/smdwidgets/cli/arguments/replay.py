"""Look into the recorded steps around an incident, or execute them again.

Without a command, the steps and the rows of their batches are shown. With the command that trained, the script is run
again: its data loaders give the recorded batches, its model gets the recorded state, and it ends after the last step.
Each step is compared with what was recorded. With --explain, operators are traced, and the one that broke the step is
named with its line and rows. With --what-if, the steps are executed with a change; with --rows, with each row of the
batch alone. The run and its checkpoints are not written.

Examples:
  smdwidgets replay runs/mine
  smdwidgets replay runs/mine --incident 2 -- python train.py --lr 0.1
  smdwidgets replay runs/mine --explain -- python train.py
  smdwidgets replay runs/mine --what-if lr=0.1x --what-if drop_rows=6,7 -- python train.py
  smdwidgets replay runs/mine --explain -- torchrun --nproc-per-node 2 train.py
  smdwidgets replay runs/mine --json -- python -m package.train

Exit codes: 0 equal bit for bit, or nothing was executed; 1 a step differs; 2 the steps cannot be executed
"""

from __future__ import annotations

import argparse
from typing import Any

from smdwidgets.cli.arguments._types import at_least


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", metavar="RUN", help="directory of the run")
    parser.add_argument(
        "--incident",
        type=at_least(1),
        default=1,
        metavar="N",
        help="which incident, counted from 1 (default: the first)",
    )
    parser.add_argument(
        "--explain", action="store_true", help="name the operator, the line and the rows that broke the step"
    )
    parser.add_argument(
        "--what-if",
        type=_change,
        action="append",
        default=[],
        metavar="CHANGE",
        help="does it happen with a change? lr=NUMBER or lr=0.1x, clip=NUMBER, drop_rows=6,7, eps=NUMBER, dtype=fp32, "
        "batch=skip, several of them joined by a semicolon, or all: the usual ones; may be repeated",
    )
    parser.add_argument(
        "--rows", action="store_true", help="execute the step with each row of its batch alone, and rank the rows"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND",
        help="the command that trained: python, a file or -m module, and its arguments",
    )


def _change(text: str) -> dict[str, Any]:
    """Return the arguments of a change, such as ``lr=0.1x;clip=1``.

    >>> _change("lr=0.1x;drop_rows=6,7")
    {'lr': '0.1x', 'drop_rows': [6, 7]}
    """
    if text == "all":
        return {}
    change: dict[str, Any] = {}
    for part in text.split(";"):
        name, _, value = (each.strip() for each in part.partition("="))
        try:
            change[name] = _VALUES[name](value)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(
                f"invalid change {part!r}; give {', '.join(f'{name}=…' for name in _VALUES)} or all"
            ) from None
    return change


def _rate(text: str) -> float | str:
    return text if text.endswith(("x", "×")) else float(text)


#: What reads the value of each change.
_VALUES: Any = {
    "lr": _rate,
    "clip": float,
    "drop_rows": lambda text: [int(one) for one in text.split(",")],
    "eps": float,
    "dtype": str,
    "batch": str,
}

"""What `smdwidgets bisect` does."""

from __future__ import annotations

import argparse
import json
import shlex

from smdwidgets._text import shown
from smdwidgets.cli._run import open_run, plain
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.trials.bisection import Tolerance


def run(args: argparse.Namespace) -> int:
    """Print the first difference of the runs."""
    tolerance = _tolerance(args.tolerance)
    commands = _commands(args.run_a, args.run_b)
    with open_run(args.a) as a, open_run(args.b) as b:
        divergence = a.bisect(b, tolerance, commands=commands)
    if args.json:
        print(json.dumps(divergence.to_json(), indent=2))
    else:
        print("\n".join(plain(line, 4000) for line in str(divergence).splitlines()))
    return 0 if divergence.equal else 1


def _commands(a: str | None, b: str | None) -> tuple[list[str], list[str]] | None:
    if a is None and b is None:
        return None
    if a is None or b is None:
        raise SMDebugValueError("--run-a and --run-b belong together: the commands that trained A and B")
    try:
        return shlex.split(a), shlex.split(b)
    except ValueError as error:
        raise SMDebugValueError(f"invalid command: {error}") from None


def _tolerance(text: str) -> Tolerance:
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise SMDebugValueError(f'invalid --tolerance {shown(text)}; expected "auto" or a number') from None

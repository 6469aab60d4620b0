"""What `smdwidgets check` does."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from smdwidgets.cli._check_diagnosis import check_diagnosis
from smdwidgets.cli._check_rules import check_rules
from smdwidgets.cli._terminal import show
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.executors import connect
from smdwidgets.rules import BUILTIN, describe
from smdwidgets.trials import Trial, create_trial

#: How many seconds `--follow` waits for the run to start, unless --timeout is given.
WAIT_TO_BEGIN = 600.0


def run(args: argparse.Namespace) -> int:
    """Judge the run and report the result."""
    if args.list:
        print(_list())
        return 0
    if args.run is None:
        raise SMDebugValueError("missing argument RUN; give a directory or address, or --list to list the rules")
    if args.json == args.junit == "-":
        raise SMDebugValueError("--json and --junit cannot both write to standard output; give one of them a file")
    by_rules = args.rules is not None or args.config is not None
    with connect(args.scheduler):
        result = (check_rules if by_rules else check_diagnosis)(_open_trial(args), args)
    if args.json is not None:
        _write(args.json, json.dumps(result.to_json(), indent=2) + "\n")
    if args.junit is not None:
        _write(args.junit, result.to_junit())
    if "-" not in (args.json, args.junit):
        show(result.text(sys.stdout.encoding))
    return result.exit_code


def _open_trial(args: argparse.Namespace) -> Trial:
    if not args.follow:
        return create_trial(args.run)
    # The run may not exist yet: CI can start the training and this command together.
    return create_trial(args.run, wait=WAIT_TO_BEGIN if args.timeout is None else args.timeout)


def _write(where: str, text: str) -> None:
    if where == "-":
        sys.stdout.write(text)
    else:
        Path(where).write_text(text, encoding="utf-8")


def _list() -> str:
    lines = []
    for rule in BUILTIN.values():
        description = describe(rule)
        lines.append(f"{description['name']}: {description['summary']}")
        for parameter in description["parameters"]:
            unit = f" {parameter['unit']}" if parameter["unit"] else ""
            lines.append(f"    {parameter['name']}={parameter['text']}{unit}  {parameter['doc']}")
    return "\n".join(lines)

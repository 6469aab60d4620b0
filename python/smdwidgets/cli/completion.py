"""What `smdwidgets completion` does."""

from __future__ import annotations

import argparse

import shtab


def run(args: argparse.Namespace) -> int:
    """Print the completion script."""
    from smdwidgets.cli import parser

    top = parser()
    _complete_runs(top)
    print(shtab.complete(top, shell=args.shell))
    return 0


def _complete_runs(parser: argparse.ArgumentParser) -> None:
    """Complete run arguments with directories, and file arguments with files."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_runs(command)
        elif action.dest in ("run", "out"):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.dest in ("output", "config", "junit"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]

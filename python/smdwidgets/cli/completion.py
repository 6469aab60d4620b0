"""Print a shell completion script for commands, options and file names.

Examples:
  eval "$(smdwidgets completion bash)"                                  for the current shell
  smdwidgets completion bash > ~/.local/share/bash-completion/completions/smdwidgets
  smdwidgets completion zsh > ~/.zfunc/_smdwidgets                      with ~/.zfunc in fpath
  smdwidgets completion fish > ~/.config/fish/completions/smdwidgets.fish

Exit code: 0
"""

from __future__ import annotations

import argparse

import shtab


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell")


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

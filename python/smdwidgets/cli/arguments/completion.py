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

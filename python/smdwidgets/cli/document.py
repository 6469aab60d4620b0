"""Generate the command reference in docs/commands.md.

Usage: `python -m smdwidgets.cli.document docs/commands.md`.

Only the text between the two markers is replaced.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from pathlib import Path

from smdwidgets.cli import COMMANDS, parser

__all__ = ["reference", "with_reference"]

BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"


def reference() -> str:
    """Return the command reference: descriptions, examples, arguments, exit codes."""
    choices = next(action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)).choices
    return "\n\n".join(_command(name, choices[name]) for name in COMMANDS)


def _command(name: str, command: argparse.ArgumentParser) -> str:
    parts = [f"## {name}"]
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.description or "")):
        head, _, rest = paragraph.partition("\n")
        if head == "Examples:":
            parts.append(f"```text\n{inspect.cleandoc(rest)}\n```")
        else:
            parts.append(" ".join(paragraph.split()))
    rows = [f"| {_syntax(action)} | {_escaped(_help(command, action))} |" for action in _visible_actions(command)]
    return "\n\n".join([*parts, "\n".join(["| | |", "|---|---|", *rows])])


def _visible_actions(command: argparse.ArgumentParser) -> list[argparse.Action]:
    return [each for each in command._actions if each.help != argparse.SUPPRESS and each.dest != "help"]


def _syntax(action: argparse.Action) -> str:
    metavar = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    if not action.option_strings:
        return f"`{metavar}`"
    if action.nargs == 0:
        return ", ".join(f"`{option}`" for option in action.option_strings)
    value = f" [{metavar}]" if action.nargs == "?" else f" {metavar}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _help(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    return command._get_formatter()._expand_help(action) if action.help else ""


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def with_reference(page: str) -> str:
    """Return the page with the current reference between the markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_reference(path.read_text(encoding="utf-8")), encoding="utf-8")

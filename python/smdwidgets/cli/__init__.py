"""The command line, `smdwidgets`: one module of this package a command.

A command module has a docstring (its first line is the help),
`arguments(parser)` and `run(args) -> int`, the exit code.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType

from smdwidgets._core import __version__
from smdwidgets.exceptions import RunNotFound, SMDebugError

# Names of modules of this package, in the order in which help lists them.
COMMANDS: tuple[str, ...] = (
    "demo",
    "inspect",
    "show",
    "verify",
    "check",
    "report",
    "export",
    "completion",
)


_A_RUN = "A run is the directory that a hook writes to (it holds collections/, index/ and events/), or one of TensorBoard's logs."


def _commands() -> list[ModuleType]:
    return [importlib.import_module(f"{__name__}.{name}") for name in COMMANDS]


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="smdwidgets",
        description="See why a training run went wrong: every saved tensor at every step.",
        epilog="`smdwidgets COMMAND --help` says more, with examples and exit codes. In all of them 0 is well, 1 is that something "
        "was found, 2 that it could not be told, and 130 is Ctrl-C.",
        formatter_class=functools.partial(argparse.HelpFormatter, max_help_position=16),
    )
    top.add_argument("--version", action="version", version=f"smdwidgets {__version__}")
    if commands := _commands():
        choices = top.add_subparsers(title="commands", metavar="COMMAND")
        for module in commands:
            name = module.__name__.rpartition(".")[2]
            text = (module.__doc__ or "").strip()
            command = choices.add_parser(
                name,
                help=text.splitlines()[0],
                description=text,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            module.arguments(command)
            command.set_defaults(_run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code.

    Errors that a person can meet are one line on standard error and exit code 2; Ctrl-C ends with 130.
    """
    top = parser()
    args = top.parse_args(argv)
    if not hasattr(args, "_run"):
        top.print_help(sys.stderr)
        return 2
    try:
        code: int = args._run(args)
        sys.stdout.flush()
        return code
    except RunNotFound as error:
        print(f"error: {error.what} {_A_RUN}", file=sys.stderr)
        return 2
    except SMDebugError as error:
        from smdwidgets.cli._run import plain

        print(plain(f"error: {error}", 8000), file=sys.stderr)
        return 2
    except re.error as error:
        print(f"error: not a regular expression: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output is gone; Python would say so again while closing standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141

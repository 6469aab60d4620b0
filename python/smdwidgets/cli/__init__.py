"""The `smdwidgets` command line; each module of this package is a command.

A command module provides a docstring, whose first line is the help text,
`arguments(parser)`, and `run(args) -> int`, which returns the exit code.
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

# Module names, in the order in which --help lists them.
COMMANDS: tuple[str, ...] = (
    "demo",
    "inspect",
    "show",
    "verify",
    "diagnose",
    "check",
    "report",
    "export",
    "completion",
)


_A_RUN = (
    "A run is the directory that a hook writes to (with collections/, index/ and events/), "
    "or a TensorBoard log directory."
)


def _commands() -> list[ModuleType]:
    return [importlib.import_module(f"{__name__}.{name}") for name in COMMANDS]


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="smdwidgets",
        description="Debug training runs: inspect every saved tensor at every step.",
        epilog="`smdwidgets COMMAND --help` shows examples and exit codes. For every command, 0 means success, 1 that a "
        "problem was found, 2 that an error occurred, and 130 that Ctrl-C was pressed.",
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
    """Run the command line and return its exit code.

    Expected errors are printed as one line on standard error, with exit code 2. Ctrl-C gives exit code 130.
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
        print(f"error: invalid regular expression: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader closed the pipe. Without the redirect, Python reports the error again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141

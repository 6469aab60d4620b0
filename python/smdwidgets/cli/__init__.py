"""The `smdwidgets` command line.

A command is two modules: one in `smdwidgets.cli.arguments`, which describes it, and one of
the same name in this package with `run(args) -> int`, which returns the exit code. The
second one is imported when the command runs.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from smdwidgets._core import __version__
from smdwidgets._text import did_you_mean, shown
from smdwidgets.cli.arguments._types import CommandParser
from smdwidgets.exceptions import SMDebugError

#: Commands and their help texts, in the order in which --help lists them.
COMMANDS: Final[dict[str, str]] = {
    "demo": "Start a demo training and JupyterLab with a notebook that shows it.",
    "run": "Run a training script and record its trainings, without a change to the script.",
    "runs": "Show the table of all runs below a directory: steps, curves, hyperparameters.",
    "catalog": "Write or update the catalog of a team's runs: a Parquet file beside them.",
    "inspect": "Show a run's steps, modes, workers, collections, tensors, size and state.",
    "query": "Find tensors of a run by name and by their statistics.",
    "bisect": "Find the first difference of two runs, in the order of execution.",
    "coordcheck": "Check whether activations keep their size when a PyTorch model becomes wider.",
    "show": "Show the statistics and a histogram of one tensor at one step.",
    "verify": "Verify every record of a run, its index files and its collections.",
    "diagnose": "Find out what is wrong with a run: since when, why, and what to try.",
    "baseline": "Keep summaries of good runs in a file, to compare others with them.",
    "replay": "Look into the recorded steps around an incident, or execute them again.",
    "explain": "Explain a kind of finding: meaning, healthy range, what to try.",
    "check": "Judge a run in a terminal or as a CI gate: by its diagnosis, or by rules.",
    "report": "Write a self-contained HTML report with a diagnosis, curves and rule findings.",
    "schema": "Print the JSON schema of what a command prints with --json.",
    "mcp": "Serve questions about runs to agents.",
    "export": "Export a run's tensors to NumPy npz, Parquet, CSV or TensorBoard.",
    "compact": "Write a compacted index of a run, so that a run of many steps opens faster.",
    "du": "Show what runs and their tensors take on disk.",
    "thin": "Delete values of old runs; keep losses, statistics, incidents and findings.",
    "doctor": "Check this installation: versions, notebook host, missing packages.",
    "env": "Let the variable SMDWIDGETS_HOOK record trainings in this Python environment.",
    "completion": "Print a shell completion script for commands, options and file names.",
}


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the argument parser of the whole command line.

    With ``only``, one command has arguments.
    """
    top = argparse.ArgumentParser(
        prog="smdwidgets",
        description="Debug training runs: inspect every saved tensor at every step.",
        epilog="`smdwidgets COMMAND --help` shows examples and exit codes. For every command, 0 means success, 1 that a "
        "problem was found, 2 that an error occurred, and 130 that Ctrl-C was pressed.",
        formatter_class=functools.partial(argparse.HelpFormatter, max_help_position=16),
    )
    top.add_argument("--version", action="version", version=f"smdwidgets {__version__}")
    choices = top.add_subparsers(title="commands", metavar="COMMAND", parser_class=CommandParser)
    for name, text in COMMANDS.items():
        command = choices.add_parser(name, help=text, formatter_class=argparse.RawDescriptionHelpFormatter)
        if only in (None, name):
            module = importlib.import_module(f"{__name__}.arguments.{name}")
            command.description = (module.__doc__ or "").strip()
            module.arguments(command)
            command.set_defaults(chosen_command=name)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Expected errors are printed as one line on standard error, with exit code 2. Ctrl-C gives exit code 130.
    """
    given = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        # A console that is not UTF-8, as on Windows, shows a question mark for a letter that it lacks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # No option of the whole command line takes a value, so the first word is the command.
    command = next((word for word in given if not word.startswith("-")), "")
    top = parser(only=command)
    if command and command not in COMMANDS:
        top.error(f"unknown command {shown(command)}.{did_you_mean(command, COMMANDS)} `smdwidgets --help` lists them")
    args = top.parse_args(given)
    if not hasattr(args, "chosen_command"):
        top.print_help(sys.stderr)
        return 2
    try:
        code: int = importlib.import_module(f"{__name__}.{args.chosen_command}").run(args)
        sys.stdout.flush()
        return code
    except SMDebugError as error:
        _complain(error.in_terminal())
        return 2
    except re.error as error:
        _complain(f"invalid regular expression: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader closed the pipe. Without the redirect, Python reports the error again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (OSError, ImportError) as error:
        _complain(_described(error))
        return 2
    except Exception as error:
        # Exit code 1 means a problem of the run, so that a problem of this program must not end with it.
        traceback.print_exc()
        _complain(f"smdwidgets failed with {type(error).__name__}; please report this with the lines above")
        return 2


def _complain(text: str) -> None:
    from smdwidgets.cli._run import plain
    from smdwidgets.cli._terminal import show

    show("\n".join(plain(line, 8000) for line in f"error: {text}".split("\n")), sys.stderr)


def _described(error: OSError | ImportError) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror}"
    return str(error)

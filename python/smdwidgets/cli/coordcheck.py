"""What `smdwidgets coordcheck` does."""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.cli._run import plain
from smdwidgets.coordinate_check import coordcheck
from smdwidgets.exceptions import SMDebugError, SMDebugValueError


def run(args: argparse.Namespace) -> int:
    """Print how the layers scale."""
    widths = _widths(args.widths)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # the output of the file is not that of the command
            result = coordcheck(
                _function(args.file), widths, steps=args.steps, seeds=args.seeds, tolerance=args.tolerance
            )
    except (SMDebugError, KeyboardInterrupt):
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise SMDebugValueError(
            f"{shown(args.file, 400)} cannot be trained: {plain(text, 2000)}{_line(error)}"
        ) from error
    if args.plot:
        _plot(result, args.plot)
    print(
        json.dumps(result.to_json(), indent=2)
        if args.json
        else "\n".join(plain(one, 4000) for one in repr(result).splitlines())
    )
    return 0 if result.passed else 1


def _line(error: Exception) -> str:
    """Return where the code of the user raised an error."""
    places = [one for one in traceback.extract_tb(error.__traceback__) if "smdwidgets" not in Path(one.filename).parts]
    own = [one for one in places if "site-packages" not in one.filename and not one.filename.startswith("<")]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _widths(text: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise SMDebugValueError(f"invalid --widths {shown(text)}; expected numbers such as 64,128,256") from None


def _function(text: str) -> Callable[[int], Any]:
    """Return the function that a file defines."""
    name, colon, function = text.rpartition(":")
    if not colon or not function.isidentifier():
        name, function = text, "make"
    path = Path(name)
    if not path.is_file():
        raise SMDebugValueError(f"no file {shown(name, 400)}")
    sys.path.insert(0, str(path.absolute().parent))
    functions = runpy.run_path(str(path), run_name="smdwidgets_coordcheck")
    chosen = functions.get(function)
    if not callable(chosen):
        names = [key for key, value in functions.items() if callable(value) and not key.startswith("_")]
        raise SMDebugValueError(f"{shown(name, 400)} has no function {shown(function)}.{did_you_mean(function, names)}")
    return chosen  # type: ignore[no-any-return]


def _plot(result: Any, path: str) -> None:
    try:
        figure = result.plot().figure
    except ImportError:
        raise SMDebugValueError("--plot needs Matplotlib: pip install matplotlib") from None
    try:
        figure.savefig(path)
    except ValueError as error:
        raise SMDebugValueError(f"cannot write {shown(path, 400)}: {error}") from None

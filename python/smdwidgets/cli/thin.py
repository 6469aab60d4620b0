"""What `smdwidgets thin` does."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any, Final

from smdwidgets._text import byte_size, shown
from smdwidgets.cli._run import plain
from smdwidgets.config.capture_plan import parse_size
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.retention import RunPlan, plan
from smdwidgets.rules.progress import Progress

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def run(args: argparse.Namespace) -> int:
    """Print what is deleted, and delete it if asked to."""
    chosen = plan(
        args.root,
        older_than=seconds_of(args.older_than),
        budget=None if args.budget is None else parse_size(args.budget, "budget"),
        every=args.every,
        without_statistics=args.without_statistics,
    )
    if args.delete:
        with Progress("thin") as progress:
            done = chosen.apply(lambda at, of: progress.update(at, of, "steps"))
    if args.json:
        print(json.dumps([_object(one) for one in chosen.runs], indent=2))
        return 0
    for one in chosen.runs:
        print(plain(_line(one), 2000))
    freed = byte_size(chosen.freed)
    if args.delete:
        print(f"{freed} of {byte_size(chosen.size)} freed: the values of {done:,} steps were deleted")
    else:
        print(f"{freed} of {byte_size(chosen.size)} would be freed. Nothing was deleted: --delete deletes")
    return 0


def seconds_of(age: str) -> float:
    """Return an age with a unit in seconds.

    >>> seconds_of("1.5h")
    5400.0
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", age)
    if match is None:
        raise SMDebugValueError(
            f"invalid value {shown(age)} of --older-than; give a number and one of {', '.join(_SECONDS)}, such as 30d"
        )
    return float(match[1]) * _SECONDS[match[2]]


def _line(one: RunPlan) -> str:
    if one.skipped:
        return f"{one.name}: {byte_size(one.size)}, left as it is: {one.skipped}"
    kept = ", ".join(f"{count:,} by {reason}" for reason, count in one.protected.items())
    spacing = f"one of {one.every:,} saved steps is kept" if one.every else "no other step is kept"
    return f"{one.name}: {byte_size(one.freed)} of {byte_size(one.size)} at {len(one.steps):,} steps; {spacing}" + (
        f", and {kept}" if kept else ""
    )


def _object(one: RunPlan) -> dict[str, Any]:
    return {
        "run": one.name,
        "path": one.path,
        "bytes": one.size,
        "freed": one.freed,
        "steps": sorted({step.step for step in one.steps}),
        "every": one.every,
        "kept": dict(one.protected),
        "skipped": one.skipped,
    }

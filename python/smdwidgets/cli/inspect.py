"""What a run holds: steps, modes, workers, collections, tensors, sizes, and whether it has ended.

Examples:
  smdwidgets inspect runs/mlp
  smdwidgets inspect runs/mlp --tensors '^gradient/'
  smdwidgets inspect s3://bucket/job/debug-output --json

Exit codes: 0 told, 2 it could not be opened
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from smdwidgets._text import byte_size, listed, natural, shown
from smdwidgets.cli._run import open_run, plain, table
from smdwidgets.exceptions import SMDebugError
from smdwidgets.modes import ModeKeys
from smdwidgets.trials import Trial

#: Lines of tensors that are listed unless all are asked for.
SHOWN = 40


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory or an s3:// address")
    parser.add_argument("--tensors", metavar="REGEX", help="only tensors whose names match")
    parser.add_argument("--all", action="store_true", help=f"list all tensors, not the first {SHOWN}")
    parser.add_argument("--json", action="store_true", help="as JSON, with all tensors")


def run(args: argparse.Namespace) -> int:
    """Tells what the run holds."""
    with open_run(args.run) as trial:
        told = facts(trial, args.tensors)
    print(json.dumps(told, indent=2) if args.json else text(told, None if args.all else SHOWN))
    return 0


def facts(trial: Trial, regex: str | None = None) -> dict[str, Any]:
    """What a run holds, as plain JSON."""
    steps = trial.steps(show_incomplete_steps=True)
    members, problems = _collections(trial)
    end = trial.run_end()
    return {
        "path": str(trial.path),
        "ended": bool(trial.loaded_all_steps),
        "end": None if end is None else str(end),
        "steps": _span(steps),
        "modes": {mode.name: _span(trial.steps(mode, show_incomplete_steps=True)) for mode in trial.modes()},
        "workers": sorted(trial.workers(), key=natural),
        "collections": members,
        "bytes": _size_on_disk(str(trial.path)),
        "problems": [{"file": key, "message": message} for key, message in trial.problems()] + problems,
        "tensors": [_tensor(trial, name) for name in trial.tensor_names(regex=regex)],
    }


def _span(steps: list[int]) -> dict[str, int | None]:
    return {"count": len(steps), "first": steps[0] if steps else None, "last": steps[-1] if steps else None}


def _collections(trial: Trial) -> tuple[dict[str, int], list[dict[str, str]]]:
    """How many tensors each collection has, and what is wrong with those whose patterns can't be used."""
    members: dict[str, int] = {}
    problems = []
    for name in sorted(trial.collections()):
        try:
            members[name] = len(trial.tensor_names(collection=name))
        except SMDebugError as error:
            problems.append({"file": f"collection {shown(name)}", "message": str(error)})
    return members, problems


def _tensor(trial: Trial, name: str) -> dict[str, Any]:
    tensor = trial.tensor(name)
    steps = tensor.steps(ModeKeys.GLOBAL, show_incomplete_steps=True)
    found: dict[str, Any] = {"name": name, "steps": _span(steps), "dtype": None, "shape": None}
    try:
        dtype = tensor.dtype
        found["dtype"] = None if dtype is None else dtype.name
        found["shape"] = list(tensor.shape(steps[-1])) if steps else None
    except SMDebugError as error:
        found["error"] = str(error)
    return found


def _size_on_disk(path: str) -> int | None:
    """Bytes of a local run's files; None for one in a bucket."""
    if not Path(path).is_dir():
        return None
    total = 0
    for folder, _, files in os.walk(path):
        for file in files:
            try:
                total += Path(folder, file).lstat().st_size
            except FileNotFoundError:
                continue  # a temporary file of the writer
    return total


def _state(told: dict[str, Any]) -> str:
    """Whether training goes on, and how it ended if the run says."""
    if not told["ended"]:
        return "being written, or interrupted"
    return "ended" if told["end"] in (None, "ended") else f"ended: {told['end']}"


def text(told: dict[str, Any], most: int | None) -> str:
    """The facts for a person."""

    def span(steps: dict[str, int | None]) -> str:
        return f"{steps['count']:,}" + (f", {steps['first']} to {steps['last']}" if steps["count"] else "")

    rows = [
        ("run", told["path"]),
        ("state", _state(told)),
        ("steps", span(told["steps"])),
        *((f"  {mode}", span(steps)) for mode, steps in told["modes"].items()),
        ("workers", f"{len(told['workers'])}: {listed(told['workers'])}" if told["workers"] else "none yet"),
        (
            "collections",
            ", ".join(f"{name} ({count})" for name, count in told["collections"].items() if count) or "none",
        ),
    ]
    if told["bytes"] is not None:
        rows.append(("on disk", byte_size(told["bytes"])))
    rows += [("problem", f"{each['file']}: {each['message']}") for each in told["problems"][:10]]
    lines = [f"{label:<12} {plain(value, 1000)}" for label, value in rows]
    tensors = told["tensors"]
    lines += ["", f"{len(tensors):,} tensors" if len(tensors) != 1 else "1 tensor"]
    if tensors:
        cells = [["name", "dtype", "shape", "steps"]]
        cells += [
            [
                plain(each["name"], 100),
                each["dtype"] or "-",
                "x".join(map(str, each["shape"])) or "scalar" if each["shape"] is not None else "-",
                f"{each['steps']['count']:,}",
            ]
            for each in tensors[:most]
        ]
        lines.append(table(cells))
        if most is not None and len(tensors) > most:
            lines.append(f"… and {len(tensors) - most:,} more: --all lists them, --tensors REGEX chooses")
    return "\n".join(lines)

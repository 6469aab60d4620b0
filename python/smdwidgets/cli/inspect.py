"""What `smdwidgets inspect` does."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from smdwidgets._text import byte_size, listed, natural, shown
from smdwidgets.cli._run import open_run, plain, table
from smdwidgets.cli.arguments.inspect import SHOWN
from smdwidgets.exceptions import SMDebugError
from smdwidgets.modes import ModeKeys
from smdwidgets.storage.files import size_on_disk
from smdwidgets.trials import Trial
from smdwidgets.trials.matching import matching_names
from smdwidgets.trials.smdebug.compaction import compacted


def run(args: argparse.Namespace) -> int:
    """Print the summary of the run."""
    with open_run(args.run) as trial:
        summary = facts(trial, args.tensors)
    print(json.dumps(summary, indent=2) if args.json else text(summary, None if args.all else SHOWN))
    return 0


def facts(trial: Trial, regex: str | None = None) -> dict[str, Any]:
    """Return the summary of a run as JSON-serializable objects."""
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
        "compacted_index": _compacted(trial),
        "incidents": [{"step": one.step, "text": str(one)} for one in trial.incidents()],
        "notes": [{"worker": worker, "message": message} for worker, message in trial.notes()],
        "problems": [{"file": key, "message": message} for key, message in trial.problems()] + problems,
        "tensors": [_tensor(trial, name) for name in sorted(matching_names(trial, regex), key=natural)],
    }


def _span(steps: list[int]) -> dict[str, int | None]:
    return {"count": len(steps), "first": steps[0] if steps else None, "last": steps[-1] if steps else None}


def _collections(trial: Trial) -> tuple[dict[str, int], list[dict[str, str]]]:
    """Return the number of tensors per collection, and problems.

    A collection with an invalid pattern is reported as a problem.
    """
    members: dict[str, int] = {}
    problems = []
    for name in sorted(trial.collections(), key=natural):
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
        found["dtype"] = None if dtype is None else "str" if dtype.kind in "US" else dtype.name
        found["shape"] = list(tensor.shape(steps[-1])) if steps else None
    except SMDebugError as error:
        found["error"] = str(error)
    return found


def _compacted(trial: Trial) -> dict[str, int | None] | None:
    """Return the size of the compacted index, or None if the run has none."""
    found = compacted(trial)
    if found is None:
        return None
    return {"folders": found.folders, "steps": found.steps, "last_step": found.last_step, "bytes": found.bytes}


def _size_on_disk(path: str) -> int | None:
    """Return the total file size of a local run in bytes; None for a run on S3."""
    return size_on_disk(path) if os.path.isdir(path) else None


def _state(summary: dict[str, Any]) -> str:
    """Return whether the training has ended, and how, if the run records it."""
    if not summary["ended"]:
        return "running or interrupted"
    return "ended" if summary["end"] in (None, "ended") else f"ended: {summary['end']}"


def text(summary: dict[str, Any], most: int | None) -> str:
    """Format the summary as text."""

    def span(steps: dict[str, int | None]) -> str:
        return f"{steps['count']:,}" + (f", {steps['first']} to {steps['last']}" if steps["count"] else "")

    rows = [
        ("run", summary["path"]),
        ("state", _state(summary)),
        ("steps", span(summary["steps"])),
        *((f"  {mode}", span(steps)) for mode, steps in summary["modes"].items()),
        ("workers", f"{len(summary['workers'])}: {listed(summary['workers'])}" if summary["workers"] else "none yet"),
        (
            "collections",
            ", ".join(f"{name} ({count})" for name, count in summary["collections"].items() if count) or "none",
        ),
    ]
    if summary["bytes"] is not None:
        rows.append(("on disk", byte_size(summary["bytes"])))
    if summary["compacted_index"] is not None:
        index = summary["compacted_index"]
        until = f" up to step {index['last_step']}" if index["steps"] else ""
        rows.append(("compacted", f"{index['steps']:,} steps{until} in {byte_size(index['bytes'])}"))
    rows += [("incident", each["text"]) for each in summary["incidents"][:SHOWN]]
    rows += [("note", text) for text in dict.fromkeys(each["message"] for each in summary["notes"])]
    rows += [("problem", f"{each['file']}: {each['message']}") for each in summary["problems"][:10]]
    lines = [f"{label:<12} {plain(value, 1000)}" for label, value in rows]
    tensors = summary["tensors"]
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
            lines.append(f"… and {len(tensors) - most:,} more: --all lists all, --tensors REGEX filters")
    return "\n".join(lines)

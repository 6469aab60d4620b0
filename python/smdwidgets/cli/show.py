"""What `smdwidgets show` does."""

from __future__ import annotations

import argparse
import json
import math
import sys
from itertools import pairwise
from typing import Any

from numpy.typing import NDArray

from smdwidgets._text import byte_size, listed, shown
from smdwidgets.cli._run import open_run, plain
from smdwidgets.exceptions import (
    InvalidWorker,
    NoMoreData,
    SMDebugRuntimeError,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.frames import PERCENTILES, REDUCTIONS, Frame, HistogramWanted, Wanted, make_frame
from smdwidgets.pictures.view import TensorView
from smdwidgets.rules.findings import number
from smdwidgets.trials import Trial

#: Characters of the longest bar.
WIDTH = 50
#: Characters of one line of text.
TEXT = 10_000


def run(args: argparse.Namespace) -> int:
    """Print the tensor's statistics and histogram."""
    with open_run(args.run) as trial:
        if not trial.has_tensor(args.tensor):
            raise TensorUnavailable(args.tensor, [*trial.tensor_names(), *trial.aliases()])
        name = trial.tensor(args.tensor).name  # it may be an alias
        if args.worker and args.worker not in trial.workers():
            raise InvalidWorker(args.worker, trial.workers())
        view = TensorView(trial, name, args.worker)
        step = _step(trial, view, args.step, args.mode)
        wanted = Wanted(histogram=HistogramWanted(args.scale, args.bins, "own"), image=None)
        frame = make_frame(view, step, wanted)
        if frame.error is not None:
            raise SMDebugRuntimeError(frame.error["message"])
        summary = facts(view, step, frame)
    if args.json:
        print(json.dumps(summary, indent=2))
    else:
        print(text(summary))
    return 0


def _step(trial: Trial, view: TensorView, requested: int | None, mode: ModeKeys) -> int:
    """Return the requested global step; None requests the last one."""
    if requested is None:
        steps = view.steps()
        if mode != ModeKeys.GLOBAL:
            steps = [step for step in steps if trial.mode(step) == mode]
        if not steps:
            raise SMDebugRuntimeError(_no_steps(trial, view, mode))
        return steps[-1]
    trial.maybe_refresh()
    found = requested if mode == ModeKeys.GLOBAL else trial.global_step(mode, requested)
    saved = trial.steps(mode, show_incomplete_steps=True)
    if trial.loaded_all_steps and (not saved or requested > saved[-1]):
        raise NoMoreData(requested, mode, saved[-1] if saved else -1)
    if found is None:
        raise StepUnavailable(requested, mode)
    view.shape(found)  # raises with the reason if the step was not saved
    return found


def _no_steps(trial: Trial, view: TensorView, mode: ModeKeys) -> str:
    """Say which worker or mode did not save the tensor, and which did."""
    what = f"tensor {shown(view.name)} was not saved"
    if view.worker and not view.steps():
        others = [name for name in trial.workers() if TensorView(trial, view.name, name).steps()]
        return f"{what} by worker {shown(view.worker)}, but by {listed([shown(name) for name in others])}"
    modes = dict.fromkeys(found.name for step in view.steps() if (found := trial.mode(step)) is not None)
    return f"{what} in mode {mode.name}, but in {listed(list(modes))}" if modes else f"{what} at any step"


def facts(view: TensorView, step: int, frame: Frame) -> dict[str, Any]:
    """Return the tensor's statistics at the step as JSON-serializable objects.

    Non-finite numbers are strings.
    """
    mode, mode_step = view.trial.mode_modestep(step)
    n, nan, pos, neg, zero = (int(count) for count in frame.counts)
    summary: dict[str, Any] = {
        "tensor": view.name,
        "step": step,
        "mode": None if mode is None else mode.name,
        "mode_step": mode_step,
        "shape": list(view.shape(step)),
        "statistics": {
            ("abs_" if magnitudes else "") + op: _plain(value)
            for (op, magnitudes), value in zip(REDUCTIONS, frame.stats, strict=True)
        },
    }
    value = _value(view, step)
    if value is not None:
        is_text = value.dtype.kind in "US"
        summary.update(dtype="str" if is_text else value.dtype.name, bytes=int(value.nbytes), elements=int(value.size))
        if is_text or value.size <= 8:
            summary["values"] = [
                _plain(each) if value.dtype.kind in "fiub" else str(each) for each in value.reshape(-1)
            ]
    if n:
        summary["counts"] = {"nan": nan, "+inf": pos, "-inf": neg, "zero": zero}
    if frame.percentiles is not None:
        summary["percentiles"] = {
            f"{q:g}": _plain(value) for q, value in zip(PERCENTILES, frame.percentiles, strict=True)
        }
    if frame.hist is not None and frame.edges is not None and n > 1:
        summary["histogram"] = {"edges": frame.edges.tolist(), "counts": frame.hist.tolist()}
    return summary


def _value(view: TensorView, step: int) -> NDArray[Any] | None:
    """Return the value, or None if only reductions were saved."""
    try:
        return view.value(step)
    except TensorUnavailableForStep:
        return None


def _plain(value: Any) -> float | str:
    as_float = float(value)
    return as_float if math.isfinite(as_float) else number(as_float)


def text(summary: dict[str, Any]) -> str:
    """Format the statistics as text."""
    where = f"step {summary['step']}"
    if summary["mode"] not in (None, "GLOBAL"):
        where += f" ({summary['mode']} {summary['mode_step']})"
    kind = f"{summary['dtype']} " if "dtype" in summary else "saved without its value, "
    size = f", {byte_size(summary['bytes'])}" if "bytes" in summary else ""
    lines = [f"{plain(summary['tensor'])}  {where}  {kind}{tuple(summary['shape'])}{size}"]
    if summary.get("dtype") == "str":
        # Every line is indented, so that a text cannot look like the output of this command.
        texts = (plain(line, TEXT) for each in summary["values"] for line in each.splitlines())
        return "\n".join([*lines, *(f"  | {line}" for line in texts)])
    if "values" in summary:
        lines.append("values  " + "  ".join(number(each) for each in summary["values"]))
    statistics = {name: value for name, value in summary["statistics"].items() if value != "NaN"}
    shown = [name for name in ("min", "max", "mean", "std", "l2", "abs_mean") if name in statistics]
    if shown and summary.get("elements", 2) > 1:
        lines.append("  ".join(f"{name} {number(statistics[name])}" for name in shown))
    if "counts" in summary:
        lines.append("  ".join(f"{name} {count:,}" for name, count in summary["counts"].items()))
    if "histogram" in summary:
        lines += ["", *bars(summary["histogram"]["edges"], summary["histogram"]["counts"], sys.stdout.encoding)]
    return "\n".join(lines)


def bars(edges: list[float], counts: list[int], encoding: str | None) -> list[str]:
    """Draw a histogram as text, with one line per bin.

    >>> print("\\n".join(bars([0.0, 1.0, 2.0], [1, 2], "utf-8")).replace("█", "#").rstrip())
    [0, 1)  #########################                          1
    [1, 2]  ################################################## 2
    """
    eighths = " ▏▎▍▌▋▊▉█"
    try:
        eighths.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        eighths = "        #"
    most = max([*counts, 1])
    labels = [f"[{number(low)}, {number(high)})" for low, high in pairwise(edges)]
    labels[-1] = labels[-1][:-1] + "]"  # the last bin includes its upper edge, as in NumPy
    width = max(map(len, labels))
    lines = []
    for label, count in zip(labels, counts, strict=True):
        length = round(count / most * WIDTH * 8)
        bar = eighths[8] * (length // 8) + (eighths[length % 8] if length % 8 else "")
        lines.append(f"{label:<{width}}  {bar:<{WIDTH}} {count:,}")
    return lines

"""One tensor at one step: its statistics, and a histogram drawn in the terminal.

Examples:
  smdwidgets show runs/mlp fc1.weight
  smdwidgets show runs/mlp gradient/fc1.weight --step 200 --scale symlog
  smdwidgets show runs/mlp loss --mode EVAL --step 3 --json

Exit codes: 0 shown, 2 there is no such run, tensor or step
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from itertools import pairwise
from typing import Any

from smdwidgets._text import byte_size
from smdwidgets.cli._run import open_run, plain
from smdwidgets.exceptions import SMDebugRuntimeError, StepUnavailable, TensorUnavailable
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.pictures.frames import PERCENTILES, REDUCTIONS, Frame, HistogramWanted, Wanted, make_frame
from smdwidgets.pictures.view import TensorView
from smdwidgets.rules.findings import number
from smdwidgets.trials import Trial

BINS, WIDTH = 20, 50


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("run", metavar="RUN", help="the run: a directory or an s3:// address")
    parser.add_argument("tensor", metavar="TENSOR", help="the tensor's name")
    parser.add_argument("--step", type=int, metavar="N", help="the step (default: the newest that has it)")
    parser.add_argument("--mode", default="GLOBAL", help="the count that --step is in: TRAIN, EVAL, PREDICT or GLOBAL")
    parser.add_argument("--worker", default="", metavar="NAME", help="whose (default: the first worker that has it)")
    parser.add_argument("--scale", choices=["linear", "log", "symlog"], default="linear", help="of the histogram")
    parser.add_argument("--bins", type=int, default=BINS, metavar="N", help="of the histogram (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """Shows the tensor."""
    with open_run(args.run) as trial:
        if not trial.has_tensor(args.tensor):
            raise TensorUnavailable(args.tensor, trial.tensor_names())
        view = TensorView(trial, args.tensor, args.worker)
        step = _step(trial, view, args.step, as_mode(args.mode))
        wanted = Wanted(histogram=HistogramWanted(args.scale, min(1024, max(1, args.bins)), "own"), image=None)
        frame = make_frame(view, step, wanted)
        if frame.error is not None:
            raise SMDebugRuntimeError(frame.error["message"])
        told = facts(view, step, frame)
    if args.json:
        print(json.dumps(told, indent=2))
    else:
        print(text(told))
    return 0


def _step(trial: Trial, view: TensorView, asked: int | None, mode: ModeKeys) -> int:
    """The global step that is meant."""
    if asked is None:
        steps = view.steps()
        if mode != ModeKeys.GLOBAL:
            steps = [step for step in steps if trial.mode(step) == mode]
        if not steps:
            raise SMDebugRuntimeError(f"The tensor was saved at no step of {mode.name}.")
        return steps[-1]
    found = asked if mode == ModeKeys.GLOBAL else trial.global_step(mode, asked)
    if found is None:
        raise StepUnavailable(asked, mode)
    view.shape(found)  # says why, where there is nothing of it
    return found


def facts(view: TensorView, step: int, frame: Frame) -> dict[str, Any]:
    """What is known of the tensor at the step, as plain JSON: what is not finite is text."""
    mode, mode_step = view.trial.mode_modestep(step)
    n, nan, pos, neg, zero = (int(count) for count in frame.counts)
    told: dict[str, Any] = {
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
    if n:
        value = view.value(step)
        told.update(dtype=value.dtype.name, bytes=int(value.nbytes), elements=n)
        told["counts"] = {"nan": nan, "+inf": pos, "-inf": neg, "zero": zero}
        if n <= 8:
            told["values"] = [_plain(each) if value.dtype.kind in "fiub" else str(each) for each in value.reshape(-1)]
    if frame.percentiles is not None:
        told["percentiles"] = {f"{q:g}": _plain(value) for q, value in zip(PERCENTILES, frame.percentiles, strict=True)}
    if frame.hist is not None and frame.edges is not None and n > 1:
        told["histogram"] = {"edges": frame.edges.tolist(), "counts": frame.hist.tolist()}
    return told


def _plain(value: Any) -> float | str:
    as_float = float(value)
    return as_float if math.isfinite(as_float) else number(as_float)


def text(told: dict[str, Any]) -> str:
    """The facts for a person."""
    where = f"step {told['step']}"
    if told["mode"] not in (None, "GLOBAL"):
        where += f" ({told['mode']} {told['mode_step']})"
    kind = f"{told['dtype']} " if "dtype" in told else "saved without its value, "
    size = f", {byte_size(told['bytes'])}" if "bytes" in told else ""
    lines = [f"{plain(told['tensor'])}  {where}  {kind}{tuple(told['shape'])}{size}"]
    if "values" in told:
        lines.append("values  " + "  ".join(number(each) for each in told["values"]))
    statistics = {name: value for name, value in told["statistics"].items() if value != "NaN"}
    shown = [name for name in ("min", "max", "mean", "std", "l2", "abs_mean") if name in statistics]
    if shown and told.get("elements", 2) > 1:
        lines.append("  ".join(f"{name} {number(statistics[name])}" for name in shown))
    if "counts" in told:
        lines.append("  ".join(f"{name} {count:,}" for name, count in told["counts"].items()))
    if "histogram" in told:
        lines += ["", *bars(told["histogram"]["edges"], told["histogram"]["counts"], sys.stdout.encoding)]
    return "\n".join(lines)


def bars(edges: list[float], counts: list[int], encoding: str | None) -> list[str]:
    """A histogram in lines, one a bin.

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
    labels[-1] = labels[-1][:-1] + "]"  # as numpy's
    width = max(map(len, labels))
    lines = []
    for label, count in zip(labels, counts, strict=True):
        length = round(count / most * WIDTH * 8)
        bar = eighths[8] * (length // 8) + (eighths[length % 8] if length % 8 else "")
        lines.append(f"{label:<{width}}  {bar:<{WIDTH}} {count:,}")
    return lines

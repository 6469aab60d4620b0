"""The requests that a page sends first for a widget's state.

A kernel that handles messages on one thread receives no request before its running cells end. It sends the replies to
these requests on its own.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from smdwidgets._text import natural
from smdwidgets.exceptions import SMDebugError
from smdwidgets.trials import Trial
from smdwidgets.widgets.view import RunView

BINS = 128
CELLS = 4096


def first_requests(view: RunView) -> list[dict[str, Any]]:
    """Return the requests for the data of the tensor and the curves in view."""
    requests: list[dict[str, Any]] = []
    if view.table:
        return requests
    if view.tensor and view.KIND in {"explorer", "inspector"}:
        requests.append(_frames(view))
    lines = lane_lines(view)
    if view.KIND == "scalars" or "scalars" in view.panels:
        lines += [line for line in _lines(view) if line not in lines]
    if lines:
        clock = {"clock": True} if view.x_axis != "step" else {}
        requests.append({"what": "series", "lines": lines, **clock})
    return requests


def lane_lines(view: RunView) -> list[dict[str, Any]]:
    """Return the curve above an explorer's axis: a chosen scalar, or a loss."""
    return lane_of(view.trial, view.run, view.lane) if view.KIND == "explorer" and not view.table else []


def lane_of(trial: Trial, run: int, scalar: str) -> list[dict[str, Any]]:
    """Return the curve of a scalar of a run, by default of the first loss."""
    if not scalar:
        with suppress(SMDebugError):  # the collection may be missing, or its pattern invalid
            scalar = min(trial.tensor_names(collection="losses"), key=natural, default="")
    return [{"worker": "", "mode": "", "tensor": scalar, "stat": "value", "run": run}] if scalar else []


def _frames(view: RunView) -> dict[str, Any]:
    histogram = {"scale": view.hist_scale, "bins": BINS, "edges": "shared" if view.compare else view.hist_bins}
    image = {"axes": view.axes, "fixed": view.fixed, "pool": view.pool, "cells": CELLS}
    shows_histogram = "histogram" in view.panels or "history" in view.panels
    return {
        "what": "frames",
        "role": "main",
        "run": view.run,
        "tensor": view.tensor,
        "worker": view.worker,
        "near": view.step,
        "want": {
            "stats": True,
            "update": "update_ratio" in view.stats and "statistics" in view.panels,
            "hist": histogram if shows_histogram else None,
            "image": image if "heatmap" in view.panels else None,
            "percentiles": shows_histogram,
        },
    }


def _lines(view: RunView) -> list[dict[str, Any]]:
    return [
        {"worker": "", "mode": "", **line, "run": run}
        for line in view.series
        for run in ([number for number, _ in view.trials.opened()] if line.get("run", -1) < 0 else [line["run"]])
    ]

"""The requests that a page sends first for a widget's state.

A kernel that handles messages on one thread receives no request before its running cells end. It sends the replies to
these requests on its own.
"""

from __future__ import annotations

from typing import Any

from smdwidgets.widgets.view import RunView

BINS = 128
CELLS = 4096


def first_requests(view: RunView) -> list[dict[str, Any]]:
    """Return the requests for the data of the tensor and the curves in view."""
    requests = []
    if view.tensor and view.KIND in {"explorer", "inspector"}:
        requests.append(_frames(view))
    if view.KIND == "scalars" or "scalars" in view.panels:
        requests.append({"what": "series", "lines": _lines(view)})
    return requests


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
        for run in (range(len(view.trials)) if line.get("run", -1) < 0 else [line["run"]])
    ]

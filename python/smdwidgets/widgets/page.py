"""Write a widget as a self-contained HTML page.

The page needs no kernel and no network.
"""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import Any

from smdwidgets._text import byte_size, markup
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.diagnosis.page import STYLE
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.pictures import details
from smdwidgets.pictures.edges import Bins
from smdwidgets.pictures.frames import HistogramWanted, Wanted
from smdwidgets.pictures.overview import SentState, overview
from smdwidgets.pictures.packet import pack
from smdwidgets.pictures.plane import ImageWanted
from smdwidgets.pictures.view import TensorView
from smdwidgets.widgets import bundle
from smdwidgets.widgets.streaming import FrameStream
from smdwidgets.widgets.traits import STATE
from smdwidgets.widgets.view import RunView

_BINS = 128
_TOO_OLD = (
    "This page requires JavaScript that this browser does not support. Open it in Chrome or Edge 111, Firefox 115, "
    "Safari 16.4, or newer."
)


def write_page(
    widget: RunView, path: str, tensors: list[str] | None, limit: int, diagnosis: Diagnosis | None = None
) -> int:
    """Write the page of a widget atomically, and return its size in bytes."""
    text = make_page(widget, tensors, limit, diagnosis).encode("utf-8")
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        partial.write_bytes(text)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return len(text)


def make_page(widget: RunView, tensors: list[str] | None, limit: int, diagnosis: Diagnosis | None = None) -> str:
    """Return the page of a widget as HTML.

    The diagnosis of the run comes first if one is given.
    """
    script, style = bundle.text("widget.js"), bundle.text("widget.css")
    above = "" if diagnosis is None else f"{diagnosis._repr_html_()}\n"
    room = limit - len(script.encode()) - len(style.encode()) - len(above.encode()) - 4096
    packets = _packets(widget, tensors, room * 3 // 4)
    # A browser that does not run the script shows this text after 3 s; otherwise the script replaces it before that.
    page_style = (
        "body{margin:16px;font-family:system-ui,sans-serif}"
        ".smdw-page>.late{opacity:0;animation:late 0s 3s forwards}@keyframes late{to{opacity:1}}"
    )
    policy = (
        "default-src 'none'; "
        f"script-src 'sha256-{_digest(script)}'; "
        f"style-src 'sha256-{_digest(style)}' 'sha256-{_digest(page_style)}' 'sha256-{_digest(STYLE)}'; "
        "img-src data: blob:; worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    title = markup(f"{widget.trial.name}: smdwidgets", 200)
    blocks = "\n".join(
        f'<script type="application/octet-stream;base64" class="smdw-packet">{base64.b64encode(packet).decode("ascii")}</script>'
        for packet in packets
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{style}</style>\n<style>{page_style}</style>\n</head>\n<body>\n{above}"
        f'<div class="smdw-page"><p class="late">{_TOO_OLD}</p></div>\n{blocks}\n<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _packets(widget: RunView, tensors: list[str] | None, room: int) -> list[bytes]:
    traits: dict[str, Any] = {name: getattr(widget, name) for name in STATE}
    traits["_kind"] = widget.KIND
    packets = [pack({"kind": "page", "traits": traits})]
    for run, trial in enumerate(widget.trials):
        packets += overview(trial, SentState(run))
    packets += widget._rule_controller.packets()
    if widget._diagnosis is not None:
        packets += widget._diagnosis.packets()
    for line in widget.series[:100]:
        packets += _curves(widget, line)
    names = tensors if tensors is not None else [widget.tensor] if widget.tensor else []
    left = room - sum(map(len, packets))
    if left < 0:
        raise SMDebugValueError(
            f"page limit exceeded: the lists of steps and tensors alone need {byte_size(-left)} more; increase the limit"
        )
    bins = {name: _bins(widget, name) for name in names} if widget.hist_bins == "shared" or widget.compare else {}
    views = [
        (place, name)
        for place in _runs_and_workers(widget)
        for name in names
        if widget.trials[place[0]].has_tensor(name)
    ]
    for number, ((run, worker), name) in enumerate(views):
        view = TensorView(widget.trials[run], name, worker)
        tensor_packets = _tensor(view, run, left // (len(views) - number), widget, bins.get(name))
        left -= sum(map(len, tensor_packets))
        packets += tensor_packets
    return packets


def _runs_and_workers(widget: RunView) -> list[tuple[int, str]]:
    """Return the runs and workers that the page contains.

    These are every run, and the compared worker.
    """
    places = [(run, widget.worker) for run in range(len(widget.trials))]
    compared = (int(widget.compare.get("run", widget.run)), str(widget.compare.get("worker", widget.worker)))
    return places if compared in places or compared[0] >= len(places) else [*places, compared]


def _curves(widget: RunView, line: dict[str, Any]) -> list[bytes]:
    made = []
    wanted = int(line.get("run", 0))
    for run in range(len(widget.trials)) if wanted < 0 else [wanted]:
        tensor, worker = str(line.get("tensor", "")), str(line.get("worker", ""))
        about = {"run": run, "tensor": tensor, "worker": worker}
        view = TensorView(widget.trials[run], tensor, worker)
        try:
            made.append(details.series(view, str(line.get("stat", "value")), str(line.get("mode", "")), about))
        except SMDebugError:
            continue  # not every run has the tensor
    return made


def _bins(widget: RunView, name: str) -> Bins:
    """Return histogram bins shared by all runs and workers in the page.

    Shared bins make them comparable.
    """
    views = [TensorView(widget.trials[run], name, worker) for run, worker in _runs_and_workers(widget)]
    return Bins(views, widget.hist_scale, _BINS)


def _tensor(view: TensorView, run: int, room: int, widget: RunView, bins: Bins | None) -> list[bytes]:
    """Return the plan and frames of one tensor.

    Steps are omitted at regular intervals to fit into ``room`` bytes.
    """
    about = {"run": run, "tensor": view.name, "worker": view.worker}
    wanted = Wanted(
        histogram=HistogramWanted(widget.hist_scale, _BINS, "own" if bins is None else "shared"),
        image=ImageWanted(tuple(widget.axes), tuple(widget.fixed), widget.pool, 4096),
    )
    stream = FrameStream(view, about, wanted, bins)
    steps = view.steps()
    every = 1
    made = [packet for packet, _, _ in stream.run(-1, None, lambda: False)]
    size = sum(map(len, made))
    if size > room and steps:
        every = -(-size // max(1, room))
        stream = FrameStream(view, about, wanted, bins)
        stream.only = set(steps[::-1][::every])
        made = [packet for packet, _, _ in stream.run(-1, None, lambda: False)]
    return [stream.plan(), *made]

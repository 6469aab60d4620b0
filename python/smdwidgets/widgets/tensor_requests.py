"""Answer requests for values of tensors: frames, details, differences, curves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures import details, differences
from smdwidgets.pictures.edges import Bins
from smdwidgets.pictures.frames import Wanted
from smdwidgets.pictures.overview import SHOWN_NAME, shown_name
from smdwidgets.pictures.signal_view import can_show, names_shown, view_of
from smdwidgets.pictures.view import TensorView
from smdwidgets.trials.trial import Trial
from smdwidgets.widgets.lines import Line, Lines
from smdwidgets.widgets.open_runs import opened, run_at
from smdwidgets.widgets.reply import Cancelled, Handler, Reply
from smdwidgets.widgets.streaming import FrameStream, chosen_steps, nearest_first

logger = logging.getLogger("smdwidgets.widgets")

QUICK_STEPS = 2000
"""Steps of a scalar that are read before a widget is displayed."""
CACHED_BINS = 8
"""Number of cached histogram bins. Repeated requests, and those of compared tensors, use the same bins."""
MOST_LIFE = 512
"""Steps at which cells are read."""


class TensorRequests:
    """Answers requests for values of tensors, and updates frames and curves.

    Thread-safe.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials
        self._lock = threading.Lock()
        self._streams: dict[str, FrameStream] = {}
        self._bins: dict[Any, Bins] = {}
        self._lines = Lines([])
        #: By name of the request.
        self.handlers: dict[str, Handler] = {
            "frames": self._frames,
            "tile": self._tile,
            "values": self._values,
            "diff": self._diff,
            "life": self._life,
            "series": self._series,
        }

    def updates(self) -> Iterator[bytes]:
        """Yield new steps of the frames and curves that were requested last."""
        with self._lock:
            streams, lines = list(self._streams.values()), self._lines
        try:
            for stream in streams:
                yield from stream.updates()
            yield from lines.updates(last=all(trial.loaded_all_steps for _, trial in opened(self._trials)))
        except Exception:  # the run's status packet contains the error, and must be sent
            logger.debug("cannot update frames and curves", exc_info=True)

    def start_over(self) -> None:
        """Drop what was made of an earlier run."""
        with self._lock:
            self._streams, self._bins, self._lines = {}, {}, Lines([])

    def quick_curve(self, line: dict[str, Any]) -> list[bytes]:
        """Return a packet with a curve of an ended run, if it is read quickly."""
        view = self._view(line)
        with suppress(SMDebugError, OSError):  # the page requests it, and shows the error
            if not view.trial.loaded_all_steps:
                return []  # the page requests it, so that it grows
            if view.trial.is_local and 0 < len(view.steps()) <= QUICK_STEPS:
                return [details.series(view, line["stat"], line["mode"], self._about(line))]
        return []

    def _frames(self, request: dict[str, Any], reply: Reply) -> None:
        role = "compare" if request.get("role") == "compare" else "main"
        wanted = Wanted.from_json(request.get("want") or {})
        stream = FrameStream(self._view(request), self._about(request), wanted, self._bins_of(request, wanted))
        reply.part([stream.plan()])
        stream.only = chosen_steps(stream.view.steps_shown(), request)
        if "steps" not in request:
            with self._lock:
                self._streams[role] = stream
        for packet, done, total in stream.run(
            int(request.get("near", -1)), request.get("after"), reply.cancelled.is_set
        ):
            reply.part([packet])
            reply.progress(done, total)
        if reply.cancelled.is_set():
            raise Cancelled
        reply.answer()

    def _bins_of(self, request: dict[str, Any], wanted: Wanted) -> Bins | None:
        """Return the bins shared by all steps of the tensor and of compared tensors."""
        histogram = wanted.histogram
        if histogram is None or histogram.edges != "shared":
            return None
        about = self._about(request)
        places = histogram.over or ((about["run"], about["worker"], ""),)
        named = [(run, worker, tensor or about["tensor"]) for run, worker, tensor in places]
        key = (frozenset(named), histogram.scale, histogram.bins)
        with self._lock:
            found = self._bins.pop(key, None)
            if found is None:
                views = [self._view({"run": run, "worker": worker, "tensor": tensor}) for run, worker, tensor in named]
                found = Bins(views, histogram.scale, histogram.bins)
            self._bins[key] = found
            while len(self._bins) > CACHED_BINS:
                self._bins.pop(next(iter(self._bins)))
        return found

    def _tile(self, request: dict[str, Any], reply: Reply) -> None:
        reply.answer([details.tile(self._view(request), int(request["step"]), request, self._about(request))])

    def _values(self, request: dict[str, Any], reply: Reply) -> None:
        reply.answer([details.values(self._view(request), int(request["step"]), request, self._about(request))])

    def _diff(self, request: dict[str, Any], reply: Reply) -> None:
        a, b = ({**self._about(request[name]), "step": int(request[name]["step"])} for name in "ab")
        first = differences.saved(self._view(a), a["step"])
        reply.progress(1, 2)
        second = differences.saved(self._view(b), b["step"])
        reply.progress(2, 2)
        reply.answer([differences.difference(first, second, request["want"], {"a": a, "b": b})])

    def _life(self, request: dict[str, Any], reply: Reply) -> None:
        cells = differences.checked_cells(request["cells"])
        view, near = self._view(request), int(request["near"])
        chosen = chosen_steps(steps := view.steps(), {"most": MOST_LIFE, "near": near})
        order = [step for step in nearest_first(steps, near) if chosen is None or step in chosen]
        for packet, done in differences.lives(view, order, cells, self._about(request), reply.cancelled.is_set):
            reply.part([packet])
            reply.progress(done, len(order))
        if reply.cancelled.is_set():
            raise Cancelled
        reply.answer()

    def _series(self, request: dict[str, Any], reply: Reply) -> None:
        requested = [line for line in request.get("lines", ()) if isinstance(line, dict)][:200]
        clock = request.get("clock") is True
        lines = Lines(
            [
                Line(
                    self._view(line),
                    str(line.get("stat", "value")),
                    str(line.get("mode", "")),
                    self._about(line),
                    clock,
                )
                for line in requested
            ]
        )
        failed = []
        for number, (packet, wrong) in enumerate(lines.answer()):
            if packet is None:
                failed.append(wrong)
            else:
                reply.part([packet])
            reply.progress(number + 1, len(lines))
        # From now on, new steps of these curves are pushed.
        with self._lock:
            self._lines = lines
        if failed and len(failed) == len(lines):
            raise SMDebugError(failed[0])
        reply.answer()

    def _view(self, request: dict[str, Any]) -> TensorView:
        trial, name = run_at(self._trials, int(request.get("run", 0) or 0)), str(request.get("tensor", ""))
        if len(name) == SHOWN_NAME and not can_show(trial, name):  # the browser has a shortened name
            name = next((full for full in names_shown(trial) if shown_name(full) == name), name)
        return view_of(trial, name, str(request.get("worker", "") or ""))

    @staticmethod
    def _about(request: dict[str, Any]) -> dict[str, Any]:
        return {
            "run": int(request.get("run", 0) or 0),
            "tensor": str(request.get("tensor", "")),
            "worker": str(request.get("worker", "") or ""),
        }

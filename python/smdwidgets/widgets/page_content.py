"""Select the data of a self-contained page.

A page contains statistics of all tensors, and pictures of those that `page_order` puts first, until the size limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from smdwidgets._text import byte_size
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.pictures import details
from smdwidgets.pictures.edges import Bins, swept_ranges
from smdwidgets.pictures.frames import HistogramWanted, Wanted
from smdwidgets.pictures.overview import nothing_sent, overview, shown_name
from smdwidgets.pictures.packet import pack
from smdwidgets.pictures.plane import ImageWanted
from smdwidgets.pictures.signal_view import can_show, names_shown, view_of
from smdwidgets.pictures.view import TensorView
from smdwidgets.rules.progress import Progress
from smdwidgets.widgets.first_view import lane_lines
from smdwidgets.widgets.page_order import in_order, telling_steps
from smdwidgets.widgets.runs_packets import RunsPackets
from smdwidgets.widgets.streaming import FrameStream
from smdwidgets.widgets.traits import STATE
from smdwidgets.widgets.view import RunView

_BINS = 128
_STATISTICS = Wanted(histogram=None, image=None, percentiles=False)
_STATISTICS_SHARE = 0.3
"""Largest share of the page that statistics of tensors without pictures have."""
_SURVEY_SHARE = 0.15
"""Largest share of the page that the survey has."""
_STATISTICS_BYTES = 220
"""Approximate size of the statistics of one step."""
_MOST_READ = 2_000_000_000
"""Bytes of values that are read for statistics at most; for larger runs, steps are omitted."""
_FEWEST_STEPS = 50
"""Steps below which a picture of one more tensor is not worth fewer steps of the others."""


_MOST_NUMBERS = 1000
"""Steps of tensors with one number that have frames, over all tensors; their curves have all steps."""
_CURVES_SHARE = 0.3
"""Largest share of the page that the curves of tensors with one number have."""


_LOG_VALUES_SHARE = 0.1
"""Largest share of the page that texts and precision-recall curves have."""


_WITH_PICTURES = {"explorer", "inspector"}
"""Widgets that show pictures of tensors."""


class PageContent(NamedTuple):
    """The packets of a page, and the names of the tensors whose pictures it contains."""

    packets: list[bytes]
    opened: list[str]


def page_content(
    widget: RunView, tensors: list[str] | None, room: int, diagnosis: Diagnosis | None = None
) -> PageContent:
    """Return the data of a page in at most ``room`` bytes."""
    widget.rule_controller.evaluate_saved_steps()
    runs = widget.trials.opened()
    sent = nothing_sent(runs)
    packets = [packet for number, trial in runs for packet in overview(trial, sent[number])]
    if widget.live_table is not None:
        packets += RunsPackets(widget.live_table).all(widget.runs_tag)
    packets += widget.rule_controller.packets()
    if widget.live_diagnosis is not None:
        diagnosis = widget.live_diagnosis.completed(widget.run)
        packets += widget.live_diagnosis.packets()
    if widget.live_replay is not None:
        packets += widget.live_replay.packets()
    packets += widget.partings.packets()
    if widget.live_survey is not None:
        packets += widget.live_survey.exported(sent, widget.map_stat, int(room * _SURVEY_SHARE))
    shown = {line.get("tensor") for line in widget.series[:100] if line.get("stat", "value") == "value"}
    for line in [*(line for line in lane_lines(widget) if line["tensor"] not in shown), *widget.series[:100]]:
        packets += _curves(widget, line)
    views = _views(widget)
    packets += _curves_of_numbers(widget, views, int(room * _CURVES_SHARE))
    packets += _log_values(views, int(room * _LOG_VALUES_SHARE))
    traits: dict[str, Any] = {name: getattr(widget, name) for name in STATE}
    traits |= {
        "_kind": widget.KIND,
        "_many": widget.live_table is not None,
        "_fresh": widget.opens_on_finding,
    }
    left = room - sum(map(len, packets)) - len(pack({"kind": "page", "traits": traits, "opened": {}}))
    if left < 0:
        raise SMDebugValueError(
            f"page limit exceeded: the lists of steps and tensors alone need {byte_size(-left)} more; increase the limit"
        )
    first, others = in_order(widget, diagnosis) if tensors is None else (tensors, [])
    if widget.KIND not in _WITH_PICTURES:
        first, others = [], []
    reserved = _size_of_statistics(views, left)
    steps = telling_steps(widget, diagnosis)
    with Progress("saving page") as progress:
        pictures, opened = _pictures(widget, first, others, left - reserved, steps, progress)
        known, statistics = set(opened), []
        for number, view in enumerate(views):
            progress.update(number, len(views), "statistics")
            statistics += [] if view in known else _statistics(view, len(views), reserved)
    names: dict[str, list[str]] = {}
    for view in opened:
        names.setdefault(str(view.run), []).append(shown_name(view.tensor.name))
    page = pack({"kind": "page", "traits": traits, "opened": names})
    return PageContent(
        [page, *packets, *pictures, *statistics], list(dict.fromkeys(each.tensor.name for each in opened))
    )


class _View(NamedTuple):
    run: int
    tensor: TensorView

    @property
    def is_number(self) -> bool:
        """Whether the tensor has one number at each step."""
        dtype, shape = self.tensor.sample()
        return shape == () and dtype != "str"

    @property
    def about(self) -> dict[str, Any]:
        return {"run": self.run, "tensor": shown_name(self.tensor.name), "worker": self.tensor.worker}


def _views(widget: RunView) -> list[_View]:
    """Return all tensors of all runs."""
    return [
        _View(run, view_of(widget.trials[run], name, worker))
        for run, worker in _runs_and_workers(widget)
        for name in names_shown(widget.trials[run])
    ]


def _runs_and_workers(widget: RunView) -> list[tuple[int, str]]:
    """Return the runs and workers that the page contains.

    These are every run, and the compared worker.
    """
    places = [(run, widget.worker) for run, _ in widget.trials.opened()]
    compared = (int(widget.compare.get("run", widget.run)), str(widget.compare.get("worker", widget.worker)))
    return places if compared in places or compared[0] >= len(places) else [*places, compared]


def _curves_of_numbers(widget: RunView, views: list[_View], room: int) -> list[bytes]:
    """Return the curves of tensors with one number that are not shown and fit."""
    shown = {str(line.get("tensor", "")) for line in widget.series[:100]}
    packets: list[bytes] = []
    for view in views:
        if view.tensor.name in shown or not view.is_number:
            continue
        packet = details.series(view.tensor, "value", "", view.about, True)
        if len(packet) > room:
            break
        room -= len(packet)
        packets.append(packet)
    return packets


def _log_values(views: list[_View], room: int) -> list[bytes]:
    """Return the texts and precision-recall curves of logs that fit.

    The last steps of each tensor come first.
    """
    packets: list[bytes] = []
    of_logs = [view for view in views if view.tensor.kind in {"text", "pr_curve"}]
    for number, view in enumerate(of_logs):
        left = room // (len(of_logs) - number)
        for step in reversed(view.tensor.steps()):
            try:
                packet = details.values(view.tensor, step, {}, view.about)
            except SMDebugError:
                continue  # damaged at this step
            if len(packet) > left:
                break
            left -= len(packet)
            room -= len(packet)
            packets.append(packet)
    return packets


def _curves(widget: RunView, line: dict[str, Any]) -> list[bytes]:
    made = []
    wanted = int(line.get("run", 0))
    for run in [number for number, _ in widget.trials.opened()] if wanted < 0 else [wanted]:
        tensor, worker = str(line.get("tensor", "")), str(line.get("worker", ""))
        about = {"run": run, "tensor": tensor, "worker": worker}
        view = view_of(widget.trials[run], tensor, worker)
        try:
            made.append(details.series(view, str(line.get("stat", "value")), str(line.get("mode", "")), about, True))
        except SMDebugError:
            continue  # not every run has the tensor
    return made


# ------------------------------------------------------------------------------------------------------------ pictures


def _pictures(
    widget: RunView, first: Iterable[str], others: Iterable[str], room: int, steps: frozenset[int], progress: Progress
) -> tuple[list[bytes], list[_View]]:
    """Return the frames of tensors, and the tensors that fit."""
    packets: list[bytes] = []
    opened = []
    numbers = _most_steps(_views(widget))
    for names, required in ((first, True), (others, False)):
        views = [
            _View(run, view_of(widget.trials[run], name, worker))
            for name in names
            for run, worker in _runs_and_workers(widget)
            if can_show(widget.trials[run], name)
        ]
        bins = _BinsByName(widget, views)
        for number, view in enumerate(views):
            progress.update(number, len(views), "pictures")
            pictures = _Pictures(view, widget, bins.of(view.tensor.name), steps, numbers)
            share = max(0, room) // (len(views) - number)
            if not required:
                share = max(share, pictures.size_of(_FEWEST_STEPS))
                if share > room:
                    continue
            made = pictures.packets(share)
            room -= sum(map(len, made))
            packets += made
            opened.append(view)
    return packets, opened


def _most_steps(views: list[_View]) -> int:
    """Return how many steps of a tensor with one number have frames."""
    return max(2, _MOST_NUMBERS // max(1, len(views)))


class _BinsByName:
    """Histogram bins shared by all runs and workers, for comparison."""

    def __init__(self, widget: RunView, views: list[_View]) -> None:
        self._widget = widget
        self._is_shared = widget.hist_bins == "shared" or bool(widget.compare)
        is_swept = self._is_shared and widget.hist_scale == "linear"
        self._swept = swept_ranges(view.tensor for view in views) if is_swept else None
        self._bins: dict[str, Bins] = {}

    def of(self, name: str) -> Bins | None:
        """Return the bins of a tensor, or None if each step has separate bins."""
        if not self._is_shared:
            return None
        if name not in self._bins:
            places = _runs_and_workers(self._widget)
            views = [view_of(self._widget.trials[run], name, worker) for run, worker in places]
            self._bins[name] = Bins(views, self._widget.hist_scale, _BINS, self._swept)
        return self._bins[name]


class _Pictures:
    """The frames of one tensor, of which steps are omitted at regular intervals."""

    def __init__(self, view: _View, widget: RunView, bins: Bins | None, keep: frozenset[int], numbers: int) -> None:
        self._view = view
        self._keep = keep
        self._bins = bins
        self._wanted = Wanted(
            histogram=HistogramWanted(widget.hist_scale, _BINS, "own" if bins is None else "shared"),
            image=ImageWanted(tuple(widget.axes), tuple(widget.fixed), widget.pool, 4096),
        )
        self._steps = view.tensor.steps_shown()
        self._most = numbers if view.is_number else len(self._steps)
        self._plan = details.plan(view.tensor, view.about)
        self._frame_size = sum(map(len, self._frames(set(self._steps[-1:]))))

    def size_of(self, steps: int) -> int:
        """Return the approximate size of so many steps, or of all if there are fewer."""
        return len(self._plan) + self._frame_size * min(steps, self._most, len(self._steps))

    def packets(self, room: int) -> list[bytes]:
        """Return the plan and the frames in ``room`` bytes.

        The last step always has a frame.
        """
        every = max(1, -(-self.size_of(len(self._steps)) // max(1, room)), -(-len(self._steps) // max(1, self._most)))
        while True:
            made = [self._plan, *self._frames({*self._steps[::-1][::every], *self._keep})]
            if every >= len(self._steps) or sum(map(len, made)) <= room:
                return made
            every += 1

    def _frames(self, steps: set[int]) -> list[bytes]:
        stream = FrameStream(self._view.tensor, self._view.about, self._wanted, self._bins)
        stream.only = steps
        return [packet for packet, _, _ in stream.run(-1, None, lambda: False)]


# ---------------------------------------------------------------------------------------------------------- statistics


def _size_of_statistics(views: list[_View], room: int) -> int:
    """Return the bytes reserved for statistics."""
    needed = sum(len(view.tensor.steps_shown()) for view in views) * _STATISTICS_BYTES
    return min(needed, int(room * _STATISTICS_SHARE))


def _statistics(view: _View, views: int, room: int) -> list[bytes]:
    """Return the plan and the statistics of one of so many tensors."""
    steps = view.tensor.steps_shown()
    dtype, shape = view.tensor.sample()
    size = int(np.prod(shape, dtype=np.float64)) * (np.dtype(dtype).itemsize if dtype not in {"", "str"} else 1)
    most = max(1, min(room // views // _STATISTICS_BYTES, _MOST_READ // views // max(1, size)))
    if view.is_number:
        most = min(most, max(2, _MOST_NUMBERS // views))
    stream = FrameStream(view.tensor, view.about, _STATISTICS)
    stream.only = set(steps[::-1][:: max(1, -(-len(steps) // most))])
    return [details.plan(view.tensor, view.about), *(packet for packet, _, _ in stream.run(-1, None, lambda: False))]

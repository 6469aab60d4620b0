"""Select the data of a self-contained page.

A page contains statistics of all tensors, and pictures of those that findings name first, then of others until the size
limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from smdwidgets._text import byte_size, natural
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.pictures import details
from smdwidgets.pictures.edges import Bins
from smdwidgets.pictures.frames import HistogramWanted, Wanted
from smdwidgets.pictures.overview import nothing_sent, overview, shown_name
from smdwidgets.pictures.packet import pack
from smdwidgets.pictures.plane import ImageWanted
from smdwidgets.pictures.view import TensorView
from smdwidgets.trials import Trial
from smdwidgets.widgets.streaming import FrameStream
from smdwidgets.widgets.traits import STATE
from smdwidgets.widgets.view import RunView

_BINS = 128
_STATISTICS = Wanted(histogram=None, image=None, percentiles=False)
_STATISTICS_SHARE = 0.3
"""Largest share of the page that statistics of tensors without pictures have."""
_STATISTICS_BYTES = 220
"""Approximate size of the statistics of one step."""
_MOST_READ = 2_000_000_000
"""Bytes of values that are read for statistics at most; for larger runs, steps are omitted."""
_FEWEST_STEPS = 50
"""Steps below which a picture of one more tensor is not worth fewer steps of the others."""


class PageContent(NamedTuple):
    """The packets of a page, and the names of the tensors whose pictures it contains."""

    packets: list[bytes]
    opened: list[str]


def page_content(
    widget: RunView, tensors: list[str] | None, room: int, diagnosis: Diagnosis | None = None
) -> PageContent:
    """Return the data of a page in at most ``room`` bytes."""
    widget._rule_controller.evaluate_saved_steps()
    sent = nothing_sent(widget.trials)
    packets = [packet for trial, state in zip(widget.trials, sent, strict=True) for packet in overview(trial, state)]
    packets += widget._rule_controller.packets()
    # A diagnosis that is given is shown above the widget.
    if diagnosis is None and widget._diagnosis is not None:
        widget._diagnosis.complete()
        packets += widget._diagnosis.packets()
        diagnosis = widget._diagnosis.of(widget.trials.index(widget.trial))
    for line in widget.series[:100]:
        packets += _curves(widget, line)
    traits: dict[str, Any] = {name: getattr(widget, name) for name in STATE}
    traits["_kind"] = widget.KIND
    left = room - sum(map(len, packets)) - len(pack({"kind": "page", "traits": traits, "opened": {}}))
    if left < 0:
        raise SMDebugValueError(
            f"page limit exceeded: the lists of steps and tensors alone need {byte_size(-left)} more; increase the limit"
        )
    views = _views(widget)
    first, others = _in_order(widget, diagnosis) if tensors is None else (tensors, [])
    reserved = _size_of_statistics(views, left)
    steps = _telling_steps(widget, diagnosis)
    pictures, opened = _pictures(widget, first, others, left - reserved, steps)
    statistics = [packet for view in views if view not in opened for packet in _statistics(view, len(views), reserved)]
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
    def about(self) -> dict[str, Any]:
        return {"run": self.run, "tensor": shown_name(self.tensor.name), "worker": self.tensor.worker}


def _views(widget: RunView) -> list[_View]:
    """Return all tensors of all runs."""
    return [
        _View(run, TensorView(widget.trials[run], name, worker))
        for run, worker in _runs_and_workers(widget)
        for name in widget.trials[run].tensor_names()
    ]


def _in_order(widget: RunView, diagnosis: Diagnosis | None) -> tuple[list[str], list[str]]:
    """Return the tensors that findings name or that are in view, and the others.

    Scalars come first.
    """
    named = [name for finding in diagnosis.findings for name in finding.series] if diagnosis is not None else []
    named += widget._rule_controller.blamed()
    first = list(dict.fromkeys(name for name in [*named, widget.tensor] if _exists(widget, name)))
    others: list[str] = []
    for trial in widget.trials:
        for collection in ("losses", "metrics", "scalars", "weights", "gradients"):
            others += _members(trial, collection)
        others += sorted(trial.tensor_names(), key=natural)
    return first, [name for name in dict.fromkeys(others) if name not in set(first)]


def _telling_steps(widget: RunView, diagnosis: Diagnosis | None) -> frozenset[int]:
    """Return the steps that links lead to, which are never omitted."""
    onsets = [finding.onset for finding in diagnosis.findings] if diagnosis is not None else []
    found = {*onsets, *widget._rule_controller.first_firings(), widget.step}
    return frozenset(step for step in found if step is not None)


def _exists(widget: RunView, name: str) -> bool:
    return bool(name) and any(trial.has_tensor(name) for trial in widget.trials)


def _members(trial: Trial, collection: str) -> list[str]:
    try:
        return (
            sorted(trial.tensor_names(collection=collection), key=natural) if collection in trial.collections() else []
        )
    except SMDebugError:  # the collection's pattern may be invalid or time out
        return []


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


# ------------------------------------------------------------------------------------------------------------ pictures


def _pictures(
    widget: RunView, first: Iterable[str], others: Iterable[str], room: int, steps: frozenset[int]
) -> tuple[list[bytes], list[_View]]:
    """Return the frames of tensors, and the tensors that fit."""
    packets: list[bytes] = []
    opened = []
    for names, required in ((first, True), (others, False)):
        bins = _BinsByName(widget)
        views = [
            _View(run, TensorView(widget.trials[run], name, worker))
            for name in names
            for run, worker in _runs_and_workers(widget)
            if widget.trials[run].has_tensor(name)
        ]
        for number, view in enumerate(views):
            pictures = _Pictures(view, widget, bins.of(view.tensor.name), steps)
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


class _BinsByName:
    """Histogram bins shared by all runs and workers, for comparison."""

    def __init__(self, widget: RunView) -> None:
        self._widget = widget
        self._bins: dict[str, Bins] = {}

    def of(self, name: str) -> Bins | None:
        """Return the bins of a tensor, or None if each step has separate bins."""
        if self._widget.hist_bins != "shared" and not self._widget.compare:
            return None
        if name not in self._bins:
            places = _runs_and_workers(self._widget)
            views = [TensorView(self._widget.trials[run], name, worker) for run, worker in places]
            self._bins[name] = Bins(views, self._widget.hist_scale, _BINS)
        return self._bins[name]


class _Pictures:
    """The frames of one tensor, of which steps are omitted at regular intervals."""

    def __init__(self, view: _View, widget: RunView, bins: Bins | None, keep: frozenset[int]) -> None:
        self._view = view
        self._keep = keep
        self._bins = bins
        self._wanted = Wanted(
            histogram=HistogramWanted(widget.hist_scale, _BINS, "own" if bins is None else "shared"),
            image=ImageWanted(tuple(widget.axes), tuple(widget.fixed), widget.pool, 4096),
        )
        self._steps = view.tensor.steps()
        self._plan = details.plan(view.tensor, view.about)
        self._frame_size = sum(map(len, self._frames(set(self._steps[-1:]))))

    def size_of(self, steps: int) -> int:
        """Return the approximate size of so many steps, or of all if there are fewer."""
        return len(self._plan) + self._frame_size * min(steps, len(self._steps))

    def packets(self, room: int) -> list[bytes]:
        """Return the plan and the frames in ``room`` bytes.

        The last step always has a frame.
        """
        every = max(1, -(-self.size_of(len(self._steps)) // max(1, room)))
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
    wanted = sum(len(view.tensor.steps()) for view in views) * _STATISTICS_BYTES
    return min(wanted, int(room * _STATISTICS_SHARE))


def _statistics(view: _View, views: int, room: int) -> list[bytes]:
    """Return the plan and the statistics of one of so many tensors."""
    steps = view.tensor.steps()
    dtype, shape = view.tensor.sample()
    size = int(np.prod(shape, dtype=np.float64)) * (np.dtype(dtype).itemsize if dtype not in {"", "str"} else 1)
    most = max(1, min(room // views // _STATISTICS_BYTES, _MOST_READ // views // max(1, size)))
    stream = FrameStream(view.tensor, view.about, _STATISTICS)
    stream.only = set(steps[::-1][:: max(1, -(-len(steps) // most))])
    return [details.plan(view.tensor, view.about), *(packet for packet, _, _ in stream.run(-1, None, lambda: False))]

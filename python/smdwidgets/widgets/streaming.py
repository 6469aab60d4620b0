"""Stream the frames of one tensor, nearest steps first."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np

from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures import details
from smdwidgets.pictures.edges import Bins, SharedEdges
from smdwidgets.pictures.frames import Frame, Wanted, make_frame, pack_frames
from smdwidgets.pictures.packet import LARGEST, LARGEST_STEP
from smdwidgets.pictures.view import TensorView

_FEW = 8
"""Steps in the second packet. The first has only the displayed step, so that it appears before the others are ready."""

_LARGE = 1 << 16
"""Elements from which on frames are computed by several threads."""

makers = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="smdwidgets-frames")
"""Threads that compute frames. They are separate from those that answer requests, which wait for frames."""


class FrameStream:
    """The frames of a page's most recent request for one role."""

    def __init__(self, view: TensorView, about: dict[str, Any], wanted: Wanted, bins: Bins | None = None) -> None:
        self.view = view
        self.about = about
        self.wanted = wanted
        #: Histogram bins shared by all steps; None if each step has separate bins.
        self.bins = bins
        #: The steps to send; None for all.
        self.only: set[int] | None = None
        self._edition = 1
        self._sent = 0
        #: The last step sent; later steps are new.
        self._last: int | None = None
        self._lock = threading.Lock()

    def plan(self) -> bytes:
        """Return the packet that precedes all frames.

        It contains what is known of the tensor before any frame is computed.
        """
        return details.plan(self.view, self.about)

    def run(self, near: int, after: Any, cancelled: Callable[[], bool]) -> Iterator[tuple[bytes, int, int]]:
        """Yield each packet with the number of steps sent so far and their total."""
        steps = self.view.steps_shown()
        wanted = [step for step in steps if after is None or step > int(after)]
        if self.only is not None:
            wanted = [step for step in wanted if step in self.only]
        order = nearest_first(wanted, near)
        done = 0
        for batch in self._batches(order, self.view.steps(), cancelled):
            for packet in batch:
                done = self._sent
                yield packet, min(done, len(order)), len(order)
        if not order:  # the page has all steps; later ones are new
            self._last = -1 if after is None else int(after)

    def updates(self) -> Iterator[bytes]:
        """Yield packets of new steps as they are computed.

        If the bins no longer fit, all steps are sent again.
        """
        with self._lock:
            if self._last is None:
                return
            try:
                steps, saved = self.view.steps_shown(), self.view.steps()
            except SMDebugError:
                return
            shown = self._edition
            edges, edition = self._bin_edges()
            for frames in self._frame_batches(steps[bisect_right(steps, self._last) :], saved, edges):
                if self.bins is not None and any(_exceeds_edges(edges, frame) for frame in frames):
                    self.bins.recompute(edition)
                    break
                if edition == shown:
                    yield from self._packets(frames, edges, edition)
            # Another stream may have changed the shared bins, too.
            edges, edition = self._bin_edges()
            if edition != shown:
                for frames in self._frame_batches(steps, saved, edges):
                    yield from self._packets(frames, edges, edition)

    # ---------------------------------------------------------------------------------------------------------- details

    def _batches(
        self, order: Sequence[int], saved: Sequence[int], cancelled: Callable[[], bool]
    ) -> Iterator[list[bytes]]:
        if not order or cancelled():
            return
        edges, edition = self._bin_edges()
        first = self._make(order[0], saved, edges)
        yield self._packets([first], edges, edition)
        # Threads gain time where the work is outside of the interpreter, which of a small value it is not.
        each = makers.map if prod(first.shape) >= _LARGE else map
        at, size = 1, _FEW
        while at < len(order):
            made = each(lambda step: None if cancelled() else self._make(step, saved, edges), order[at : at + size])
            batch = [frame for frame in made if frame is not None]
            if cancelled():
                return
            yield self._packets(batch, edges, edition)
            at += size
            size = min(size * 2, _frames_per_packet(batch))

    def _bin_edges(self) -> tuple[SharedEdges | None, int]:
        return (None, 1) if self.bins is None else self.bins.current()

    def _make(self, step: int, saved: Sequence[int], edges: SharedEdges | None) -> Frame:
        at = bisect_left(saved, step)
        return make_frame(self.view, step, self.wanted, edges, saved[at - 1] if at else None)

    def _frame_batches(
        self, order: Sequence[int], saved: Sequence[int], edges: SharedEdges | None
    ) -> Iterator[list[Frame]]:
        """Yield batches of frames that fit into one message."""
        at, size = 0, _FEW
        while at < len(order):
            frames = [self._make(step, saved, edges) for step in order[at : at + size]]
            yield frames
            at += size
            size = min(size * 2, _frames_per_packet(frames))

    def _packets(self, frames: Sequence[Frame], edges: SharedEdges | None, edition: int) -> list[bytes]:
        self._edition = edition
        packets = []
        for group in _same_shape(frames):
            packets.append(pack_frames(self.about, group, self.wanted, edges, edition))
            self._sent += len(group)
            newest = max(frame.step for frame in group)
            self._last = newest if self._last is None else max(self._last, newest)
        return packets


def _exceeds_edges(edges: SharedEdges | None, frame: Frame) -> bool:
    if edges is None:  # no step had a finite number so far
        return frame.hist is not None and bool(frame.hist.any())
    return edges.outgrown_by(float(frame.stats[0]), float(frame.stats[1]))


def chosen_steps(steps: Sequence[int], request: Mapping[str, Any]) -> set[int] | None:
    """Return the steps that a request asks for; None for all.

    >>> sorted(chosen_steps(range(100), {"most": 5, "near": 33}))
    [0, 25, 33, 50, 74, 99]
    >>> chosen_steps(range(4), {"most": 5, "near": 0}) is None
    True
    """
    if "steps" in request:
        return {int(step) for step in request["steps"]}
    if "most" not in request:
        return None
    begin, end = bisect_left(steps, request.get("from", -1)), bisect_right(steps, request.get("to", LARGEST_STEP))
    count = max(1, int(request["most"]))
    if begin == 0 and end == len(steps) <= count:
        return None
    places = np.unique(np.linspace(begin, max(begin, end - 1), count).round().astype(int))
    chosen = {steps[place] for place in places.tolist() if place < len(steps)}
    return chosen | set(nearest_first(steps, int(request["near"]))[:1])


def nearest_first(steps: Sequence[int], near: int) -> list[int]:
    """Order steps by their distance from the slider.

    If ``near`` is negative, the latest steps come first.

    >>> nearest_first([0, 10, 20, 30], 20)
    [20, 10, 30, 0]
    """
    if near < 0:
        return list(reversed(steps))
    right = bisect_left(steps, near)
    left = right - 1
    order: list[int] = []
    while left >= 0 or right < len(steps):
        # Measure distance by rank, because a slider moves from one saved step to the next.
        if right < len(steps):
            order.append(steps[right])
            right += 1
        if left >= 0:
            order.append(steps[left])
            left -= 1
    return order


def _frames_per_packet(frames: Sequence[Frame]) -> int:
    """Return how many frames of this size fit into half the maximum message size."""
    largest = 1
    for frame in frames:
        size = frame.stats.nbytes + frame.counts.nbytes + 200
        size += 0 if frame.image is None else frame.image.codes.nbytes
        for section in (frame.percentiles, frame.edges, frame.hist):
            size += 0 if section is None else section.nbytes
        largest = max(largest, size)
    return max(1, LARGEST // 2 // largest)


def _same_shape(frames: Sequence[Frame]) -> list[list[Frame]]:
    """Split frames into consecutive groups of one image shape.

    All images in a packet have the same size.

    Frames without an image fit into any group.
    """
    groups: list[list[Frame]] = []
    shape: tuple[int, ...] | None = None
    for frame in frames:
        image_shape = frame.shape if frame.image is not None else shape
        if not groups or (shape is not None and image_shape != shape):
            groups.append([])
        groups[-1].append(frame)
        shape = image_shape
    return groups

"""Frames of one tensor, sent nearest steps first, and those of new steps as they come."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures import details
from smdwidgets.pictures.edges import Bins, SharedEdges
from smdwidgets.pictures.frames import Frame, Wanted, make_frame, pack_frames
from smdwidgets.pictures.packet import LARGEST
from smdwidgets.pictures.view import TensorView

_FEW = 8
"""Steps in the second packet. The first has but the one in view: a picture must be there long before all of them are."""

makers = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="smdwidgets-frames")
"""Where frames are made: apart from where questions are answered, which wait for these."""


class FrameStream:
    """The frames that one page asked for last, of one role."""

    def __init__(self, view: TensorView, about: dict[str, Any], wanted: Wanted, bins: Bins | None = None) -> None:
        self.view = view
        self.about = about
        self.wanted = wanted
        #: In which all steps are counted; without them each step has its own.
        self.bins = bins
        #: Steps to be shown, where not all are.
        self.only: set[int] | None = None
        self._edition = 1
        self._sent = 0
        #: The newest step sent: what comes after it is news.
        self._last: int | None = None
        self._lock = threading.Lock()

    def plan(self) -> bytes:
        """What is known before any frame is made."""
        return details.plan(self.view, self.about)

    def run(self, near: int, after: Any, cancelled: Callable[[], bool]) -> Iterator[tuple[bytes, int, int]]:
        """Packets with how many steps they bring it to, of how many."""
        steps = self.view.steps()
        wanted = [step for step in steps if after is None or step > int(after)]
        if self.only is not None:
            wanted = [step for step in wanted if step in self.only]
        order = nearest_first(wanted, near)
        done = 0
        for batch in self._batches(order, steps, cancelled):
            for packet in batch:
                done = self._sent
                yield packet, min(done, len(order)), len(order)

    def news(self) -> Iterator[bytes]:
        """Packets of the steps that came since, as they are made; all steps anew where the bins no longer fit."""
        with self._lock:
            if self._last is None:
                return
            try:
                steps = self.view.steps()
            except SMDebugError:
                return
            shown = self._edition
            edges, edition = self._laid()
            for frames in self._made(steps[bisect_right(steps, self._last) :], steps, edges):
                if self.bins is not None and any(_outgrown(edges, frame) for frame in frames):
                    self.bins.lay_anew(edition)
                    break
                if edition == shown:
                    yield from self._packets(frames, edges, edition)
            # Bins that are shared may have been laid anew for another's sake, too.
            edges, edition = self._laid()
            if edition != shown:
                for frames in self._made(steps, steps, edges):
                    yield from self._packets(frames, edges, edition)

    # ---------------------------------------------------------------------------------------------------------- details

    def _batches(
        self, order: Sequence[int], steps: Sequence[int], cancelled: Callable[[], bool]
    ) -> Iterator[list[bytes]]:
        if not order or cancelled():
            return
        edges, edition = self._laid()
        yield self._packets([self._make(order[0], steps, edges)], edges, edition)
        at, size = 1, _FEW
        while at < len(order):
            made = makers.map(
                lambda step: None if cancelled() else self._make(step, steps, edges), order[at : at + size]
            )
            batch = [frame for frame in made if frame is not None]
            if cancelled():
                return
            yield self._packets(batch, edges, edition)
            at += size
            size = min(size * 2, _steps_a_packet(batch))

    def _laid(self) -> tuple[SharedEdges | None, int]:
        return (None, 1) if self.bins is None else self.bins.laid()

    def _make(self, step: int, steps: Sequence[int], edges: SharedEdges | None) -> Frame:
        at = bisect_left(steps, step)
        return make_frame(self.view, step, self.wanted, edges, steps[at - 1] if at else None)

    def _made(self, order: Sequence[int], steps: Sequence[int], edges: SharedEdges | None) -> Iterator[list[Frame]]:
        """Frames of these steps, never more of them at once than a message takes."""
        at, size = 0, _FEW
        while at < len(order):
            frames = [self._make(step, steps, edges) for step in order[at : at + size]]
            yield frames
            at += size
            size = min(size * 2, _steps_a_packet(frames))

    def _packets(self, frames: Sequence[Frame], edges: SharedEdges | None, edition: int) -> list[bytes]:
        self._edition = edition
        packets = []
        for group in _same_shape(frames):
            packets.append(pack_frames(self.about, group, self.wanted, edges, edition))
            self._sent += len(group)
            newest = max(frame.step for frame in group)
            self._last = newest if self._last is None else max(self._last, newest)
        return packets


def _outgrown(edges: SharedEdges | None, frame: Frame) -> bool:
    if edges is None:  # no step had a finite number so far
        return frame.hist is not None and bool(frame.hist.any())
    return edges.misses(float(frame.stats[0]), float(frame.stats[1]))


def nearest_first(steps: Sequence[int], near: int) -> list[int]:
    """The steps by their distance from where the slider stands; the latest first where it stands nowhere.

    >>> nearest_first([0, 10, 20, 30], 20)
    [20, 10, 30, 0]
    """
    if near < 0:
        return list(reversed(steps))
    right = bisect_left(steps, near)
    left = right - 1
    order: list[int] = []
    while left >= 0 or right < len(steps):
        # By rank, not by number: a slider moves from one saved step to the next.
        if right < len(steps):
            order.append(steps[right])
            right += 1
        if left >= 0:
            order.append(steps[left])
            left -= 1
    return order


def _steps_a_packet(frames: Sequence[Frame]) -> int:
    """How many frames like these fit into a message, with room to spare."""
    largest = 1
    for frame in frames:
        size = frame.stats.nbytes + frame.counts.nbytes + 200
        size += 0 if frame.image is None else frame.image.codes.nbytes
        for section in (frame.percentiles, frame.edges, frame.hist):
            size += 0 if section is None else section.nbytes
        largest = max(largest, size)
    return max(1, LARGEST // 2 // largest)


def _same_shape(frames: Sequence[Frame]) -> list[list[Frame]]:
    """Runs of frames of one shape, those without a picture wherever they come: a packet holds images of one size."""
    groups: list[list[Frame]] = []
    shape: tuple[int, ...] | None = None
    for frame in frames:
        mine = frame.shape if frame.image is not None else shape
        if not groups or (shape is not None and mine != shape):
            groups.append([])
        groups[-1].append(frame)
        shape = mine
    return groups

"""Frames of one tensor, sent nearest steps first, and those of new steps as they come."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures import details
from smdwidgets.pictures.edges import SharedEdges, shared_edges
from smdwidgets.pictures.frames import Frame, Wanted, make_frame, pack_frames
from smdwidgets.pictures.packet import LARGEST
from smdwidgets.pictures.view import TensorView

_FEW = 8
"""Steps in the second packet. The first has but the one in view: a picture must be there long before all of them are."""

makers = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="smdwidgets-frames")
"""Where frames are made: apart from where questions are answered, which wait for these."""


class FrameStream:
    """The frames that one page asked for last, of one role."""

    def __init__(self, view: TensorView, about: dict[str, Any], question: dict[str, Any]) -> None:
        self.view = view
        self.about = about
        self.wanted = Wanted.from_json(question.get("want") or {})
        self.edition = 1
        #: Steps to be shown, where not all are.
        self.only: set[int] | None = None
        self._edges: SharedEdges | None = None
        self._laid = False
        self._sent: set[int] = set()
        self._lock = threading.Lock()
        self._laying = threading.Lock()

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
            for packet in self._packets(batch):
                done = len(self._sent)
                yield packet, min(done, len(order)), len(order)

    def news(self) -> list[bytes]:
        """Packets of the steps that came since; all of them anew where the bins no longer fit."""
        with self._lock:
            if not self._sent:
                return []
            try:
                steps = self.view.steps()
            except SMDebugError:
                return []
            fresh = [step for step in steps if step > max(self._sent)]
            if not fresh:
                return []
            self._lay(steps)
            frames = [self._make(step, steps) for step in fresh]
            packets: list[bytes] = []
            if self._edges is not None and any(self._edges.misses(f.stats[0], f.stats[1]) for f in frames):
                self._laid = False
                self.edition += 1
                self._lay(steps)
                frames = [self._make(step, steps) for step in steps]
        for batch in _cut(frames):
            packets += self._packets(batch)
        return packets

    # ---------------------------------------------------------------------------------------------------------- details

    def _batches(
        self, order: Sequence[int], steps: Sequence[int], cancelled: Callable[[], bool]
    ) -> Iterator[list[Frame]]:
        if not order or cancelled():
            return
        self._lay(steps)
        batch = [self._make(order[0], steps)]
        yield batch
        at, size = 1, _FEW
        while at < len(order):
            self._lay(steps)
            made = makers.map(lambda step: None if cancelled() else self._make(step, steps), order[at : at + size])
            batch = [frame for frame in made if frame is not None]
            if cancelled():
                return
            yield batch
            at += size
            size = min(size * 2, _steps_a_packet(batch))

    def _lay(self, steps: Sequence[int]) -> None:
        """Lay the edges that all steps share, once."""
        histogram = self.wanted.histogram
        with self._laying:
            if histogram is not None and histogram.edges == "shared" and not self._laid:
                self._edges = shared_edges(self.view, list(steps), histogram.scale, histogram.bins)
                self._laid = True

    def _make(self, step: int, steps: Sequence[int]) -> Frame:
        at = bisect_left(steps, step)
        return make_frame(self.view, step, self.wanted, self._edges, steps[at - 1] if at else None)

    def _packets(self, frames: Sequence[Frame]) -> list[bytes]:
        packets = []
        for group in _same_shape(frames):
            packets.append(pack_frames(self.about, group, self.wanted, self._edges, self.edition))
            self._sent.update(frame.step for frame in group)
        return packets


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


def _cut(frames: list[Frame]) -> list[list[Frame]]:
    size = _steps_a_packet(frames)
    return [frames[at : at + size] for at in range(0, len(frames), size)]


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

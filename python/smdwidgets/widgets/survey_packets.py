"""Pack the bins of a survey for the browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.packet import LARGEST, LARGEST_STEP, pack
from smdwidgets.survey import Survey
from smdwidgets.survey.bins import CENTRED, DOMAINS, FIRED, Bins, codes, level_of

#: Largest number of bins of a packet for the whole run, and of an answer, which has a margin on each side.
BINS, MOST_BINS = 1024, 4096
#: Bytes of a poster.
POSTER = 700_000
#: Bins below which a poster is useless. A run of very many tensors has a poster of so many, up to a larger size.
_FEWEST_BINS = 32
_LARGEST_POSTER = 8 << 20
#: Bytes of a bin, and of a bin of a poster.
_BIN, _SHOWN = 9, 2

#: Steps at which rules fired, by tensor.
Fired = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Colour:
    """What the map shows: a statistic, of a worker and mode."""

    worker: str = ""
    mode: str = ""
    stat: str = "growth"

    @property
    def mode_number(self) -> int:
        """Number of the mode; 0: all."""
        return ModeKeys[self.mode].value if self.mode else 0


@dataclass(frozen=True)
class Window:
    """Tensors and bins to pack."""

    #: Index of each tensor in all names sent, by name.
    tensors: Mapping[str, int]
    level: int
    first: int
    count: int

    def since(self, step: int) -> Window | None:
        """Return the part from the bin of a step on."""
        skipped = max(0, (step >> self.level) - self.first)
        if skipped >= self.count:
            return None
        return Window(self.tensors, self.level, self.first + skipped, self.count - skipped)


def whole(survey: Survey, tensors: Mapping[str, int], bins: int = BINS) -> Window | None:
    """Return the window of all steps, or None if there is none."""
    ends = survey.steps()
    if ends is None or not tensors:
        return None
    first, last = ends[0], min(ends[1], LARGEST_STEP)
    level = max(level_of(first, last, bins), survey.level)
    return Window(tensors, level, first >> level, (last >> level) - (first >> level) + 1)


def poster_window(survey: Survey, tensors: Mapping[str, int], room: int = POSTER) -> Window | None:
    """Return the window of a poster of all steps that is not too large, or None."""
    size = _SHOWN * max(1, len(tensors))
    bins = min(BINS, room // size)
    if bins < _FEWEST_BINS and room >= POSTER and _FEWEST_BINS * size <= _LARGEST_POSTER:
        bins = _FEWEST_BINS
    return whole(survey, tensors, bins) if bins >= _FEWEST_BINS else None


def poster(run: int, survey: Survey, colour: Colour, window: Window, fired: Fired, append: bool) -> bytes:
    """Return a packet with one value per bin: the farthest from its row's usual one."""
    bins = _bins(survey, colour, window, fired)
    shown = codes(bins.farthest(colour.stat), colour.stat) >> 8
    if colour.stat in CENTRED:  # the first steps have nothing to compare with, but were saved
        shown[(shown == 0) & (bins.n > 0)] = 128
    arrays: dict[str, NDArray[Any]] = {"tensor": _indices(window), "shown": shown.astype(np.uint8), "flag": bins.flag}
    return pack(_head(run, survey, colour, window, append), arrays)


def detail(run: int, survey: Survey, colour: Colour, window: Window, fired: Fired, append: bool) -> Iterator[bytes]:
    """Yield packets of limited size with everything that is known of the bins."""
    rows = max(1, LARGEST // 2 // (_BIN * window.count))
    names = list(window.tensors)
    if len(names) > rows:
        asked = colour.worker, colour.mode_number, colour.stat
        survey.table.read_ahead(names, *asked, window.level, window.first, window.count)
    for begin in range(0, len(names), rows):
        part = {name: window.tensors[name] for name in names[begin : begin + rows]}
        yield _detail(run, survey, colour, Window(part, window.level, window.first, window.count), fired, append)
        append = True


def in_room(run: int, survey: Survey, stat: str, tensors: Mapping[str, int], fired: Fired, room: int) -> list[bytes]:
    """Return posters of all statistics, and details of the first ones that fit."""
    small, large = poster_window(survey, tensors, room), whole(survey, tensors)
    if small is None or large is None:
        return []
    size, full = (_SHOWN * len(tensors) * small.count, _BIN * len(tensors) * large.count)
    # The statistic in view is exact before others have a poster.
    others = max(0, room - (full if full <= room else size)) // size
    stats = tuple(dict.fromkeys((stat, *DOMAINS)))[: 1 + others]
    room -= size * len(stats)
    packets: list[bytes] = []
    for each in stats:
        colour, append = Colour(stat=each), bool(packets)
        if full - size <= room:
            room -= full - size
            packets += detail(run, survey, colour, large, fired, append)
        else:
            packets.append(poster(run, survey, colour, small, fired, append))
    return packets


def _detail(run: int, survey: Survey, colour: Colour, window: Window, fired: Fired, append: bool) -> bytes:
    bins = _bins(survey, colour, window, fired)
    arrays = {name: codes(getattr(bins, name), colour.stat) for name in ("lo", "mid", "hi")}
    n = np.minimum(bins.n, 65535).astype(np.uint16)
    head = _head(run, survey, colour, window, append)
    return pack(head, {"tensor": _indices(window), **arrays, "n": n, "flag": bins.flag})


def _head(run: int, survey: Survey, colour: Colour, window: Window, append: bool) -> dict[str, Any]:
    about = {"worker": colour.worker, "mode": colour.mode, "stat": colour.stat}
    place = {"level": window.level, "first": window.first, "edition": survey.edition, "append": append}
    limit = {"limit": survey.table.growth_limit()} if colour.stat == "growth" else {}
    return {"kind": "survey", "run": run, **about, **place, **limit}


def _indices(window: Window) -> NDArray[np.uint32]:
    return np.fromiter(window.tensors.values(), np.uint32, len(window.tensors))


def _bins(survey: Survey, colour: Colour, window: Window, fired: Fired) -> Bins:
    names: Sequence[str] = list(window.tensors)
    level, first, count = window.level, window.first, window.count
    bins = survey.bins(names, colour.worker, colour.mode_number, colour.stat, level, first, count)
    for row, name in enumerate(names if fired else ()):
        if name in fired:
            places = (fired[name] >> level) - first
            bins.flag[row, places[(places >= 0) & (places < count)]] |= FIRED
    return bins

"""Answer where two runs of a widget part."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from smdwidgets._text import capitalized
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.pictures.overview import shown_name
from smdwidgets.pictures.packet import LARGEST_STEP, pack
from smdwidgets.trials.bisection import bisect
from smdwidgets.trials.divergence import Divergence
from smdwidgets.trials.trial import Trial
from smdwidgets.widgets.open_runs import run_at
from smdwidgets.widgets.reply import Handler, Reply

__all__ = ["Partings"]

_AT_ONCE = threading.Lock()
"""Held while two runs are compared: all their steps may be read, and pictures must not wait for several comparisons."""


class Partings:
    """Compares runs, and keeps the answers until a run grows. Thread-safe."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials
        self._answers: dict[tuple[int, int], tuple[Any, bytes]] = {}
        #: By name of the request.
        self.handlers: dict[str, Handler] = {"bisect": self._bisect}

    def packets(self) -> list[bytes]:
        """Return the answers, for a page that is saved."""
        return [packet for _, packet in list(self._answers.values())]

    def start_over(self) -> None:
        """Drop what was made of an earlier run."""
        self._answers.clear()

    def _bisect(self, request: dict[str, Any], reply: Reply) -> None:
        numbers = int(request["a"]), int(request["b"])
        a, b = (run_at(self._trials, number) for number in numbers)
        version = [(one.restarts, len(one.steps(show_incomplete_steps=True))) for one in (a, b)]
        kept = self._answers.get(numbers)
        if kept is None or kept[0] != version:
            while not _AT_ONCE.acquire(timeout=0.1):
                reply.check()
            divergence: Divergence | str
            try:
                divergence = bisect(a.reader, b.reader, progress=reply.progress)
            except SMDebugValueError as error:  # the runs have nothing in common
                divergence = str(error)
            finally:
                _AT_ONCE.release()
            kept = self._answers[numbers] = version, pack(_head(*numbers, divergence))
        reply.answer([kept[1]])


def _head(a: int, b: int, divergence: Divergence | str) -> dict[str, Any]:
    head = {"kind": "divergence", "a": a, "b": b, "step": None, "tensor": "", "text": "", "meaning": ""}
    first = None if isinstance(divergence, str) else divergence.first
    if first is None or first.step > LARGEST_STEP:
        return head | {"text": capitalized(str(divergence).partition("\n")[0])}
    return head | {
        "step": first.step,
        "tensor": shown_name(first.tensor),
        "text": f"First difference{'' if first.exact else ' seen'} at {first}",
        "meaning": first.meaning,
    }

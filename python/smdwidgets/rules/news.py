"""Deliver rule events to listeners, by callback or as a stream."""

from __future__ import annotations

import logging
import queue
import weakref
from collections.abc import Callable, Iterator

from smdwidgets.rules.evaluation import RuleEvent

__all__ = ["Listener", "News"]

_log = logging.getLogger("smdwidgets.rules")

Listener = Callable[[RuleEvent], object]
#: Interval in seconds at which streams check whether the runner is idle.
LOOK_EVERY = 0.2
#: Marks that the runner became idle; not a rule event.
_IDLE = RuleEvent("", None, "idle")


class News:
    """Listeners and streams of a runner's events."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        # Weak references, so that abandoned streams are freed.
        self._streams: weakref.WeakSet[queue.SimpleQueue[RuleEvent]] = weakref.WeakSet()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a function with every event. Returns a function that unsubscribes."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def tell(self, event: RuleEvent) -> None:
        """Deliver an event. An exception in a listener is logged and not propagated."""
        for stream in list(self._streams):
            stream.put(event)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:
                _log.exception("a listener for rule events failed")

    def idle(self) -> None:
        """Notify streams that the runner is idle."""
        for stream in list(self._streams):
            stream.put(_IDLE)

    def stream(self, at_rest: Callable[[], bool], timeout: float | None) -> Iterator[RuleEvent]:
        """Yield events until the runner is idle or no event arrives for `timeout` seconds."""
        # Register the queue now, not at the first `next`, so that events in between are not lost.
        events: queue.SimpleQueue[RuleEvent] = queue.SimpleQueue()
        self._streams.add(events)
        return self._each(events, at_rest, timeout)

    def _each(
        self, events: queue.SimpleQueue[RuleEvent], at_rest: Callable[[], bool], timeout: float | None
    ) -> Iterator[RuleEvent]:
        waited = 0.0
        try:
            while True:
                try:
                    event = events.get(timeout=LOOK_EVERY)
                except queue.Empty:
                    waited += LOOK_EVERY
                    if at_rest() or (timeout is not None and waited >= timeout):
                        return
                    continue
                waited = 0.0
                if event is not _IDLE:
                    yield event
                elif at_rest() and events.empty():
                    return
        finally:
            self._streams.discard(events)

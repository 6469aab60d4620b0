"""Deliver rule events to listeners, by callback or as a stream."""

from __future__ import annotations

import logging
import queue
import weakref
from collections.abc import Callable, Iterator

from smdwidgets.rules.evaluation import RuleEvent

__all__ = ["EventPublisher", "Listener"]

_log = logging.getLogger("smdwidgets.rules")

Listener = Callable[[RuleEvent], object]
#: Interval in seconds at which streams check whether the runner is idle.
IDLE_CHECK_INTERVAL = 0.2
#: Marks that the runner became idle; not a rule event.
_IDLE = RuleEvent("", None, "idle")


class EventPublisher:
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

    @property
    def has_listeners(self) -> bool:
        """Whether anyone receives events."""
        return bool(self._listeners or len(self._streams))

    def publish(self, event: RuleEvent) -> None:
        """Deliver an event. An exception in a listener is logged and not propagated."""
        for stream in list(self._streams):
            stream.put(event)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:
                _log.exception("a listener for rule events failed")

    def publish_idle(self) -> None:
        """Notify streams that the runner is idle."""
        for stream in list(self._streams):
            stream.put(_IDLE)

    def stream(self, is_idle: Callable[[], bool], timeout: float | None) -> Iterator[RuleEvent]:
        """Yield events until the runner is idle or no event arrives for `timeout` seconds."""
        # Register the queue now, not at the first `next`, so that events in between are not lost.
        events: queue.SimpleQueue[RuleEvent] = queue.SimpleQueue()
        self._streams.add(events)
        return self._each(events, is_idle, timeout)

    def _each(
        self, events: queue.SimpleQueue[RuleEvent], is_idle: Callable[[], bool], timeout: float | None
    ) -> Iterator[RuleEvent]:
        waited = 0.0
        try:
            while True:
                try:
                    event = events.get(timeout=IDLE_CHECK_INTERVAL)
                except queue.Empty:
                    waited += IDLE_CHECK_INTERVAL
                    if is_idle() or (timeout is not None and waited >= timeout):
                        return
                    continue
                waited = 0.0
                if event is not _IDLE:
                    yield event
                elif is_idle() and events.empty():
                    return
        finally:
            self._streams.discard(events)

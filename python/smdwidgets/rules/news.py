"""Events on their way to those who listen: by calls, or as a stream."""

from __future__ import annotations

import logging
import queue
import weakref
from collections.abc import Callable, Iterator

from smdwidgets.rules.evaluation import RuleEvent

__all__ = ["Listener", "News"]

_log = logging.getLogger("smdwidgets.rules")

Listener = Callable[[RuleEvent], object]
#: Streams look so often whether the runner has come to rest.
LOOK_EVERY = 0.2
#: Tells streams that nothing more will come for now.
_IDLE = RuleEvent("", None, "idle")


class News:
    """Who listens to a runner."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        # Weak: a stream that nobody holds any more collects nothing.
        self._streams: weakref.WeakSet[queue.SimpleQueue[RuleEvent]] = weakref.WeakSet()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have a function called with every event. Returns what ends it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def tell(self, event: RuleEvent) -> None:
        """Pass an event on. A listener that fails is logged, and harms nobody else."""
        for stream in list(self._streams):
            stream.put(event)
        for listener in list(self._listeners):
            try:
                listener(event)
            except Exception:
                _log.exception("A listener to rules failed.")

    def idle(self) -> None:
        """The runner has come to rest."""
        for stream in list(self._streams):
            stream.put(_IDLE)

    def stream(self, at_rest: Callable[[], bool], timeout: float | None) -> Iterator[RuleEvent]:
        """Events from now on, until the runner is at rest, or there was none for `timeout` seconds."""
        # Begins to collect now, not when the first event is asked for.
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

"""The kernel's side of a widget: every question of the browser is answered once, and news is told unasked."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures import details
from smdwidgets.pictures.edges import Bins
from smdwidgets.pictures.frames import Wanted
from smdwidgets.pictures.overview import SHOWN_NAME, Told, overview, predicament
from smdwidgets.pictures.packet import LARGEST
from smdwidgets.pictures.view import TensorView
from smdwidgets.trials.trial import Trial
from smdwidgets.widgets.lines import Line, Lines
from smdwidgets.widgets.name_search import search_names
from smdwidgets.widgets.outbox import Outbox, Send
from smdwidgets.widgets.pulse import pulse, workers
from smdwidgets.widgets.rule_desk import RuleDesk
from smdwidgets.widgets.streaming import FrameStream
from smdwidgets.widgets.turns import quick_turns

logger = logging.getLogger("smdwidgets.widgets")

PROTOCOL = 1
HEARTBEAT = 2.0
BINS_KEPT = 8
"""Sets of bins that are kept: who asks again, or for what is compared, gets the same."""


class Cancelled(Exception):
    """The browser no longer waits for this answer."""


class Reply:
    """The way back to one question."""

    def __init__(self, outbox: Outbox, question_id: str, cancelled: threading.Event) -> None:
        self._outbox = outbox
        self._id = question_id
        self.cancelled = cancelled

    def part(self, packets: Sequence[bytes]) -> None:
        """Some of the answer; raises :class:`Cancelled` where nobody waits any more."""
        self._check()
        for group in grouped(packets):
            self._outbox.post({"kind": "part", "id": self._id}, group)

    def progress(self, done: int, total: int) -> None:
        """How far the answer is."""
        self._check()
        self._outbox.post({"kind": "progress", "id": self._id, "done": done, "total": total})

    def answer(self, packets: Sequence[bytes] = (), **words: Any) -> None:
        """The last word."""
        groups = list(grouped(packets)) or [[]]
        for group in groups[:-1]:
            self._outbox.post({"kind": "part", "id": self._id}, group)
        self._outbox.post({"kind": "answer", "id": self._id, **words}, groups[-1])

    def error(self, kind: str, message: str) -> None:
        """The last word, where there is no answer."""
        self._outbox.post({"kind": "error", "id": self._id, "error": {"type": kind, "message": message}})

    def _check(self) -> None:
        if self.cancelled.is_set():
            raise Cancelled


def grouped(packets: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Packets in groups that travel as one message each, as they come.

    >>> [len(group) for group in grouped([bytes(600_000), bytes(600_000), b""])]
    [1, 2]
    """
    group: list[bytes] = []
    size = 0
    for packet in packets:
        if group and size + len(packet) > LARGEST:
            yield group
            group, size = [], 0
        group.append(packet)
        size += len(packet)
    if group:
        yield group


class Conversation:
    """What one widget and its open pages say to each other. Safe to use from many threads."""

    def __init__(self, trials: Sequence[Trial], rules: RuleDesk | None, send: Send) -> None:
        self.trials = list(trials)
        self.rules = rules
        self._outbox = Outbox(send)
        self._lock = threading.Lock()
        self._asked: dict[str, threading.Event] = {}
        self._told = [Told(run) for run in range(len(self.trials))]
        self._streams: dict[str, FrameStream] = {}
        self._bins: dict[Any, Bins] = {}
        self._lines = Lines([])
        self._last_news = 0.0
        self._closed = threading.Event()
        self._answers: dict[str, Callable[[dict[str, Any], Reply], None]] = {
            "hello": self._hello,
            "frames": self._frames,
            "tile": self._tile,
            "values": self._values,
            "series": self._series,
            "rule": self._rule,
            "firing": self._firing,
            "classes": self._classes,
            "match": self._match,
        }

    # ------------------------------------------------------------------------------------------------- from the browser

    def heard(self, message: Any) -> None:
        """A message of the browser. Returns at once: the answer comes from elsewhere."""
        self._outbox.heard()
        if self._closed.is_set() or not isinstance(message, dict):
            return
        question_id = str(message.get("id", ""))[:100]
        if message.get("kind") == "cancel":
            with self._lock:
                cancelled = self._asked.get(question_id)
            if cancelled is not None:
                cancelled.set()
        elif message.get("kind") == "ask":
            cancelled = threading.Event()
            with self._lock:
                self._asked[question_id] = cancelled
            # From here on, and not from where a worker takes it up: until then it would wait as long again.
            with ExitStack() as turns:
                turns.enter_context(quick_turns)
                workers.submit(self._answer, question_id, message, cancelled, turns.pop_all())

    def _answer(self, question_id: str, question: dict[str, Any], cancelled: threading.Event, turns: ExitStack) -> None:
        reply = Reply(self._outbox, question_id, cancelled)
        try:
            if cancelled.is_set():
                raise Cancelled
            answer = self._answers.get(str(question.get("what")))
            if answer is None:
                raise ValueError(f"this kernel does not know the question {question.get('what')!r}; update smdwidgets")
            answer(question, reply)
        except Cancelled:
            reply.error("Cancelled", "a newer question took its place")
        except SMDebugError as error:
            reply.error(type(error).__name__, str(error))
        except Exception as error:  # whatever it is, the browser must not wait for ever
            logger.exception("the question %r failed", question.get("what"))
            reply.error(type(error).__name__, f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._asked.pop(question_id, None)
            turns.close()

    # ---------------------------------------------------------------------------------------------------------- answers

    def _hello(self, question: dict[str, Any], reply: Reply) -> None:
        # A page that opens, or opens again, knows nothing: it is told all.
        with self._lock:
            self._told = [Told(run) for run in range(len(self.trials))]
            told = list(self._told)
        for trial, knows in zip(self.trials, told, strict=True):
            reply.part(overview(trial, knows))
        rules = [] if self.rules is None else self.rules.everything()
        live = self._may_have_news()
        reply.answer(rules, live=self._outbox.way, heartbeat=HEARTBEAT if live else 0)
        if live:
            pulse.add(self)

    def _frames(self, question: dict[str, Any], reply: Reply) -> None:
        role = "compare" if question.get("role") == "compare" else "main"
        wanted = Wanted.from_json(question.get("want") or {})
        stream = FrameStream(self._view(question), self._about(question), wanted, self._bins_of(question, wanted))
        reply.part([stream.plan()])
        with self._lock:
            self._streams[role] = stream
        for packet, done, total in stream.run(
            int(question.get("near", -1)), question.get("after"), reply.cancelled.is_set
        ):
            reply.part([packet])
            reply.progress(done, total)
        if reply.cancelled.is_set():
            raise Cancelled
        reply.answer()

    def _bins_of(self, question: dict[str, Any], wanted: Wanted) -> Bins | None:
        """The bins of all steps, of the tensor itself or of those that are compared; they have the same ones."""
        histogram = wanted.histogram
        if histogram is None or histogram.edges != "shared":
            return None
        about = self._about(question)
        places = histogram.over or ((about["run"], about["worker"]),)
        key = (about["tensor"], frozenset(places), histogram.scale, histogram.bins)
        with self._lock:
            found = self._bins.pop(key, None)
            if found is None:
                views = [self._view({**about, "run": run, "worker": worker}) for run, worker in places]
                found = Bins(views, histogram.scale, histogram.bins)
            self._bins[key] = found
            while len(self._bins) > BINS_KEPT:
                self._bins.pop(next(iter(self._bins)))
        return found

    def _tile(self, question: dict[str, Any], reply: Reply) -> None:
        reply.answer([details.tile(self._view(question), int(question["step"]), question, self._about(question))])

    def _values(self, question: dict[str, Any], reply: Reply) -> None:
        reply.answer([details.values(self._view(question), int(question["step"]), question, self._about(question))])

    def _series(self, question: dict[str, Any], reply: Reply) -> None:
        asked = [line for line in question.get("lines", ()) if isinstance(line, dict)][:200]
        lines = Lines(
            [
                Line(self._view(line), str(line.get("stat", "value")), str(line.get("mode", "")), self._about(line))
                for line in asked
            ]
        )
        failed = []
        for number, (packet, wrong) in enumerate(lines.answer()):
            if packet is None:
                failed.append(wrong)
            else:
                reply.part([packet])
            reply.progress(number + 1, len(lines))
        # From now on they grow as news.
        with self._lock:
            self._lines = lines
        if failed and len(failed) == len(lines):
            raise SMDebugError(failed[0])
        reply.answer()

    def _rule(self, question: dict[str, Any], reply: Reply) -> None:
        desk = self._rules()
        desk.do(question)
        reply.answer(desk.everything())
        pulse.add(self)

    def _firing(self, question: dict[str, Any], reply: Reply) -> None:
        reply.answer(firings=self._rules().firings_at(str(question.get("rule")), int(question.get("step", -1))))

    def _classes(self, question: dict[str, Any], reply: Reply) -> None:
        reply.answer(classes=self._rules().classes())

    def _match(self, question: dict[str, Any], reply: Reply) -> None:
        number = int(question.get("run", 0) or 0)
        if not 0 <= number < len(self.trials):
            raise ValueError(f"there is no run number {number}")
        with self._lock:
            told = self._told[number]
        # Indices count the names in the order in which the page received them.
        names = [name[:SHOWN_NAME] for name in told.names]
        matches, total = search_names(str(question.get("pattern", "")), names, reply.cancelled.is_set)
        if reply.cancelled.is_set():
            raise Cancelled
        reply.answer(matches=matches, total=total)

    def _rules(self) -> RuleDesk:
        if self.rules is None:
            self.rules = RuleDesk(self.trials)
        return self.rules

    def _view(self, question: dict[str, Any]) -> TensorView:
        number = int(question.get("run", 0) or 0)
        if not 0 <= number < len(self.trials):
            raise ValueError(f"there is no run number {number}")
        trial, name = self.trials[number], str(question.get("tensor", ""))
        if len(name) >= SHOWN_NAME:  # the browser knows it by its beginning
            name = next((full for full in trial.tensor_names() if full.startswith(name)), name)
        return TensorView(trial, name, str(question.get("worker", "") or ""))

    @staticmethod
    def _about(question: dict[str, Any]) -> dict[str, Any]:
        return {
            "run": int(question.get("run", 0) or 0),
            "tensor": str(question.get("tensor", "")),
            "worker": str(question.get("worker", "") or ""),
        }

    # ------------------------------------------------------------------------------------------------------------- news

    def _may_have_news(self) -> bool:
        return any(not trial.loaded_all_steps for trial in self.trials) or (
            self.rules is not None and self.rules.active
        )

    def look(self) -> bool:
        """Tell what is new since the last look; whether there may be more."""
        if self._closed.is_set():
            return False
        said = False
        for group in grouped(self._news()):
            if self._closed.is_set():
                return False
            self._outbox.post({"kind": "news"}, group)
            said = True
        now = time.monotonic()
        if not said and now - self._last_news >= HEARTBEAT:
            self._outbox.post({"kind": "news"}, [])
            said = True
        if said:
            self._last_news = now
        return self._may_have_news()

    def _news(self) -> Iterator[bytes]:
        for trial, told in zip(self.trials, list(self._told), strict=True):
            yield from self._look_at(trial, told)
        with self._lock:
            streams, lines = list(self._streams.values()), self._lines
        try:
            for stream in streams:
                yield from stream.news()
            yield from lines.news(last=all(trial.loaded_all_steps for trial in self.trials))
        except Exception:  # the run's own news has told why, and must leave all the same
            logger.debug("looking for news failed", exc_info=True)
        if self.rules is not None:
            yield from self.rules.news()

    @staticmethod
    def _look_at(trial: Trial, told: Told) -> list[bytes]:
        try:
            place = Path(trial.path)
            if place.is_absolute() and not place.exists():
                # What has been read is still known, so that a refresh alone would find no fault.
                return predicament(trial, told, "gone", "its directory is no longer there")
            if not trial.loaded_all_steps:
                trial.maybe_refresh()
            return overview(trial, told)
        except FileNotFoundError as error:
            return predicament(trial, told, "gone", str(error))
        except (SMDebugError, OSError) as error:
            return predicament(trial, told, "error", str(error))
        except Exception as error:  # a trial of somebody's own may raise anything, and the page must hear of it
            packets = predicament(trial, told, "error", f"{type(error).__name__}: {error}")
            if packets:  # once, not with each look
                logger.exception("looking for news of %s failed", trial.path)
            return packets

    def boot(self) -> list[bytes]:
        """What a page can be told before it asks, small enough to be part of the widget's state."""
        packets = [packet for run, trial in enumerate(self.trials) for packet in overview(trial, Told(run))]
        return packets if sum(map(len, packets)) <= LARGEST else []

    def close(self) -> None:
        """Answer nothing more."""
        self._closed.set()
        with self._lock:
            for cancelled in self._asked.values():
                cancelled.set()
        self._outbox.close()

"""Handle the browser's requests, and push new data of live runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from smdwidgets._text import capitalized, shown
from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures.overview import SHOWN_NAME, SentState, nothing_sent, overview, status_packets
from smdwidgets.pictures.packet import LARGEST
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.trials.trial import Trial
from smdwidgets.widgets.command_requests import CommandRequests
from smdwidgets.widgets.live_diagnosis import LiveDiagnosis
from smdwidgets.widgets.live_replay import LiveReplay
from smdwidgets.widgets.live_survey import LiveSurvey
from smdwidgets.widgets.open_runs import opened, run_at
from smdwidgets.widgets.partings import Partings
from smdwidgets.widgets.poller import poller, workers
from smdwidgets.widgets.protocol import check_request, check_version
from smdwidgets.widgets.protocol import is_command as is_command_name
from smdwidgets.widgets.reply import Cancelled, Handler, Reply, fitting, grouped
from smdwidgets.widgets.rule_controller import RuleController
from smdwidgets.widgets.runs_packets import RunsPackets
from smdwidgets.widgets.send_queue import Send, SendQueue
from smdwidgets.widgets.tensor_requests import TensorRequests
from smdwidgets.widgets.thread_switch_interval import short_switch_interval

logger = logging.getLogger("smdwidgets.widgets")

HEARTBEAT = 2.0
WAIT_FOR_PAGE = 2.0
"""Seconds after which a displayed widget gets its first data without a request."""
PUSHED = "pushed-"
"""Prefix of the ids of replies without a request."""
REMEMBERED_IDS = 1000
"""Number of latest request ids that are known. A page can send a request twice."""


class RequestHandler:
    """Handles the requests of a widget's open pages. Thread-safe."""

    def __init__(
        self,
        trials: Sequence[Trial],
        rules: RuleController,
        send: Send,
        diagnosis: LiveDiagnosis | None = None,
        survey: LiveSurvey | None = None,
        runs: RunsPackets | None = None,
        replay: LiveReplay | None = None,
    ) -> None:
        self.trials = trials
        self.rules = rules
        self.diagnosis = diagnosis
        self.survey = survey
        self.replay = replay
        #: The table of runs, of which those that are used are open.
        self.runs = runs
        self._queue = SendQueue(send)
        self._tensors = TensorRequests(trials)
        #: Where two of the runs part.
        self.partings = Partings(trials)
        self._commands = CommandRequests(trials, rules, survey, runs, replay)
        self._lock = threading.Lock()
        #: Held while catalogs and surveys are made and posted: a page must receive them in this order, and numbers
        #: tensors as the catalogs do.
        self._in_order = threading.RLock()
        self._pending: dict[str, threading.Event] = {}
        self._ids: dict[str, None] = {}
        self._sent = nothing_sent(opened(self.trials))
        #: `Trial.restarts` of the runs of which the pages know.
        self._restarts = {number: trial.restarts for number, trial in opened(trials)}
        self._last_update = 0.0
        self._first_requests: Callable[[], list[dict[str, Any]]] | None = None
        self._page_due = 0.0
        self._greeted = False
        self._closed = threading.Event()
        self._handlers: dict[str, Handler] = {
            **self._tensors.handlers,
            **self.partings.handlers,
            **self._commands.handlers,
            "hello": self._hello,
            "survey": self._survey,
            "query": self._query,
            "open": self._open,
            "runs": self._runs,
            "firing": self._firing,
            "classes": self._classes,
        }

    # ------------------------------------------------------------------------------------------------- from the browser

    def handle_message(self, message: Any) -> None:
        """Handle a message from the browser.

        Replies are computed and sent by other threads.
        """
        self._queue.message_received()
        if self._closed.is_set() or not isinstance(message, dict):
            return
        request_id = str(message.get("id", ""))[:100]
        if message.get("kind") == "cancel":
            self._is_repeated(request_id)  # a copy of the request may arrive later
            with self._lock:
                cancelled = self._pending.get(request_id)
            if cancelled is not None:
                cancelled.set()
        elif message.get("kind") == "ask":
            cancelled = threading.Event()
            is_command = is_command_name(message.get("what"))
            if not is_command and self._is_repeated(request_id):
                return
            if not is_command:  # commands cannot be cancelled
                with self._lock:
                    self._pending[request_id] = cancelled
            # Enter here and not in the worker, which would otherwise wait for the GIL before it starts.
            with ExitStack() as interval:
                interval.enter_context(short_switch_interval)
                submit = self._commands.submit if is_command else workers.submit
                submit(self._answer, request_id, message, cancelled, interval.pop_all())

    def displayed(self, first_requests: Callable[[], list[dict[str, Any]]]) -> None:
        """Expect a page, and send it the replies to these requests if it sends none.

        A kernel without subshells handles no message while a cell runs.
        """
        if self.survey is not None:
            self.survey.check()
        if not self._greeted:
            self._first_requests = first_requests
            self._page_due = time.monotonic() + WAIT_FOR_PAGE
            poller.add(self)

    def _push_first_view(self) -> None:
        requests = self._first_requests() if self._first_requests is not None else []
        self._first_requests = None
        for number, request in enumerate(requests):
            cancelled = threading.Event()
            request_id = f"{PUSHED}{number}"
            with self._lock:
                self._pending[request_id] = cancelled
            workers.submit(self._answer, request_id, request, cancelled, ExitStack())

    def _is_repeated(self, request_id: str) -> bool:
        """Record a request id, and return whether it was known."""
        with self._lock:
            known = request_id != "" and request_id in self._ids
            self._ids[request_id] = None
            while len(self._ids) > REMEMBERED_IDS:
                self._ids.pop(next(iter(self._ids)))
        return known

    def _answer(
        self, request_id: str, request: dict[str, Any], cancelled: threading.Event, interval: ExitStack
    ) -> None:
        reply = Reply(self._queue, request_id, cancelled)
        try:
            if cancelled.is_set():
                raise Cancelled
            if request.get("what") == "hello":  # first, because another version may have other arguments
                check_version(request.get("protocol"))
            check_request(request)
            self._handlers[request["what"]](request, reply)
            if is_command_name(request["what"]):
                poller.add(self)  # it pushes what the command begins
        except Cancelled:
            reply.error("Cancelled", "superseded by a newer request")
        except SMDebugError as error:
            reply.error(type(error).__name__, str(error))
        except Exception as error:  # the browser must get a reply in any case
            logger.exception("request %r failed", request.get("what"))
            reply.error(type(error).__name__, f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._pending.pop(request_id, None)
            interval.close()

    # --------------------------------------------------------------------------------------------------------- requests

    def _hello(self, request: dict[str, Any], reply: Reply) -> None:
        # A page sends this when it opens or reloads. Send everything.
        with self._in_order:
            with self._lock:
                self._greeted = True
                self._first_requests = None
                for request_id, cancelled in self._pending.items():
                    if request_id.startswith(PUSHED):
                        cancelled.set()
                self._sent = nothing_sent(opened(self.trials))
                sent = dict(self._sent)
            if self.runs is not None:
                reply.part(self.runs.all())
            for number, trial in opened(self.trials):
                reply.part(overview(trial, sent[number]))
            if self.survey is not None:
                for packets in self.survey.opening(sent):
                    reply.part(packets)
        live = self._is_live()
        with self.rules.in_order():
            rules = self.rules.full_update()
            if self.diagnosis is not None:
                reply.part(self.diagnosis.packets())
            if self.replay is not None:
                reply.part(self.replay.packets())
            reply.answer(rules, live=self._queue.push_mode, heartbeat=HEARTBEAT if live else 0)
        poller.add(self)

    def _survey(self, request: dict[str, Any], reply: Reply) -> None:
        survey, sent = self._survey_and_names(request)
        reply.answer(survey.answer(request, sent))

    def _query(self, request: dict[str, Any], reply: Reply) -> None:
        survey, sent = self._survey_and_names(request)
        rows = survey.query(request, sent, lambda done, total: reply.check())
        reply.check()
        reply.answer(rows=rows)

    def _survey_and_names(self, request: dict[str, Any]) -> tuple[LiveSurvey, SentState]:
        if self.survey is None:
            raise SMDebugError("only an explorer has a survey")
        number = int(request["run"])
        with self._in_order, self._lock:
            return self.survey, self._sent.get(number, SentState(number))

    def _open(self, request: dict[str, Any], reply: Reply) -> None:
        number = int(request["run"])
        trial = run_at(self.trials, number)
        with self._in_order:
            with self._lock:
                sent = self._sent[number]
            reply.part(overview(trial, sent))
            if self.survey is not None:
                for packets in self.survey.opening({number: sent}):
                    reply.part(packets)
        if self.replay is not None:
            reply.part(self.replay.packets([number]))
        reply.answer(self.diagnosis.packets([number]) if self.diagnosis is not None else [])
        poller.add(self)

    def add(self, number: int, trial: Trial) -> None:
        """Add a run that was opened."""
        if self.survey is not None:
            self.survey.add(number, trial)
        if self.diagnosis is not None:
            self.diagnosis.add(number, trial)
        with self._lock:
            self._sent = {**nothing_sent(opened(self.trials)), **self._sent}
            self._restarts[number] = trial.restarts

    def _runs(self, request: dict[str, Any], reply: Reply) -> None:
        if self.runs is None:
            raise SMDebugError("this widget has no table of runs")
        for packet in self.runs.all(str(request["tag"])):
            reply.part([packet])
        reply.answer()

    def _firing(self, request: dict[str, Any], reply: Reply) -> None:
        reply.answer(firings=self.rules.firings_at(str(request.get("rule")), int(request.get("step", -1))))

    def _classes(self, request: dict[str, Any], reply: Reply) -> None:
        reply.answer(classes=self.rules.classes())

    # --------------------------------------------------------------------------------------------------------- updates

    def _is_live(self) -> bool:
        return any(not trial.loaded_all_steps for _, trial in opened(self.trials)) or self.rules.active

    def poll(self) -> bool:
        """Send what is new since the last poll; return whether more may follow.

        Another run can start in the directory of a run that has ended.
        """
        if self._closed.is_set():
            return False
        if self._first_requests is not None:
            if time.monotonic() < self._page_due:
                return True
            self._push_first_view()
        refreshed = [(number, trial, self._refresh(trial)) for number, trial in opened(self.trials)]
        with self._in_order:
            posted = self._post(self._updates(refreshed))
        with self.rules.in_order():
            posted |= self._post(self.rules.updates())
        if self.survey is not None:
            with self._in_order:
                with self._lock:
                    sent = dict(self._sent)
                posted |= self._post(self.survey.updates(sent))
                posted |= self._post(self.survey.judgements(sent))
            self.survey.check()
        if self.diagnosis is not None:
            # Its findings are joined with those of the survey, which a page has by now.
            with self.rules.in_order():
                posted |= self._post(self.diagnosis.updates())
        posted |= self._post(self.replay.updates() if self.replay is not None else [])
        # The first picture comes first.
        if self.diagnosis is not None and (self.survey is None or self.survey.has_collected):
            self.diagnosis.check()
        now = time.monotonic()
        live = self._is_live()
        if live and not posted and now - self._last_update >= HEARTBEAT:
            self._queue.post({"kind": "news"}, [])
            posted = True
        if posted:
            self._last_update = now
        return True

    def _post(self, packets: Iterable[bytes]) -> bool:
        """Post packets that no page asked for; return whether there are any."""
        posted = False
        for group in grouped(packets):
            self._queue.post({"kind": "news"}, group)
            posted = True
        return posted

    def _updates(self, refreshed: Iterable[tuple[int, Trial, Exception | None]]) -> Iterator[bytes]:
        if self.runs is not None:
            yield from self.runs.updates()
            self.runs.table.check()
        for number, trial, failure in refreshed:
            sent = self._sent.get(number)
            if sent is None:  # it is being opened
                continue
            packets = self._changes(trial, sent, failure)
            if sent.restarts != self._restarts.get(number):
                self._restarts[number] = sent.restarts
                self._start_over()
            yield from packets
        yield from self._tensors.updates()

    def _start_over(self) -> None:
        """Drop what was made of an earlier run; the page sends its requests again."""
        with self._lock:
            for cancelled in self._pending.values():
                cancelled.set()
        self._tensors.start_over()
        self.partings.start_over()
        self.rules.check_replaced()

    @staticmethod
    def _refresh(trial: Trial) -> Exception | None:
        """Look for new steps, which can take long in a store; return why that failed."""
        try:
            if trial.is_local and not Path(trial.path).exists():
                # A refresh alone would not fail, because data that was read before is still in memory.
                raise FileNotFoundError(_missing(trial))
            trial.maybe_refresh()
        except Exception as error:
            return error
        return None

    @staticmethod
    def _changes(trial: Trial, sent: SentState, failure: Exception | None) -> list[bytes]:
        try:
            if failure is not None:
                raise failure
            if sent.status == ("ended", "") and trial.loaded_all_steps and sent.restarts == trial.restarts:
                return []
            return overview(trial, sent)
        except FileNotFoundError as error:
            return status_packets(trial, sent, "gone", capitalized(str(error)))
        except (SMDebugError, OSError) as error:
            return status_packets(trial, sent, "error", str(error))
        except Exception as error:  # a user-defined trial can raise any exception, which the page must show
            packets = status_packets(trial, sent, "error", f"{type(error).__name__}: {error}")
            if packets:  # log it once, not at every poll
                logger.exception("cannot check %s for new steps", trial.path)
            return packets

    def boot(self, lines: Sequence[dict[str, Any]] = ()) -> list[bytes]:
        """Return packets for the widget's state, shown before the first request.

        Args:
            lines: curves that are sent if they are read quickly.
        """
        # Of very many tensors, the names alone are too much.
        if sum(_size_of_names(trial) for _, trial in opened(self.trials)) > LARGEST:
            return []
        sent = nothing_sent(opened(self.trials))
        packets = [packet for number, trial in opened(self.trials) for packet in overview(trial, sent[number])]
        if self.runs is not None:
            self.runs.table.check()
            packets += fitting(self.runs.all(), LARGEST // 2)
        if sum(map(len, packets)) > LARGEST:
            return []
        posters = self.survey.boot(sent) if self.survey is not None else []
        more = [*packets, *posters, *(packet for line in lines for packet in self._tensors.quick_curve(line))]
        return more if sum(map(len, more)) <= LARGEST else packets

    def close(self) -> None:
        """Cancel all requests, and send no more messages."""
        self._closed.set()
        with self._lock:
            for cancelled in self._pending.values():
                cancelled.set()
        if self.replay is not None:
            self.replay.close()
        if self.diagnosis is not None:
            self.diagnosis.close()
        if self.survey is not None:
            self.survey.close()
        if self.runs is not None:
            self.runs.table.close()
        self._queue.close()


def _size_of_names(trial: Trial) -> int:
    """Return about how many bytes a page gets for the names of a run."""
    with no_refresh(trial):
        return sum(min(len(name), SHOWN_NAME) for name in trial.tensor_names())


def _missing(trial: Trial) -> str:
    """Say why a directory is missing.

    It was deleted, or its training has not started.
    """
    with no_refresh(trial):
        if trial.steps():
            return "the directory no longer exists"
    return f"no run at {shown(str(trial.path), 300)} yet. Its steps appear here when the training has started."

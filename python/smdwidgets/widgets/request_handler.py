"""Handle the browser's requests, and push new data of live runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures import details, differences
from smdwidgets.pictures.edges import Bins
from smdwidgets.pictures.frames import Wanted
from smdwidgets.pictures.overview import SHOWN_NAME, SentState, nothing_sent, overview, shown_name, status_packets
from smdwidgets.pictures.packet import LARGEST
from smdwidgets.pictures.view import TensorView
from smdwidgets.run_table.live import LiveTable
from smdwidgets.trials.tensorboard import TensorBoardTrial
from smdwidgets.trials.trial import Trial
from smdwidgets.widgets.command_queue import CommandQueue
from smdwidgets.widgets.lines import Line, Lines
from smdwidgets.widgets.live_diagnosis import LiveDiagnosis
from smdwidgets.widgets.live_survey import LiveSurvey
from smdwidgets.widgets.open_runs import opened
from smdwidgets.widgets.poller import poller, workers
from smdwidgets.widgets.protocol import check_request, check_version
from smdwidgets.widgets.protocol import is_command as is_command_name
from smdwidgets.widgets.rule_controller import RuleController
from smdwidgets.widgets.runs_packets import RunsPackets
from smdwidgets.widgets.send_queue import Send, SendQueue
from smdwidgets.widgets.streaming import FrameStream, chosen_steps, nearest_first
from smdwidgets.widgets.thread_switch_interval import short_switch_interval

logger = logging.getLogger("smdwidgets.widgets")

HEARTBEAT = 2.0
WAIT_FOR_PAGE = 2.0
"""Seconds after which a displayed widget gets its first data without a request."""
QUICK_STEPS = 2000
"""Steps of a scalar that are read before a widget is displayed."""
CACHED_BINS = 8
"""Number of cached histogram bins. Repeated requests, and those of compared tensors, use the same bins."""
PUSHED = "pushed-"
"""Prefix of the ids of replies without a request."""
MOST_LIFE = 512
"""Steps at which cells are read."""
REMEMBERED_IDS = 1000
"""Number of latest request ids that are known. A page can send a request twice."""


class Cancelled(Exception):
    """The browser cancelled the request."""


class Reply:
    """The reply to one request."""

    def __init__(self, queue: SendQueue, request_id: str, cancelled: threading.Event) -> None:
        self._queue = queue
        self.id = request_id
        self.cancelled = cancelled

    def part(self, packets: Sequence[bytes]) -> None:
        """Send a part of the reply; raise :class:`Cancelled` if the request was cancelled."""
        self.check()
        for group in grouped(packets):
            self._queue.post({"kind": "part", "id": self.id}, group)

    def progress(self, done: int, total: int) -> None:
        """Send the number of steps done and their total."""
        self.check()
        self._queue.post({"kind": "progress", "id": self.id, "done": done, "total": total})

    def answer(self, packets: Sequence[bytes] = (), **fields: Any) -> None:
        """Send the last part of the reply."""
        groups = list(grouped(packets)) or [[]]
        for group in groups[:-1]:
            self._queue.post({"kind": "part", "id": self.id}, group)
        self._queue.post({"kind": "answer", "id": self.id, **fields}, groups[-1])

    def error(self, kind: str, message: str) -> None:
        """Send an error as the last part of the reply."""
        self._queue.post({"kind": "error", "id": self.id, "error": {"type": kind, "message": message}})

    def check(self) -> None:
        """Raise :class:`Cancelled` if the request was cancelled."""
        if self.cancelled.is_set():
            raise Cancelled


def grouped(packets: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Group packets into messages of limited size.

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


def fitting(packets: Sequence[bytes], room: int) -> list[bytes]:
    """Return the first packets that have at most so many bytes together."""
    sizes = accumulate(map(len, packets))
    return [packet for packet, size in zip(packets, sizes, strict=True) if size <= room]


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
    ) -> None:
        self.trials = trials
        self.rules = rules
        self.diagnosis = diagnosis
        self.survey = survey
        #: The table of runs, of which those that are used are open.
        self.runs = runs
        self._queue = SendQueue(send)
        self._commands = CommandQueue(self._execute)
        self._lock = threading.Lock()
        self._pending: dict[str, threading.Event] = {}
        self._ids: dict[str, None] = {}
        self._sent = nothing_sent(opened(self.trials))
        self._streams: dict[str, FrameStream] = {}
        self._bins: dict[Any, Bins] = {}
        self._lines = Lines([])
        #: `Trial.restarts` of the runs of which the pages know.
        self._restarts = {number: trial.restarts for number, trial in opened(trials)}
        self._last_update = 0.0
        self._first_requests: Callable[[], list[dict[str, Any]]] | None = None
        self._page_due = 0.0
        self._greeted = False
        self._closed = threading.Event()
        self._handlers: dict[str, Callable[[dict[str, Any], Reply], None]] = {
            "hello": self._hello,
            "frames": self._frames,
            "tile": self._tile,
            "values": self._values,
            "diff": self._diff,
            "life": self._life,
            "series": self._series,
            "survey": self._survey,
            "query": self._query,
            "open": self._open,
            "runs": self._runs,
            "rule": self._rule,
            "read_all": self._read_all,
            "runs_work": self._runs_work,
            "launch": self._launch,
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
        live = self._is_live()
        if self.survey is not None:
            reply.part(self.survey.packets(sent))
        with self.rules.in_order():
            rules = self.rules.full_update()
            if self.diagnosis is not None:
                reply.part(self.diagnosis.packets())
            reply.answer(rules, live=self._queue.push_mode, heartbeat=HEARTBEAT if live else 0)
        poller.add(self)

    def _frames(self, request: dict[str, Any], reply: Reply) -> None:
        role = "compare" if request.get("role") == "compare" else "main"
        wanted = Wanted.from_json(request.get("want") or {})
        stream = FrameStream(self._view(request), self._about(request), wanted, self._bins_of(request, wanted))
        reply.part([stream.plan()])
        stream.only = chosen_steps(stream.view.steps(), request)
        if "steps" not in request:
            with self._lock:
                self._streams[role] = stream
        for packet, done, total in stream.run(
            int(request.get("near", -1)), request.get("after"), reply.cancelled.is_set
        ):
            reply.part([packet])
            reply.progress(done, total)
        if reply.cancelled.is_set():
            raise Cancelled
        reply.answer()

    def _bins_of(self, request: dict[str, Any], wanted: Wanted) -> Bins | None:
        """Return the bins shared by all steps of the tensor and of compared tensors."""
        histogram = wanted.histogram
        if histogram is None or histogram.edges != "shared":
            return None
        about = self._about(request)
        places = histogram.over or ((about["run"], about["worker"], ""),)
        named = [(run, worker, tensor or about["tensor"]) for run, worker, tensor in places]
        key = (frozenset(named), histogram.scale, histogram.bins)
        with self._lock:
            found = self._bins.pop(key, None)
            if found is None:
                views = [self._view({"run": run, "worker": worker, "tensor": tensor}) for run, worker, tensor in named]
                found = Bins(views, histogram.scale, histogram.bins)
            self._bins[key] = found
            while len(self._bins) > CACHED_BINS:
                self._bins.pop(next(iter(self._bins)))
        return found

    def _tile(self, request: dict[str, Any], reply: Reply) -> None:
        reply.answer([details.tile(self._view(request), int(request["step"]), request, self._about(request))])

    def _values(self, request: dict[str, Any], reply: Reply) -> None:
        reply.answer([details.values(self._view(request), int(request["step"]), request, self._about(request))])

    def _diff(self, request: dict[str, Any], reply: Reply) -> None:
        a, b = ({**self._about(request[name]), "step": int(request[name]["step"])} for name in "ab")
        first = differences.saved(self._view(a), a["step"])
        reply.progress(1, 2)
        second = differences.saved(self._view(b), b["step"])
        reply.progress(2, 2)
        reply.answer([differences.difference(first, second, request["want"], {"a": a, "b": b})])

    def _life(self, request: dict[str, Any], reply: Reply) -> None:
        cells = differences.checked_cells(request["cells"])
        view, near = self._view(request), int(request["near"])
        chosen = chosen_steps(steps := view.steps(), {"most": MOST_LIFE, "near": near})
        order = [step for step in nearest_first(steps, near) if chosen is None or step in chosen]
        for packet, done in differences.lives(view, order, cells, self._about(request), reply.cancelled.is_set):
            reply.part([packet])
            reply.progress(done, len(order))
        if reply.cancelled.is_set():
            raise Cancelled
        reply.answer()

    def _series(self, request: dict[str, Any], reply: Reply) -> None:
        requested = [line for line in request.get("lines", ()) if isinstance(line, dict)][:200]
        clock = request.get("clock") is True
        lines = Lines(
            [
                Line(
                    self._view(line),
                    str(line.get("stat", "value")),
                    str(line.get("mode", "")),
                    self._about(line),
                    clock,
                )
                for line in requested
            ]
        )
        failed = []
        for number, (packet, wrong) in enumerate(lines.answer()):
            if packet is None:
                failed.append(wrong)
            else:
                reply.part([packet])
            reply.progress(number + 1, len(lines))
        # From now on, new steps of these curves are pushed.
        with self._lock:
            self._lines = lines
        if failed and len(failed) == len(lines):
            raise SMDebugError(failed[0])
        reply.answer()

    def _rule(self, request: dict[str, Any], reply: Reply) -> None:
        self._commands.execute(reply.id, request)
        with self.rules.in_order():
            reply.answer(self.rules.updates())
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
        with self._lock:
            return self.survey, self._sent.get(number, SentState(number))

    def _open(self, request: dict[str, Any], reply: Reply) -> None:
        number = int(request["run"])
        if not 0 <= number < len(self.trials):
            raise ValueError(f"run index {number} is out of range")
        trial = self.trials[number]
        with self._lock:
            sent = self._sent[number]
        reply.part(overview(trial, sent))
        if self.survey is not None:
            reply.part(self.survey.packets({number: sent}))
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

    def _runs_work(self, request: dict[str, Any], reply: Reply) -> None:
        self._commands.execute(reply.id, request)
        reply.answer(self.runs.updates() if self.runs is not None else [])
        poller.add(self)

    def _read_all(self, request: dict[str, Any], reply: Reply) -> None:
        self._commands.execute(reply.id, request)
        reply.answer(self.survey.reading_packets() if self.survey is not None else [])
        poller.add(self)

    def _launch(self, request: dict[str, Any], reply: Reply) -> None:
        self._commands.execute(reply.id, request)
        reply.answer()
        poller.add(self)  # pushes what the launch has

    def _execute(self, command: dict[str, Any]) -> None:
        if command["what"] == "rule":
            self.rules.execute(command)
        elif command["what"] == "launch":
            self._select_launch(int(command["run"]), command["launch"])
        elif command["what"] == "runs_work":
            if self.runs is not None:
                self._work_on_runs(self.runs.table, command)
        elif self.survey is not None:
            self.survey.read_all(int(command["run"]), str(command["do"]))

    def _select_launch(self, number: int, launch: int | None) -> None:
        if not 0 <= number < len(self.trials):
            raise ValueError(f"run index {number} is out of range")
        trial = self.trials[number]
        if isinstance(trial, TensorBoardTrial):
            trial.select_segment(launch)
        elif launch is not None:
            raise SMDebugError("cannot select a launch: the run is not a TensorBoard log")

    @staticmethod
    def _work_on_runs(table: LiveTable, command: dict[str, Any]) -> None:
        if command["do"] == "diagnose":
            table.diagnose(command["runs"])
        elif command["do"] == "read":
            table.resume()
        else:
            table.stop()

    def _firing(self, request: dict[str, Any], reply: Reply) -> None:
        reply.answer(firings=self.rules.firings_at(str(request.get("rule")), int(request.get("step", -1))))

    def _classes(self, request: dict[str, Any], reply: Reply) -> None:
        reply.answer(classes=self.rules.classes())

    def _view(self, request: dict[str, Any]) -> TensorView:
        number = int(request.get("run", 0) or 0)
        if not 0 <= number < len(self.trials):
            raise ValueError(f"run index {number} is out of range")
        trial, name = self.trials[number], str(request.get("tensor", ""))
        if len(name) == SHOWN_NAME and not trial.has_tensor(name):  # the browser has a shortened name
            name = next((full for full in trial.tensor_names() if shown_name(full) == name), name)
        return TensorView(trial, name, str(request.get("worker", "") or ""))

    @staticmethod
    def _about(request: dict[str, Any]) -> dict[str, Any]:
        return {
            "run": int(request.get("run", 0) or 0),
            "tensor": str(request.get("tensor", "")),
            "worker": str(request.get("worker", "") or ""),
        }

    # ------------------------------------------------------------------------------------------------------------- updates

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
        posted = False
        for group in grouped(self._updates()):
            if self._closed.is_set():
                return False
            self._queue.post({"kind": "news"}, group)
            posted = True
        with self.rules.in_order():
            for group in grouped([*self.rules.updates(), *(self.diagnosis.updates() if self.diagnosis else [])]):
                self._queue.post({"kind": "news"}, group)
                posted = True
        if self.survey is not None:
            with self._lock:
                sent = dict(self._sent)
            for group in grouped(self.survey.updates(sent)):
                self._queue.post({"kind": "news"}, group)
                posted = True
            self.survey.check()
        if self.diagnosis is not None:
            self.diagnosis.check()
        now = time.monotonic()
        live = self._is_live()
        if live and not posted and now - self._last_update >= HEARTBEAT:
            self._queue.post({"kind": "news"}, [])
            posted = True
        if posted:
            self._last_update = now
        return True

    def _updates(self) -> Iterator[bytes]:
        if self.runs is not None:
            yield from self.runs.updates()
            self.runs.table.check()
        for number, trial in opened(self.trials):
            sent = self._sent.get(number)
            if sent is None:  # it is being opened
                continue
            packets = self._poll_trial(trial, sent)
            if sent.restarts != self._restarts.get(sent.run):
                self._restarts[sent.run] = sent.restarts
                self._start_over()
            yield from packets
        with self._lock:
            streams, lines = list(self._streams.values()), self._lines
        try:
            for stream in streams:
                yield from stream.updates()
            yield from lines.updates(last=all(trial.loaded_all_steps for _, trial in opened(self.trials)))
        except Exception:  # the run's status packet contains the error, and must be sent
            logger.debug("cannot update frames and curves", exc_info=True)

    def _start_over(self) -> None:
        """Drop what was made of an earlier run; the page sends its requests again."""
        with self._lock:
            for cancelled in self._pending.values():
                cancelled.set()
            self._streams, self._bins, self._lines = {}, {}, Lines([])
        self.rules.check_replaced()

    @staticmethod
    def _poll_trial(trial: Trial, sent: SentState) -> list[bytes]:
        try:
            path = Path(trial.path)
            if path.is_absolute() and not path.exists():
                # A refresh alone would not fail, because data that was read before is still in memory.
                return status_packets(trial, sent, "gone", "the directory no longer exists")
            trial.maybe_refresh()
            if sent.status == ("ended", "") and trial.loaded_all_steps and sent.restarts == trial.restarts:
                return []
            return overview(trial, sent)
        except FileNotFoundError as error:
            return status_packets(trial, sent, "gone", str(error))
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
        sent = nothing_sent(opened(self.trials))
        packets = [packet for number, trial in opened(self.trials) for packet in overview(trial, sent[number])]
        if self.runs is not None:
            self.runs.table.check()
            packets += fitting(self.runs.all(), LARGEST // 2)
        if sum(map(len, packets)) > LARGEST:
            return []
        posters = self.survey.boot(sent) if self.survey is not None else []
        more = [*packets, *posters, *(packet for line in lines for packet in self._quick_curve(line))]
        return more if sum(map(len, more)) <= LARGEST else packets

    def _quick_curve(self, line: dict[str, Any]) -> list[bytes]:
        view = self._view(line)
        with suppress(SMDebugError, OSError):  # the page requests it, and shows the error
            if not view.trial.loaded_all_steps:
                return []  # the page requests it, so that it grows
            if Path(str(view.trial.path)).is_absolute() and 0 < len(view.steps()) <= QUICK_STEPS:
                return [details.series(view, line["stat"], line["mode"], self._about(line))]
        return []

    def close(self) -> None:
        """Cancel all requests, and send no more messages."""
        self._closed.set()
        with self._lock:
            for cancelled in self._pending.values():
                cancelled.set()
        if self.diagnosis is not None:
            self.diagnosis.close()
        if self.survey is not None:
            self.survey.close()
        if self.runs is not None:
            self.runs.table.close()
        self._queue.close()

"""Survey a widget's runs in the background, and send the Run Map what is in view."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.finding import Finding
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.pictures.overview import SentState, collection_members, shown_name
from smdwidgets.pictures.packet import LARGEST_STEP, pack
from smdwidgets.queries.survey import query_survey
from smdwidgets.survey import Reading, RuleFirings, Survey
from smdwidgets.survey.bins import level_of
from smdwidgets.trials import Trial
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.trials.run import Progress
from smdwidgets.widgets.open_runs import opened
from smdwidgets.widgets.poller import poller
from smdwidgets.widgets.rule_controller import RuleController
from smdwidgets.widgets.survey_packets import (
    MOST_BINS,
    Colour,
    Window,
    detail,
    in_room,
    poster,
    poster_window,
)

logger = logging.getLogger("smdwidgets.widgets")

#: Seconds between updates of a live run, and how many times the duration of an update they are at least.
PAUSE, SHARE = 1.0, 10
#: Seconds between pushed pictures while a run is read, at least, and as a share of the time since reading began.
_PICTURES, _PICTURES_SHARE = 0.4, 0.1
_NICE = 10
#: Bytes of values that are read for an exported page.
MOST_EXPORTED = 2 << 30
#: Stored records that are read before a widget is displayed.
_MOST_AT_ONCE = 400_000
#: Tensors above which it takes longer to judge a run than to draw it.
_MANY = 50_000


@dataclass
class _Asked:
    """The last window that a page asked for."""

    colour: Colour
    window: Window
    #: Whether the window ended with the run, so that it grows with it.
    grows: bool


@dataclass
class _Run:
    """A run, and what the pages know of its survey."""

    trial: Trial
    survey: Survey
    colour: Colour
    asked: _Asked | None = None
    #: What the run consisted of at the last update.
    seen: tuple[int, int, bool] | None = None
    next_update: float = 0.0
    began: float = 0.0
    next_picture: float = 0.0
    #: Level and edition of the poster that was sent.
    poster: tuple[int, int, Colour] | None = None
    #: First step that changed since then; None: nothing.
    changed: int | None = None
    #: First step of the window that a page asked for that changed while the run was read; None: nothing.
    stale: int | None = None
    reading: Reading | None = None
    #: Firings of rules, and the steps of each tensor that they named.
    firings: list[RuleFirings] = field(default_factory=list)
    fired: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    #: What stood out at the last update of a page, what was sent of it, and whether the run had been read by then.
    marks: Sequence[Finding] = ()
    judged: bool = False
    #: Whether the run had been read when a page got its last picture, and whether that was not judged yet.
    has_read: bool = False
    unjudged: bool = False
    findings: dict[str, Any] = field(default_factory=dict)
    #: Share of the run that had been read when `findings` were made.
    share: float | None = None


class LiveSurvey:
    """The surveys of a widget's runs. Thread-safe.

    Reading runs in a thread, one run at a time. It is started by `check`, which the poller calls.
    """

    def __init__(self, trials: Sequence[Trial], rules: RuleController, colour: Colour | None = None) -> None:
        self._rules = rules
        self._colour = colour or Colour()
        self._runs = {number: _Run(trial, Survey(trial), self._colour) for number, trial in opened(trials)}
        self._lock = threading.RLock()
        self._updating = False
        self._closed = False

    def add(self, number: int, trial: Trial) -> None:
        """Survey one more run."""
        with self._lock:
            self._runs = {**self._runs, number: _Run(trial, Survey(trial), self._colour)}

    # --------------------------------------------------------------------------------------------------------- reading

    def check(self) -> None:
        """Start an update of the first run that has something new, unless one is running."""
        with self._lock:
            if self._updating or self._closed:
                return
            due = next((run for run in self._runs.values() if self._is_due(run)), None)
            if due is None:
                return
            self._updating = True
        threading.Thread(target=self._update, args=(due,), name="smdwidgets-survey", daemon=True).start()

    @staticmethod
    def _is_due(run: _Run) -> bool:
        return time.monotonic() >= run.next_update and run.seen != _state(run.trial)

    def _update(self, run: _Run, largest: int | None = None) -> None:
        begin = run.began = time.monotonic()
        state = None
        try:
            state = _state(run.trial)
            if not state[2]:
                _yield_to_training()
            run.survey.update(largest=largest)
        except Exception:  # the page shows why there is no map
            logger.debug("cannot survey %s", run.trial.path, exc_info=True)
        finally:
            with self._lock:
                now = time.monotonic()
                # The first update reads the whole run, later ones what is new.
                run.next_update = now + (PAUSE if run.seen is None else max(PAUSE, SHARE * (now - begin)))
                run.seen = state or run.seen  # a run that could not be read is tried again
                run.next_picture = 0.0
                self._updating = False
            poller.wake()

    @property
    def is_current(self) -> bool:
        """Whether all that the runs consist of was read."""
        with self._lock:
            return not self._updating and all(run.seen == _state(run.trial) for run in self._runs.values())

    @property
    def has_collected(self) -> bool:
        """Whether what is stored of all runs was read, so that their maps are drawn."""
        return all(run.seen is not None or run.survey.collected for run in self._runs.values())

    def complete(self) -> None:
        """Read what is not too large, for an exported page.

        For large runs, the page has a sample, or what was read so far.
        """
        for run in self._runs.values():
            while run.seen != _state(run.trial) and not self._closed:
                with self._lock:
                    begin, self._updating = not self._updating, True
                if begin:
                    self._update(run, MOST_EXPORTED)
                    if run.survey.reading.state == "sampled":
                        run.seen = None  # the rest is read in the background
                        break
                elif run.survey.reading.bytes_left > MOST_EXPORTED:
                    break
                else:  # an update in the background is running
                    time.sleep(0.01)

    def close(self) -> None:
        """Stop reading."""
        self._closed = True
        for run in self._runs.values():
            run.survey.stop()

    def of(self, number: int) -> tuple[Survey, list[RuleFirings]]:
        """Return the survey of a run, and what its rules found."""
        run = self._run(number)
        return run.survey, self._rules.fired(number)

    def marks(self, number: int) -> Sequence[Finding]:
        """Return what stood out, and what rules found, at the last update of a page."""
        return self._run(number).marks

    def is_judged(self, number: int) -> bool:
        """Whether `marks` are those of a run that was read, rather than of its first part."""
        return self._run(number).judged

    def update_marks(self, number: int) -> None:
        """Find what stands out in a run in all that was read."""
        run = self._run(number)
        run.marks, run.judged = run.survey.findings(self._rules.fired(number)), True

    def read_all(self, number: int, do: str) -> None:
        """Start or stop reading all values of a run."""
        run = self._run(number)
        if do == "start":
            run.survey.read_all()
            run.seen, run.next_update = None, 0.0
        else:
            run.survey.stop()

    def _run(self, number: int) -> _Run:
        if number not in self._runs:
            raise SMDebugValueError(f"run index {number} is out of range")
        return self._runs[number]

    # --------------------------------------------------------------------------------------------------------- packets

    def answer(self, request: Mapping[str, Any], sent: SentState) -> list[bytes]:
        """Return the bins that a page asks for."""
        number = int(request["run"])
        with self._lock:
            run = self._run(number)
            colour = Colour(request["worker"], request["mode"], request["stat"])
            self._note_firings(number, run)
            packets = []
            if colour != run.colour:
                run.colour = colour
                packets += self._poster(number, run, sent)
            names = sent.names
            chosen = [at for at in request["tensors"] if 0 <= at < len(names)]
            tensors = {names[at]: at for at in chosen} if request["tensors"] else _numbered(sent, run.survey.known())
            ends = run.survey.steps()
            if ends is None or not tensors:
                return packets
            last = int(min(max(request["to"], ends[0]), ends[1]))
            first = int(min(max(request["from"], ends[0]), last))
            level = max(level_of(first, last, min(max(1, request["bins"]), MOST_BINS)), run.survey.level)
            window = Window(tensors, level, first >> level, (last >> level) - (first >> level) + 1)
            run.asked = _Asked(colour, window, grows=last == ends[1])
            return [*packets, *detail(number, run.survey, colour, window, run.fired, append=True)]

    def query(self, request: Mapping[str, Any], sent: SentState, progress: Progress) -> list[int]:
        """Return the indices of the tensors that a query finds.

        They are places among the names that were sent.
        """
        number, names = int(request["run"]), list(sent.names)
        return self.found(number, names, request["text"], request["mode"], request["worker"], progress)

    def found(
        self, number: int, names: list[str], text: str, mode: str, worker: str, progress: Progress | None = None
    ) -> list[int]:
        """Return the indices of the names that a query finds, in its order.

        Args:
            number: the run.
            names: names of its tensors.
            text: the query.
            mode: mode of the steps; empty for all.
            worker: name of a worker; empty for all.
            progress: called with the number of tensors read and their total.
        """
        run = self._run(number)
        with no_refresh(run.trial):
            members = collection_members(run.trial, names)
        mode_key = as_mode(mode or ModeKeys.GLOBAL)
        return query_survey(run.survey, names, members, text, mode_key, worker or None, progress)

    def boot(self, sent: Mapping[int, SentState]) -> list[bytes]:
        """Return posters of the runs whose statistics are stored, without reading values."""
        self._read_stored()
        return [packet for packets in self.opening(sent) for packet in packets]

    def opening(self, sent: Mapping[int, SentState]) -> Iterator[list[bytes]]:
        """Yield pictures, progress and what stands out, for a page that opens.

        Of very many tensors, which `boot` does not send, the pictures come first.
        """
        is_large = sum(len(state.names) for state in sent.values()) > _MANY
        if is_large:
            self._read_stored()
        if is_large:
            yield self._posters(sent)
            yield self.judgements(sent)
        else:
            runs = [{number: state} for number, state in sent.items()]
            yield [packet for run in runs for packet in (*self._posters(run), *self.judgements(run))]

    def _read_stored(self) -> None:
        """Read what is stored of runs that were not read yet, unless it is large."""
        with self._lock:
            for run in self._runs.values():
                if run.seen is None and not self._updating:
                    with suppress(Exception):  # the page shows the failure of the first update
                        run.survey.read_stored(_MOST_AT_ONCE)

    def reading_packets(self) -> list[bytes]:
        """Return how much of each run was read."""
        with self._lock:
            return [self._reading(number, run) for number, run in self._runs.items()]

    def _posters(self, sent: Mapping[int, SentState]) -> list[bytes]:
        """Return posters and the progress of all runs."""
        packets = []
        with self._lock:
            for number, run, state in self._with(sent):
                run.asked = None
                self._note_firings(number, run)
                run.survey.table.changed_from()
                run.changed = None
                run.findings = {}
                packets += [*self._poster(number, run, state, first=True), self._reading(number, run)]
                run.unjudged = True
        return packets

    def judgements(self, sent: Mapping[int, SentState]) -> list[bytes]:
        """Return what stands out in the pictures that were made last."""
        packets = []
        with self._lock:
            for number, run, state in self._with(sent):
                if run.unjudged:
                    begin, run.unjudged = time.monotonic(), False
                    packets += self._findings(number, run, state)
                    run.next_picture += SHARE * (time.monotonic() - begin) if run.next_picture else 0.0
                run.judged = run.judged or run.has_read
        return packets

    def exported(self, sent: Mapping[int, SentState], stat: str, room: int) -> list[bytes]:
        """Return what a page without a kernel needs, in about so many bytes."""
        packets = []
        for number, run, state in self._with(sent):
            with self._lock:
                self._note_firings(number, run)
                tensors = _numbered(state, run.survey.known())
                packets += in_room(number, run.survey, stat, tensors, run.fired, room // len(self._runs))
                packets.append(self._reading(number, run))
                run.findings = {}
                packets += self._findings(number, run, state)
        return packets

    def _with(self, sent: Mapping[int, SentState]) -> list[tuple[int, _Run, SentState]]:
        return [(number, run, sent[number]) for number, run in self._runs.items() if number in sent]

    def updates(self, sent: Mapping[int, SentState]) -> list[bytes]:
        """Return pictures of what changed since the last ones.

        `judgements` then returns what stands out.
        """
        packets: list[bytes] = []
        with self._lock:
            for number, run, state in self._with(sent):
                packets += self._changes(number, run, state)
        return packets

    def _changes(self, number: int, run: _Run, sent: SentState) -> list[bytes]:
        now = time.monotonic()
        if now < run.next_picture or sent.restarts != run.survey.restarts:
            return []
        run.has_read = run.seen is not None
        for changed in (run.survey.table.changed_from(), self._note_firings(number, run)):
            if changed is not None:
                run.changed = changed if run.changed is None else min(changed, run.changed)
        packets = [] if run.reading == run.survey.reading else [self._reading(number, run)]
        is_reading = run.survey.reading.state == "reading"
        since, run.changed = run.changed, None
        if since is not None:
            packets += self._poster(number, run, sent, since)
            run.stale = since if run.stale is None else min(since, run.stale)
        # Reading may end after its last values were sent and judged, and no value changes then.
        if run.stale is not None and not is_reading:
            packets += self._detail(number, run, run.stale)
            run.stale = None
        if run.share not in (None, run.survey.share_read) and not is_reading:
            run.unjudged = True
        if since is not None:
            run.unjudged = True
            took = time.monotonic() - now
            pause = max(_PICTURES, SHARE * took)
            run.next_picture = now + (max(pause, _PICTURES_SHARE * (now - run.began)) if is_reading else pause)
        return packets

    def _poster(self, number: int, run: _Run, sent: SentState, since: int = 0, first: bool = False) -> list[bytes]:
        """Return the poster of a run, or what changed of it since a step.

        The first one of a page, and of another run in the same place, replaces all bins.
        """
        window = poster_window(run.survey, _numbered(sent, run.survey.known()))
        if window is None:
            return []
        now, before = (window.level, run.survey.edition, run.colour), run.poster
        append = not first and before is not None and before[1] == now[1]
        part = window.since(since) if append and now == before else window
        run.poster = now
        return [] if part is None else [poster(number, run.survey, run.colour, part, run.fired, append)]

    def _detail(self, number: int, run: _Run, since: int) -> Iterable[bytes]:
        """Return what changed of the window that a page asked for."""
        asked, ends = run.asked, run.survey.steps()
        if asked is None or ends is None or asked.colour != run.colour:
            return []
        window = asked.window
        if asked.grows:
            window = Window(window.tensors, window.level, window.first, (ends[1] >> window.level) - window.first + 1)
        part = window.since(since)
        if part is None or part.count > MOST_BINS:
            return []
        return detail(number, run.survey, asked.colour, part, run.fired, append=True)

    def _reading(self, number: int, run: _Run) -> bytes:
        run.reading = known = run.survey.reading
        about = {"done": float(known.done), "total": float(known.total), "bytes_left": float(known.bytes_left)}
        rest = {"seconds_left": round(known.seconds_left, 1), "message": known.message}
        by = {} if known.workers is None else {"workers": known.workers}
        return pack({"kind": "reading", "run": number, "state": known.state, **about, **rest, **by})

    def _note_firings(self, number: int, run: _Run) -> int | None:
        """Take over the steps at which rules fired; return the first new one."""
        firings = self._rules.fired(number)
        if firings == run.firings:
            return None
        before, run.firings = run.fired, firings
        fired: dict[str, set[int]] = {}
        for rule in firings:
            for name, steps in rule.tensors.items():
                fired.setdefault(name, set()).update(steps)
        run.fired = {name: np.array(sorted(steps), np.int64) for name, steps in fired.items()}
        if before.keys() - fired.keys():
            return 0
        new = (np.setxor1d(steps, before.get(name, [])) for name, steps in run.fired.items())
        return int(min((steps[0] for steps in new if len(steps)), default=LARGEST_STEP))

    def _findings(self, number: int, run: _Run, sent: SentState) -> list[bytes]:
        """Return what stands out, if that has changed."""
        run.share = run.survey.share_read
        run.marks = run.survey.findings(run.firings)
        clauses = run.survey.sentence([mark for mark in run.marks if mark.source == "survey"])
        indices = {name: index for index, name in enumerate(sent.names)}
        counts = {rule.rule: len(rule.steps) for rule in run.firings}
        head = {
            "kind": "findings",
            "run": number,
            "sentence": [{"text": one.text, "tensor": shown_name(one.tensor), "step": one.step} for one in clauses],
            "findings": [_described(mark, indices, counts) for mark in run.marks if (mark.last or 0) <= LARGEST_STEP],
        }
        if head == run.findings:
            return []
        run.findings = head
        return [pack(head)]


def _described(mark: Finding, indices: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": mark.id[:200],
        "kind": mark.kind,
        "tensors": [indices[name] for name in mark.names if name in indices],
        "first": float(mark.first or 0),
        "last": float(mark.last or 0),
        "count": counts.get(mark.subject, 1) if mark.source == "rule" else 1,
    }


def _numbered(sent: SentState, names: Container[str]) -> dict[str, int]:
    """Return the index of each name in all names sent."""
    return {name: at for at, name in enumerate(sent.names) if name in names}


def _state(trial: Trial) -> tuple[int, int, bool]:
    return trial.restarts, len(trial.steps()), bool(trial.loaded_all_steps)


def _yield_to_training() -> None:
    """Lower the priority of this thread, and of those that it starts."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)

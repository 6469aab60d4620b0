"""Diagnose a widget's runs in the background; pack findings for the browser."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdwidgets._text import visible
from smdwidgets.finding import KINDS, Finding, about
from smdwidgets.pictures.overview import shown_name
from smdwidgets.pictures.packet import LARGEST_STEP, pack
from smdwidgets.pictures.signal_view import names_shown
from smdwidgets.storage.files import size_on_disk
from smdwidgets.trials import Trial
from smdwidgets.widgets.open_runs import opened

if TYPE_CHECKING:
    from smdwidgets.diagnosis import Diagnoser, Diagnosis
    from smdwidgets.diagnosis.follow import Confirmation
    from smdwidgets.widgets.live_replay import LiveReplay
    from smdwidgets.widgets.live_survey import LiveSurvey

logger = logging.getLogger("smdwidgets.widgets")

#: Seconds between updates of a live run, and how many times the duration of an update they are at least, so that the
#: diagnosis takes at most a twentieth of one core.
PAUSE, SHARE = 2.0, 20
#: Bytes of a run without its statistics beyond which only its scalars are read.
LARGEST_RUN = 4 << 30
#: Tensors that are marked with the state that a finding names.
_MOST_LASTING = 50
#: Points of the small picture of a finding.
_CURVE_POINTS = 100


class _Closed(Exception):
    """The widget was closed during an update."""


@dataclass
class _Run:
    """A run, and what is known of it."""

    trial: Trial
    diagnoser: Diagnoser | None = None
    confirmation: Confirmation | None = None
    diagnosis: Diagnosis | None = None
    error: str = ""
    #: What the run consisted of at the last update: restarts, number of steps, whether it had ended.
    seen: tuple[int, int, bool] | None = None
    next_update: float = 0.0
    version: int = 0
    sent: int = 0
    #: What stood out in the run when it was sent, and whether all of the run had been looked through.
    marks: Sequence[Finding] = ()
    judged: bool = True


class LiveDiagnosis:
    """The diagnoses of a widget's runs. Thread-safe.

    Updates run in a thread, one at a time. They are started by :meth:`check`, which the poller calls.

    Args:
        trials: the runs.
        survey: has what stands out in the runs and what their rules found, which join the findings.
        replay: knows whether the steps of a finding can be executed again.
    """

    def __init__(
        self, trials: Sequence[Trial], survey: LiveSurvey | None = None, replay: LiveReplay | None = None
    ) -> None:
        self._survey = survey
        self._replay = replay
        self._runs = {number: _Run(trial) for number, trial in opened(trials)}
        #: Guards the results. It is held briefly.
        self._lock = threading.Lock()
        #: Held during an update.
        self._updating = threading.Lock()
        self._closed = False

    def add(self, number: int, trial: Trial) -> None:
        """Diagnose one more run."""
        with self._lock:
            self._runs = {**self._runs, number: _Run(trial)}

    def check(self) -> None:
        """Start an update of the first run that has something new, unless one is running."""
        if self._closed or not self._updating.acquire(blocking=False):
            return
        started = False
        try:
            due = next((run for run in self._runs.values() if self._is_due(run)), None)
            if due is not None:
                thread = threading.Thread(
                    target=self._update_and_release, args=(due,), name="smdwidgets-diagnosis", daemon=True
                )
                thread.start()
                started = True
        finally:
            if not started:
                self._updating.release()

    @staticmethod
    def _is_due(run: _Run) -> bool:
        now = time.monotonic()
        if now < run.next_update:
            return False
        run.next_update = now + PAUSE
        return run.seen != _state(run.trial)

    @property
    def is_current(self) -> bool:
        """Whether all that the runs consist of was read."""
        with self._lock:
            return not self._updating.locked() and all(run.seen == _state(run.trial) for run in self._runs.values())

    def close(self) -> None:
        """Stop the update that is running, and start no more."""
        self._closed = True

    def packets(self, numbers: Sequence[int] | None = None) -> list[bytes]:
        """Return packets with the diagnoses of runs, or all, for a page that opens."""
        with self._lock:
            return [self._pack(number) for number in self._runs if numbers is None or number in numbers]

    def complete(self) -> None:
        """Diagnose and survey unread runs, for an exported page."""
        if self._survey is not None:
            self._survey.complete()
            for number in self._runs:
                self._survey.update_marks(number)
        with self._updating:  # waits for an update in the background
            for run in self._runs.values():
                if run.diagnosis is None and not run.error and not self._closed:
                    self._update(run)

    def updates(self) -> list[bytes]:
        """Return packets with the diagnoses that changed since the last packet."""
        with self._lock:
            return [
                self._pack(number)
                for number, run in self._runs.items()
                if run.sent != run.version or (run.marks, run.judged) != (self._marks(number), self._is_judged(number))
            ]

    def _update_and_release(self, run: _Run) -> None:
        try:
            self._update(run)
        finally:
            self._updating.release()

    def _update(self, run: _Run) -> None:
        from smdwidgets.diagnosis import Diagnoser
        from smdwidgets.diagnosis.follow import Confirmation

        begin = time.monotonic()
        state = _state(run.trial)
        diagnosis, error = run.diagnosis, ""
        try:
            if run.diagnoser is None or run.confirmation is None or (run.seen and run.seen[0] != state[0]):
                run.diagnoser = Diagnoser(run.trial, tensors=_is_small(run.trial), marks=False)
                run.confirmation = Confirmation()
            diagnosis = run.confirmation.update(run.diagnoser.update(self._check_closed), ended=state[2])
        except _Closed:
            return
        except Exception as failure:  # the page shows why there is no diagnosis
            logger.debug("cannot diagnose %s", run.trial.path, exc_info=True)
            error = f"{type(failure).__name__}: {failure}"[:500]
        finally:
            with self._lock:
                now = time.monotonic()
                if _shown(diagnosis, error) != _shown(run.diagnosis, run.error) or run.seen is None:
                    run.version += 1
                run.diagnosis, run.error, run.seen = diagnosis, error, state
                if state[2]:  # what was read of very many tensors takes memory; a run that goes on is read again
                    run.diagnoser = run.confirmation = None
                run.next_update = now + max(PAUSE, SHARE * (now - begin))

    def _check_closed(self, done: int, total: int) -> None:
        if self._closed:
            raise _Closed

    def _pack(self, number: int) -> bytes:
        run = self._runs[number]
        run.sent, run.marks, run.judged = run.version, self._marks(number), self._is_judged(number)
        return pack({"kind": "diagnosis", "run": number, **_head(run, self._replay)})

    def of(self, number: int) -> Diagnosis | None:
        """Return the latest diagnosis of a run and what stands out; None if unknown."""
        with self._lock:
            run = self._runs.get(number)
            if run is None or run.diagnosis is None:
                return None
            return run.diagnosis.with_marks(self._marks(number))

    def _marks(self, number: int) -> Sequence[Finding]:
        return () if self._survey is None else self._survey.marks(number)

    def _is_judged(self, number: int) -> bool:
        return self._survey is None or self._survey.is_judged(number)

    def completed(self, number: int) -> Diagnosis | None:
        """Return the diagnosis of a run after everything was read; None if it failed."""
        self.complete()
        return self.of(number)

    def adopt(self, number: int, diagnosis: Diagnosis) -> None:
        """Show this diagnosis of a run until there are new steps."""
        with self._updating, self._lock:
            run = self._runs[number]
            run.diagnosis, run.error, run.seen = diagnosis, "", _state(run.trial)
            run.version += 1


def _state(trial: Trial) -> tuple[int, int, bool]:
    ended = bool(trial.loaded_all_steps)
    return trial.restarts, len(trial.steps()), ended


def _is_small(trial: Trial) -> bool:
    """Whether the tensors of a run are diagnosed: of others, the survey has to do.

    Written statistics do not count, of which a bounded part is read.
    """
    if not trial.is_local:
        return False
    file = trial.reader.run.statistics_file()
    most = LARGEST_RUN + (0 if file is None else file.size()[2])
    return size_on_disk(Path(trial.path), enough=most) <= most


def _shown(diagnosis: Diagnosis | None, error: str) -> object:
    if diagnosis is None:
        return error
    # Without the summary, which counts steps: an update without a new finding is not sent.
    return error, diagnosis.can_tell, diagnosis.findings, diagnosis.withdrawn


def _head(run: _Run, replay: LiveReplay | None) -> dict[str, Any]:
    from smdwidgets.diagnosis import Diagnosis

    known = Diagnosis(str(run.trial.path)) if run.diagnosis is None else run.diagnosis
    joined = known.with_marks(run.marks)
    if run.error:
        state = "failed"
    elif run.diagnosis is None:
        state = "reading"
    else:
        # The map of a large run is read for longer than its scalars, and may show what those do not.
        none = "nothing" if joined.can_tell else "unjudged"
        state = "found" if joined.findings else none if run.judged else "reading"
    names = {name: shown_name(name) for name in names_shown(run.trial)}
    incidents = run.trial.incidents() if joined.findings or joined.notes else ()

    def described(finding: Finding) -> dict[str, Any]:
        offer = None if replay is None else replay.offer(finding, incidents)
        return {**_described(finding, joined, names), **({} if offer is None else {"replay": offer})}

    return {
        "state": state,
        "summary": run.error or ("" if run.diagnosis is None else visible(joined.summary, 500)),
        "findings": [described(finding) for finding in joined.findings],
        "notes": [described(finding) for finding in joined.notes],
        "withdrawn": [visible(finding.title, 300) for finding in joined.withdrawn],
        "coverage": [] if run.diagnosis is None else [visible(line, 1000) for line in _coverage(joined)],
    }


def _coverage(diagnosis: Diagnosis) -> list[str]:
    """Return sentences on what was checked, and on what could not be judged."""
    checks = [KINDS[kind].title.lower() for kind in diagnosis.coverage.checks if kind in KINDS]
    checked = [f"Checked: {', '.join(checks)}."] if checks else []
    return [line for line in (*checked, *diagnosis.coverage.gaps, diagnosis.not_judged()) if line]


def _described(finding: Finding, joined: Diagnosis, names: dict[str, str]) -> dict[str, Any]:
    return {
        "id": visible(finding.id, 300),
        "kind": finding.kind,
        "level": finding.level,
        "confidence": finding.confidence,
        "first": finding.first if finding.first is not None and finding.first <= LARGEST_STEP else None,
        "tensor": next((names[name] for name in finding.names if name in names), ""),
        "title": visible(finding.title, 300),
        "text": visible(finding.text, 2000),
        "explains": visible(joined.consequences(finding), 1000),
        "advice": visible(finding.try_, 1000),
        "about": about(finding),
        **_curve(finding),
        **_lasting(finding, names),
    }


def lasting_of(findings: Iterable[Finding]) -> dict[str, tuple[str, int, int | None]]:
    """Return the states that tensors stay in.

    They are a word, the first step, and the last one or None. The first finding of a tensor counts.
    """
    found: dict[str, tuple[str, int, int | None]] = {}
    for finding in findings:
        word = KINDS[finding.kind].state if finding.kind in KINDS else ""
        if word and finding.first is not None:
            last = finding.last if finding.last is not None and finding.last <= LARGEST_STEP else None
            for name in finding.names[:_MOST_LASTING]:
                found.setdefault(name, (word, finding.first, last))
    return found


def _lasting(finding: Finding, names: dict[str, str]) -> dict[str, Any]:
    states = {names[name]: state for name, state in lasting_of([finding]).items() if name in names}
    if not states:
        return {}
    word, _, last = next(iter(states.values()))
    return {"lasting": {"word": word, "tensors": list(states), "last": last}}


def _curve(finding: Finding) -> dict[str, Any]:
    """Return the points of the first evidence that has a curve."""
    curve = next((one.curve for one in finding.evidence if one.curve is not None and len(one.curve.steps) > 1), None)
    if curve is None:
        return {}
    every = -(-len(curve.steps) // _CURVE_POINTS)
    points = list(zip(curve.steps, curve.values, strict=True))[::every]
    values = [float(value) if math.isfinite(value) else None for _, value in points]
    return {"curve": {"steps": [float(step) for step, _ in points], "values": values}}

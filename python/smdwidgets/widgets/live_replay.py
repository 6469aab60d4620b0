"""Execute the steps of an incident again for a page.

The answer is what broke them, and what heals them.

The steps are executed in a thread, so that messages are answered meanwhile. Cells that are run meanwhile wait, because
the model has other weights until its own are put back.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from smdwidgets._text import visible
from smdwidgets.exceptions import SMDebugError
from smdwidgets.finding import Finding
from smdwidgets.incident import Incident
from smdwidgets.pictures.packet import LARGEST_STEP, pack
from smdwidgets.replay.watched import Stopped, Watch
from smdwidgets.trials.trial import Trial
from smdwidgets.widgets.kernel_gate import NO_CELLS, no_cells, runs_cells
from smdwidgets.widgets.open_runs import run_at

if TYPE_CHECKING:
    from smdwidgets.replay.explanation import Explanation
    from smdwidgets.replay.outcomes import Course, WhatIf
    from smdwidgets.replay.places import Place
    from smdwidgets.replay.ranking import RowRanking

__all__ = ["LiveReplay"]

logger = logging.getLogger("smdwidgets.widgets")

_ROWS: Final = 8
"""Rows that a page lists."""
_SUSPECTS: Final = 3
"""Rows that are left out one at a time."""
_SOON: Final = 500
"""Steps that are executed without being asked for, to rank the rows of a batch."""
_SUSPICIOUS: Final = 8.0
"""Robust standard deviations from which a row is left out without being asked for."""
_AROUND: Final = 2
"""Lines of the source before and after the one that is named."""


@dataclass(frozen=True)
class _Change:
    """A change that can be tried.

    Without arguments, the rows of the batch are ranked.
    """

    id: str
    label: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


_USUAL: Final = (
    _Change("lr", "lr × 0.1", {"lr": "0.1x"}),
    _Change("clip", "clip 1", {"clip": 1.0}),
    _Change("skip", "no update", {"batch": "skip"}),
)
_WITHOUT_AUTOCAST: Final = _Change("fp32", "no autocast", {"dtype": "fp32"})
"""It is offered where the text of the loop has autocast."""


@dataclass
class _Answer:
    """What is known of the steps of one incident."""

    run: int
    incident: Incident
    state: str = "running"
    doing: str = ""
    done: int = 0
    total: int = 0
    began: float = 0.0
    message: str = ""
    explanation: Explanation | None = None
    ranking: RowRanking | None = None
    changes: tuple[_Change, ...] = ()
    outcomes: dict[str, WhatIf] = field(default_factory=dict)
    #: The steps, which report to `watch`.
    replay: Any = None
    watch: Watch = field(default_factory=Watch)
    version: int = 0
    sent: int = 0


class LiveReplay:
    """Answers about the incidents of a widget's runs. Thread-safe.

    Args:
        trials: the runs.
        alone: a context in which nothing else uses the objects of this process.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        alone: Callable[[Callable[[], None]], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._trials = trials
        self._alone = alone
        self._answers: dict[tuple[int, int], _Answer] = {}
        self._lock = threading.RLock()
        self._closed = False

    # ------------------------------------------------------------------------------------------------------ what can be

    def offer(self, finding: Finding, incidents: Sequence[Incident]) -> dict[str, Any] | None:
        """Return the rows of a finding's batch, and why there is no replay.

        None if no incident recorded the step, or neither rows nor steps to execute.

        Args:
            finding: the finding.
            incidents: the incidents of its run.
        """
        step = finding.first if finding.incident is None else finding.incident
        incident = next((one for one in incidents if one.step == step), None)
        if incident is None or incident.step > LARGEST_STEP:
            return None
        names = incident.row_names
        if not names and incident.recorded is None:
            return None
        return {
            "step": incident.step,
            "rows": names[:_ROWS],
            "more": max(0, len(names) - _ROWS),
            "why_not": visible(self._why_not(incident), 500),
        }

    def _why_not(self, incident: Incident) -> str:
        """Return why the steps cannot be executed here; empty if they can."""
        recorded = incident.recorded
        if recorded is None:
            return "the batches and states of the last steps were not recorded (PyTorch: replay=True)"
        if recorded.get("why_not"):
            return str(recorded["why_not"])
        try:
            reason: str = incident.replay.why_not_here
        except Exception as error:  # a damaged recording
            return f"the recording cannot be read: {error}"
        if not reason and self._alone is None and not runs_cells():
            return NO_CELLS
        return reason

    # --------------------------------------------------------------------------------------------------------- commands

    def execute(self, command: Mapping[str, Any]) -> None:
        """Start an answer, try one more change, or stop.

        Raises:
            SMDebugError: it is not possible; the message says why.
        """
        number, step = int(command["run"]), int(command["step"])
        if command["do"] == "stop":
            with self._lock:
                answer = self._answers.get((number, step))
            if answer is not None:
                answer.watch.stop()
            return
        trial = run_at(self._trials, number)
        with self._lock:
            if self._closed:
                return
            if any(one.state == "running" for one in self._answers.values()):
                raise SMDebugError("other steps are being executed again; stop them or wait")
            earlier = self._answers.get((number, step))
            if command["do"] == "try":
                changes = () if earlier is None else earlier.changes
                change = next((one for one in changes if one.id == command["change"]), None)
                if earlier is None or change is None:
                    raise SMDebugError(f"unknown change {visible(command['change'], 50)}: press Replay first")
                answer, work = earlier, partial(self._try, earlier, change)
            else:
                incident = next((one for one in trial.incidents() if one.step == step), None)
                if incident is None:
                    raise SMDebugError(f"the run has no incident at step {step}")
                if reason := self._why_not(incident):
                    raise SMDebugError(reason)
                version, sent = (1, 0) if earlier is None else (earlier.version + 1, earlier.sent)
                answer = self._answers[number, step] = _Answer(number, incident, version=version, sent=sent)
                work = partial(self._answer, answer)
            answer.watch = Watch(partial(self._executed, answer))
            self._begin(answer, "beginning", 0)
            answer.state, answer.message = "running", ""
        threading.Thread(target=self._run, args=(answer, work), name="smdwidgets-replay", daemon=True).start()

    def _run(self, answer: _Answer, work: Callable[[], None]) -> None:
        state, message = "done", ""
        try:
            alone = self._alone or no_cells
            with alone(answer.watch.stop):
                replay = answer.incident.replay
                if replay.is_training:
                    raise SMDebugError("the training is running in another thread; wait for its end")
                answer.replay = replay.watched(answer.watch)
                work()
        except Stopped:
            state = "stopped"
        except Exception as error:  # the page shows it: a step of the user's training can raise anything
            logger.debug("cannot execute the steps again", exc_info=True)
            state, message = "failed", error.args[0] if isinstance(error, SMDebugError) and error.args else ""
            message = str(message) or f"{type(error).__name__}: {error}"
        finally:
            answer.replay = None  # it holds the model
            with self._lock:
                answer.state, answer.message, answer.doing = state, message, ""
                answer.version += 1

    def _begin(self, answer: _Answer, doing: str, total: int) -> None:
        with self._lock:
            answer.doing, answer.done, answer.total, answer.began = doing, 0, total, time.monotonic()
            answer.version += 1

    def _executed(self, answer: _Answer) -> None:
        with self._lock:
            answer.done += 1
            answer.total = max(answer.total, answer.done)
            answer.version += 1

    # ---------------------------------------------------------------------------------------------------------- answers

    def _answer(self, answer: _Answer) -> None:
        """Explain the incident; where it names rows, leave them out."""
        replay, step = answer.replay, answer.incident.step
        before = _steps_to(replay, step)
        self._begin(answer, "looking for the operator", before)
        explanation: Explanation = replay.explain(step)
        with self._lock:
            answer.explanation = explanation
        rows = [(row, _identity(explanation, number)) for number, row in enumerate(explanation.rows)]
        size = _count(replay, explanation.step)
        rank = _Change("rows", f"rank the {f'{size:,} ' if size else ''}rows")
        with self._lock:
            usual = (*_USUAL, *([_WITHOUT_AUTOCAST] if "autocast" in replay.loop_text else []))
            answer.changes = (*_without(explanation.step, rows), *(() if rows else (rank,)), *usual)
        if rows:
            self._try(answer, answer.changes[0])
        elif explanation.kind in ("nothing", "growth") and size > 1 and size * before <= _SOON:
            self._try(answer, rank)

    def _try(self, answer: _Answer, change: _Change) -> None:
        replay = answer.replay
        if not change.arguments:
            self._rank(answer)
            return
        explanation = answer.explanation
        step = answer.incident.step if explanation is None else explanation.step
        arguments = dict(change.arguments)
        since = arguments.pop("step", step)
        recorded = next((one.recorded for one in answer.outcomes.values() if one.since == since), None)
        self._begin(answer, f"trying: {change.label}", replay.expected * (1 if recorded else 2))
        outcome: WhatIf = replay.what_if(since, recorded, **arguments)
        with self._lock:
            answer.outcomes = {**answer.outcomes, change.id: outcome}
            answer.version += 1

    def _rank(self, answer: _Answer) -> None:
        """Rank the rows of the batch of the incident.

        The first one is left out if it stands out.
        """
        replay, step = answer.replay, answer.incident.step
        rows = _count(replay, step)
        self._begin(answer, "executing the step with each row alone", rows * _steps_to(replay, step))
        ranking: RowRanking = replay.rank_rows(step)
        bad = _without(step, [(one.row, one.identity) for one in ranking.rows if not one.is_finite])
        alone = [_without(step, [(one.row, one.identity)])[0] for one in ranking.top(_SUSPECTS)]
        dropped = list({one.id: one for one in (*bad, *alone)}.values())
        with self._lock:
            answer.ranking = ranking
            others = [one for one in answer.changes if one.arguments and not one.id.startswith("drop")]
            answer.changes = (*dropped, *others)
            answer.version += 1
        if dropped and ranking.rows[0].score >= _SUSPICIOUS:
            self._try(answer, dropped[0])

    # ---------------------------------------------------------------------------------------------------------- packets

    def packets(self, numbers: Sequence[int] | None = None) -> list[bytes]:
        """Return packets with the answers about runs, or all, for a page that opens."""
        with self._lock:
            return [self._pack(one) for one in self._answers.values() if numbers is None or one.run in numbers]

    def updates(self) -> list[bytes]:
        """Return packets with the answers that changed since the last packet."""
        with self._lock:
            return [self._pack(one) for one in self._answers.values() if one.sent != one.version]

    def close(self) -> None:
        """Stop what is executed."""
        with self._lock:
            self._closed = True
            for one in self._answers.values():
                one.watch.stop()

    def _pack(self, answer: _Answer) -> bytes:
        answer.sent = answer.version
        seconds = time.monotonic() - answer.began
        is_estimated = answer.state == "running" and answer.done > 0
        left = seconds / answer.done * (answer.total - answer.done) if is_estimated else None
        explanation = answer.explanation
        return pack(
            {
                "kind": "replay",
                "run": answer.run,
                "step": answer.incident.step,
                "state": answer.state,
                "doing": visible(answer.doing, 200),
                "done": answer.done,
                "total": answer.total,
                "seconds_left": left,
                "message": visible(answer.message, 500),
                "explanation": None if explanation is None else _explained(explanation, answer.incident),
                "rows": [] if answer.ranking is None else [visible(one, 300) for one in answer.ranking.top(_SUSPECTS)],
                "changes": [
                    {"id": one.id, "label": visible(one.label, 100), **_outcome(answer.outcomes.get(one.id))}
                    for one in answer.changes
                ],
            }
        )


def _identity(explanation: Explanation, number: int) -> Any:
    return explanation.dataset_rows[number] if number < len(explanation.dataset_rows) else None


def _steps_to(replay: Any, step: int) -> int:
    """Return how many steps are executed until the end of a step."""
    return max(1, step - int(replay.steps[0]) + 1)


def _count(replay: Any, step: int) -> int:
    """Return the number of rows in the batch of a step; 0 if it is not known."""
    try:
        return len(replay.row_ids(step) or ())
    except LookupError:
        return 0


def _without(step: int, rows: Sequence[tuple[int, Any]]) -> list[_Change]:
    """Return the changes that leave rows out: all of them first, then each."""

    def change(chosen: Sequence[tuple[int, Any]]) -> _Change:
        names = ", ".join(f"{row}" if identity is None else f"{identity}" for row, identity in chosen[:_SUSPECTS])
        rest = f" and {len(chosen) - _SUSPECTS:,} more" if len(chosen) > _SUSPECTS else ""
        numbers = [row for row, _ in chosen]
        label = f"without row{'s' if len(chosen) > 1 else ''} {names}{rest}"
        return _Change(f"drop {','.join(map(str, numbers))}", label, {"drop_rows": numbers, "step": step})

    if not rows:
        return []
    each = [change([one]) for one in rows] if 1 < len(rows) <= _SUSPECTS else []
    return [change(rows), *each]


def _explained(explanation: Explanation, incident: Incident) -> dict[str, Any]:
    user, inner = explanation.user, explanation.place
    rows = [
        f"{row}" if (identity := _identity(explanation, number)) is None else f"{identity}"
        for number, row in enumerate(explanation.rows[:_ROWS])
    ]
    where = [
        f"in module {explanation.module}" if explanation.module else "",
        f"at {inner}" if inner is not None and inner != user else "",
    ]
    return {
        "kind": explanation.kind,
        "step": explanation.step,
        "text": visible(explanation.headline, 1000),
        "place": "" if user is None else visible(user.where, 300),
        "source": [] if user is None else _excerpt(user),
        "details": [visible(one, 500) for one in (*filter(None, where), *explanation.operands, *explanation.notes)],
        "rows": [visible(one, 50) for one in rows],
        "more": max(0, len(explanation.rows) - _ROWS),
        "of_data_set": bool(explanation.dataset_rows),
        "verified": visible(explanation.verified, 500),
    }


def _excerpt(place: Place) -> list[dict[str, Any]]:
    return [{"line": line, "text": visible(text, 300)} for line, text in place.around(_AROUND)]


def _outcome(outcome: WhatIf | None) -> dict[str, Any]:
    """Return what a change does, as a field of a packet; nothing if it was not tried."""
    if outcome is None:
        return {}
    return {
        "outcome": {
            "heals": outcome.heals,
            "text": visible(outcome, 500),
            "recorded": _curve(outcome.recorded),
            "changed": _curve(outcome.changed),
        }
    }


def _curve(course: Course) -> dict[str, Any]:
    values = [float(one) if math.isfinite(one) else None for one in course.losses]
    return {"steps": [float(one) for one in course.steps], "values": values}

"""How one rule of a runner stands: its status in SageMaker's words, and what it said of every step."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from smdwidgets._text import visible
from smdwidgets.rules.findings import Finding

if TYPE_CHECKING:
    from smdwidgets.rules.rule import Rule

__all__ = ["Evaluation", "Outcome", "RuleEvent", "Snapshot", "Status"]

#: Firings of which every detail is kept; the outcome of each step is kept for all.
FIRINGS_KEPT = 1000
#: Tensors at fault that are kept of one firing; its message tells how many there were.
FINDINGS_KEPT = 50
#: The service's own limit of StatusDetails.
DETAILS_LIMIT = 1024


class Status(StrEnum):
    """The status of a rule, in SageMaker's words."""

    IN_PROGRESS = "InProgress"
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    ERROR = "Error"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class Outcome(IntEnum):
    """What a rule said of a step."""

    PASSED = 1
    FIRED = 2
    SKIPPED = 3
    ERROR = 4


@dataclass(frozen=True)
class RuleEvent:
    """What happened: a step was judged, or a rule began, began anew or ended (then `step` is None)."""

    rule: str
    step: int | None
    kind: str  #: "fired", "passed", "skipped", "error", or "started", "restarted", "finished"
    message: str = ""
    findings: tuple[Finding, ...] = ()
    status: Status = Status.IN_PROGRESS

    def __str__(self) -> str:
        at = "" if self.step is None else f" at step {self.step}"
        return f"{visible(self.rule, 200)} {self.kind}{at}" + (
            f": {visible(self.message, 4000)}" if self.message else ""
        )


class Snapshot(NamedTuple):
    """An evaluation at one moment, for showing it; ask for the next with `after=len(steps so far)` and the same `restarts`."""

    restarts: int
    status: Status
    active: bool
    message: str
    first: int
    steps: array[int]
    outcomes: bytes
    done: int
    firings: list[RuleEvent]
    firings_total: int


class Evaluation:
    """One rule of a runner. Thread-safe to read."""

    def __init__(self, name: str, rule: Rule) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._begin(rule)
        self.restarts = 0

    def _begin(self, rule: Rule) -> None:
        self.rule = rule
        self.status = Status.IN_PROGRESS
        self.active = True
        #: The last message: of the newest firing, else of the newest error, else why nothing was judged.
        self.message = ""
        self.details = ""
        self.modified = datetime.now(UTC)
        self._steps = array("q")
        self._outcomes = bytearray()
        self._firings: deque[RuleEvent] = deque(maxlen=FIRINGS_KEPT)
        self._counts = dict.fromkeys(Outcome, 0)
        self._first_firing: RuleEvent | None = None
        self._last_error = ""
        self._last_skip = ""

    # ------------------------------------------------------------------------------------------- for the runner only

    def restart(self, rule: Rule) -> None:
        """Begin anew, with a rule of other parameters."""
        with self._lock:
            self._begin(rule)
            self.restarts += 1

    def note(self, step: int, outcome: Outcome, message: str, findings: tuple[Finding, ...] = ()) -> RuleEvent:
        """Take in what the rule said of a step."""
        with self._lock:
            if outcome == Outcome.FIRED:
                self.status = Status.ISSUES_FOUND if self.status == Status.IN_PROGRESS else self.status
            event = RuleEvent(self.name, step, outcome.name.lower(), message, findings[:FINDINGS_KEPT], self.status)
            self._steps.append(step)
            self._outcomes.append(outcome)
            self._counts[outcome] += 1
            self._count_message(outcome, event)
            self.modified = datetime.now(UTC)
            return event

    def note_silence(self, step: int, message: str, findings: tuple[Finding, ...]) -> RuleEvent:
        """Take in that the rule fired while nothing came: at the last step, whose outcome is changed."""
        with self._lock:
            self.status = Status.ISSUES_FOUND if self.status == Status.IN_PROGRESS else self.status
            event = RuleEvent(self.name, step, "fired", message, findings[:FINDINGS_KEPT], self.status)
            # An outcome of its own, so that whoever has taken in the step's first one sees it.
            self._steps.append(step)
            self._outcomes.append(Outcome.FIRED)
            self._counts[Outcome.FIRED] += 1
            self._count_message(Outcome.FIRED, event)
            self.modified = datetime.now(UTC)
            return event

    def _count_message(self, outcome: Outcome, event: RuleEvent) -> None:
        if outcome == Outcome.FIRED:
            self._firings.append(event)
            self._first_firing = self._first_firing or event
            self.message = event.message
        elif outcome == Outcome.ERROR:
            self._last_error = f"at step {event.step}: {event.message}"
            if not self._first_firing:
                self.message = self._last_error
        elif outcome == Outcome.SKIPPED:
            self._last_skip = event.message

    def end(self, status: Status | None = None, details: str = "") -> None:
        """The rule is done: with the status that its outcomes give it, unless another one is told."""
        with self._lock:
            self.active = False
            if status is not None:
                self.status = status
            elif self._first_firing:
                self.status = Status.ISSUES_FOUND
            elif self._counts[Outcome.ERROR]:
                self.status = Status.ERROR
            else:
                self.status = Status.NO_ISSUES_FOUND
            self.details = details
            if not self.judged and not self._counts[Outcome.ERROR] and not self.message:
                self.message = f"judged no step: {self._last_skip}" if self._last_skip else "judged no step"
            self.modified = datetime.now(UTC)

    def set_status(self, status: Status) -> None:
        """Change the status alone."""
        with self._lock:
            self.status = status
            self.modified = datetime.now(UTC)

    # ------------------------------------------------------------------------------------------------- for everyone

    @property
    def judged(self) -> int:
        """Steps on which it had something to judge."""
        return self._counts[Outcome.PASSED] + self._counts[Outcome.FIRED]

    @property
    def done(self) -> int:
        """Steps that it was asked about."""
        return len(self._steps)

    @property
    def fired(self) -> bool:
        """Whether its condition was met at any step."""
        return self._first_firing is not None

    @property
    def errors(self) -> int:
        """Steps at which it raised."""
        return self._counts[Outcome.ERROR]

    @property
    def first_firing(self) -> RuleEvent | None:
        """Where its condition was met first."""
        return self._first_firing

    @property
    def firings(self) -> list[RuleEvent]:
        """The newest firings with all details, oldest first."""
        with self._lock:
            return list(self._firings)

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """What it said of every step."""
        with self._lock:
            return {step: Outcome(outcome) for step, outcome in zip(self._steps, self._outcomes, strict=True)}

    def snapshot(self, after: int = 0, firings: int = 200) -> Snapshot:
        """How it stands now: steps and outcomes from number `after` on, and the newest firings."""
        with self._lock:
            return Snapshot(
                self.restarts,
                self.status,
                self.active,
                self.message,
                after,
                self._steps[after:],
                bytes(self._outcomes[after:]),
                len(self._steps),
                list(self._firings)[-firings:] if firings else [],
                self._counts[Outcome.FIRED],
            )

    def status_details(self) -> str:
        """What the status means, in at most 1024 characters."""
        parts = []
        if first := self._first_firing:
            parts.append(
                f"RuleEvaluationConditionMet: Evaluation of the rule {self.rule.rule_name} at step {first.step} resulted in the "
                f"condition being met\n{first.message}"
            )
            if self._counts[Outcome.FIRED] > 1:
                parts.append(f"Met at {self._counts[Outcome.FIRED]} of {self.judged} judged steps.")
        if self._counts[Outcome.ERROR]:
            parts.append(f"{self._counts[Outcome.ERROR]} steps ended in an error, the last {self._last_error}")
        if failures := self.rule.actions.failures:
            parts += [f"Action {action.name} failed: {why}" for action, why in failures]
        if self.details:
            parts.append(self.details)
        if not parts and self.message:
            parts.append(self.message)
        text = "\n".join(parts)
        return text if len(text) <= DETAILS_LIMIT else text[: DETAILS_LIMIT - 1] + "…"

    def summary(self) -> dict[str, Any]:
        """As an entry of SageMaker's `rule_job_summary()`."""
        with self._lock:
            found: dict[str, Any] = {
                "RuleConfigurationName": self.name,
                "RuleEvaluationJobArn": "",
                "RuleEvaluationStatus": str(self.status),
            }
            if details := self.status_details():
                found["StatusDetails"] = details
            found["LastModifiedTime"] = self.modified
            return found

    def __repr__(self) -> str:
        return f"<{self.name}: {self.status}, {self.done} steps, {self._counts[Outcome.FIRED]} fired>"

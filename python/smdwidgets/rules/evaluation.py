"""State of one rule of a runner: SageMaker status and outcome at each step."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from smdwidgets._text import visible
from smdwidgets.finding import Evidence, Finding
from smdwidgets.finding.rules import rule_finding
from smdwidgets.rules.findings import step_text
from smdwidgets.rules.judged_steps import JudgedSteps
from smdwidgets.rules.verdicts import Outcome, Verdicts

if TYPE_CHECKING:
    from smdwidgets.rules.rule import Rule

__all__ = ["Evaluation", "Outcome", "RuleEvent", "Snapshot", "Status"]

#: Number of latest firings kept with all details; outcomes are kept for all steps.
FIRINGS_KEPT = 1000
#: Maximum number of findings kept per firing; the message gives the total.
FINDINGS_KEPT = 50
#: The SageMaker service's length limit of StatusDetails.
DETAILS_LIMIT = 1024


class Status(StrEnum):
    """Status of a rule, with SageMaker's values."""

    IN_PROGRESS = "InProgress"
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    ERROR = "Error"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


@dataclass(frozen=True)
class RuleEvent:
    """Event of a rule at a step, or its start, restart or end (`step` is None)."""

    rule: str
    step: int | None
    kind: str  #: "fired", "passed", "skipped", "error", or "started", "restarted", "finished"
    message: str = ""
    findings: tuple[Evidence, ...] = ()
    status: Status = Status.IN_PROGRESS

    def __str__(self) -> str:
        at = "" if self.step is None else f" at step {self.step}"
        return f"{visible(self.rule, 200)} {self.kind}{at}" + (
            f": {visible(self.message, 4000)}" if self.message else ""
        )


class Snapshot(NamedTuple):
    """State of an evaluation at one moment, for display.

    For an incremental update, call `Evaluation.snapshot` with `after` set to the number of steps received so far. If
    `restarts` has changed, start again from 0.
    """

    restarts: int
    status: Status
    active: bool
    paused: bool
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
        # An incomplete rule is not judged, and ends before it begins.
        self.status = Status.NO_ISSUES_FOUND if rule.incomplete else Status.IN_PROGRESS
        self.active = not rule.incomplete
        self.paused = False
        #: Message of the latest firing, else of the latest error, else the reason why no step was judged.
        self.message = rule.incomplete
        self.details = ""
        self.modified = datetime.now(UTC)
        self._steps = JudgedSteps()
        self._outcomes = bytearray()
        self._firings: deque[RuleEvent] = deque(maxlen=FIRINGS_KEPT)
        self._counts = dict.fromkeys(Outcome, 0)
        self._first_firing: RuleEvent | None = None
        self._last_error = ""
        self._last_skip = ""

    # --------------------------------------------------------------------------------------------- used by the runner

    def restart(self, rule: Rule) -> None:
        """Discard all results and continue with a new rule object."""
        with self._lock:
            self._begin(rule)
            self.restarts += 1

    def note(self, step: int, outcome: Outcome, message: str, findings: tuple[Evidence, ...] = ()) -> RuleEvent:
        """Record the outcome of a step."""
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

    def note_many(self, steps: Sequence[int], verdicts: Verdicts) -> None:
        """Record the outcomes of consecutive steps."""
        fired, skipped = verdicts.rows(Outcome.FIRED), verdicts.rows(Outcome.SKIPPED)
        kept = fired[-FIRINGS_KEPT:]
        if fired and kept[0] != fired[0]:
            kept.insert(0, fired[0])  # the first firing is kept too
        last_findings = self.rule.findings
        events = [self._firing(steps[row], verdicts.findings(row)) for row in kept]
        self.rule.findings = last_findings
        with self._lock:
            if fired:
                self.status = Status.ISSUES_FOUND if self.status == Status.IN_PROGRESS else self.status
            self._steps.extend(steps)
            self._outcomes.extend(verdicts.outcomes.tobytes())
            for outcome in Outcome:
                self._counts[outcome] += int((verdicts.outcomes == outcome).sum())
            for event in events:
                self._count_message(Outcome.FIRED, event)
            if skipped:
                self._last_skip = verdicts.reason(skipped[-1])
            self.modified = datetime.now(UTC)

    def _firing(self, step: int, findings: list[Evidence]) -> RuleEvent:
        self.rule.findings = findings
        kept = tuple(findings[:FINDINGS_KEPT])
        return RuleEvent(self.name, step, "fired", self.rule.explain(step), kept, Status.ISSUES_FOUND)

    def note_silence(self, step: int, message: str, findings: tuple[Evidence, ...]) -> RuleEvent:
        """Record that the rule fired at the last step while waiting for new steps."""
        with self._lock:
            self.status = Status.ISSUES_FOUND if self.status == Status.IN_PROGRESS else self.status
            event = RuleEvent(self.name, step, "fired", message, findings[:FINDINGS_KEPT], self.status)
            # Appended as a separate outcome, so that clients that already received the step's first outcome see it.
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
            at = "" if event.step is None else step_text(self.rule.base_trial, event.step)
            self._last_error = f"at {at}: {event.message}"
            if not self._first_firing:
                self.message = self._last_error
        elif outcome == Outcome.SKIPPED:
            self._last_skip = event.message

    def end(self, status: Status | None = None, details: str = "") -> None:
        """Finish the rule.

        Without `status`, the status follows from the outcomes.
        """
        with self._lock:
            self.active = self.paused = False
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
        """Change only the status."""
        with self._lock:
            self.status = status
            self.modified = datetime.now(UTC)

    def set_paused(self, paused: bool) -> None:
        """Pause or resume the rule, if it has not finished."""
        with self._lock:
            self.paused = paused and self.active
            self.modified = datetime.now(UTC)

    def unstop(self) -> None:
        """Continue the rule where it was stopped; do nothing if it was not stopped."""
        with self._lock:
            if self.status in (Status.STOPPING, Status.STOPPED):
                self.status = Status.ISSUES_FOUND if self._first_firing else Status.IN_PROGRESS
                self.active = True
                self.modified = datetime.now(UTC)

    # ---------------------------------------------------------------------------------------------------- public API

    @property
    def evaluating(self) -> bool:
        """Whether the rule has not finished, is not paused, and is not to be stopped."""
        return self.active and not self.paused and self.status != Status.STOPPING

    @property
    def label(self) -> str:
        """The status: Found, Clear, Not judged, Running, Paused, Stopped or Failed.

        The rule panel shows the same words. A rule that judged no step has the status NoIssuesFound, as in SageMaker.
        """
        if self.status == Status.IN_PROGRESS:
            return "Paused" if self.paused else "Running"
        if self.status == Status.NO_ISSUES_FOUND:
            return "Clear" if self.judged else "Not judged"
        return {Status.ISSUES_FOUND: "Found", Status.ERROR: "Failed"}.get(self.status, "Stopped")

    @property
    def judged(self) -> int:
        """Number of steps that passed or fired."""
        return self._counts[Outcome.PASSED] + self._counts[Outcome.FIRED]

    @property
    def done(self) -> int:
        """Number of steps evaluated, including skipped steps and errors."""
        return len(self._steps)

    @property
    def fired(self) -> bool:
        """Whether the rule fired at any step."""
        return self._first_firing is not None

    @property
    def errors(self) -> int:
        """Number of steps at which the rule raised an exception."""
        return self._counts[Outcome.ERROR]

    @property
    def first_firing(self) -> RuleEvent | None:
        """The first firing, or None."""
        return self._first_firing

    @property
    def finding(self) -> Finding | None:
        """The finding of the rule, with the evidence of its first firing.

        None if the rule did not fire.
        """
        with self._lock:
            first, firings, count = self._first_firing, list(self._firings), self._counts[Outcome.FIRED]
        if first is None:
            return None
        events = [first, *firings]
        tensors = dict.fromkeys(one.subject for event in events for one in event.findings if one.subject)
        steps = first.step or 0, events[-1].step or 0
        return rule_finding(self.name, *steps, count, list(tensors), first.findings)

    @property
    def firings(self) -> list[RuleEvent]:
        """The latest firings with all details, oldest first."""
        with self._lock:
            return list(self._firings)

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """The outcome at every evaluated step."""
        with self._lock:
            return {step: Outcome(outcome) for step, outcome in zip(self._steps, self._outcomes, strict=True)}

    def snapshot(self, after: int = 0, firings: int = 200) -> Snapshot:
        """Return the current state.

        Args:
            after: index of the first step to include.
            firings: maximum number of latest firings to include.
        """
        with self._lock:
            return Snapshot(
                self.restarts,
                self.status,
                self.active,
                self.paused,
                self.message,
                after,
                self._steps.after(after),
                bytes(self._outcomes[after:]),
                len(self._steps),
                list(self._firings)[-firings:] if firings else [],
                self._counts[Outcome.FIRED],
            )

    def status_details(self) -> str:
        """Describe the status in at most 1024 characters."""
        parts = []
        if first := self._first_firing:
            at = step_text(self.rule.base_trial, first.step or 0)
            parts.append(
                f"RuleEvaluationConditionMet: Evaluation of the rule {self.rule.rule_name} at {at} resulted in the "
                f"condition being met\n{first.message}"
            )
            if self._counts[Outcome.FIRED] > 1:
                parts.append(f"Fired at {self._counts[Outcome.FIRED]} of {self.judged} judged steps.")
        if self._counts[Outcome.ERROR]:
            parts.append(f"{self._counts[Outcome.ERROR]} steps failed, the last {self._last_error}")
        if failures := self.rule.actions.failures:
            parts += [f"Action {action.name} failed: {why}" for action, why in failures]
        if self.details:
            parts.append(self.details)
        if not parts and self.message:
            parts.append(self.message)
        text = "\n".join(parts)
        return text if len(text) <= DETAILS_LIMIT else text[: DETAILS_LIMIT - 1] + "…"

    def summary(self) -> dict[str, Any]:
        """Return an entry of SageMaker's `rule_job_summary()`."""
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

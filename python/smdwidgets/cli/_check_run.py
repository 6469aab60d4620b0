"""What `check` says of every run, whether rules or the diagnosis judged it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from smdwidgets.cli._junit import Case, junit
from smdwidgets.cli._run import plain
from smdwidgets.trials import Trial

_EMPTY = "The run has no step, so that nothing could be judged"


class RunResult(ABC):
    """The result of a run, as text, JSON or JUnit XML.

    Attributes:
        trial: the run.
        empty: whether the run counts as not judged because it has no step, not even an incomplete one.
        notes: what the hook was asked to save and did not get.
        in_time: whether everything was judged before the timeout.
    """

    def __init__(self, trial: Trial, allow_unjudged: bool, in_time: bool) -> None:
        self.trial = trial
        self.empty = not allow_unjudged and not trial.steps(show_incomplete_steps=True)
        self.notes = list(dict.fromkeys(text for _, text in trial.notes()))
        self.in_time = in_time

    @property
    @abstractmethod
    def exit_code(self) -> int:
        """Exit code: 0 nothing found, 1 findings, 2 not judged or an error."""

    @abstractmethod
    def _judgements(self) -> dict[str, Any]:
        """Return the entries ``diagnosis`` and ``rules`` of the JSON form."""

    @abstractmethod
    def _cases(self) -> list[Case]:
        """Return the test cases of the JUnit form."""

    @abstractmethod
    def _lines(self, marks: dict[str, str]) -> list[str]:
        """Return the lines of the text form, with these marks of the outcomes."""

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON-serializable objects."""
        return {
            "run": str(self.trial.path),
            "exit_code": self.exit_code,
            "ended": bool(self.trial.loaded_all_steps),
            "in_time": self.in_time,
            "empty": self.empty,
            "notes": self.notes,
            **self._judgements(),
        }

    def to_junit(self) -> str:
        """Return the result as JUnit XML."""
        empty = [Case("run", "steps", "error", _EMPTY, "\n".join(self.notes))] if self.empty else []
        return junit(f"smdwidgets check {self.trial.path}", [*self._cases(), *empty], self.notes)

    def text(self, encoding: str | None) -> str:
        """Return the result as text, followed by notes and open ends."""
        lines = [*self._lines(_marks(encoding)), *(f"Note: {note}" for note in self.notes)]
        if self.empty:
            lines.append(f"{_EMPTY} (--allow-unjudged accepts this).")
        if not self.in_time:
            lines.append("Timed out before all steps were judged.")
        return "\n".join(plain(line, 4000) for line in lines)


def _marks(encoding: str | None) -> dict[str, str]:
    """Return the marks of the outcomes, in ASCII where the encoding has no others."""
    marks = {"fired": "✗", "passed": "✓", "error": "!", "nothing": "-"}
    try:
        "".join(marks.values()).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        marks.update(fired="x", passed="+")
    return marks

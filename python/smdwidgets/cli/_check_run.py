"""What `check` says of every run, whether rules or the diagnosis judged it."""

from __future__ import annotations

from collections.abc import Sequence

from smdwidgets.cli._junit import Case
from smdwidgets.trials import Trial

_EMPTY = "The run has no step, so that nothing could be judged"


def without_step(trial: Trial) -> bool:
    """Whether the run has no step at all, not even an incomplete one."""
    return not trial.steps(show_incomplete_steps=True)


def notes_of(trial: Trial) -> list[str]:
    """Return what the hook was asked to save and did not get."""
    return list(dict.fromkeys(text for _, text in trial.notes()))


def empty_case(notes: Sequence[str]) -> Case:
    """Return the test case of a run without a step."""
    return Case("run", "steps", "error", _EMPTY, "\n".join(notes))


def closing_lines(notes: Sequence[str], empty: bool, in_time: bool) -> list[str]:
    """Return the lines below the result: notes, and why the run counts as not judged."""
    lines = [f"Note: {note}" for note in notes]
    if empty:
        lines.append(f"{_EMPTY} (--allow-unjudged accepts this).")
    if not in_time:
        lines.append("Timed out before all steps were judged.")
    return lines


def marks_for(encoding: str | None) -> dict[str, str]:
    """Return the marks of the outcomes, in ASCII where the encoding has no others."""
    marks = {"fired": "✗", "passed": "✓", "error": "!", "nothing": "-"}
    try:
        "".join(marks.values()).encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        marks.update(fired="x", passed="+")
    return marks

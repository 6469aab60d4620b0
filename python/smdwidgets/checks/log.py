"""Write the checks of a training that fire, and say them at once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from smdwidgets._text import capitalized, did_you_mean, shown, visible
from smdwidgets.checks.record import CheckRecord
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.finding import CHECKS, LEVELS, Level

__all__ = ["CheckLog", "ChecksOption", "chosen_checks"]

logger = logging.getLogger("smdwidgets.hooks")

ChecksOption = bool | Iterable[str]
"""Which checks run: all, none, or all but those with a minus sign, or only those named."""

_ROWS = {one.id: one for one in CHECKS}
#: Changes of the order of events that are written at most, and further names of a record.
_MOST_WORDS, _MOST_SUBJECTS = 100, 20


def chosen_checks(option: ChecksOption) -> frozenset[str]:
    """Return the identifiers of the checks that an option selects.

    >>> sorted(chosen_checks(["not_reset", "untied"])), len(chosen_checks(["-untied"])) == len(chosen_checks(True)) - 1
    (['not_reset', 'untied'], True)
    """
    if isinstance(option, bool):
        return frozenset(_ROWS) if option else frozenset()
    if isinstance(option, str) or not isinstance(option, Iterable):
        raise SMDebugTypeError(f'checks must be True, False or a list such as ["-same_batch"], got {shown(option)}')
    names = [*option]
    for name in names:
        if not isinstance(name, str) or name.removeprefix("-") not in _ROWS:
            text = str(name).removeprefix("-")
            raise SMDebugValueError(f"unknown check {shown(name)}.{did_you_mean(text, _ROWS)}")
    without = {name[1:] for name in names if name.startswith("-")}
    only = {name for name in names if not name.startswith("-")}
    return frozenset((only or _ROWS.keys()) - without)


@dataclass(slots=True)
class _State:
    seen: int = 0
    first: int = 0
    record: CheckRecord | None = None


class CheckLog:
    """The checks of one worker.

    Args:
        chosen: identifiers of the checks that run.
        append: appends lines to the file of the run; must not raise.
        where: the run, for messages.
    """

    def __init__(self, chosen: frozenset[str], append: Callable[[bytes], object], where: str = "") -> None:
        self._chosen = chosen
        self._append = append
        self._where = where
        self._states: dict[str, _State] = {}
        self._off: dict[str, str] = {}
        self._word = ""
        self._words = 0

    def runs(self, id: str) -> bool:
        """Whether a check runs."""
        return id in self._chosen and id not in self._off

    def has_fired(self, id: str) -> bool:
        """Whether a check has fired."""
        state = self._states.get(id)
        return state is not None and state.record is not None

    @property
    def fired(self) -> list[CheckRecord]:
        """The checks that fired."""
        return [one.record for one in self._states.values() if one.record is not None]

    def say(
        self,
        id: str,
        step: int,
        facts: Mapping[str, Any] | None = None,
        subject: Iterable[str] = (),
        *,
        need: int = 1,
        level: Level | None = None,
        advice: str = "",
    ) -> None:
        """A check has seen a fault.

        Args:
            id: identifier of the check.
            step: global step.
            facts: values of the placeholders in its sentence; also the evidence.
            subject: names that show it.
            need: how often it must be seen before it fires.
            level: level; default: that of the table.
            advice: what to change; default: that of the table.
        """
        if not self.runs(id):
            return
        row = _ROWS[id]
        state = self._states.setdefault(id, _State())
        if not state.seen:
            state.first = step
        state.seen += 1
        if state.seen < need:
            return
        level = level or row.level
        earlier = state.record
        if earlier is not None and LEVELS.index(level) >= LEVELS.index(earlier.level):
            state.record = replace(earlier, last=max(step, earlier.last), count=state.seen)
            return
        facts = dict(facts or {})
        words = {key: visible(value, 200) if isinstance(value, str) else value for key, value in facts.items()}
        says = row.fact.format(**words)
        advice = capitalized(advice or row.advice)
        names = tuple(str(one) for one in subject)[:_MOST_SUBJECTS]
        first = state.first
        state.record = CheckRecord(id, level, first, step, state.seen, names, facts, says, advice)
        self._append(state.record.to_line())
        if level != "note":
            where = f"{shown(self._where, 200)}: " if self._where else ""
            more = f"smdwidgets explain {id}"
            logger.warning("%s%s at step %d: %s. Try: %s (%s)", where, level, first, says, advice, more)

    def unseen(self, id: str) -> None:
        """A check does not see its fault at this step: it counts again from 0."""
        state = self._states.get(id)
        if state is not None and state.record is None:
            state.seen = 0

    def off(self, ids: Iterable[str], reason: str) -> None:
        """These checks cannot run: write why, once."""
        for id in ids:
            if id in self._chosen and id not in self._off:
                self._off[id] = reason
                self._append(json.dumps({"id": id, "off": reason}).encode() + b"\n")

    def word(self, step: int, word: str) -> None:
        """Write the order of events of a step if it differs from that of the step before."""
        if word != self._word and self._words < _MOST_WORDS:
            self._word = word
            self._words += 1
            self._append(json.dumps({"word": word, "first": step}).encode() + b"\n")

    def settings(self, values: Mapping[str, str | bool | int | float]) -> None:
        """Write the settings of the training; later ones replace them."""
        self._append(json.dumps({"settings": dict(values)}).encode() + b"\n")

    def digest(self, step: int, tensors: Mapping[str, Any]) -> None:
        """Write digests of weights, which readers compare between workers."""
        self._append(json.dumps({"digest": step, "tensors": dict(tensors)}).encode() + b"\n")

    def close(self, updates: int) -> None:
        """Write the last step and count of what fired, and the number of updates."""
        lines = [one.to_line() for one in self.fired if one.count > 1]
        self._append(b"".join([*lines, json.dumps({"updates": updates}).encode() + b"\n"]))

"""The file of checks in a run: ``checks/<worker>.jsonl``.

It is append-only, one JSON object per line.

A line is a check that fired (when first seen, and again at the end with its last step and count), a check that cannot
run and why, the order of events of a step, the settings of the training, or a digest of weights that readers compare
between workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from smdwidgets._text import visible
from smdwidgets.finding import CHECKS, LEVELS, Level

__all__ = ["CHECKS_PREFIX", "LARGEST_CHECKS", "CheckRecord", "CheckRecords"]

CHECKS_PREFIX: Final = "checks"
"""The folder of the files, in the root of the run."""
LARGEST_CHECKS: Final = 16 << 20
"""Bytes of a file that are read at most."""

_LARGEST_STEP = 2**63
_MOST_SETTINGS = 1000
_IDS = frozenset(one.id for one in CHECKS)
_ROWS = {one.id: one for one in CHECKS}


@dataclass(frozen=True)
class CheckRecord:
    """One check that fired.

    Attributes:
        id: identifier of the check.
        level: ``"problem"``, ``"warning"`` or ``"note"``.
        first: first global step that showed it, and ``last`` the last one.
        count: how often it was seen.
        subject: names of tensors or objects that show it, the most telling first.
        evidence: what was observed.
        says: the fact, in one sentence without a full stop.
        try_: what to change.
        worker: the worker that recorded it.

    >>> record = CheckRecord("not_reset", "problem", 1, 7, 7, ("SGD",), {}, "Gradients are not reset", "Reset them.")
    >>> CheckRecords.parse({"worker_0": record.to_line()})
    step 1: Gradients are not reset
    """

    id: str
    level: Level
    first: int
    last: int
    count: int
    subject: tuple[str, ...]
    evidence: Mapping[str, Any]
    says: str
    try_: str
    worker: str = ""

    def to_line(self) -> bytes:
        """Return the line of the file."""
        content = {
            "id": self.id,
            "level": self.level,
            "first": self.first,
            "last": self.last,
            "count": self.count,
            "subject": list(self.subject),
            "evidence": dict(self.evidence),
            "says": self.says,
            "try": self.try_,
        }
        return json.dumps(content, default=str).encode() + b"\n"

    @classmethod
    def of_json(cls, content: Mapping[str, Any], worker: str) -> CheckRecord:
        """Return the record of a line.

        Raises:
            ValueError: the line has an invalid field.
        """
        name, level = content.get("id"), content.get("level")
        if name not in _IDS or level not in LEVELS:
            raise ValueError("unknown check or level")
        numbers = [content.get(key) for key in ("first", "last", "count")]
        if not all(isinstance(one, int) and -1 <= one < _LARGEST_STEP for one in numbers):
            raise ValueError("first, last or count is not a number")
        subject, evidence = content.get("subject", []), content.get("evidence", {})
        if not isinstance(subject, list) or not isinstance(evidence, dict):
            raise ValueError("subject or evidence has another type")
        first, last, count = (int(one) for one in numbers if one is not None)
        row = _ROWS[str(name)]
        says, advice = content.get("says") or row.name, content.get("try") or row.advice
        return cls(
            row.id,
            level,
            first,
            max(first, last),
            count,
            tuple(visible(one, 1000) for one in subject[:1000]),
            evidence,
            visible(says, 1000),
            visible(advice, 1000),
            worker,
        )

    def __str__(self) -> str:
        return f"step {self.first:,}: {self.says}"


@dataclass
class CheckRecords:
    """The checks of a run.

    Attributes:
        fired: checks that fired, by step; one record per check and worker.
        off: why checks could not run, by identifier.
        words: by worker, the order of events of a step and the step from which on it was so.
        settings: settings of the training, such as those of its optimizers, by name. The first worker's count.
        workers: workers that wrote a file.
        updates: number of updates that were checked.
        problems: unreadable lines, as (file, message).
    """

    fired: list[CheckRecord] = field(default_factory=list)
    off: dict[str, str] = field(default_factory=dict)
    words: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    settings: dict[str, str | bool | int | float] = field(default_factory=dict)
    workers: tuple[str, ...] = ()
    updates: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def parse(cls, files: Mapping[str, bytes]) -> CheckRecords:
        """Return the checks of the files of all workers.

        An incomplete last line is ignored; the training may be writing it.
        """
        records = cls(workers=tuple(sorted(files)))
        fired: dict[tuple[str, str], CheckRecord] = {}
        digests: dict[str, dict[int, Mapping[str, Any]]] = {}
        settings: dict[str, dict[str, str | bool | int | float]] = {}
        for worker, content in sorted(files.items()):
            lines = content.split(b"\n")[:-1]
            for number, line in enumerate(lines, 1):
                try:
                    fields = json.loads(line)
                    if not isinstance(fields, dict):
                        raise ValueError("not a JSON object")
                    if "off" in fields:
                        records.off[visible(fields.get("id", ""), 100)] = visible(fields["off"], 1000)
                    elif "updates" in fields:
                        records.updates = max(records.updates, int(fields["updates"]))
                    elif "word" in fields:
                        records.words.setdefault(worker, []).append(
                            (int(fields["first"]), visible(fields["word"], 1000))
                        )
                    elif "settings" in fields:
                        settings[worker] = _settings(fields["settings"])
                    elif "digest" in fields:
                        digests.setdefault(worker, {})[int(fields["digest"])] = dict(fields["tensors"])
                    else:
                        one = CheckRecord.of_json(fields, worker)
                        earlier = fired.get((one.id, worker))
                        fired[one.id, worker] = one if earlier is None else _later(earlier, one)
                except (ValueError, TypeError, KeyError, RecursionError) as error:
                    if len(records.problems) < 100:
                        key = f"{CHECKS_PREFIX}/{worker}.jsonl"
                        records.problems.append((key, f"invalid line {number}: {visible(error, 200)}"))
        records.settings = next(iter(settings.values()), {})
        records.fired = sorted([*fired.values(), *_apart(digests)], key=lambda one: (one.first, one.id, one.worker))
        return records

    def __iter__(self) -> Iterator[CheckRecord]:
        return iter(self.fired)

    def __len__(self) -> int:
        return len(self.fired)

    def __getitem__(self, index: int) -> CheckRecord:
        return self.fired[index]

    def __repr__(self) -> str:
        return "\n".join(map(str, self.fired)) or ("no check fired" if self.workers else "no checks were recorded")


def _settings(content: Mapping[str, Any]) -> dict[str, str | bool | int | float]:
    """Return the settings of a line: numbers, flags and texts."""
    return {
        visible(name, 200): visible(value, 200) if isinstance(value, str) else value
        for name, value in [*dict(content).items()][:_MOST_SETTINGS]
        if isinstance(value, str | bool | int | float)
    }


def _later(earlier: CheckRecord, later: CheckRecord) -> CheckRecord:
    """Return the later line of one check, with the first step of the earlier one.

    After a training was resumed, its file continues.
    """
    level = min(earlier.level, later.level, key=LEVELS.index)
    first, last = min(earlier.first, later.first), max(earlier.last, later.last)
    shown = later if LEVELS.index(later.level) <= LEVELS.index(earlier.level) else earlier
    return CheckRecord(
        shown.id,
        level,
        first,
        last,
        max(earlier.count, later.count),
        shown.subject,
        shown.evidence,
        shown.says,
        shown.try_,
        shown.worker,
    )


def _apart(digests: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> Iterable[CheckRecord]:
    """Compare the digests of workers; yield the first difference.

    Workers that never had equal weights, and do not share gradients, are separate trainings.
    """
    workers = [*digests]
    if len(workers) < 2:
        return
    agreed: set[str] = set()
    for step in sorted(set.intersection(*(set(each) for each in digests.values()))):
        columns = {worker: digests[worker][step] for worker in workers}
        names = [name for name in columns[workers[0]] if all(name in each for each in columns.values())]
        for name in names:
            values = {worker: columns[worker][name] for worker in workers}
            shapes = {str(value[0]) for value in values.values()}
            if len(shapes) > 1:
                continue
            other = next((each for each in workers[1:] if values[each][1] != values[workers[0]][1]), None)
            if other is None:
                agreed.add(name)
            elif name in agreed or bool(values[workers[0]][2]):
                yield _differ(name, workers[0], other, step)
                return


def _differ(name: str, worker: str, other: str, step: int) -> CheckRecord:
    row = _ROWS["replicas_differ"]
    says = row.fact.format(tensor=visible(name, 200), worker=worker, other=other, step=step)
    evidence = {"workers": [worker, other], "step": step}
    return CheckRecord(row.id, row.level, step, step, 1, (name,), evidence, says, row.advice, worker)

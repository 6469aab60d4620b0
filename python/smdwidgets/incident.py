"""Incidents of a run: when and why the flight recorder wrote its steps.

A hook keeps the tensors of the last steps in memory. When something breaks, it writes them to the run, and one record
that says why: a JSON file below ``incidents/``. `Trial.incidents` reads the records.

>>> incident = Incident("worker_0", 337, ("NaN in 'fc1.weight'",), Trigger("fc1.weight", "nan", 3.0), (336, 337), 345)
>>> Incident.parse(incident.to_json(), "worker_0") == incident
True
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from smdwidgets._text import listed, shown, visible

__all__ = [
    "DENSE_STEPS",
    "INCIDENTS_PREFIX",
    "LARGEST_RECORD",
    "MOST_ROWS",
    "MOST_STEPS",
    "Incident",
    "Jump",
    "Trigger",
    "combined",
]

INCIDENTS_PREFIX: Final = "incidents"
"""The folder of the records, in the root of the run."""
LARGEST_RECORD: Final = 1 << 20
"""Bytes of a record that are read at most."""
MOST_STEPS: Final = 8
"""Steps before an incident that the flight recorder holds at most."""
DENSE_STEPS: Final = 8
"""Steps after an incident that are saved whole."""

MOST_ROWS: Final = 4096
"""Rows of a batch in a record."""

#: Rows in a text.
_ROWS_SHOWN = 6
#: Reasons and steps of a record that are read at most.
_MOST_READ = 10_000
_MOST_JUMPS = 100
_LARGEST_STEP = 2**63


@dataclass(frozen=True)
class Trigger:
    """The statistic that caused an incident: tensor, column, value."""

    tensor: str
    column: str
    value: float

    def __str__(self) -> str:
        return f"{self.column} of {shown(self.tensor)} = {self.value:.6g}"


@dataclass(frozen=True)
class Jump:
    """A tensor whose largest magnitude jumped.

    ``before`` is the largest of the last 64 steps, ``value`` that of the step.
    """

    tensor: str
    before: float
    value: float

    def __str__(self) -> str:
        return f"{shown(self.tensor)} from {self.before:.3g} to {self.value:.3g}"


@dataclass(frozen=True)
class Incident:
    """One moment at which something broke, and the steps that were saved around it.

    Attributes:
        worker: the worker that recorded it; if several did, the one with the earliest cause.
        step: global step of the cause.
        why: reasons, the first one first.
        trigger: the statistic that caused it; None for a request, a signal or an exception.
        steps: global steps that were saved because of it.
        dense_until: last step that was to be saved whole.
        missed: number of those steps that are not whole, because memory or disk space was short.
        time: time in seconds since the epoch.
        rank: rank of the worker, and ``world`` the number of workers of the training.
        run: directory or URL of the run, as the hook wrote it.
        workers: all workers that recorded it.
        place: place of the trigger's tensor in the causal order of its step: stage, position in it. Smaller ones are
            earlier. None if it is not known.
        jumps: the tensors whose magnitudes jumped most at that step, and the first that did, in causal order; then
            those that the step lacks, and that jumped at the next step with them.
        rows: the rows of the data set in the batches of that step, as far as they are known.
        recorded: what was recorded to execute the steps again: ``keyframe``, ``steps``, ``bytes``, ``why_not``.
    """

    worker: str
    step: int
    why: tuple[str, ...]
    trigger: Trigger | None = None
    steps: tuple[int, ...] = ()
    dense_until: int = -1
    missed: int = 0
    time: float = 0.0
    rank: int = 0
    world: int = 1
    run: str = ""
    workers: tuple[str, ...] = ()
    place: tuple[int, int] | None = None
    jumps: tuple[Jump, ...] = ()
    rows: tuple[Any, ...] = ()
    recorded: Mapping[str, Any] | None = None
    #: Opens what was recorded; set where the record is read from a run.
    opener: Callable[[], Any] | None = field(default=None, compare=False, repr=False)

    @property
    def replay(self) -> Any:
        """The recorded steps, or None.

        They are an :class:`~smdwidgets.replay.IncidentReplay`.
        """
        return None if self.opener is None or self.recorded is None else self.opener()

    def batch(self, step: int | None = None) -> Any:
        """Return the batch of a step, with arrays in place of tensors.

        A list, if the step had several batches.

        Args:
            step: the global step; None: that of the incident.

        Raises:
            LookupError: it was not recorded.
        """
        return self._replay().batch(self.step if step is None else step)

    def row_ids(self, step: int | None = None) -> list[Any] | None:
        """Return which rows of the data set the batches of a step had.

        None if it is not known.

        They are the indices that the sampler gave, such as ``loader.dataset[302]``; of an iterable data set pairs of
        (worker, running number); or the values of a column ``id``, ``idx`` or ``index`` of the batch.

        Args:
            step: the global step; None: that of the incident.

        Raises:
            LookupError: the step was not recorded.
        """
        result: list[Any] | None = self._replay().row_ids(self.step if step is None else step)
        return result

    def explain(self) -> Any:
        """Execute the steps before the incident again and name what broke them.

        The result is an :class:`~smdwidgets.replay.explanation.Explanation`: the operator that produced the first value
        that is not finite, its module, line, operands and rows; or the operator whose values grew; or a value that was
        given. It requires PyTorch, in the process that trained. The model is put back as it is.

        Raises:
            LookupError: nothing was recorded around the incident.
            CannotReplay: the steps cannot be executed in this process.

        >>> trial.incidents()[0].explain()                                     # doctest: +SKIP
        step 37: aten.div returned NaN in 4 of 32 elements, first at [6, 0] (forward)
          model.py:39: x / x.sum(1, keepdim=True)
        """
        return self._replay().explain(self.step)

    def rank_rows(self, loss: Callable[..., Any] | None = None, *, step: int | None = None) -> Any:
        """Return the rows of the batch, the most suspicious one first.

        The result is a :class:`~smdwidgets.replay.ranking.RowRanking`. Only rows that are not finite alone are claimed.

        Args:
            loss: returns the loss of a batch; its arguments are the model and the batch. None: the step is executed
                with each row alone, which takes longer.
            step: the global step; None: that of the incident.

        >>> incident.rank_rows(lambda model, batch: cross_entropy(model(batch[0]), batch[1]))    # doctest: +SKIP
        """
        return self._replay().rank_rows(self.step if step is None else step, loss)

    def what_if(self, *, step: int | None = None, **change: Any) -> Any:
        """Execute the steps with a change: does the incident still happen?

        The result is a :class:`~smdwidgets.replay.outcomes.WhatIf`.

        Args:
            step: the first step with the change; None: that of the incident.
            change: ``lr=0.001`` or ``lr="0.1x"``, ``clip=1.0``, ``drop_rows=[6]``, ``eps=1e-6``, ``dtype="fp32"``
                (without autocast), ``batch="skip"`` (without the update of the step).

        >>> trial.incidents()[0].what_if(drop_rows=[6])                        # doctest: +SKIP
        without row 6 at step 37: heals; largest loss 0.93
        """
        return self._replay().what_if(self.step if step is None else step, **change)

    def try_all(self, rows: Sequence[int] = (), *, step: int | None = None) -> Any:
        """Try usual changes, and order them by what heals.

        The result is a :class:`~smdwidgets.replay.outcomes.WhatIfTable`.

        Args:
            rows: rows of the batch that are suspected, such as those of :meth:`explain`.
            step: the first step with a change; None: that of the incident.
        """
        return self._replay().try_all(self.step if step is None else step, rows)

    def _replay(self) -> Any:
        if (replay := self.replay) is None:
            raise LookupError("no batches were recorded around this incident")
        return replay

    @property
    def rows_text(self) -> str:
        """The rows of the step, such as ``rows 302, 88 of the data set``.

        Empty if they are not known.
        """
        if not self.rows:
            return ""
        names = self.row_names[:_ROWS_SHOWN]
        rest = f" and {len(self.rows) - _ROWS_SHOWN:,} more" if len(self.rows) > _ROWS_SHOWN else ""
        return f"row{'s' if len(self.rows) > 1 else ''} {', '.join(names)}{rest} of the data set"

    @property
    def row_names(self) -> list[str]:
        """The rows of the step as texts.

        ``302``, or ``7 of worker 1`` of an iterable data set.
        """
        streamed = all(isinstance(one, tuple) and len(one) == 2 for one in self.rows)
        return [f"{one[1]} of worker {one[0]}" if streamed else visible(one, 50) for one in self.rows]

    def to_json(self) -> bytes:
        """Return the content of the record."""
        trigger = self.trigger
        content = {
            "version": 1,
            "why": list(self.why),
            "trigger": None
            if trigger is None
            else {"tensor": trigger.tensor, "column": trigger.column, "value": _json_number(trigger.value)},
            "step": self.step,
            "steps": list(self.steps),
            "dense_until": self.dense_until,
            "missed": self.missed,
            "time": self.time,
            "rank": self.rank,
            "world": self.world,
            "run": self.run,
            "place": None if self.place is None else list(self.place),
            "jumps": [
                {"tensor": one.tensor, "before": _json_number(one.before), "value": _json_number(one.value)}
                for one in self.jumps
            ],
            "rows": [list(one) if isinstance(one, tuple) else one for one in self.rows],
            "replay": None if self.recorded is None else dict(self.recorded),
        }
        return json.dumps(content, allow_nan=False).encode()

    @classmethod
    def parse(cls, content: bytes, worker: str) -> Incident:
        """Return the incident of a record.

        Raises:
            ValueError: the content is not a record.
        """
        try:
            found = json.loads(content)
        except RecursionError:
            raise ValueError("the record is nested too deeply") from None
        if not isinstance(found, dict):
            raise ValueError("the record is not a JSON object")
        why = found.get("why")
        if not isinstance(why, list) or not why:
            raise ValueError("the record has no reason")
        step = _step(found.get("step"), "step")
        steps = found.get("steps", [])
        if not isinstance(steps, list):
            raise ValueError("steps is not a list")
        return cls(
            worker=worker,
            step=step,
            why=tuple(visible(reason, 1000) for reason in why[:_MOST_READ]),
            trigger=_trigger(found.get("trigger")),
            steps=tuple(sorted({_step(one, "steps") for one in steps[:_MOST_READ]})),
            dense_until=_step(found.get("dense_until", step), "dense_until"),
            missed=_step(found.get("missed", 0), "missed"),
            time=_number(found.get("time", 0.0), "time"),
            rank=_step(found.get("rank", 0), "rank"),
            world=_step(found.get("world", 1), "world"),
            run=visible(found.get("run", ""), 1000),
            place=_place(found.get("place")),
            jumps=_jumps(found.get("jumps", [])),
            rows=_rows(found.get("rows", [])),
            recorded=_recorded(found.get("replay")),
        )

    def __str__(self) -> str:
        text = f"step {self.step:,}: {self.cause}"
        if self.jumps:
            text += f"; first jump: {self.jumps[0]}"
        if self.rows:
            text += f"; {self.rows_text}"
        if self.steps:
            text += f"; saved {self.saved}"
        if self.missed:
            text += f"; {self.missed} steps are not whole"
        return text + (f"; {listed(self.workers)}" if len(self.workers) > 1 else "")

    @property
    def cause(self) -> str:
        """The first reason, its worker, and the number of other reasons."""
        where = f" of {self.worker}" if self.world > 1 else ""
        return self.why[0] + where + (f" (and {len(self.why) - 1} more)" if len(self.why) > 1 else "")

    @property
    def saved(self) -> str:
        """The saved steps as ranges, such as ``steps 330 to 345``, or an empty string."""
        return _ranges(self.steps) if self.steps else ""

    def __repr__(self) -> str:
        return f"<Incident {self}>"

    def to_row(self) -> dict[str, Any]:
        """Return the fields as a row of a table."""
        trigger = self.trigger
        return {
            "step": self.step,
            "why": "; ".join(self.why),
            "tensor": None if trigger is None else trigger.tensor,
            "column": None if trigger is None else trigger.column,
            "value": None if trigger is None else trigger.value,
            "steps": list(self.steps),
            "missed": self.missed,
            "time": self.time,
            "workers": list(self.workers or (self.worker,)),
            "worker": self.worker,
            "jumps": [str(one) for one in self.jumps],
            "rows": list(self.rows),
        }


def combined(found: Iterable[Incident]) -> list[Incident]:
    """Join the records of several workers about one incident.

    Workers decide alone and their clocks differ, so records belong together if their steps are as close as the steps
    that one incident saves.

    >>> one = Incident("worker_1", 338, ("SIGTERM",), steps=(336, 337, 338), rank=1)
    >>> other = Incident("worker_0", 337, ("NaN in 'w'",), steps=(335, 336, 337))
    >>> [(each.step, each.why, each.workers) for each in combined([one, other])]
    [(337, ("NaN in 'w'", 'SIGTERM'), ('worker_0', 'worker_1'))]
    """
    groups: list[list[Incident]] = []
    for one in sorted(found, key=lambda each: (each.step, each.rank, each.time)):
        last = groups[-1] if groups else None
        near = last is not None and one.step <= last[0].step + MOST_STEPS + DENSE_STEPS
        if last is not None and near and one.worker not in {each.worker for each in last}:
            last.append(one)
        else:
            groups.append([one])
    return [_joined(group) for group in groups]


def _joined(group: Sequence[Incident]) -> Incident:
    """Join records.

    The first worker is the one with the earliest cause: by step, then in causal order.
    """
    group = sorted(group, key=lambda each: (each.step, each.place is None, each.place or (0, 0), each.rank))
    first = group[0]
    return replace(
        first,
        why=tuple(dict.fromkeys(reason for one in group for reason in one.why)),
        trigger=next((one.trigger for one in group if one.trigger is not None), None),
        jumps=next((one.jumps for one in group if one.jumps), ()),
        steps=tuple(sorted({step for one in group for step in one.steps})),
        dense_until=max(one.dense_until for one in group),
        missed=sum(one.missed for one in group),
        workers=tuple(sorted({one.worker for one in group})),
    )


def _json_number(value: float) -> float | str:
    """Return a number as JSON, which has no NaN and no infinities."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _number(value: object, name: str) -> float:
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large") from None


def _step(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value < _LARGEST_STEP:
        raise ValueError(f"{name} holds {shown(value)}, which is not a step")
    return value


def _trigger(value: object) -> Trigger | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("trigger is not a JSON object")
    return Trigger(
        str(value.get("tensor", "")), str(value.get("column", "")), _number(value.get("value", "NaN"), "value")
    )


def _place(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) != 2
        or any(isinstance(one, bool) or not isinstance(one, int) for one in value)
    ):
        raise ValueError("place is not a stage and a position")
    return value[0], value[1]


def _jumps(value: object) -> tuple[Jump, ...]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("jumps is not a list of JSON objects")
    return tuple(
        Jump(
            visible(one.get("tensor", ""), 1000),
            _number(one.get("before"), "before"),
            _number(one.get("value"), "value"),
        )
        for one in value[:_MOST_JUMPS]
    )


def _rows(value: object) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError("rows is not a list")
    rows = []
    for one in value[:MOST_ROWS]:
        parts = tuple(one[:8]) if isinstance(one, list) else (one,)
        if not all(isinstance(part, int | str) for part in parts):
            raise ValueError("rows has a value that is no number and no text")
        rows.append(parts if isinstance(one, list) else one)
    return tuple(rows)


def _recorded(value: object) -> Mapping[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("replay is not a JSON object")
    steps, why_not = value.get("steps", []), value.get("why_not")
    if not isinstance(steps, list) or len(steps) not in (0, 2):
        raise ValueError("replay has no first and last step")
    keyframe = value.get("keyframe")
    return {
        "keyframe": None if keyframe is None else _step(keyframe, "keyframe"),
        "steps": [_step(one, "steps") for one in steps],
        "bytes": _step(value.get("bytes", 0), "bytes"),
        "why_not": None if why_not is None else visible(why_not, 1000),
    }


def _ranges(steps: Sequence[int]) -> str:
    """Return ascending steps as ranges.

    >>> _ranges([1, 2, 3, 7])
    'steps 1 to 3, 7'
    """
    spans: list[list[int]] = []
    for step in steps:
        if spans and step == spans[-1][1] + 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    texts = [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in spans]
    return f"step{'s' if len(steps) > 1 else ''} {listed(texts, 4)}"

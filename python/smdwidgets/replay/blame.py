"""Name what broke a step: an operator, one whose values grew, or a given value.

The last steps before an incident are executed again, and every operator is traced.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median
from typing import Final

from smdwidgets._text import visible
from smdwidgets.incident import Incident
from smdwidgets.replay.callers import FRAMEWORK
from smdwidgets.replay.explanation import Explanation
from smdwidgets.replay.places import places_of_error
from smdwidgets.replay.protocol import Execution, StepResult, sentence
from smdwidgets.replay.tracing import Birth, StepTrace, Trace

__all__ = ["explain"]

#: Steps that are traced before the step of the incident.
_BEFORE: Final = 3
#: How much larger than in the steps before the values of an operator are, to be named.
_GROWTH: Final = 100.0
#: Operands from which an overflow is the end of a growth, not its cause.
_WIDE: Final = 1e15
_LARGEST_DIFF: Final = 4000
#: Operators that only move values: what they return has grown before them.
_MOVES: Final = frozenset(
    (
        *("set_", "copy_", "clone", "detach", "alias", "_to_copy", "view", "_unsafe_view", "reshape", "t", "transpose"),
        *("permute", "slice", "select", "expand", "unsqueeze", "squeeze", "stack", "cat", "index", "index_select"),
        *("lift_fresh", "unbind", "split", "_local_scalar_dense", "narrow", "contiguous", "as_strided", "pin_memory"),
    )
)


def explain(execution: Execution, trigger: Incident | int | None = None) -> Explanation:
    """Execute the steps before an incident again and name what broke them.

    Args:
        execution: the steps that can be executed.
        trigger: the incident, or its step. None: the last step, and nothing has happened, so that an operator is
            named only if the values that it produced are not finite and reached the loss, a gradient or a parameter.

    Raises:
        ValueError: the step cannot be executed.
    """
    last = execution.steps[-1] if trigger is None else trigger.step if isinstance(trigger, Incident) else int(trigger)
    if last not in execution.steps:
        raise ValueError(
            f"step {last} cannot be executed again; steps {execution.steps[0]} to {execution.steps[-1]} can"
        )
    trace = Trace(execution.modules, max(execution.steps[0], last - _BEFORE))
    results: list[StepResult] = []
    error: Exception | None = None
    try:
        results = execution.run([trace], last=last)
    except Exception as caught:
        error = caught
    steps = [trace.steps[step] for step in sorted(trace.steps)]
    if error is not None:
        explanation = _error(steps, error)
        if explanation is None:
            raise error
    else:
        explanation = _verdict(steps, last, trigger is not None)
    return replace(
        explanation,
        verified=sentence(results, len(results)) if results else "",
        notes=(*explanation.notes, *_batch_notes(steps, explanation)),
    )


def _verdict(steps: Sequence[StepTrace], last: int, triggered: bool) -> Explanation:
    """Return what explains the incident: the earliest birth, or what grew before."""
    chosen = _first_birth(steps, triggered)
    if chosen is not None and not _is_end_of_growth(chosen[1]):
        return _of_birth(*chosen)
    if triggered:
        grown = next(_growths(steps), None)
        if grown is not None:
            return grown
    return Explanation("nothing", last) if chosen is None else _of_birth(*chosen)


def _first_birth(steps: Sequence[StepTrace], triggered: bool) -> tuple[StepTrace, Birth] | None:
    """Return the earliest birth that reached something; a mask if there is no other.

    A step that computed no gradient shows not what a value reached: all of its births count.
    """
    candidates = [(step, birth) for step in steps for birth in step.reached]
    if not candidates and triggered:
        candidates = [
            (step, birth) for step in steps if not step.has_loss for birth in step.births if not birth.is_mask
        ]
    if not triggered:
        candidates = [(step, birth) for step, birth in candidates if not birth.is_mask]
    return min(candidates, key=lambda one: (one[1].is_mask, one[0].step, one[1].order, one[1].operator), default=None)


def _is_end_of_growth(birth: Birth) -> bool:
    """Whether it is the end of a growth: overflow of large operands, broken weights."""
    if birth.phase == "given":
        return birth.operator.startswith(("parameter ", "buffer "))
    largest = max(
        (abs(value) for one in birth.operands for value in (one.low, one.high) if not math.isnan(value)), default=0.0
    )
    return largest > _WIDE


def _of_birth(step: StepTrace, birth: Birth) -> Explanation:
    is_given = birth.phase == "given"
    return Explanation(
        "given" if is_given else "operator",
        step.step,
        birth.value,
        birth.operator,
        "" if is_given else birth.phase,
        birth.module,
        birth.place,
        birth.user,
        birth.operands,
        birth.rows,
        birth.count,
        birth.shape,
        birth.first,
        birth.node,
    )


def _error(steps: Sequence[StepTrace], error: Exception) -> Explanation | None:
    """Return the explanation of an error; None if the execution itself failed."""
    place, user = places_of_error(error, FRAMEWORK)
    for step in reversed(steps):
        if (birth := step.raised) is not None and birth.value == type(error).__name__:
            return replace(_of_birth(step, birth), kind="error", error=birth.error)
    if user is None or not steps:
        return None
    text = visible(error, 400)
    return Explanation("error", steps[-1].step, type(error).__name__, place=place, user=user, error=text)


# ------------------------------------------------------------------------------------------------------------- growth


def _growths(steps: Sequence[StepTrace]) -> Iterator[Explanation]:
    """Yield operators whose values are 100 times those of the steps before."""
    for number in range(1, len(steps)):
        before, after = steps[number - 1], steps[number]
        earlier = steps[number - 2] if number > 1 else None
        usual = _usual(before, after)
        if earlier is not None:
            usual = [max(one, other) for one, other in zip(usual, _usual(earlier, after), strict=True)]
        for operation, reference in zip(after.operations, usual, strict=True):
            if operation.name in _MOVES:
                continue
            if 0 < reference < math.inf and operation.largest > _GROWTH * reference:
                yield Explanation(
                    "growth",
                    after.step,
                    "",
                    f"aten.{operation.name}",
                    operation.phase,
                    operation.module,
                    operation.place,
                    operation.user,
                    node=operation.node,
                    factor=operation.largest / reference,
                    before=reference,
                    after=operation.largest,
                )


def _usual(before: StepTrace, after: StepTrace) -> list[float]:
    """Return the largest magnitude of each operator of a step in another step.

    The lists of operators are aligned by their difference. An operator that the other step did not have is compared
    with the largest of all.
    """
    finite = [one.largest for one in before.operations if math.isfinite(one.largest)]
    usual = [max(finite, default=0.0)] * len(after.operations)
    keys = [one.key for one in before.operations], [one.key for one in after.operations]
    for start, other, size in _matching(*keys):
        for place in range(size):
            value = before.operations[start + place].largest
            usual[other + place] = value if math.isfinite(value) else math.inf
    return usual


def _matching(a: Sequence[object], b: Sequence[object]) -> Iterator[tuple[int, int, int]]:
    """Yield (start in a, start in b, size) of equal runs of two lists.

    >>> list(_matching("abcd", "abxcd"))
    [(0, 0, 2), (2, 3, 2)]
    """
    shortest = min(len(a), len(b))
    head = next((place for place in range(shortest) if a[place] != b[place]), shortest)
    rest = shortest - head
    tail = next((place for place in range(rest) if a[-1 - place] != b[-1 - place]), rest)
    if head:
        yield 0, 0, head
    middle = a[head : len(a) - tail], b[head : len(b) - tail]
    if middle[0] and middle[1] and max(map(len, middle)) <= _LARGEST_DIFF:
        for start, other, size in difflib.SequenceMatcher(None, *middle, autojunk=False).get_matching_blocks():
            if size:
                yield head + start, head + other, size
    if tail:
        yield len(a) - tail, len(b) - tail, tail


# -------------------------------------------------------------------------------------------------------------- batch


def _batch_notes(steps: Sequence[StepTrace], explanation: Explanation) -> list[str]:
    """Return notes about rows that are much larger than those of the steps before."""
    if explanation.kind == "nothing":
        return []
    usual: dict[str, float] = {}
    for step in steps:
        if step.step == explanation.step:
            break
        for path, batches in groupby(step.batches, key=lambda one: one.path):
            rows = [value for one in batches for value in one.largest if math.isfinite(value)]
            usual[path] = max(usual.get(path, 0.0), *rows, 0.0)
    notes = []
    for one in next((step.batches for step in steps if step.step == explanation.step), []):
        limit = usual.get(one.path) or median([value for value in one.largest if math.isfinite(value)] or [0.0])
        large = [row for row, value in enumerate(one.largest) if limit and value > _GROWTH * limit]
        if large and len(large) < max(2, len(one.largest) // 2):
            factor = max(one.largest[row] for row in large) / limit
            named = ", ".join(map(str, large[:8]))
            notes.append(f"{one.path}: row{'s' * (len(large) > 1)} {named} up to {factor:.3g} times the other rows")
    return notes

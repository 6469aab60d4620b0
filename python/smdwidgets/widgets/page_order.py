"""Order the tensors of a page by how much a reader needs their pictures."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from smdwidgets._text import natural
from smdwidgets.diagnosis import Diagnosis
from smdwidgets.exceptions import SMDebugError
from smdwidgets.survey import MapFinding, Survey
from smdwidgets.survey.bins import INFINITE, NAN, level_of
from smdwidgets.trials import Trial
from smdwidgets.widgets.view import RunView

_BLAMED, _OF_ONE = 8, 4
"""Findings of a survey whose tensors come first, and tensors of each: the first affected are the cause."""


def in_order(widget: RunView, diagnosis: Diagnosis | None) -> tuple[list[str], list[str]]:
    """Return the tensors that a page has pictures of, and others in order.

    The first are those that findings name, those in view and compared, and bookmarks. The others are those that the
    query finds, the rest of the findings' tensors, scalars, and all others by suspicion.
    """
    found = _found(widget)
    named = [name for finding in diagnosis.findings for name in finding.series] if diagnosis is not None else []
    named += widget._rule_controller.blamed()
    named += [name for finding in found[:_BLAMED] for name in finding.tensors[:_OF_ONE]]
    named += [widget.tensor, str(widget.compare.get("tensor", ""))]
    named += [str(mark.get("tensor", "")) for mark in widget.bookmarks]
    first = _existing(widget, named)
    others = [name for finding in found for name in finding.tensors]
    for _, trial in widget.trials.opened():
        for collection in ("losses", "metrics", "scalars"):
            others += _members(trial, collection)
    others += _by_suspicion(widget)
    for _, trial in widget.trials.opened():
        for collection in ("weights", "gradients"):
            others += _members(trial, collection)
        others += sorted(trial.tensor_names(), key=natural)
    others = [*_queried(widget), *others]
    return first, [name for name in _existing(widget, others) if name not in set(first)]


def telling_steps(widget: RunView, diagnosis: Diagnosis | None) -> frozenset[int]:
    """Return the steps that links lead to, which are never omitted."""
    onsets = [finding.onset for finding in diagnosis.findings] if diagnosis is not None else []
    onsets += [finding.first for finding in _found(widget)]
    marked = [mark.get("step") for mark in widget.bookmarks]
    found = {*onsets, *widget._rule_controller.first_firings(), widget.step, widget.compare.get("step"), *marked}
    return frozenset(step for step in found if isinstance(step, int))


def _found(widget: RunView) -> list[MapFinding]:
    """Return what stands out in the survey of the displayed run."""
    if widget._survey is None or widget.table:
        return []
    survey, rules = widget._survey.of(widget.trials.index(widget.trial))
    return survey.findings(rules)[0]


def _existing(widget: RunView, names: Iterable[str]) -> list[str]:
    return [
        name
        for name in dict.fromkeys(names)
        if name and any(trial.has_tensor(name) for _, trial in widget.trials.opened())
    ]


def _queried(widget: RunView) -> list[str]:
    """Return the tensors that the query of the widget finds, in its order."""
    if widget._survey is None or widget.table or not widget.query:
        return []
    number = widget.trials.index(widget.trial)
    names = widget._survey.of(number)[0].names()
    try:
        return [names[at] for at in widget._survey.found(number, names, widget.query, widget.mode, widget.worker)]
    except SMDebugError:  # the query may be invalid
        return []


def _by_suspicion(widget: RunView) -> list[str]:
    if widget._survey is None or widget.table:
        return []
    return suspicion(widget._survey.of(widget.trials.index(widget.trial))[0])


def suspicion(survey: Survey) -> list[str]:
    """Return the names of the tensors, the most suspicious first.

    Those with values that are not finite come first, then those with the largest surprise.
    """
    ends, names = survey.steps(), survey.names()
    if ends is None or not names:
        return []
    level = level_of(*ends, 1)
    bins = survey.bins(names, "", 0, "surprise", level, ends[0] >> level, 1)
    amount = np.nan_to_num(np.fmax(np.abs(bins.lo), np.abs(bins.hi))).max(axis=1)
    bad = (bins.flag & (NAN | INFINITE)).any(axis=1)
    return [names[at] for at in np.lexsort((-amount, ~bad))]


def _members(trial: Trial, collection: str) -> list[str]:
    try:
        return (
            sorted(trial.tensor_names(collection=collection), key=natural) if collection in trial.collections() else []
        )
    except SMDebugError:  # the collection's pattern may be invalid or time out
        return []

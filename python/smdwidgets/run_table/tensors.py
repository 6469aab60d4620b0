"""Queries on the tensors of many runs, also shortly before something happened.

The catalog or the table says when it happened, and only the runs with such a finding are opened. Of these, the
statistics of the steps in question are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from fnmatch import fnmatchcase
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.exceptions import QueryError, SMDebugError, SMDebugValueError
from smdwidgets.executors import call_many
from smdwidgets.queries import query
from smdwidgets.run_table.discovery import FoundRun
from smdwidgets.run_table.summary import Summary
from smdwidgets.trials import Trial


class Row(Protocol):
    """A run of a table."""

    name: str
    found: FoundRun
    summary: Summary

    def open(self) -> Trial:
        """Open the run."""


R = TypeVar("R", bound=Row)


class TensorsFound(NamedTuple, Generic[R]):
    """The tensors that a query found in one run."""

    run: R
    #: The finding before whose first step they were looked for; None: all steps.
    finding: dict[str, Any] | None
    #: Their names, in the order of the query.
    names: tuple[str, ...]

    def __str__(self) -> str:
        when = "" if self.finding is None else f", before step {self.finding['first']} ({self.finding['title']})"
        return f"{self.run.name}: {', '.join(self.names)}{when}"


def tensors_in(
    rows: Sequence[R],
    text: str,
    before: str | None,
    within: int,
    client: Any,
    progress: Callable[[int, int], object] | None,
) -> list[TensorsFound[R]]:
    """Return the tensors that a query finds; see :meth:`RunTable.query_tensors`."""
    if within < 0:
        raise SMDebugValueError(f"within must be at least 0, got {within}")
    events: list[tuple[R, list[dict[str, Any] | None]]] = [(row, [None]) for row in rows]
    if before is not None:
        missing = [row.name for row in rows if "findings" not in row.summary and "error" not in row.summary]
        if missing:
            raise SMDebugValueError(
                f"{len(missing):,} of the runs were not diagnosed, such as {shown(missing[0])}; use runs(root, findings=True), or "
                "update the catalog"
            )
        events = [(row, [*_findings(row.summary, before)]) for row in rows]
        events = [(row, findings) for row, findings in events if findings]
    calls = []
    for row, findings in events:
        texts = [text if one is None else _before(text, one["first"], within) for one in findings]
        calls.append((row.open() if row.found.shared else row.found, texts))
    results = call_many(_names_in, calls, client, progress)
    errors = [result for result in results if isinstance(result, QueryError)]
    if errors and len(errors) == len(results):  # a mistake in the query, or a name that no run has
        raise errors[0]
    return [
        TensorsFound(row, finding, names)
        for (row, findings), result in zip(events, results, strict=True)
        if not isinstance(result, Exception)
        for finding, names in zip(findings, result, strict=True)
        if names
    ]


def _findings(summary: Summary, kinds: str) -> Iterator[dict[str, Any]]:
    """Yield the findings of these kinds, one for each first step."""
    steps = set()
    for one in summary.get("findings", ()):
        if one["first"] is not None and one["first"] not in steps and fnmatchcase(one["kind"], kinds):
            steps.add(one["first"])
            yield one


def _before(text: str, step: int, within: int) -> str:
    """Return a query for the steps before a step.

    >>> _before("weight | l2 | worst > 3", 500, 100)
    'weight | l2 | worst > 3 | steps 400..500'
    """
    return f"{text} | steps {max(0, step - within)}..{step}"


def _names_in(
    run: FoundRun | Trial, texts: Sequence[str], cancel: _core.Cancel
) -> list[tuple[str, ...]] | SMDebugError | OSError:
    """Return the names that each query finds in a run, or why there are none."""
    try:
        with _opened(run) as trial:
            return [tuple(query(trial, text).names) for text in texts]
    except (SMDebugError, OSError) as error:
        return error


@contextmanager
def _opened(run: FoundRun | Trial) -> Iterator[Trial]:
    if isinstance(run, Trial):
        yield run
        return
    with closing(run.open()) as trial:
        yield trial

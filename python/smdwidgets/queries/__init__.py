"""Queries: find tensors by name and statistics, in one line.

``grammar`` parses, ``table`` evaluates on any rows with keys, ``tensors`` makes such a table of a run.
"""

from __future__ import annotations

from os import PathLike, fspath

from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.queries.result import QueryResult
from smdwidgets.queries.table import evaluate
from smdwidgets.queries.tensors import tensors_of
from smdwidgets.trials import Trial, create_trial
from smdwidgets.trials.run import Progress

__all__ = ["QueryResult", "query"]


def query(
    run: Trial | str | PathLike[str],
    text: str,
    *,
    mode: ModeKeys | str = ModeKeys.GLOBAL,
    worker: str | None = None,
    progress: Progress | None = None,
) -> QueryResult:
    """Find tensors with a query: ``layers.*.q_proj | l2 | top 12 by change``.

    The statistics are those of :meth:`smdwidgets.Trial.statistics`; only those of the tensors that the query selects
    are read.

    Args:
        run: a trial, or its path.
        text: the query, in the grammar of docs/query.md.
        mode: only steps of this mode.
        worker: name of a worker, or ``"*"`` for all; None: shards are combined, else the first worker's.
        progress: called with the number of finished bytes and their total while values are read.

    Raises:
        QueryError: the query is invalid. It has the place and a suggestion.

    >>> smdwidgets.query("runs/mlp", "*weight | l2 | top 3 by change")    # doctest: +SKIP
    """
    if isinstance(run, str | PathLike):
        with create_trial(fspath(run)) as trial:
            return query(trial, text, mode=mode, worker=worker, progress=progress)
    table, statistics = tensors_of(run, as_mode(mode), worker, progress)
    return QueryResult(text, evaluate(table, text), len(table.names), statistics.errors)

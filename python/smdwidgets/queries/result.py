"""The result of a query on a run."""

from __future__ import annotations

import html

import numpy as np

from smdwidgets._text import visible
from smdwidgets.queries.table import Selection
from smdwidgets.trials.columns import Columns, Failure


class QueryResult(Columns):
    """Tensors that a query found, as columns.

    Attributes:
        text: the query.
        names: names of the tensors, in order.
        total: number of tensors of the run.
        statistic: the statistic of ``first``, ``last`` and ``worst``.
        steps: first and last step of the query; None: all. The last step is None without an end.
        view: what ``as`` chose, or None.
    """

    _rows = 30

    def __init__(self, text: str, selection: Selection, total: int, errors: list[Failure]) -> None:
        super().__init__(
            {key: np.array(cells, object if key == "name" else np.float64) for key, cells in selection.cells.items()},
            errors,
        )
        query = selection.query
        self.text = text
        self.names: list[str] = self["name"].tolist()
        self.total = total
        self.statistic = query.statistic or "size"
        self.steps = query.steps
        self.view = query.view

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self)

    def _summary(self) -> str:
        steps = ""
        if self.steps is not None:
            low, high = self.steps
            steps = f", steps {low} to {high}" if high is not None else f", from step {low}"
        return f"{len(self.names)} of {self.total} tensors, {self.statistic}{steps}: {visible(self.text.strip(), 200)}"

    def __repr__(self) -> str:
        return f"{self._summary()}\n{super().__repr__()}" if self.names else self._summary()

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self._summary())}</p>{super()._repr_html_()}"

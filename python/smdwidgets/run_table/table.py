"""The table of the runs below a directory."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from smdwidgets import _extensions
from smdwidgets._text import did_you_mean, natural, shown
from smdwidgets.diagnosis import Diagnoses, diagnose_all
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.naming.scalars import Kind, describe, is_loss
from smdwidgets.run_table import page
from smdwidgets.run_table.discovery import FoundRun
from smdwidgets.run_table.groups import RunGroups, group_rows
from smdwidgets.run_table.query import FUNCTIONS, query_rows
from smdwidgets.run_table.summary import Summary
from smdwidgets.run_table.tensors import TensorsFound, tensors_in
from smdwidgets.trials import Trial

if TYPE_CHECKING:
    import pandas

#: Columns that every run has.
COLUMNS = ("name", "kind", "state", "steps", "started", "duration")
#: Curves that are columns if none are chosen.
_CHOSEN = 4
#: Seconds after the last write up to which a run without an end marker counts as running.
_RUNNING_LOG, _RUNNING = 60.0, 3600.0


#: Names of hyperparameters that are the seed.
_SEED = re.compile(r"(^|[._/])(random_?)?seed$", re.IGNORECASE)


class Run(Mapping[str, Any]):
    """One run of the table: a dictionary of its columns, hyperparameters and curves."""

    def __init__(self, found: FoundRun, summary: Summary) -> None:
        self.found = found
        self.summary = summary
        self.name = found.name
        self.path = found.path
        tags, hparams = summary["tags"], summary["hparams"]
        self._fixed: dict[str, Any] = {
            "name": found.name,
            "kind": found.kind,
            "state": state_of(found, summary),
            "steps": summary.get("steps"),
            "started": summary.get("started"),
            "duration": summary.get("duration"),
        }
        if "findings" in summary:
            self._fixed["findings"] = len(summary["findings"])
        self._keys = [*self._fixed, *(f"hparams.{key}" for key in hparams), *tags]

    def open(self) -> Trial:
        """Open the run."""
        return self.found.open()

    @property
    def findings(self) -> list[str] | None:
        """Titles of the findings of the diagnosis; None if it was not requested."""
        stored = self.summary.get("findings")
        return None if stored is None else [finding["title"] for finding in stored]

    @property
    def error(self) -> str | None:
        """Why the run could not be read, or None."""
        return self.summary.get("error")

    @property
    def hparams(self) -> dict[str, Any]:
        """The hyperparameters of the run."""
        return dict(self.summary["hparams"])

    def curve(self, tag: str) -> list[float]:
        """Return some values of a curve, for a small picture."""
        found: list[float] = self.summary["tags"].get(tag, {}).get("curve", [])
        return found

    def bins(self, tag: str) -> Any:
        """Return a curve as :func:`smdwidgets.run_table.curves.unpack_curve` takes it."""
        return self.summary["tags"].get(tag, {}).get("bins")

    def statistic(self, tag: str, function: str = "last") -> float | None:
        """Return a statistic of a curve, such as ``last``; None if it has none.

        ``best`` is the maximum of accuracies, scores and rewards, and the minimum of everything else.
        """
        found = self.summary["tags"].get(tag)
        value = None if found is None else found.get(best_of(tag) if function == "best" else function)
        return float(value) if isinstance(value, str) else value

    def lookup(self, name: str, function: str | None = None) -> Any:
        """Return a column, else a hyperparameter, else the last value of a curve.

        None if there is none.
        """
        if function is not None:
            return self.statistic(name, function)
        if name in self._fixed:
            return self._fixed[name]
        hparams = self.summary["hparams"]
        for key in (name, name.removeprefix("hparams.")):
            if key in hparams:
                return hparams[key]
        if name in self.summary["tags"]:
            return self.statistic(name)
        tag, _, asked = name.rpartition(".")
        return self.statistic(tag, asked) if asked in FUNCTIONS else None

    def __getitem__(self, name: str) -> Any:
        if name not in self._keys and self.lookup(name) is None:
            raise KeyError(name)
        return self.lookup(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<Run {shown(self.name)}: {self._fixed['kind']}, {self._fixed['state']}>"


class RunTable(Sequence[Run]):
    """The table of the runs below a directory, returned by :func:`smdwidgets.runs`.

    A sequence of :class:`Run`. Methods return new tables.

    >>> table = runs("logs").filter("lr < 0.01").sort("min(val_loss)")    # doctest: +SKIP
    >>> table[0].open().tensor("val_loss")                                # doctest: +SKIP
    """

    def __init__(
        self,
        root: str,
        rows: Iterable[Run],
        tags: Sequence[str] | None = None,
        *,
        complete: bool = False,
        as_of: str = "",
    ) -> None:
        self.root = root
        #: When the catalog was written that the table was read from; "" without a catalog.
        self.as_of = as_of
        #: Whether these are all runs below the directory. An explorer adds those that appear later.
        self.complete = complete
        self._rows = list(rows)
        self._tags = list(tags) if tags is not None else None

    # ---------------------------------------------------------------------------------------------------- selection

    def sort(self, by: str, descending: bool = False) -> RunTable:
        """Sort by a column, a hyperparameter, or ``min(tag)`` and similar.

        Runs without a value come last.
        """
        function, name = _parsed(by)
        self._check_known(name, function)
        with_value = [(row.lookup(name, function), row) for row in self._rows]
        present = [(value, row) for value, row in with_value if not _is_missing(value)]
        present.sort(key=lambda pair: _order(pair[0]), reverse=descending)
        missing = [row for value, row in with_value if _is_missing(value)]
        return self._with([*(row for _, row in present), *missing], self.complete)

    def query(self, text: str) -> RunTable:
        """Return the runs that a query finds, in its order; see docs/query.md.

        The keys are columns, hyperparameters and curves. A curve is its best value; ``last(tag)``, ``min(tag)`` and
        similar are others. ``best``, ``last`` and ``loss`` are those of the first curve of `tags`.

        >>> table.query("lr < 0.01 and state = ended | top 20 by loss")    # doctest: +SKIP
        """
        rows = query_rows(self._rows, COLUMNS, next(iter(self.tags), None), best_of, text)
        return self._with([self._rows[row] for row in rows])

    def having(self, names: Container[str]) -> RunTable:
        """Return the runs with these names."""
        return self._with([row for row in self._rows if row.name in names])

    #: Synonym of :meth:`query`.
    filter = query

    def columns_of(self, *tags: str) -> RunTable:
        """Choose the curves that are columns: tags, or ``min(tag)`` and similar."""
        for tag in tags:
            function, name = _parsed(tag)
            self._check_known(name, function)
        return RunTable(self.root, self._rows, tags, complete=self.complete, as_of=self.as_of)

    def group(self, by: str | Sequence[str] = (), *, pattern: str | None = None) -> RunGroups:
        """Group runs; return mean and standard deviation of every number.

        Args:
            by: hyperparameters or columns with equal values. Without them and without a pattern: all hyperparameters
                that differ, except the seed.
            pattern: a regular expression that is found in the names. Its groups are the key; without groups, the key is
                the name with ``*`` in place of what matches.

        >>> runs("logs").group("hparams.lr")                       # doctest: +SKIP
        >>> runs("logs").group(pattern=r"seed_\\d+")                # doctest: +SKIP
        """
        names = [by] if isinstance(by, str) else list(by)
        if not names and pattern is None:
            names = [f"hparams.{key}" for key in self._differing() if not _SEED.search(key)]
        for name in names:
            self._check_known(name, None)
        return group_rows(self._rows, names, pattern, ["steps", "duration", *self.columns[len(COLUMNS) :]])

    def _with(self, rows: list[Run], complete: bool = False) -> RunTable:
        # The columns stay, so that tables can be compared.
        return RunTable(self.root, rows, self.tags, complete=complete, as_of=self.as_of)

    # ------------------------------------------------------------------------------------------------------ columns

    @property
    def tags(self) -> list[str]:
        """The curves that are columns: chosen ones, else common losses and metrics."""
        if self._tags is None:
            self._tags = _most_telling(self._rows)
        return list(self._tags)

    @property
    def hparams(self) -> list[str]:
        """Names of the hyperparameters of the runs, those that differ first."""
        values: dict[str, set[str]] = {}
        for row in self._rows:
            for key, value in row.hparams.items():
                values.setdefault(key, set()).add(repr(value))
        return sorted(values, key=lambda key: (len(values[key]) == 1, natural(key)))

    def _differing(self) -> list[str]:
        """Return the hyperparameters whose values differ between runs."""
        return [key for key in self.hparams if len({repr(row.hparams.get(key)) for row in self._rows}) > 1]

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        some = ["findings"] if any(row.findings is not None for row in self._rows) else []
        return [*COLUMNS, *some, *self.tags, *(f"hparams.{key}" for key in self.hparams)]

    def cell(self, row: Run, column: str) -> Any:
        """Return the value of a run in a column."""
        function, name = _parsed(column)
        return row.lookup(name, function)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a DataFrame, indexed by name. Requires pandas."""
        import pandas

        columns = {column: [self.cell(row, column) for row in self._rows] for column in self.columns}
        columns["started"] = pandas.to_datetime(columns["started"], unit="s", utc=True)
        columns["duration"] = pandas.to_timedelta(columns["duration"], unit="s")
        return pandas.DataFrame(columns).set_index("name")

    def trials(self) -> dict[str, Trial]:
        """Open all runs, by name. A TensorBoard log is read at its first query."""
        return {row.name: row.open() for row in self._rows}

    def diagnose(
        self,
        client: Any = None,
        *,
        kinds: Mapping[str, str] | None = None,
        tensors: bool = True,
        progress: Callable[[int, int], object] | None = None,
    ) -> Diagnoses:
        """Diagnose all runs of the table in parallel, and rank them.

        The gravest findings come first.

        Args:
            client: a ``distributed.Client``; None: that of :func:`smdwidgets.use`, else processes of this machine.
            kinds: kinds of series by name, as for :func:`smdwidgets.diagnose`.
            tensors: whether to read tensors, too.
            progress: called with the number of finished runs and their total.

        >>> smdwidgets.runs("logs").diagnose()[0].findings                    # doctest: +SKIP
        """
        runs = [row.open() if row.found.shared else row.found for row in self._rows]
        return diagnose_all(runs, kinds, client, tensors=tensors, progress=progress)

    def query_tensors(
        self,
        text: str,
        *,
        before: str | None = None,
        within: int = 100,
        client: Any = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[TensorsFound[Run]]:
        """Return the tensors that a query finds in each run.

        They can be looked for shortly before a finding.

        Runs without such a finding are not opened, and of the others only statistics of the steps in question are read.

        Args:
            text: the query, as for :func:`smdwidgets.query`.
            before: the kind of a finding, such as ``diverged`` (a loss that rises), or a pattern of kinds, such as
                ``*``. None: all steps.
            within: how many steps before the first step of the finding are looked at.
            client: a ``distributed.Client``; None: that of :func:`smdwidgets.use`, else processes of this machine.
            progress: called with the number of finished runs and their total.

        Raises:
            QueryError: the query is invalid, or no run has a tensor with such a name.

        >>> table = smdwidgets.runs("s3://team/runs", findings=True)         # doctest: +SKIP
        >>> table.query_tensors("gradient/layer7 | l2 | worst > 10", before="diverged")    # doctest: +SKIP
        """
        return tensors_in(self._rows, text, before, within, client, progress)

    def _check_known(self, name: str, function: str | None) -> None:
        known = {key for row in self._rows for key in row} | {key for row in self._rows for key in row.hparams}
        bare = name.rpartition(".")[0] if name.rpartition(".")[2] in FUNCTIONS else name
        if self._rows and not {name, bare} & known and name not in COLUMNS:
            raise SMDebugValueError(
                f"no run has a column, hyperparameter or curve {shown(name)}.{did_you_mean(name, known)}"
            )
        if function is not None and function not in FUNCTIONS:
            raise SMDebugValueError(f"invalid function {shown(function)}; choose from {', '.join(FUNCTIONS)}")

    # ------------------------------------------------------------------------------------------------------ sequence

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int | str) -> Run: ...
    @overload
    def __getitem__(self, at: slice) -> RunTable: ...
    def __getitem__(self, at: int | str | slice) -> Run | RunTable:
        if isinstance(at, slice):
            return self._with(self._rows[at])
        if isinstance(at, int):
            return self._rows[at]
        for row in self._rows:
            if row.name == at:
                return row
        raise KeyError(f"no run {shown(at)}.{did_you_mean(at, [row.name for row in self._rows])}")

    def to_text(self, limit: int = 30) -> str:
        """Return the table as text with at most so many rows."""
        return page.text(self._shown(), limit)

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return page.html(self._shown())

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Display the table in an explorer, which opens the map of a run."""
        _extensions.explorer.load()(self)._ipython_display_(**kwargs)

    def _shown(self) -> page.RowTable:
        columns = self.columns
        cells = [[self.cell(row, column) for column in columns] for row in self._rows]
        place = f"{self.root}, by the catalog of {self.as_of}" if self.as_of else self.root
        return page.RowTable(place, self._rows, columns, self.tags, cells)


def best_of(tag: str) -> str:
    """Return by its name whether the best value of a curve is its maximum.

    >>> best_of("val/accuracy"), best_of("loss"), best_of("map_loss")
    ('max', 'min', 'min')
    """
    return "max" if describe(tag).better == "higher" else "min"


def state_of(found: FoundRun, summary: Summary) -> str:
    """Return the state of a run: running, stalled, interrupted, ended, unreadable."""
    if "error" in summary:
        return "unreadable"
    if summary.get("end"):
        return "ended" if summary["end"] in ("ended", "completed") else str(summary["end"])
    silence = time.time() - found.written
    if found.kind == "smdebug":
        return "running" if silence < _RUNNING else "interrupted"
    return "running" if silence < _RUNNING_LOG else "stalled" if silence < _RUNNING else "ended"


def main_tags(rows: Sequence[Run]) -> list[str]:
    """Return all curves of runs; those that most runs have and losses come first."""
    counts: dict[str, int] = {}
    for row in rows:
        for tag in row.summary["tags"]:
            counts[tag] = counts.get(tag, 0) + 1

    def rank(tag: str) -> tuple[Any, ...]:
        series = describe(tag)
        if series.kind is Kind.LOSS:
            order = 0
        elif series.better == "higher":
            order = 1
        else:
            order = 3 if series.kind is Kind.LEARNING_RATE else 2
        return -counts[tag], order, natural(tag)

    return sorted(counts, key=rank)


def _most_telling(rows: Sequence[Run]) -> list[str]:
    """Return the curves to show: losses and metrics that most runs have."""
    ranked = main_tags(rows)
    losses = [tag for tag in ranked if is_loss(tag)][: _CHOSEN - 1]
    high = [tag for tag in ranked if best_of(tag) == "max"][: _CHOSEN - len(losses)]
    return (losses + high + [tag for tag in ranked if tag not in losses and tag not in high])[:_CHOSEN]


def _parsed(column: str) -> tuple[str | None, str]:
    """Split ``min(tag)`` into function and tag."""
    function, mark, rest = column.partition("(")
    if mark and rest.endswith(")") and function in FUNCTIONS:
        return function, rest[:-1].strip("`'\"")
    return None, column


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _order(value: Any) -> tuple[int, Any]:
    return (0, value) if isinstance(value, int | float) else (1, natural(str(value)))

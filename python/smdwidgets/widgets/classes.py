"""The public widget classes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import numpy as np
import traitlets

from smdwidgets._text import natural
from smdwidgets.exceptions import SeveralRuns, SMDebugError, SMDebugTypeError
from smdwidgets.naming.tensors import SCALAR_COLLECTIONS
from smdwidgets.widgets.base import RunWidget, Source, open_run

if TYPE_CHECKING:
    from smdwidgets.run_table import RunTable
    from smdwidgets.run_table.live import LiveTable
    from smdwidgets.trials import Trial

#: Runs above which an explorer shows a table.
MANY = 4


class StepSlider(RunWidget):
    """A slider over the saved steps of a run.

    ``slider.value`` is the step, for use with ``observe``, ``link`` and ``interact``. It equals ``slider.step``.

    >>> slider = StepSlider("runs/mlp")                                    # doctest: +SKIP
    >>> slider.observe(lambda change: print(change.new), "value")          # doctest: +SKIP
    """

    KIND: ClassVar[str] = "slider"

    value = traitlets.Int(-1)  # type: ignore[assignment]

    def __init__(self, run: Source | Iterable[int], **state: Any) -> None:
        from smdwidgets.widgets.bare_steps import BareSteps

        if "value" in state:
            state["step"] = state.pop("value")
        source: Any = BareSteps(run) if _is_steps(run) else run
        super().__init__(source, rules=None, **state)
        if self.step < 0 and (steps := self.trial.steps()):
            self.value = steps[-1]
            self.step = -1 if self.follow else steps[-1]
        elif self.step >= 0:
            self.value = self.step

    @traitlets.observe("step")
    def _step_moved(self, change: Any) -> None:
        if change["new"] >= 0:
            self.value = change["new"]

    @traitlets.observe("value")
    def _value_set(self, change: Any) -> None:
        if change["new"] >= 0 and change["new"] != self.step and not (self.step < 0 and self._is_last(change["new"])):
            self.step = change["new"]

    def _is_last(self, step: int) -> bool:
        steps = self.trial.steps()
        return bool(steps) and steps[-1] == step


class TensorInspector(RunWidget):
    """Histogram, heat map, statistics and values of one tensor, with a step slider.

    >>> TensorInspector(trial.tensor("fc1.weight"))                        # doctest: +SKIP
    >>> TensorInspector("runs/mlp", tensor="fc1.weight", hist_scale="symlog")   # doctest: +SKIP
    """

    KIND: ClassVar[str] = "inspector"

    def __init__(self, source: Source, **state: Any) -> None:
        super().__init__(source, rules=None, **state)


class ScalarPanel(RunWidget):
    """Curves of scalars and tensor statistics over the steps of one or more runs.

    >>> ScalarPanel(["runs/a", "runs/b"], series=[{"tensor": "loss", "stat": "value"}])   # doctest: +SKIP
    """

    KIND: ClassVar[str] = "scalars"

    def __init__(self, runs: Source | Sequence[Source], *, regex: str | None = None, **state: Any) -> None:
        super().__init__(runs, rules=None, **state)
        if not self.series:
            self.series = _scalars(self.trials, regex)


class RulePanel(RunWidget):
    """The status, judged steps and findings of rules on a run.

    ``rules`` are names of built-in rules, rule classes or objects, or a :class:`~smdwidgets.rules.RuleRunner`.

    >>> RulePanel("runs/mlp", ["VanishingGradient", "LossNotDecreasing"])  # doctest: +SKIP
    """

    KIND: ClassVar[str] = "rules"

    def __init__(self, run: Source, rules: Any = (), **state: Any) -> None:
        super().__init__(run, rules=rules, **state)


class Explorer(RunWidget):
    """The whole run in one widget; see :func:`explore`.

    It has a map of all tensors over a timeline, and an inspector of one tensor below.
    """

    KIND: ClassVar[str] = "explorer"

    def __init__(
        self,
        runs: Source | Sequence[Source] | RunTable,
        *,
        rules: Iterable[Any] | Any = (),
        hparams: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        state: str = "",
        **traits: Any,
    ) -> None:
        if not state:
            if "panels" not in traits and not (isinstance(rules, (list, tuple)) and not rules):
                traits["panels"] = ["histogram", "heatmap", "history", "statistics", "values", "rules"]
            # Who names a tensor wants to see it.
            traits.setdefault("inspect", bool(traits.get("tensor")))
        runs = _opened(runs)
        rows = _live_rows(runs, hparams)
        if rows is not None:
            # Who names a run or a tensor wants to see it.
            if not state:
                traits.setdefault("table", not {"run", "tensor"} & traits.keys())
            names = rows.names()
            if not isinstance(runs, list | tuple) and names != sorted(names, key=_in_parts):
                traits.setdefault("runs_sort", [{"by": "given"}])  # the table was sorted
        given: Any = () if rows is not None else runs
        super().__init__(given, rules=rules, state=state, _rows=rows, **traits)
        if not self.series:
            self.series = _scalars([trial for _, trial in self.trials.opened()], None)


def explore(
    runs: Source | Sequence[Source] | RunTable,
    *,
    rules: Iterable[Any] | Any = (),
    hparams: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    state: str = "",
    **traits: Any,
) -> Explorer:
    """Show one run or compare several, also while the training is running.

    More than four runs, and a table of :func:`smdwidgets.runs`, are shown as a table from which runs are opened.

    Args:
        runs: a path, a trial, a list of them, or a table of runs. A folder of several runs is shown as their table.
        hparams: hyperparameters for the table of runs: a dictionary by name of the run, or a list in the order of the
            runs.
        rules: rules to evaluate: names, classes, or a :class:`~smdwidgets.rules.RuleRunner`.
        state: the view as a string, as :attr:`Explorer.state` and "Copy this view" in the widget return it.
        **traits: initial settings of the view, such as ``tensor="fc1.weight"``, ``step=100`` or
            ``hist_scale="symlog"``.

    >>> explorer = explore("runs/mlp", rules=["VanishingGradient"])        # doctest: +SKIP
    >>> explorer.step, explorer.tensor, explorer.value().shape             # doctest: +SKIP
    (100, 'fc1.weight', (32, 10))
    """
    return Explorer(runs, rules=rules, hparams=hparams, state=state, **traits)


def _opened(runs: Source | Sequence[Source] | RunTable) -> Source | Sequence[Source] | RunTable:
    """Open a path: a trial, or the table of the runs in a folder."""
    if not isinstance(runs, str | os.PathLike):
        return runs
    try:
        return open_run(runs)
    except SeveralRuns:
        from smdwidgets.run_table import runs as table_of

        return table_of(runs)


def _live_rows(
    runs: Source | Sequence[Source] | RunTable, hparams: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
) -> LiveTable | None:
    """Return the rows of a table of runs; None if all runs are opened at once."""
    from smdwidgets.run_table import RunTable
    from smdwidgets.run_table.live import LiveTable, given_runs, live_table
    from smdwidgets.trials import Tensor, Trial

    if isinstance(runs, RunTable):
        return live_table(runs, _by_name(hparams, [run.name for run in runs]))
    if isinstance(runs, str | os.PathLike | Trial | Tensor):
        return None
    given = list(runs)
    if len(given) <= MANY:
        return None
    found = given_runs(given, look=False)
    names = [run.name for run in found]
    return LiveTable(
        f"{len(given):,} runs", [(run, None) for run in found], lambda: given_runs(given), _by_name(hparams, names)
    )


def _in_parts(name: str) -> list[tuple[Any, str]]:
    """Return the key by which `runs` sorts names."""
    return [(natural(part), part) for part in name.split("/")]


def _by_name(given: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    if given is None or isinstance(given, Mapping):
        return given
    values = list(given)
    if len(values) != len(names):
        raise SMDebugTypeError(f"hparams has {len(values):,} entries for {len(names):,} runs")
    return dict(zip(names, values, strict=True))


def _is_steps(given: Any) -> TypeGuard[Iterable[int]]:
    return isinstance(given, (list, tuple, range, np.ndarray)) and all(
        isinstance(step, (int, np.integer)) for step in given
    )


def _scalars(trials: Sequence[Trial], regex: str | None, most: int = 8) -> list[dict[str, Any]]:
    """Return the initial curves.

    These are the tensors that match the regex, or by default losses and metrics.
    """
    names: list[str] = []
    for trial in trials:
        if regex is not None:
            names += sorted(trial.tensor_names(regex=regex), key=natural)
            continue
        for collection in SCALAR_COLLECTIONS:
            if collection in trial.collections():
                with contextlib.suppress(SMDebugError):  # the collection's pattern may be invalid or time out
                    names += sorted(trial.tensor_names(collection=collection), key=natural)
    return [{"tensor": name, "stat": "value", "run": -1} for name in dict.fromkeys(names)][:most]

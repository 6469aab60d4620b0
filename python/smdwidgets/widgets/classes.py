"""The public widget classes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeGuard

import numpy as np
import traitlets

from smdwidgets._text import natural
from smdwidgets.exceptions import SMDebugError
from smdwidgets.trials import Trial
from smdwidgets.widgets.bare_steps import BareSteps
from smdwidgets.widgets.base import RunWidget, Source


class StepSlider(RunWidget):
    """A slider over the saved steps of a run.

    ``slider.value`` is the step, for use with ``observe``, ``link`` and ``interact``. It equals ``slider.step``.

    >>> slider = StepSlider("runs/mlp")                                    # doctest: +SKIP
    >>> slider.observe(lambda change: print(change.new), "value")          # doctest: +SKIP
    """

    KIND: ClassVar[str] = "slider"

    value = traitlets.Int(-1)  # type: ignore[assignment]

    def __init__(self, run: Source | Iterable[int], **state: Any) -> None:
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
    """All panels in one widget; see :func:`explore`.

    The panels are the tensor tree, slider, inspector, curves and rules.
    """

    KIND: ClassVar[str] = "explorer"

    def __init__(self, runs: Source | Sequence[Source], *, rules: Iterable[Any] | Any = (), **state: Any) -> None:
        if "panels" not in state and not (isinstance(rules, (list, tuple)) and not rules):
            state["panels"] = ["histogram", "heatmap", "history", "statistics", "values", "rules"]
        super().__init__(runs, rules=rules, **state)
        if not self.series:
            self.series = _scalars(self.trials, None)


def explore(runs: Source | Sequence[Source], *, rules: Iterable[Any] | Any = (), **state: Any) -> Explorer:
    """Show one run or compare several, also while the training is running.

    Args:
        runs: a path, a trial, or a list of them.
        rules: rules to evaluate: names, classes, or a :class:`~smdwidgets.rules.RuleRunner`.
        **state: initial state of the view, such as ``tensor="fc1.weight"``, ``step=100`` or ``hist_scale="symlog"``.

    >>> explorer = explore("runs/mlp", rules=["VanishingGradient"])        # doctest: +SKIP
    >>> explorer.step, explorer.tensor, explorer.value().shape             # doctest: +SKIP
    (100, 'fc1.weight', (32, 10))
    """
    return Explorer(runs, rules=rules, **state)


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
        for collection in ("losses", "metrics", "scalars", "sm_metrics"):
            if collection in trial.collections():
                with contextlib.suppress(SMDebugError):  # the collection's pattern may be invalid or time out
                    names += sorted(trial.tensor_names(collection=collection), key=natural)
    return [{"tensor": name, "stat": "value", "run": -1} for name in dict.fromkeys(names)][:most]

"""The checks of one training of XGBoost or LightGBM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.mechanisms import Mechanisms
from smdwidgets.checks.tables import TABLE_CHECKS, Table, TableChecks, Task
from smdwidgets.naming import scalars

__all__ = ["MECHANISMS", "BoostingChecks", "Validation"]

#: The checks of each mechanism.
MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "data": (*TABLE_CHECKS, "early_stopping_on_training"),
    "parameters": ("rate_above_one",),
    "rounds": ("no_splits", "metric_direction"),
}
#: Checks that need the features of the training data, and those that need validation data.
_OF_FEATURES = ("equal_rows", "target_in_input", "constant_features", "validation_in_training", "eval_inputs_differ")
_ADVICE = {"mse_on_classes": "set the objective of a classification if the numbers are classes."}
#: Rounds at the start whose trees are looked at.
_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Validation:
    """Validation data.

    ``identical``: they are the object that is trained on; ``stops``: early stopping judges by them.
    """

    table: Table
    identical: bool = False
    stops: bool = False


class BoostingChecks:
    """The checks of a training.

    Args:
        log: the checks that fired.
        updated: called after each round, with the number of rounds.
    """

    def __init__(self, log: CheckLog, updated: Callable[[int], object] = lambda rounds: None) -> None:
        self.log = log
        self._mechanisms = Mechanisms(log, MECHANISMS)
        self._updated = updated
        self._rounds = 0
        self._began = False

    @property
    def began(self) -> bool:
        """Whether the data of a training were judged."""
        return self._began

    def begins(
        self,
        train: Callable[[], Table],
        validation: Callable[[], Sequence[Validation]] = lambda: (),
        task: Task = "other",
        classes: int | None = None,
        merges: bool = False,
    ) -> None:
        """A training begins.

        Args:
            train: reads the training data.
            validation: reads the validation data.
            task: what the labels are.
            classes: number of classes, if it is known.
            merges: whether all labels above 0 are one class.
        """
        self._began = True
        self._mechanisms.run("data", self._judge, train, validation, task, classes, merges)

    def _judge(
        self,
        train: Callable[[], Table],
        validation: Callable[[], Sequence[Validation]],
        task: Task,
        classes: int | None,
        merges: bool,
    ) -> None:
        table = train()
        if table.features is None:
            self.log.off(_OF_FEATURES, "the features of the training data cannot be read, or are too large")
        judge = TableChecks(self.log, table, task, _ADVICE)
        judge.look(classes)
        if merges:
            judge.merged()
        validations = validation()
        if table.is_binned and not all(one.identical for one in validations):
            self.log.off(["eval_inputs_differ"], "the features were replaced by bins")
        for one in validations:
            judge.compare(one.table, one.identical, one.stops, len(validations) == 1)

    def rate(self, rate: float | None) -> None:
        """The learning rate of a round is known."""
        self._mechanisms.run("parameters", self._judge_rate, rate)

    def _judge_rate(self, rate: float | None) -> None:
        if rate is not None and rate > 1:
            self.log.say("rate_above_one", self._rounds, {"rate": rate}, level="problem" if rate >= 2 else None)

    def stops_by(self, metric: str, maximizes: bool) -> None:
        """Early stopping maximizes or minimizes a metric."""
        self._mechanisms.run("rounds", self._judge_metric, metric, maximizes)

    def _judge_metric(self, metric: str, maximizes: bool) -> None:
        better = scalars.describe(metric).better
        if better and maximizes != (better == "higher"):
            facts = {"does": "maximizes" if maximizes else "minimizes", "metric": metric}
            facts = {"what": f"Early stopping {facts['does']} `{metric}`", **facts}
            self.log.say("metric_direction", self._rounds, facts, [metric])

    def round(self, leaves: Callable[[], Sequence[int]]) -> None:
        """A round has ended.

        ``leaves`` returns the number of leaves of each of its trees; none if they are not trees.
        """
        if self._rounds < _ROUNDS and self.log.runs("no_splits"):
            self._mechanisms.run("rounds", self._judge_trees, leaves)
        self._rounds += 1
        self._updated(self._rounds)

    def _judge_trees(self, leaves: Callable[[], Sequence[int]]) -> None:
        counts = leaves()
        if counts and max(counts) <= 1:
            self.log.say("no_splits", self._rounds, {"count": _ROUNDS}, need=_ROUNDS)

    def close(self) -> None:
        """The training has ended: write the counts."""
        self.log.close(self._rounds)

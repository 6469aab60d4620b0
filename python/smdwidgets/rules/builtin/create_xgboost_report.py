"""CreateXgboostReport."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdwidgets.rules.actions import run_path
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.parameters import Integer, OptionalInteger, RuleParameterError, Text

if TYPE_CHECKING:
    from smdwidgets.trials import Trial


class CreateXgboostReport(BuiltinRule):
    """Writes a report on an XGBoost training. It detects nothing and never fires.

    Writes `xgboost_report.html` (one page, no network, no scripts) and `xgboost_report.ipynb` into `rule-output/CreateXgboostReport` of the
    run, or into `out_dir`, again every `every` saved steps while the training goes on, and once more at its end. For runs
    that are not local `out_dir` has to be given. `plot_step` tells it as of a step.

    Reads collections hyperparameters, metrics, feature_importance, predictions and labels; sections whose data was not saved say so.
    """

    collections = {
        "metrics": {"save_interval": "5"},
        "feature_importance": {"save_interval": "5"},
        "hyperparameters": {"save_steps": "0"},
        "predictions": {"save_interval": "5"},
        "labels": {"save_interval": "5"},
    }

    out_dir = Text("", "Where the files go; nothing: into the run.")
    every = Integer(50, "Saved steps between two versions of the report.", minimum=1)
    plot_step = OptionalInteger(None, "The step that is told of; None: the last.", minimum=0)

    def __init__(self, base_trial: Trial, *args: object, **given: Any) -> None:
        super().__init__(base_trial, *args, **given)
        self._asked = 0

    def check(self) -> None:
        if not self.out_dir and run_path(self.base_trial) is None:
            raise RuleParameterError(
                f"{self.rule_name}: the run is not local, so say where the report goes, by out_dir=."
            )

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return (
            Path(self.out_dir)
            if self.out_dir
            else Path(run_path(self.base_trial) or ".") / "rule-output" / self.rule_name
        )

    def judge(self, step: int) -> None:
        names = self.measurements.names_at(step)
        self._asked += 1
        if self._asked % self.every == 0:
            self.write()
        if not names:
            raise NothingToJudge("no tensor at this step")

    def finish(self, last_step: int | None) -> None:
        self.write()

    def write(self) -> tuple[Path, Path]:
        """Write both files now; their paths."""
        from smdwidgets.rules.report import XgboostReport

        report = XgboostReport(self.base_trial, self.plot_step)
        return (
            report.to_html(self.folder / "xgboost_report.html"),
            report.to_notebook(self.folder / "xgboost_report.ipynb"),
        )

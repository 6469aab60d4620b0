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
    """Write a report on an XGBoost training; never fires.

    Writes `xgboost_report.html` (one page, no network, no scripts) and `xgboost_report.ipynb` to
    `rule-output/CreateXgboostReport` in the run, or to `out_dir`. Updates the files every `every` saved steps while the
    training runs, and at its end. `out_dir` is required for runs that are not local. `plot_step` limits the report to
    data up to that step.

    Reads the collections hyperparameters, metrics, feature_importance, predictions and labels. Sections without saved
    data name the missing data.
    """

    collections = {
        "metrics": {"save_interval": "5"},
        "feature_importance": {"save_interval": "5"},
        "hyperparameters": {"save_steps": "0"},
        "predictions": {"save_interval": "5"},
        "labels": {"save_interval": "5"},
    }

    out_dir = Text("", "Output directory; empty: in the run.")
    every = Integer(50, "Number of saved steps between updates of the report.", minimum=1)
    plot_step = OptionalInteger(None, "Last step of the report; None: the last saved step.", minimum=0)

    def __init__(self, base_trial: Trial, *args: object, **given: Any) -> None:
        super().__init__(base_trial, *args, **given)
        self._judged = 0

    def check(self) -> None:
        if not self.out_dir and run_path(self.base_trial) is None:
            raise RuleParameterError(f"{self.rule_name} cannot write to the run, which is not local; pass out_dir=")

    @property
    def folder(self) -> Path:
        """The output directory."""
        return (
            Path(self.out_dir)
            if self.out_dir
            else Path(run_path(self.base_trial) or ".") / "rule-output" / self.rule_name
        )

    def judge(self, step: int) -> None:
        names = self.measurements.names_at(step)
        self._judged += 1
        if self._judged % self.every == 0:
            self.write()
        if not names:
            raise NothingToJudge("no tensor at this step")

    def finish(self, last_step: int | None) -> None:
        self.write()

    def write(self) -> tuple[Path, Path]:
        """Write both files and return their paths."""
        from smdwidgets.rules.report import XgboostReport

        report = XgboostReport(self.base_trial, self.plot_step)
        return (
            report.to_html(self.folder / "xgboost_report.html"),
            report.to_notebook(self.folder / "xgboost_report.ipynb"),
        )

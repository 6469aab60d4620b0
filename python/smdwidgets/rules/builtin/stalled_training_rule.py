"""StalledTrainingRule."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdwidgets.rules.actions import StopTraining, run_path
from smdwidgets.rules.builtin.base import BuiltinRule
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Flag, Real, Text

if TYPE_CHECKING:
    from smdwidgets.trials import Trial


class StalledTrainingRule(BuiltinRule):
    """No new tensor has come for a while.

    Watches a run that has not ended: fires once when for `threshold` seconds no new step came, and again only after a new step.
    Time runs from the moment the last step was written where the run is local, else from the moment it was seen, or the watching
    began. Save tensors more often than every `threshold` seconds. A run that has ended is never stalled.

    With `stop_training_on_fire` a firing also stops the training: the SageMaker job that `training_job_name_prefix` names, if exactly one active
    job begins with it, or without a prefix by a stop file in a local run. If that fails the firing stands, and the failure is logged.

    What to do: look at the training's log; a data loader, a lock, a lost worker or a full disk are the usual reasons.
    """

    threshold = Real(1800.0, "Silence that is tolerated.", minimum=0.0, unit="s")
    stop_training_on_fire = Flag(False, "Stop the training when it fires.")
    training_job_name_prefix = Text("", "The SageMaker job to stop.")

    def __init__(self, base_trial: Trial, *args: object, **given: Any) -> None:
        super().__init__(base_trial, *args, **given)
        self._fired_at: int | None = None

    def judge(self, step: int) -> None:
        """A step that came is no silence."""

    def while_waiting(self, step: int, seconds: float) -> bool:
        self.findings = []
        self.skipped = None
        if self._fired_at == step:
            return False
        silence = max(seconds, _age(self.base_trial, step))
        if silence < self.threshold:
            return False
        self._fired_at = step
        message = f"no new step for {number(silence)} s, {number(self.threshold)} s is tolerated"
        self.blame("", step, silence, self.threshold, message)
        if self.stop_training_on_fire:
            self._stop(step, message)
        return True

    def _stop(self, step: int, message: str) -> None:
        try:
            action = StopTraining(self.training_job_name_prefix or None)
            action.run(self.rule_name, step, message, run_path(self.base_trial))
        except Exception as error:
            self.logger.warning("The training could not be stopped: %s", error)


def _age(trial: Trial, step: int) -> float:
    """Seconds since the files of a step were written; 0 where that can't be told."""
    root = run_path(trial)
    if root is None:
        return 0.0
    folder = Path(root) / "index" / f"{step // 1000:09d}"
    try:
        newest = max((each.stat().st_mtime for each in folder.glob(f"{step:012d}_*.json")), default=None)
    except OSError:
        return 0.0
    return 0.0 if newest is None else max(time.time() - newest, 0.0)

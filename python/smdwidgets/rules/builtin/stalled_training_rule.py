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
    """Detect runs that have not saved a new step for a while.

    Monitors a run that has not ended. Fires once when no new step was saved for `threshold` seconds, and again only
    after a new step. In a local run, the time is measured from the write time of the last step. Otherwise it is
    measured from when the step was seen, or from the start of monitoring. Save tensors more often than every
    `threshold` seconds. A run that has ended never fires.

    With `stop_training_on_fire`, a firing also stops the training. With `training_job_name_prefix`, the rule stops the
    SageMaker job whose name starts with the prefix, if exactly one active job matches. Without a prefix, it writes a
    stop file to a local run. If stopping fails, the failure is logged and the rule still fires.

    What to do: read the training log. Common causes are the data loader, a deadlock, a lost worker or a full disk.
    """

    threshold = Real(1800.0, "Maximum time without a new step.", minimum=0.0, unit="s")
    stop_training_on_fire = Flag(False, "Stop the training when the rule fires.")
    training_job_name_prefix = Text("", "Name prefix of the SageMaker job to stop.")

    def __init__(self, base_trial: Trial, *args: object, **given: Any) -> None:
        super().__init__(base_trial, *args, **given)
        self._fired_at: int | None = None

    def judge(self, step: int) -> None:
        """Accept every step: this rule judges only in `while_waiting`."""

    def while_waiting(self, step: int, seconds: float) -> bool:
        self.findings = []
        self.skipped = None
        if self._fired_at == step:
            return False
        silence = max(seconds, _age(self.base_trial, step))
        if silence < self.threshold:
            return False
        self._fired_at = step
        message = f"no new step for {number(silence)} s, limit {number(self.threshold)} s"
        self.blame("", step, silence, self.threshold, message)
        if self.stop_training_on_fire:
            self._stop(step, message)
        return True

    def _stop(self, step: int, message: str) -> None:
        try:
            action = StopTraining(self.training_job_name_prefix or None)
            action.run(self.rule_name, step, message, run_path(self.base_trial))
        except Exception as error:
            self.logger.warning("cannot stop the training: %s", error)


def _age(trial: Trial, step: int) -> float:
    """Return the seconds since a step was written, or 0 if unknown."""
    root = run_path(trial)
    if root is None:
        return 0.0
    folder = Path(root) / "index" / f"{step // 1000:09d}"
    try:
        files = [*folder.glob(f"{step:012d}_*.json")] or [*Path(root).glob("segments/*/*.index")]
        newest = max((each.stat().st_mtime for each in files), default=None)
    except OSError:
        return 0.0
    return 0.0 if newest is None else max(time.time() - newest, 0.0)

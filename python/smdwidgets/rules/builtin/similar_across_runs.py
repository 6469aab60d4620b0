"""SimilarAcrossRuns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from smdwidgets.exceptions import InsufficientInformationForRuleInvocation, SMDebugError
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Flag, Real
from smdwidgets.trials.widening import widened

if TYPE_CHECKING:
    from smdwidgets.trials import Trial


class SimilarAcrossRuns(SelectingRule):
    """Detect tensors that differ from those of another run.

    Despite its name, the rule fires when tensors are *not* similar: when any tensor that both runs hold at a step fails
    `numpy.allclose(other, this, rtol, atol, equal_nan)` or has a different shape. Steps are matched within their mode
    (TRAIN step 3 with TRAIN step 3), or by global step if a run has no modes. Steps and tensors that only one run has
    are not compared. Each other run is compared. Without selectors, all tensors are compared. Workers are matched by
    name.

    `other_trials` is a trial, a path, or a list of these. SageMaker does not have `rtol`, `atol` and `equal_nan`;
    `rtol=0, atol=0` tests for equality.

    What to do: if the first step differs, check initialisation and data. A slowly growing difference indicates
    numerical differences.
    """

    needs_selector = False

    rtol = Real(1e-5, "Relative tolerance.", minimum=0.0)
    atol = Real(1e-8, "Absolute tolerance.", minimum=0.0)
    equal_nan = Flag(True, "Whether NaN equals NaN.")

    def __init__(
        self,
        base_trial: Trial,
        other_trials: Trial | str | os.PathLike[str] | Iterable[Trial | str | os.PathLike[str]] | None = None,
        *args: object,
        **given: Any,
    ) -> None:
        super().__init__(base_trial, *args, other_trials=_open_trials(other_trials), **given)

    def check(self) -> None:
        super().check()
        if not self.other_trials:
            raise InsufficientInformationForRuleInvocation(
                self.rule_name, "needs the run to compare with as other_trials="
            )

    def judge(self, step: int) -> None:
        rows = self.rows(self.selector, step)
        compared = 0
        for trial in self.other_trials or ():
            other_step = self._same_step(trial, step)
            if other_step is None:
                continue
            known = set(trial.tensor_names(step=other_step))
            for name, worker in rows:
                if name in known:
                    compared += self._compare(trial, name, worker, step, other_step)
        if not compared:
            raise NothingToJudge("the tensors are missing from the other run at the matching step")

    def _same_step(self, other: Trial, step: int) -> int | None:
        """Return the matching step of the other run, or None."""
        mode = self.measurements.mode(step)
        if mode != ModeKeys.GLOBAL and mode in other.modes():
            found = other.global_step(mode, self.measurements.position(step, mode))
        else:
            found = step
        return found if found is not None and found in _steps(other) else None

    def _compare(self, other: Trial, name: str, worker: str | None, step: int, other_step: int) -> bool:
        key = ("similar", id(other), name, worker, step, self.rtol, self.atol, self.equal_nan)
        difference = self.measurements.cached(key, lambda: self._difference(other, name, worker, step, other_step))
        if difference is None:
            return False
        at_fault, value, message = difference
        if at_fault:
            self.blame(name, step, value, self.atol, f"{message} (run {other.name}, step {other_step})", worker)
        return True

    def _difference(
        self, other: Trial, name: str, worker: str | None, step: int, other_step: int
    ) -> tuple[bool, float, str] | None:
        """Return whether the tensors differ, the maximum difference and a message.

        Returns None if one of them cannot be read.
        """
        try:
            mine = self.measurements.value(name, step, worker)
            its_workers = other.tensor(name).workers(other_step)
            its = widened(other.tensor(name).value(other_step, worker=worker if worker in its_workers else None))
        except SMDebugError:
            return None
        if mine.shape != its.shape:
            return True, float("nan"), f"has shape {mine.shape}, the other run has {its.shape}"
        if mine.dtype.kind not in "fciub" or its.dtype.kind not in "fciub":
            same = bool((mine == its).all())
            return not same, float("nan"), "has a different string value"
        if np.allclose(its, mine, self.rtol, self.atol, self.equal_nan):
            return False, 0.0, ""
        with np.errstate(all="ignore"):
            distance = float(np.nanmax(np.abs(its.astype(np.complex128) - mine.astype(np.complex128)), initial=0.0))
        return True, distance, f"differs by up to {number(distance)}"


def _steps(trial: Trial) -> set[int]:
    return set(trial.steps())


def _open_trials(given: Any) -> list[Trial]:
    """Return a list of trials; paths are opened."""
    from smdwidgets.trials import Trial, create_trial

    if given is None:
        return []
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",") if part.strip()]
    elif isinstance(given, os.PathLike | Trial) or not isinstance(given, Iterable):
        given = [given]
    return [create_trial(each) if isinstance(each, str | os.PathLike) else each for each in given]

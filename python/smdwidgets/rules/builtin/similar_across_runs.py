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

if TYPE_CHECKING:
    from smdwidgets.trials import Trial


class SimilarAcrossRuns(SelectingRule):
    """Tensors of this run differ from those of another run.

    In spite of its name it fires when they are *not* similar: when any tensor that both runs hold at a step fails
    `numpy.allclose(other, this, rtol, atol, equal_nan)`, or has another shape. Steps are matched within their mode (TRAIN step 3 with TRAIN step
    3); where a run has no modes, by global step. A step or tensor that only one run has is not compared. With several
    other runs each is compared. Without selectors all tensors are. Workers are compared by name.

    `other_trials` is a trial, a path, or a list of them. (SageMaker knows no `rtol`, `atol` and `equal_nan`; `rtol=0, atol=0` asks for equality.)

    What to do: a difference at the first step is one of initialisation or data; one that grows slowly is one of numerics.
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
        others = _opened(other_trials)
        if not others:
            raise InsufficientInformationForRuleInvocation(
                type(self).__name__, "give the run to compare with, as other_trials=."
            )
        super().__init__(base_trial, *args, other_trials=others, **given)

    def judge(self, step: int) -> None:
        rows = self.rows(self.selector, step)
        compared = 0
        for trial in self.other_trials or ():
            other_step = self._same_step(trial, step)
            if other_step is None:
                continue
            there = set(trial.tensor_names(step=other_step))
            for name, worker in rows:
                if name in there:
                    compared += self._compare(trial, name, worker, step, other_step)
        if not compared:
            raise NothingToJudge("the other run has no tensor of this step")

    def _same_step(self, other: Trial, step: int) -> int | None:
        """The step of the other run that this one is compared with."""
        mode = self.measurements.mode(step)
        if mode != ModeKeys.GLOBAL and mode in other.modes():
            found = other.global_step(mode, self.measurements.position(step, mode))
        else:
            found = step
        return found if found is not None and found in _steps(other) else None

    def _compare(self, other: Trial, name: str, worker: str | None, step: int, other_step: int) -> bool:
        key = ("similar", id(other), name, worker, step, self.rtol, self.atol, self.equal_nan)
        difference = self.measurements.kept(key, lambda: self._difference(other, name, worker, step, other_step))
        if difference is None:
            return False
        at_fault, value, message = difference
        if at_fault:
            self.blame(name, step, value, self.atol, f"{message} (run {other.name}, step {other_step})", worker)
        return True

    def _difference(
        self, other: Trial, name: str, worker: str | None, step: int, other_step: int
    ) -> tuple[bool, float, str] | None:
        """Whether they differ, by how much at most, and in words; None where one of them can't be had."""
        try:
            mine = self.measurements.value(name, step, worker)
            its_workers = other.tensor(name).workers(other_step)
            its = other.tensor(name).value(other_step, worker=worker if worker in its_workers else None)
        except SMDebugError:
            return None
        if mine.shape != its.shape:
            return True, float("nan"), f"has shape {mine.shape}, there {its.shape}"
        if mine.dtype.kind not in "fciub" or its.dtype.kind not in "fciub":
            same = bool((mine == its).all())
            return not same, float("nan"), "is another text"
        if np.allclose(its, mine, self.rtol, self.atol, self.equal_nan):
            return False, 0.0, ""
        with np.errstate(all="ignore"):
            distance = float(np.nanmax(np.abs(its.astype(np.complex128) - mine.astype(np.complex128)), initial=0.0))
        return True, distance, f"differs by up to {number(distance)}"


def _steps(trial: Trial) -> set[int]:
    return set(trial.steps())


def _opened(given: Any) -> list[Trial]:
    """Trials, those given as paths opened."""
    if given is None:
        return []
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",") if part.strip()]
    elif isinstance(given, os.PathLike) or not isinstance(given, Iterable):
        given = [given]
    from smdwidgets.trials import create_trial

    return [create_trial(each) if isinstance(each, str | os.PathLike) else each for each in given]

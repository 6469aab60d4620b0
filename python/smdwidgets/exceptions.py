"""Every error that reading or writing a run can meet. All of them are :class:`SMDebugError`.

::

    SMDebugError
    ├── SMDebugCustomerError, SMDebugTypeError, SMDebugRuntimeError, SMDebugNotImplementedError, SMDebugValueError
    ├── a step        StepUnavailable, StepNotYetAvailable, NoMoreData, WaitTimeout
    ├── a tensor      TensorUnavailable, TensorUnavailableForStep, ShapeUnavailableForStep, InvalidWorker, UFuncTypeError
    ├── a collection  UnknownCollection, InvalidCollectionConfiguration, MissingCollectionFiles, CollectionFileError
    ├── a run         RunNotFound, SeveralRuns, RunIOError (RunFileMissing), OutsideRunError, TrialClosed
    ├── its bytes     DataError: TruncatedDataError, CorruptDataError, UnsupportedDataError; IndexReaderException
    ├── a regex       RegexTooSlow
    └── a rule        RuleEvaluationConditionMet, InsufficientInformationForRuleInvocation, NoMoreProfilerData, TrainingStopped

Where Python has a class of the same meaning, ours is one of that kind too: ``except FileNotFoundError`` catches
:class:`RunNotFound`, ``except TimeoutError`` catches :class:`WaitTimeout`.

>>> try:
...     raise StepUnavailable(7, ModeKeys.TRAIN)
... except SMDebugError as error:
...     print(error.step, error.mode.name)
7 TRAIN
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from smdwidgets._text import did_you_mean, listed, shown, visible
from smdwidgets.modes import ModeKeys

__all__ = [
    "CollectionFileError",
    "CorruptDataError",
    "DataError",
    "IndexReaderException",
    "InsufficientInformationForRuleInvocation",
    "InvalidCollectionConfiguration",
    "InvalidWorker",
    "MissingCollectionFiles",
    "NoMoreData",
    "NoMoreProfilerData",
    "OutsideRunError",
    "RegexTooSlow",
    "RuleEvaluationConditionMet",
    "RunFileMissing",
    "RunIOError",
    "RunNotFound",
    "SMDebugCustomerError",
    "SMDebugError",
    "SMDebugNotImplementedError",
    "SMDebugRuntimeError",
    "SMDebugTypeError",
    "SMDebugValueError",
    "SeveralRuns",
    "ShapeUnavailableForStep",
    "StepNotYetAvailable",
    "StepUnavailable",
    "TensorUnavailable",
    "TensorUnavailableForStep",
    "TrainingStopped",
    "TrialClosed",
    "TruncatedDataError",
    "UFuncTypeError",
    "UnknownCollection",
    "UnsupportedDataError",
    "WaitTimeout",
]


#: Messages are cut here: they may quote what a file holds.
_LONGEST = 8_000


class SMDebugError(Exception):
    """Anything that can go wrong with a run, its steps, tensors, collections and rules."""

    def __str__(self) -> str:
        # The one gate: whatever a message quotes from a run, it does nothing to the terminal that shows it.
        return visible(self._said(), _LONGEST, lines=True)

    def _said(self) -> str:
        return super().__str__()


class SMDebugCustomerError(SMDebugError):
    """The training script asked for something that can't be."""


class SMDebugTypeError(SMDebugError, TypeError):
    """A value of the wrong type."""


class SMDebugRuntimeError(SMDebugError, RuntimeError):
    """Something failed that should have worked."""


class SMDebugNotImplementedError(SMDebugError, NotImplementedError):
    """A thing that this kind of run or framework does not have."""


class SMDebugValueError(SMDebugError, ValueError):
    """A value of the right type that makes no sense."""


def _at(step: object, mode: ModeKeys, step_word: str = "step") -> str:
    """``step 3``, or ``step 3 of TRAIN`` where a mode's own count is meant."""
    return f"{step_word} {step}" if mode == ModeKeys.GLOBAL else f"{step_word} {step} of {mode.name}"


# ------------------------------------------------------------------------------------------------------------- steps


class StepUnavailable(SMDebugError):
    """The step was not saved and never will be.

    >>> print(StepUnavailable(7, ModeKeys.TRAIN))
    No data was saved at step 7 of TRAIN. trial.steps(mode=modes.TRAIN) lists the steps that were.
    """

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(step, mode)
        self.step = step
        self.mode = mode

    def _said(self) -> str:
        which = "" if self.mode == ModeKeys.GLOBAL else f"mode=modes.{self.mode.name}"
        return f"No data was saved at {_at(self.step, self.mode)}. trial.steps({which}) lists the steps that were."


class StepNotYetAvailable(SMDebugError):
    """The step has not been seen yet; the training still runs, so it may come."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(step, mode)
        self.step = step
        self.mode = mode

    def _said(self) -> str:
        return (
            f"{_at(self.step, self.mode, 'Step')} is not there yet and the run has not ended: try again later, or block "
            f"with trial.wait_for_steps([{self.step}], mode=modes.{self.mode.name}, timeout=…)."
        )


class NoMoreData(SMDebugError):
    """The run has ended before this step. ``last_step`` is the last one of that mode, -1 where there is none."""

    def __init__(self, step: int, mode: ModeKeys, last_step: int) -> None:
        super().__init__(step, mode, last_step)
        self.step = step
        self.mode = mode
        self.last_step = last_step

    def _said(self) -> str:
        what = f"its last step is {self.last_step}" if self.last_step >= 0 else "it has none of these"
        return f"{_at(self.step, self.mode, 'Step')} will not come: the run has ended and {what}."


class WaitTimeout(SMDebugError, TimeoutError):
    """What was waited for did not come within the time that the caller gave."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what, seconds)
        self.what = what
        self.seconds = seconds

    def _said(self) -> str:
        return f"Waited {self.seconds:g} s for {self.what}. Give a longer timeout=, or look whether the training still runs."


# ----------------------------------------------------------------------------------------------------------- tensors


class TensorUnavailable(SMDebugError):
    """No step seen so far has a tensor of this name.

    >>> print(TensorUnavailable("fc1.wieght", ["fc1.weight", "fc1.bias"]))
    No step seen so far has a tensor 'fc1.wieght'. Did you mean 'fc1.weight'? trial.tensor_names() lists all.
    """

    def __init__(self, tname: str, candidates: Iterable[str] = ()) -> None:
        super().__init__(tname)
        self.tname = tname
        # Looked through only when the message is read: rules catch this error by the thousand.
        self._candidates = candidates

    def _said(self) -> str:
        hint = did_you_mean(self.tname, self._candidates) if isinstance(self.tname, str) else ""
        return f"No step seen so far has a tensor {shown(self.tname)}.{hint} trial.tensor_names() lists all."


class TensorUnavailableForStep(SMDebugError):
    """The tensor, or the reduction of it, was not saved at this step and never will be."""

    def __init__(
        self,
        tname: str,
        step: int,
        mode: ModeKeys = ModeKeys.GLOBAL,
        has_reductions: bool = False,
        reason: str = "",
    ) -> None:
        super().__init__(tname, step, mode, has_reductions, reason)
        self.tname = tname
        self.step = step
        self.mode = mode
        self.has_reductions = has_reductions
        self.reason = reason

    def _said(self) -> str:
        why = self.reason or "it was not saved then"
        if self.has_reductions:
            hint = "Reductions of it were: ask tensor.reduction_values(step) or tensor.reduction_value(step, name)."
        else:
            hint = "tensor.steps() lists the steps that have it."
        return f"Tensor {shown(self.tname)} has no value at {_at(self.step, self.mode)}: {why}. {hint}"


class ShapeUnavailableForStep(SMDebugError):
    """Neither the tensor's shape nor its value was saved at this step."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(tname, step, mode)
        self.tname = tname
        self.step = step
        self.mode = mode

    def _said(self) -> str:
        return (
            f"Neither shape nor value of tensor {shown(self.tname)} was saved at {_at(self.step, self.mode)}. Save them "
            "with ReductionConfig(save_shape=True) or save_raw_tensor=True."
        )


class InvalidWorker(SMDebugError):
    """No worker of this name wrote the tensor at this step."""

    def __init__(self, worker: str, workers: Iterable[str] = ()) -> None:
        super().__init__(worker)
        self.worker = worker
        self._workers = tuple(workers)

    def _said(self) -> str:
        there = f" There: {listed([shown(worker) for worker in self._workers])}." if self._workers else ""
        hint = did_you_mean(self.worker, self._workers) if isinstance(self.worker, str) else ""
        return f"No worker {shown(self.worker)} wrote this.{hint}{there} Ask tensor.workers(step) or trial.workers()."


# ------------------------------------------------------------------------------------------------------- collections


class InvalidCollectionConfiguration(SMDebugError):
    """A collection without tensors: neither names nor patterns were given for it."""

    def __init__(self, c_name: str) -> None:
        super().__init__(c_name)
        self.c_name = c_name

    def _said(self) -> str:
        return (
            f"Collection {shown(self.c_name)} holds nothing: give it names with add(…) or patterns with include(regex)."
        )


class UnknownCollection(SMDebugError, KeyError):
    """The run has no collection of this name."""

    def __init__(self, name: str, candidates: Iterable[str] = ()) -> None:
        super().__init__(name)
        self.name = name
        self._candidates = tuple(candidates)

    def _said(self) -> str:
        there = f" There: {listed(sorted(self._candidates), 20)}." if self._candidates else ""
        return f"The run has no collection {shown(self.name)}.{did_you_mean(self.name, self._candidates)}{there}"


class MissingCollectionFiles(SMDebugError):
    """The run has ended, and the collection files that every worker writes first are not all there."""

    def __init__(self, path: str = "", found: int = 0, expected: int = 1) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def _said(self) -> str:
        where = f" in {shown(self.path, 400)}" if self.path else ""
        return (
            f"The run has ended with {self.found} of {self.expected} collection files{where}: a worker did not start, or the hook "
            "was not registered with the model. Look at the training's log, and whether the path is that of a run."
        )


class CollectionFileError(SMDebugValueError):
    """A collection file that is not what a collection file should be."""


# --------------------------------------------------------------------------------------------------------- run, bytes


class RunNotFound(SMDebugError, FileNotFoundError):
    """There is nothing at the given path."""

    def __init__(self, path: str, reason: str = "", beside: Iterable[str] = ()) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason
        self._beside = list(beside)

    @property
    def what(self) -> str:
        """What was found in place of a run, without what to do about it."""
        hint = did_you_mean(PurePath(self.path).name, self._beside)
        return f"No run at {shown(self.path, 400)}: {self.reason or 'there is no such directory'}.{hint}"

    def _said(self) -> str:
        return (
            f"{self.what} Give the out_dir of the hook, which holds collections/, index/ and events/; "
            "for a training that is about to start, pass wait=seconds."
        )


class SeveralRuns(SMDebugValueError):
    """The directory holds several runs, and which one is meant was not said.

    >>> print(SeveralRuns("logs", ["lr_0.1", "lr_0.01"]))
    'logs' holds 2 runs: 'lr_0.1', 'lr_0.01'. Open one of them, create_trial('logs/lr_0.1'), or all: create_trials('logs').
    """

    def __init__(self, path: str, runs: Iterable[str]) -> None:
        self.path = path
        self.runs = list(runs)
        super().__init__(path, self.runs)

    def _said(self) -> str:
        names = listed([shown(run) for run in self.runs], 8)
        one = f"{self.path}/{self.runs[0]}" if self.runs else self.path
        return (
            f"{shown(self.path, 400)} holds {len(self.runs)} runs: {names}. Open one of them, "
            f"create_trial({shown(one, 400)}), or all: create_trials({shown(self.path, 400)})."
        )


class RunIOError(SMDebugError, OSError):
    """The operating system, or the storage service, refused to read or write a file of the run."""


class RunFileMissing(RunIOError, FileNotFoundError):
    """A file of the run is not there, or not there yet."""


class OutsideRunError(SMDebugValueError):
    """A file of the run names something outside the run's directory. It was not opened."""


class TrialClosed(SMDebugRuntimeError):
    """The trial was closed; open the run again with create_trial."""


class DataError(SMDebugRuntimeError):
    """A record can't be read. Only this tensor at this step is affected."""


class TruncatedDataError(DataError):
    """The bytes end before the record does."""


class CorruptDataError(DataError):
    """The bytes of a record are wrong."""


class UnsupportedDataError(DataError):
    """A sound record whose content this version can't give."""


class IndexReaderException(SMDebugError):
    """An index file can't be read; the other index files of the run can."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def _said(self) -> str:
        return self.message


class UFuncTypeError(SMDebugTypeError):
    """Numbers were asked of a tensor that holds none: the mean of strings. The name is numpy's."""


class RegexTooSlow(SMDebugError, TimeoutError):
    """A pattern took too long: it backtracks without bound on some tensor's name."""

    def __init__(self, pattern: str, seconds: float) -> None:
        super().__init__(pattern, seconds)
        self.pattern = pattern
        self.seconds = seconds

    def _said(self) -> str:
        return (
            f"The pattern {shown(self.pattern)} was given up after {self.seconds:g} s: it tries too many ways to match a name. "
            "Repetitions within repetitions, such as (a+)+, do that; write it without."
        )


# ------------------------------------------------------------------------------------------------------------- rules


class RuleEvaluationConditionMet(SMDebugError):
    """A rule's condition was met at a step."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False) -> None:
        super().__init__(rule_name, step, end_of_rule)
        self.rule_name = rule_name
        self.step = step
        self.end_of_rule = end_of_rule

    def _said(self) -> str:
        return f"Rule {self.rule_name} fired at step {self.step}."


class InsufficientInformationForRuleInvocation(SMDebugError):
    """A rule lacks what it needs to run."""

    def __init__(self, rule_name: str, message: str) -> None:
        super().__init__(rule_name, message)
        self.rule_name = rule_name
        self.message = message

    def _said(self) -> str:
        return f"Rule {self.rule_name} can't run: {self.message}"


class NoMoreProfilerData(SMDebugError):
    """The run has ended before this time stamp of the profiler."""

    def __init__(self, timestamp: float) -> None:
        super().__init__(timestamp)
        self.timestamp = timestamp
        self.msg = str(self)

    def _said(self) -> str:
        return f"Nothing was recorded at {self.timestamp} or later: the run has ended."


class TrainingStopped(SMDebugError):
    """A hook ends the training because it was asked to: a rule's StopTraining action left a stop file in the run.

    >>> print(TrainingStopped("ExplodingTensor", "loss is NaN", 120))
    The training was asked to stop by ExplodingTensor at step 120: loss is NaN.
    """

    def __init__(self, by: str = "", reason: str = "", step: int | None = None) -> None:
        super().__init__(by, reason, step)
        self.by = by
        self.reason = reason
        self.step = step

    def _said(self) -> str:
        at = "" if self.step is None else f" at step {self.step}"
        return f"The training was asked to stop by {self.by or 'someone'}{at}" + (
            f": {self.reason}." if self.reason else "."
        )

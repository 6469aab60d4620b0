"""Exceptions raised when reading or writing a run.

All derive from :class:`SMDebugError`.

::

    SMDebugError
    ├── SMDebugCustomerError, SMDebugTypeError, SMDebugIndexError, SMDebugRuntimeError, SMDebugNotImplementedError,
    │   SMDebugValueError
    ├── a step        StepUnavailable, StepNotYetAvailable, NoMoreData, WaitTimeout
    ├── a tensor      TensorUnavailable (UnknownTensor), TensorUnavailableForStep (IncompleteShardsError, StepDeleted),
    │                 ShapeUnavailableForStep,
    │                 InvalidWorker, UFuncTypeError
    ├── a collection  UnknownCollection, InvalidCollectionConfiguration, MissingCollectionFiles, CollectionFileError
    ├── a run         RunNotFound, SeveralRuns, RunIOError (RunFileMissing), OutsideRunError, TrialClosed
    ├── a record      DataError: TruncatedDataError, CorruptDataError, UnsupportedDataError; IndexReaderException
    ├── a replay      CannotReplay
    ├── a process     ExecutorError, VersionMismatch, CompactionSuperseded
    ├── a regex       RegexTooSlow
    ├── a query       QueryError
    └── a rule        RuleEvaluationConditionMet, InsufficientInformationForRuleInvocation, NoMoreProfilerData,
                      TrainingStopped

Each also derives from the built-in exception of the same meaning, if there is one: ``except FileNotFoundError`` catches
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

from smdwidgets._text import did_you_mean, listed, shown, underlined, visible
from smdwidgets.modes import ModeKeys

__all__ = [
    "CannotReplay",
    "CollectionFileError",
    "CompactionSuperseded",
    "CorruptDataError",
    "DataError",
    "ExecutorError",
    "IncompleteShardsError",
    "IndexReaderException",
    "InsufficientInformationForRuleInvocation",
    "InvalidCollectionConfiguration",
    "InvalidWorker",
    "MissingCollectionFiles",
    "NoMoreData",
    "NoMoreProfilerData",
    "OutsideRunError",
    "QueryError",
    "RegexTooSlow",
    "RuleEvaluationConditionMet",
    "RunFileMissing",
    "RunIOError",
    "RunNotFound",
    "SMDebugCustomerError",
    "SMDebugError",
    "SMDebugIndexError",
    "SMDebugNotImplementedError",
    "SMDebugRuntimeError",
    "SMDebugTypeError",
    "SMDebugValueError",
    "SeveralRuns",
    "ShapeUnavailableForStep",
    "StepDeleted",
    "StepNotYetAvailable",
    "StepUnavailable",
    "TensorUnavailable",
    "TensorUnavailableForStep",
    "TrainingStopped",
    "TrialClosed",
    "TruncatedDataError",
    "UFuncTypeError",
    "UnknownCollection",
    "UnknownTensor",
    "UnsupportedDataError",
    "VersionMismatch",
    "WaitTimeout",
]


#: Maximum characters of a message. Messages may quote the content of a file.
_LONGEST = 8_000


class SMDebugError(Exception):
    """Base class of all errors of runs, steps, tensors, collections and rules."""

    def __str__(self) -> str:
        # Messages quote names and text from files, which may contain terminal escape sequences.
        return visible(self._message(), _LONGEST, lines=True)

    def in_terminal(self) -> str:
        """Return the message for a terminal: it advises commands, not Python calls."""
        return visible(self._terminal_message(), _LONGEST, lines=True)

    def _message(self) -> str:
        return super().__str__()

    def _terminal_message(self) -> str:
        return str(self)


class SMDebugCustomerError(SMDebugError):
    """The training script requested something impossible."""


class SMDebugTypeError(SMDebugError, TypeError):
    """A value of the wrong type."""


class SMDebugIndexError(SMDebugError, IndexError):
    """A position before the first value or after the last one."""


class SMDebugRuntimeError(SMDebugError, RuntimeError):
    """An operation failed."""


class SMDebugNotImplementedError(SMDebugError, NotImplementedError):
    """A feature that this kind of run or framework does not support."""


class SMDebugValueError(SMDebugError, ValueError):
    """An invalid value of the right type."""


def _at(step: object, mode: ModeKeys) -> str:
    """Return ``step 3``, or ``step 3 of TRAIN`` for a mode step."""
    return f"step {step}" if mode == ModeKeys.GLOBAL else f"step {step} of {mode.name}"


# ------------------------------------------------------------------------------------------------------------- steps


class StepUnavailable(SMDebugError):
    """The step was not saved and will not be saved later.

    >>> print(StepUnavailable(7, ModeKeys.TRAIN))
    no data was saved at step 7 of TRAIN; trial.steps(mode=modes.TRAIN) lists the saved steps
    """

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(step, mode)
        self.step = step
        self.mode = mode

    def _message(self) -> str:
        which = "" if self.mode == ModeKeys.GLOBAL else f"mode=modes.{self.mode.name}"
        return f"no data was saved at {_at(self.step, self.mode)}; trial.steps({which}) lists the saved steps"

    def _terminal_message(self) -> str:
        return f"no data was saved at {_at(self.step, self.mode)}; `smdwidgets inspect RUN` shows the steps"


class StepNotYetAvailable(SMDebugError):
    """The step is not saved yet, and the training is still running."""

    def __init__(self, step: int, mode: ModeKeys) -> None:
        super().__init__(step, mode)
        self.step = step
        self.mode = mode

    def _message(self) -> str:
        return (
            f"{_at(self.step, self.mode)} is not available yet and the run has not ended; retry later, or wait "
            f"with trial.wait_for_steps([{self.step}], mode=modes.{self.mode.name}, timeout=…)"
        )

    def _terminal_message(self) -> str:
        return (
            f"{_at(self.step, self.mode)} is not available yet, and the run has not ended; try again later. "
            "`smdwidgets inspect RUN` shows the last step"
        )


class NoMoreData(SMDebugError):
    """The run ended before this step.

    ``last_step`` is the last saved step of the mode, or -1 if there is none.
    """

    def __init__(self, step: int, mode: ModeKeys, last_step: int) -> None:
        super().__init__(step, mode, last_step)
        self.step = step
        self.mode = mode
        self.last_step = last_step

    def _message(self) -> str:
        last = f"the last step is {self.last_step}" if self.last_step >= 0 else "no steps of this mode were saved"
        return f"{_at(self.step, self.mode)} was not saved: the run has ended; {last}"


class WaitTimeout(SMDebugError, TimeoutError):
    """A wait exceeded its timeout."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what, seconds)
        self.what = what
        self.seconds = seconds

    def _message(self) -> str:
        return f"{self._fact()}; pass a longer timeout=, or check that the training is running"

    def _terminal_message(self) -> str:
        return f"{self._fact()}; check that the training is running, or give a longer --timeout"

    def _fact(self) -> str:
        return f"timed out after {self.seconds:g} s waiting for {self.what}"


# ----------------------------------------------------------------------------------------------------------- tensors


class TensorUnavailable(SMDebugError):
    """No step read so far contains a tensor of this name.

    >>> print(TensorUnavailable("fc1.wieght", ["fc1.weight", "fc1.bias"]))
    no tensor 'fc1.wieght' in the steps read so far. Did you mean 'fc1.weight'? See trial.tensor_names()
    """

    def __init__(self, tname: str, candidates: Iterable[str] = ()) -> None:
        super().__init__(tname)
        self.tname = tname
        # Searched only when the message is formatted: rules catch thousands of these errors.
        self._candidates = candidates

    def _message(self) -> str:
        return f"no tensor {shown(self.tname)} in the steps read so far.{self._hint()} See trial.tensor_names()"

    def _terminal_message(self) -> str:
        return f"the run has no tensor {shown(self.tname)}.{self._hint()} `smdwidgets inspect RUN` lists the tensors"

    def _hint(self) -> str:
        return did_you_mean(self.tname, self._candidates) if isinstance(self.tname, str) else ""


class UnknownTensor(TensorUnavailable, KeyError):
    """``trial[name]`` found no tensor of this name.

    Other calls raise :class:`TensorUnavailable`, as smdebug does.
    """


class TensorUnavailableForStep(SMDebugError):
    """The tensor or its reduction was not saved at this step."""

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

    def _message(self) -> str:
        if self.has_reductions:
            hint = "only reductions were saved; see tensor.reduction_values(step)"
        else:
            hint = "tensor.steps() lists the steps with a value"
        return f"{self._what()}; {hint}"

    def _what(self) -> str:
        why = self.reason or "it was not saved"
        return f"no value of tensor {shown(self.tname)} at {_at(self.step, self.mode)}: {why}"

    def _terminal_message(self) -> str:
        hint = "; only reductions were saved" if self.has_reductions else ""
        return f"{self._what()}{hint}. Without --step, a command takes the last step of the tensor"


class IncompleteShardsError(TensorUnavailableForStep):
    """Shards of a sharded tensor are missing at this step.

    The whole tensor cannot be assembled.

    ``workers`` are workers of the run without a shard, ``ranges`` the missing ranges of indices. ``coverage`` is the
    share of the elements that were saved, less than 1.

    >>> print(IncompleteShardsError("w", 5, ["worker_1"], ["[2:4, 0:3]"]))  # doctest: +NORMALIZE_WHITESPACE
    tensor 'w' at step 5 is sharded and not complete: [2:4, 0:3] missing; no shard of worker_1; read the other shards
    with value(step, worker=…)
    """

    def __init__(
        self,
        tname: str,
        step: int,
        workers: Iterable[str] = (),
        ranges: Iterable[str] = (),
        coverage: float = 0.0,
    ) -> None:
        super().__init__(tname, step)
        self.workers = list(workers)
        self.ranges = list(ranges)
        self.coverage = coverage
        self.args = (tname, step, self.workers, self.ranges, coverage)

    def _what(self) -> str:
        missing = f"{listed(self.ranges, 4)} missing" if self.ranges else "shards missing"
        workers = listed([visible(worker, 100) for worker in self.workers], 8)
        who = f"no shard of {workers}" if self.workers else 'save all shards with include_workers="all"'
        return f"tensor {shown(self.tname)} at step {self.step} is sharded and not complete: {missing}; {who}"

    def _message(self) -> str:
        return f"{self._what()}; read the other shards with value(step, worker=…)"

    def _terminal_message(self) -> str:
        return f"{self._what()}; --worker NAME shows one shard"


class StepDeleted(TensorUnavailableForStep):
    """The value was deleted to keep the run within its disk budget.

    ``every`` is the spacing of the steps that kept their values when it was deleted.

    >>> print(StepDeleted("w", 5, ModeKeys.TRAIN, 4))  # doctest: +NORMALIZE_WHITESPACE
    the value of tensor 'w' at step 5 of TRAIN was deleted to keep the run within its disk budget: every 4th step kept
    its values; tensor.steps() lists the steps with a value, and CapturePlan(budget=…) sets the budget
    """

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL, every: int = 0) -> None:
        super().__init__(tname, step, mode)
        self.every = every
        self.args = (tname, step, mode, every)

    def _what(self) -> str:
        ending = {1: "st", 2: "nd", 3: "rd"}.get(self.every % 10 if self.every % 100 not in (11, 12, 13) else 0, "th")
        kept = f": every {self.every}{ending} step kept its values" if self.every else ""
        return (
            f"the value of tensor {shown(self.tname)} at {_at(self.step, self.mode)} was deleted to keep the run within its disk "
            f"budget{kept}"
        )

    def _message(self) -> str:
        return f"{self._what()}; tensor.steps() lists the steps with a value, and CapturePlan(budget=…) sets the budget"


class ShapeUnavailableForStep(SMDebugError):
    """Neither the tensor's shape nor its value was saved at this step."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(tname, step, mode)
        self.tname = tname
        self.step = step
        self.mode = mode

    def _message(self) -> str:
        return (
            f"neither shape nor value of tensor {shown(self.tname)} was saved at {_at(self.step, self.mode)}; "
            "set save_shape=True or save_raw_tensor=True in the ReductionConfig"
        )


class InvalidWorker(SMDebugError):
    """The worker did not write the tensor at this step."""

    def __init__(self, worker: str, workers: Iterable[str] = ()) -> None:
        super().__init__(worker)
        self.worker = worker
        self._workers = tuple(workers)

    def _message(self) -> str:
        there = (
            f"; workers at this step: {listed([shown(worker) for worker in self._workers])}" if self._workers else ""
        )
        hint = did_you_mean(self.worker, self._workers) if isinstance(self.worker, str) else ""
        return f"invalid worker {shown(self.worker)}{there}.{hint} See tensor.workers(step) or trial.workers()"

    def _terminal_message(self) -> str:
        hint = did_you_mean(self.worker, self._workers) if isinstance(self.worker, str) else ""
        there = f" The workers are {listed([shown(worker) for worker in self._workers])}." if self._workers else ""
        return f"no worker {shown(self.worker)}.{hint}{there} `smdwidgets inspect RUN` lists the workers"


# ------------------------------------------------------------------------------------------------------- collections


class InvalidCollectionConfiguration(SMDebugError):
    """The collection has neither tensor names nor patterns."""

    def __init__(self, c_name: str) -> None:
        super().__init__(c_name)
        self.c_name = c_name

    def _message(self) -> str:
        return f"collection {shown(self.c_name)} is empty; add tensor names with add(…) or patterns with include(regex)"


class UnknownCollection(SMDebugError, KeyError):
    """The run has no collection of this name."""

    def __init__(self, name: str, candidates: Iterable[str] = ()) -> None:
        super().__init__(name)
        self.name = name
        self._candidates = tuple(candidates)

    def _message(self) -> str:
        there = f"; choose from {listed(sorted(self._candidates), 20)}" if self._candidates else ""
        hint = did_you_mean(self.name, self._candidates)
        return f"no collection {shown(self.name)} in the run{there}.{hint}"


class MissingCollectionFiles(SMDebugError):
    """The run ended, and collection files of some workers are missing."""

    def __init__(self, path: str = "", found: int = 0, expected: int = 1) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def _message(self) -> str:
        where = f" in {shown(self.path, 400)}" if self.path else ""
        return (
            f"run ended with {self.found} of {self.expected} collection files{where}: a worker did not start, or the hook was "
            "not registered with the model; check the training log and the path"
        )


class CollectionFileError(SMDebugValueError):
    """A collection file has invalid content."""


# --------------------------------------------------------------------------------------------------------- run, bytes


#: Reason why there is no run, perhaps because the training has not started.
EMPTY_DIRECTORY = "the directory is empty"


class RunNotFound(SMDebugError, FileNotFoundError):
    """No run was found at the given path."""

    def __init__(self, path: str, reason: str = "", siblings: Iterable[str] = ()) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason
        self._siblings = list(siblings)

    @property
    def what(self) -> str:
        """The path and the reason, without advice."""
        hint = did_you_mean(PurePath(self.path).name, self._siblings)
        reason = (self.reason or "no such file or directory").removesuffix(".")
        return f"no run at {shown(self.path, 400)}: {reason}.{hint}"

    def _terminal_message(self) -> str:
        return self.what

    def _message(self) -> str:
        # Files that are no run do not become one.
        is_early = not self.reason or self.reason == EMPTY_DIRECTORY
        return f"{self.what} If the training has not started yet, pass wait=seconds" if is_early else self.what


class SeveralRuns(SMDebugValueError):
    """The directory contains several runs and none was selected.

    >>> print(SeveralRuns("logs", ["lr_0.1", "lr_0.01"]))  # doctest: +NORMALIZE_WHITESPACE
    'logs' contains 2 runs: 'lr_0.1', 'lr_0.01'; open one with create_trial('logs/lr_0.1') or all with
    create_trials('logs')
    """

    def __init__(self, path: str, runs: Iterable[str]) -> None:
        self.path = path
        self.runs = list(runs)
        super().__init__(path, self.runs)

    def _message(self) -> str:
        one = f"{self.path}/{self.runs[0]}" if self.runs else self.path
        return (
            f"{self._what()}; open one with "
            f"create_trial({shown(one, 400)}) or all with create_trials({shown(self.path, 400)})"
        )

    def _what(self) -> str:
        names = listed([shown(run) for run in self.runs], 8)
        return f"{shown(self.path, 400)} contains {len(self.runs)} runs: {names}"

    def _terminal_message(self) -> str:
        return f"{self._what()}; name one of them. `smdwidgets runs {visible(self.path, 400)}` shows all"


class RunIOError(SMDebugError, OSError):
    """Reading or writing a file of the run failed."""

    def _terminal_message(self) -> str:
        if not isinstance(self.errno, int):
            return self._message()
        where = "" if self.filename is None else f"{shown(self.filename, 400)}: "
        return f"{where}{self.strerror}"


class RunFileMissing(RunIOError, FileNotFoundError):
    """A file of the run does not exist, or does not exist yet."""


class OutsideRunError(SMDebugValueError):
    """A path resolves to a location outside the run's directory."""


class TrialClosed(SMDebugRuntimeError):
    """The trial was closed; reopen the run with create_trial."""


class DataError(SMDebugRuntimeError):
    """A record cannot be read. Other records are not affected."""


class TruncatedDataError(DataError):
    """The record is truncated."""


class CorruptDataError(DataError):
    """The record is corrupt."""


class UnsupportedDataError(DataError):
    """The record is valid, but its content is not supported."""


class IndexReaderException(SMDebugError):
    """An index file cannot be read."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def _message(self) -> str:
        return self.message


class VersionMismatch(SMDebugRuntimeError):
    """Two processes that work on one run have different versions of smdwidgets."""


class CompactionSuperseded(SMDebugRuntimeError):
    """Another process wrote or deleted the compacted index during a compaction.

    Its result is kept. Call :func:`smdwidgets.compact` again to compact what is still missing.

    >>> print(CompactionSuperseded("runs/mlp", by_compaction=True))
    runs/mlp: another compaction finished first, and its result is kept
    """

    def __init__(self, run: str, by_compaction: bool) -> None:
        super().__init__(run, by_compaction)
        self.run = run
        #: Whether another compaction finished first; else a hook continued or overwrote the run.
        self.by_compaction = by_compaction

    def _message(self) -> str:
        if self.by_compaction:
            return f"{visible(self.run, 400)}: another compaction finished first, and its result is kept"
        return (
            f"{visible(self.run, 400)}: a hook continued or overwrote the run meanwhile, so its index was not compacted; "
            "compact it again"
        )


class UFuncTypeError(SMDebugTypeError):
    """A numeric operation on a non-numeric tensor, such as the mean of strings.

    Named after NumPy's exception.
    """


class RegexTooSlow(SMDebugError, TimeoutError):
    """Matching a pattern exceeded the time limit because of backtracking."""

    def __init__(self, pattern: str, seconds: float) -> None:
        super().__init__(pattern, seconds)
        self.pattern = pattern
        self.seconds = seconds

    def _message(self) -> str:
        return (
            f"pattern {shown(self.pattern)} timed out after {self.seconds:g} s because of excessive backtracking; "
            "avoid nested repetitions such as (a+)+"
        )


# ------------------------------------------------------------------------------------------------------------ queries


class QueryError(SMDebugValueError):
    """A query is invalid.

    Attributes:
        text: the query.
        start, end: the place of the error, in characters (code points); the end is exclusive.
        reason: what is wrong.
        suggestion: what may be meant in this place, or None.
    """

    def __init__(self, text: str, start: int, end: int, reason: str, suggestion: str | None = None) -> None:
        super().__init__(text, start, end, reason, suggestion)
        self.text = text
        self.start = start
        self.end = end
        self.reason = reason
        self.suggestion = suggestion

    def _message(self) -> str:
        hint = "" if self.suggestion is None else f" Did you mean {shown(self.suggestion)}?"
        return "\n".join([f"{visible(self.reason)}{hint}", *underlined(self.text, self.start, self.end)])


# ------------------------------------------------------------------------------------------------------------- rules


class RuleEvaluationConditionMet(SMDebugError):
    """A rule's condition was met at a step."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False) -> None:
        super().__init__(rule_name, step, end_of_rule)
        self.rule_name = rule_name
        self.step = step
        self.end_of_rule = end_of_rule

    def _message(self) -> str:
        return f"Rule {self.rule_name} fired at step {self.step}."


class InsufficientInformationForRuleInvocation(SMDebugError):
    """A rule lacks an input that it needs."""

    def __init__(self, rule_name: str, message: str) -> None:
        super().__init__(rule_name, message)
        self.rule_name = rule_name
        self.message = message

    def _message(self) -> str:
        return f"rule {self.rule_name} cannot run: {self.message}"


class NoMoreProfilerData(SMDebugError):
    """The run ended before this profiler timestamp."""

    def __init__(self, timestamp: float) -> None:
        super().__init__(timestamp)
        self.timestamp = timestamp
        self.msg = str(self)

    def _message(self) -> str:
        return f"no profiler data at or after timestamp {self.timestamp}: the run has ended"


class TrainingStopped(SMDebugError):
    """A hook stops the training because of a stop request.

    The request is a file in the run, written by a rule's StopTraining action or by ``request_stop``.

    >>> print(TrainingStopped("ExplodingTensor", "loss is NaN", 120))
    training stopped by ExplodingTensor at step 120: loss is NaN
    """

    def __init__(self, by: str = "", reason: str = "", step: int | None = None) -> None:
        super().__init__(by, reason, step)
        self.by = by
        self.reason = reason
        self.step = step

    def _message(self) -> str:
        at = "" if self.step is None else f" at step {self.step}"
        return f"training stopped by {self.by or 'an unnamed requester'}{at}" + (
            f": {self.reason}" if self.reason else ""
        )


# ----------------------------------------------------------------------------------------------------------- clusters


class CannotReplay(SMDebugError, RuntimeError):
    """Recorded steps cannot be executed again; the message says why."""


class ExecutorError(SMDebugError, RuntimeError):
    """The workers of a cluster or of a process pool could not run a sweep."""

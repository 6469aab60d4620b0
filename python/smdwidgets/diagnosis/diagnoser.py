"""Diagnose a run, once or while it grows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from smdwidgets.checks.record import CheckRecords
from smdwidgets.diagnosis.causes import explained
from smdwidgets.diagnosis.coverage import coverage_of
from smdwidgets.diagnosis.detectors import SCALAR_DETECTORS
from smdwidgets.diagnosis.inputs import Kind, RunData, Series, TensorColumns
from smdwidgets.diagnosis.kinds import NOT_JUDGED, checked_kinds
from smdwidgets.diagnosis.reading import Arrays, ScalarReader, source_of
from smdwidgets.diagnosis.reference import Summary, differences, summarized
from smdwidgets.diagnosis.result import TENSOR, Diagnosis, Judged, Unjudged
from smdwidgets.diagnosis.series import LEAST_POINTS
from smdwidgets.diagnosis.tensor_columns import tensor_reader
from smdwidgets.diagnosis.tensor_detectors import DETECTORS as TENSOR_DETECTORS
from smdwidgets.incident import Incident
from smdwidgets.naming.scalars import Role, is_rate_of_optimizer
from smdwidgets.signals import Signals
from smdwidgets.signals.noise import NOISE_KIND
from smdwidgets.survey import Survey
from smdwidgets.trials import TensorBoardTrial, Trial
from smdwidgets.trials.run import Progress

#: Seconds since the last value of a log after which it is no longer being written.
LONG_AGO = 2 * 86400.0

#: Why a name in ``kinds`` was not judged.
NO_SUCH_SERIES = "no series of this name, given in kinds"


class Diagnoser:
    """Diagnoses a run again as it grows; an update costs what is new.

    However often it is updated, the diagnosis equals that of one call on the whole run.

    Args:
        run: a trial, or series in memory: steps and values by name.
        kinds: kinds of series by name, where names do not tell: ``{"foo": "loss", "bar": "metric up"}``.
        until: last step to read; None: all.
        tensors: whether to read tensors, too; False: scalars only.
        marks: whether to add what stands out in a survey of the tensors; False: the caller adds it by
            :meth:`Diagnosis.with_marks`.
        against: summaries of good runs to compare with, from :func:`summary_of`.

    >>> live = Diagnoser(trial)                    # doctest: +SKIP
    >>> live.update().findings                     # doctest: +SKIP
    ()
    """

    def __init__(
        self,
        run: Trial | Arrays,
        kinds: Mapping[str, str] | None = None,
        until: int | None = None,
        *,
        tensors: bool = True,
        marks: bool = True,
        against: Sequence[Summary] = (),
    ) -> None:
        self._run = run
        self._against = against
        self._marks = marks and tensors
        self._reads_tensors = tensors
        self._kinds = checked_kinds(kinds)
        self._until = until
        #: Whether the training has ended before the run, and `until` is its last step.
        self._is_of_stage = False
        self._start()

    def _start(self) -> None:
        self._scalars = ScalarReader(source_of(self._run), self._kinds, self._until)
        self._tensors = tensor_reader(self._run, self._until) if self._reads_tensors else None
        self._survey = Survey(self._run) if self._marks and isinstance(self._run, Trial) else None

    def update(self, progress: Progress | None = None, last: bool = False) -> Diagnosis:
        """Read what is new and return the diagnosis of the run so far.

        After an error, such as an interruption, the next call reads the whole run again.

        Args:
            progress: called with what is read.
            last: no call follows, so that the columns are freed before what stands out is read.
        """
        try:
            # Differences of extreme values overflow. Comparisons with infinity then decide, as they should.
            with np.errstate(all="ignore"):
                return self._update(progress, last)
        except BaseException:
            self._start()
            raise

    def read(self, progress: Progress | None = None) -> RunData:
        """Read what is new and return everything read so far, without a judgement."""
        # Before reading, so that what is written last is read.
        has_ended = (self._until is None or self._is_of_stage) and _has_ended(self._run)
        series = self._scalars.update(progress)
        tensors = TensorColumns() if self._tensors is None else self._tensors.update(progress)
        checks = self._checks()
        fired = [one for one in checks if self._until is None or self._is_of_stage or one.first <= self._until]
        if any(one.id == "policy_loss" for one in fired):
            series = [self._of_policy(one) for one in series]
        return RunData(
            series,
            tensors,
            self._incidents(),
            has_ended,
            fired,
            checks.off,
            checks.updates,
            self._signals(),
            checks.settings or _settings(self._run),
            None if self._tensors is None else self._tensors.sampled,
        )

    def _of_policy(self, series: Series) -> Series:
        """Return a series of a training whose loss shows no progress by its value."""
        is_loss = series.kind is Kind.LOSS and not series.role.is_held_out and series.name not in self._kinds
        return replace(series, kind=Kind.UNDIRECTED) if is_loss else series

    def _update(self, progress: Progress | None, last: bool) -> Diagnosis:
        diagnosis = self._diagnosed(progress)
        if last:
            self._start()
        if self._survey is not None:
            self._survey.update()
            diagnosis = diagnosis.with_marks(self._survey.findings(until=self._until))
        return diagnosis

    def _diagnosed(self, progress: Progress | None) -> Diagnosis:
        """Return the diagnosis without what stands out.

        What detectors computed is freed at the end.
        """
        data = self.read(progress)
        if self._until is None and data.has_ended and (end := _end_of_stage(data)) is not None:
            self._until, self._is_of_stage = end, True
            self._start()
            data = self.read(progress)
        # Tie-break of equally grave findings of one kind: prefer the tensor over the loss it affects.
        detectors = (*TENSOR_DETECTORS, *SCALAR_DETECTORS) if data.tensors else SCALAR_DETECTORS
        steps = data.first_step, data.last_step
        found = [finding for detector in detectors for finding in detector(data)]
        if self._against:
            found += differences(summarized("", data, _settings(self._run)), self._against)
        joined = explained(found, *steps, data)
        path = str(self._run.path) if isinstance(self._run, Trial) else ""
        forward = {tensor.name: tensor.order for tensor in data.tensors}
        judged, unjudged = _coverage(data, self._kinds)
        unjudged += tuple(Unjudged(f"check {name}", reason) for name, reason in data.checks_off.items())
        off = {name: reason for name, reason in data.signals.off.items() if name != NOISE_KIND}  # no finding needs it
        unjudged += tuple(Unjudged(f"signal {name}", reason) for name, reason in off.items())
        return Diagnosis.of(
            joined,
            path,
            judged=judged,
            unjudged=unjudged,
            steps=data.extent,
            coverage=coverage_of(data),
            forward=forward,
        )

    def _checks(self) -> CheckRecords:
        """Return what the checks of the training have found."""
        return self._run.checks() if isinstance(self._run, Trial) else CheckRecords()

    def _signals(self) -> Signals:
        """Return what was recorded of large models."""
        every = self._run.signals() if isinstance(self._run, Trial) else Signals()
        return every if self._until is None else every.until(self._until)

    def _incidents(self) -> list[Incident]:
        """Return the incidents of the run that the flight recorder of a hook saved."""
        if not isinstance(self._run, Trial) or isinstance(self._run, TensorBoardTrial):
            return []  # only hooks record them
        found = self._run.incidents()
        return [one for one in found if self._until is None or one.step <= self._until]


def summary_of(run: Trial | Arrays, name: str = "") -> Summary:
    """Return what is kept of a good run, to compare others with it.

    >>> steps = list(range(20))
    >>> sorted(summary_of({"loss": (steps, [1 / (1 + step) for step in steps])}, "good").quantities)
    ['`loss`']
    """
    with np.errstate(all="ignore"):
        data = Diagnoser(run, marks=False).read()
        return summarized(name or (run.name if isinstance(run, Trial) else "the good run"), data, _settings(run))


def _end_of_stage(data: RunData) -> int | None:
    """Return the last step of a first stage, whose model another one trains, or None.

    The passes of that training are steps of the run, without updates.
    """
    end = data.settings.get("stage.end")
    rates = [one for one in data.series if is_rate_of_optimizer(one.name) and len(one)]
    if not isinstance(end, int) or not rates or any(one.steps[-1] > end for one in rates):
        return None
    return end if data.last_step > end else None


def _settings(run: Trial | Arrays) -> Mapping[str, Any]:
    """Return the hyperparameters of a run, as far as they were recorded."""
    return run.hparams() if isinstance(run, Trial) else {}


def _has_ended(run: Trial | Arrays) -> bool:
    """Whether nothing follows.

    A log does not contain its end, but one whose last value is days old is no longer written.
    """
    if not isinstance(run, Trial):
        return True
    run.maybe_refresh()  # a trial that was just opened does not know yet
    if run.loaded_all_steps:
        return True
    steps = run.steps()
    if not isinstance(run, TensorBoardTrial) or not steps:
        return False
    names = run.tensor_names(step=steps[-1])
    return bool(names) and time.time() - run.wall_time(names[0], steps[-1]) > LONG_AGO


def _coverage(data: RunData, kinds: Mapping[str, Kind]) -> tuple[tuple[Judged, ...], tuple[Unjudged, ...]]:
    judged: list[Judged] = []
    unjudged: list[Unjudged] = []
    for series in data.series:
        reason = _reason(series)
        if reason:
            unjudged.append(Unjudged(series.name, reason))
        else:
            other = data.partner(series) if series.kind is Kind.LOSS and series.role.is_held_out else None
            points = len(series) + len(series.lost_steps)
            judged.append(
                Judged(
                    series.name,
                    series.kind.value,
                    "" if series.role is Role.NONE else series.role.value,
                    points,
                    other.label if other else "",
                    series.superseded,
                    series.shown_mode,
                )
            )
    tensors: dict[str, Judged] = {}
    for tensor in data.tensors:
        known = tensors.get(tensor.name)
        points = len(tensor) + (known.points if known is not None else 0)
        tensors[tensor.name] = Judged(tensor.name, TENSOR, tensor.role, points)
    judged += tensors.values()
    present = {series.name for series in data.series}
    unjudged += [Unjudged(name, NO_SUCH_SERIES) for name in kinds if name not in present]
    return tuple(judged), tuple(unjudged)


def _reason(series: Series) -> str:
    if series.kind in NOT_JUDGED:
        return NOT_JUDGED[series.kind]
    points = len(series) + len(series.lost_steps)
    return f"fewer than {LEAST_POINTS} values" if points < LEAST_POINTS else ""

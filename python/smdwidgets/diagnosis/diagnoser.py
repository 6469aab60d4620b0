"""Diagnose a run, once or while it grows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from smdwidgets.diagnosis.causes import explained
from smdwidgets.diagnosis.detectors import SCALAR_DETECTORS
from smdwidgets.diagnosis.detectors.overfit import partner
from smdwidgets.diagnosis.findings import Finding
from smdwidgets.diagnosis.inputs import Kind, Role, RunData, Series, TensorColumns
from smdwidgets.diagnosis.reading import Arrays, ScalarReader, source_of
from smdwidgets.diagnosis.result import TENSOR, Diagnosis, Judged, Unjudged
from smdwidgets.diagnosis.series import LEAST_POINTS
from smdwidgets.diagnosis.tags import checked_kinds
from smdwidgets.diagnosis.tensor_columns import tensor_reader
from smdwidgets.diagnosis.tensor_detectors import DETECTORS as TENSOR_DETECTORS
from smdwidgets.diagnosis.words import finding
from smdwidgets.incident import Incident
from smdwidgets.trials import TensorBoardTrial, Trial
from smdwidgets.trials.run import Progress

#: Findings that are shown; the others become notes.
MOST = 3

_NOT_JUDGED = {
    Kind.UNKNOWN: "unknown kind",
    Kind.HOUSEKEEPING: "housekeeping",
    Kind.RL: "quantity of reinforcement learning without a direction",
    Kind.GAN: "loss of adversarial training",
}


class Diagnoser:
    """Diagnoses a run again as it grows; an update costs what is new.

    However often it is updated, the diagnosis equals that of one call on the whole run.

    Args:
        run: a trial, or series in memory: steps and values by name.
        kinds: kinds of series by name, where names do not tell: ``{"foo": "loss", "bar": "metric up"}``.
        until: last step to read; None: all.
        tensors: whether to read tensors, too; False: scalars only.

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
    ) -> None:
        self._run = run
        self._reads_tensors = tensors
        self._kinds = checked_kinds(kinds)
        self._until = until
        self._start()

    def _start(self) -> None:
        self._scalars = ScalarReader(source_of(self._run), self._kinds, self._until)
        self._tensors = tensor_reader(self._run, self._until) if self._reads_tensors else None

    def update(self, progress: Progress | None = None) -> Diagnosis:
        """Read what is new and return the diagnosis of the run so far.

        After an error, such as an interruption, the next call reads the whole run again.
        """
        try:
            # Differences of extreme values overflow. Comparisons with infinity then decide, as they should.
            with np.errstate(all="ignore"):
                return self._update(progress)
        except BaseException:
            self._start()
            raise

    def _update(self, progress: Progress | None) -> Diagnosis:
        # Before reading, so that what is written last is read.
        has_ended = self._until is None and (not isinstance(self._run, Trial) or bool(self._run.loaded_all_steps))
        series = self._scalars.update(progress)
        tensors = TensorColumns() if self._tensors is None else self._tensors.update(progress)
        data = RunData(series, tensors, self._incidents(), has_ended)
        # Of equally grave candidates of one kind the first leads: a tensor tells more than the loss that it spoils.
        detectors = (*TENSOR_DETECTORS, *SCALAR_DETECTORS) if data.tensors else SCALAR_DETECTORS
        candidates = [found for detector in detectors for found in detector(data)]
        first, last = data.first_step, data.last_step
        stands = [finding(one) for one in explained(candidates, first, last)]
        findings, notes = _chosen(stands)
        path = str(self._run.path) if isinstance(self._run, Trial) else ""
        judged, unjudged = _coverage(data, self._kinds)
        return Diagnosis(path, findings, notes, judged, unjudged, (first, last))

    def _incidents(self) -> list[Incident]:
        """Return the incidents of the run that the flight recorder of a hook saved."""
        if not isinstance(self._run, Trial) or isinstance(self._run, TensorBoardTrial):
            return []  # only hooks record them
        found = self._run.incidents()
        return [one for one in found if self._until is None or one.step <= self._until]


def _chosen(stands: list[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings to show, problems first, then by onset.

    The other findings become notes.
    """
    sure = [one for one in stands if one.severity != "note" and one.confidence != "low"]
    sure.sort(key=lambda one: (one.severity != "problem", one.onset or 0))
    shown = sure[:MOST]
    return tuple(shown), (*sure[MOST:], *(one for one in stands if one not in sure))


def _coverage(data: RunData, kinds: Mapping[str, Kind]) -> tuple[tuple[Judged, ...], tuple[Unjudged, ...]]:
    judged: list[Judged] = []
    unjudged: list[Unjudged] = []
    for series in data.series:
        reason = _reason(series)
        if reason:
            unjudged.append(Unjudged(series.name, reason))
        else:
            other = partner(data, series) if series.kind is Kind.LOSS and series.role is Role.VALIDATION else None
            points = len(series) + len(series.lost_steps)
            judged.append(
                Judged(
                    series.name,
                    series.kind.value,
                    series.role.value,
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
    unjudged += [Unjudged(name, "no series of this name, given in kinds") for name in kinds if name not in present]
    return tuple(judged), tuple(unjudged)


def _reason(series: Series) -> str:
    if series.kind in _NOT_JUDGED:
        return _NOT_JUDGED[series.kind]
    points = len(series) + len(series.lost_steps)
    return f"fewer than {LEAST_POINTS} values" if points < LEAST_POINTS else ""

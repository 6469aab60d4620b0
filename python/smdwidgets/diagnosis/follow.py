"""Follow a live run: confirm findings before they are shown.

A finding that no longer holds is withdrawn.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from smdwidgets.diagnosis.diagnoser import Diagnoser
from smdwidgets.diagnosis.result import Diagnosis
from smdwidgets.finding import Finding
from smdwidgets.trials import Trial

#: Share of the run between the two evaluations that must agree.
APART = 0.02
#: Seconds between updates.
PAUSE = 1.0


class Confirmation:
    """Holds findings of a live run back until two evaluations agree that lie apart.

    A proof, such as a loss that is NaN, is shown at once.
    """

    def __init__(self) -> None:
        self._since: dict[str, int] = {}
        self._shown: dict[str, Finding] = {}

    def update(self, diagnosis: Diagnosis, ended: bool = False) -> Diagnosis:
        """Return a diagnosis with the confirmed and the withdrawn findings.

        Once the run has ended, nothing is held back.
        """
        first, last = diagnosis.steps
        present = {one.kind: one for one in diagnosis.findings}
        self._since = {kind: self._since.get(kind, last) for kind in present}
        confirmed = {
            kind: one
            for kind, one in present.items()
            if ended
            or one.confidence == "proof"
            or kind in self._shown
            or last - self._since[kind] >= APART * (last - first) > 0
        }
        withdrawn = tuple(one for kind, one in self._shown.items() if kind not in confirmed)
        self._shown = confirmed
        return replace(diagnosis, findings=tuple(confirmed.values()), withdrawn=withdrawn)


def following(
    trial: Trial, kinds: Mapping[str, str] | None = None, until: int | None = None, timeout: float | None = None
) -> Iterator[Diagnosis]:
    """Yield the diagnosis of a run whenever its findings change.

    The first diagnosis comes at once, the last one when the run ends, or after ``timeout`` seconds.
    """
    live, confirmation = Diagnoser(trial, kinds, until), Confirmation()
    deadline = None if timeout is None else time.monotonic() + timeout
    said: object = None
    while True:
        # Before the update, so that values written just before the end are read.
        ended = trial.loaded_all_steps
        late = deadline is not None and time.monotonic() >= deadline
        diagnosis = confirmation.update(live.update(), ended)
        now = [(one.kind, one.confidence) for one in diagnosis.findings]
        if now != said or diagnosis.withdrawn or ended or late:
            said = now
            yield diagnosis
        if ended or late:
            return
        time.sleep(PAUSE if deadline is None else min(PAUSE, max(0.0, deadline - time.monotonic())))

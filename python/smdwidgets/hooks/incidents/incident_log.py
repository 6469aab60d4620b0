"""Write the records of incidents, and limit how many a run has."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from smdwidgets._atomic import replace_file
from smdwidgets._core import worker_file_name
from smdwidgets._text import shown
from smdwidgets.hooks.incidents.companion import Companion, Written
from smdwidgets.hooks.incidents.jumps import MOST
from smdwidgets.incident import DENSE_STEPS, INCIDENTS_PREFIX, MOST_ROWS, Incident, Jump, Trigger

__all__ = ["IncidentLog", "OpenIncident"]

logger = logging.getLogger("smdwidgets.hooks")

#: Incidents of an hour and of a run whose steps are written. Further ones leave the record only.
MOST_AN_HOUR = 5
MOST_A_RUN = 20
#: Records of a run; further incidents leave nothing, so that a training that breaks at every step fills no disk.
MOST_RECORDS = 200


class OpenIncident:
    """An incident that goes on: more reasons and steps may be added.

    Attributes:
        saves: whether its steps are written, or the record only.
        allowed: whether anything but the record is written: a worker without steps may have a companion.
    """

    def __init__(self, log: IncidentLog, path: Path, incident: Incident, saves: bool, allowed: bool) -> None:
        self._log = log
        self._path = path
        self._incident = incident
        self.saves = saves
        self.allowed = allowed
        self._recorded: Written | None = None
        self._is_recorded = False
        #: Names of the tensors that were compared with their last steps.
        self._compared: set[str] = set()

    @property
    def dense_until(self) -> int:
        """Last step that is saved whole because of the incident."""
        return self._incident.dense_until

    def extend(self, step: int, why: str) -> None:
        """Add a reason, and save the steps after it too."""
        until = max(self.dense_until, step + DENSE_STEPS)
        reasons = self._incident.why if why in self._incident.why else (*self._incident.why, why)
        self._incident = replace(self._incident, why=reasons, dense_until=until)

    def compare(self, names: Iterable[str], jumps: Iterable[Jump]) -> bool:
        """Add jumps of tensors that no step of the incident has had before.

        Those of later steps come last, because they may be effects. Returns whether any were added.

        Args:
            names: names of the tensors of a step.
            jumps: those of them that jump.
        """
        new = [one for one in jumps if one.tensor not in self._compared][: MOST - len(self._incident.jumps)]
        self._compared.update(names)
        self._incident = replace(self._incident, jumps=(*self._incident.jumps, *new))
        return bool(new)

    def add_steps(self, steps: Iterable[int] = (), missed: int = 0) -> None:
        """Add steps that were written, and the number of those that are not whole."""
        known = {*self._incident.steps, *steps}
        self._incident = replace(self._incident, steps=tuple(sorted(known)), missed=self._incident.missed + missed)

    def record(self, companion: Companion, allows: Callable[[int], bool]) -> int:
        """Have a companion write into the folder of the incident, once.

        A failure is logged.

        Returns the number of bytes that were written.
        """
        if self._is_recorded:
            return 0
        self._is_recorded = True
        allowed = allows if self.allowed else (lambda nbytes: False)
        try:
            written = self._recorded = companion.begin(self._path.with_suffix(""), self._incident.step, allowed)
        except Exception as error:
            self._log.warn(f"cannot record the steps of the incident {self._path}: {type(error).__name__}: {error}")
            return 0
        if written is None:
            return 0
        self._log.send(self._path.with_suffix(""), written.files)
        self._incident = replace(self._incident, rows=tuple(written.rows[:MOST_ROWS]), recorded=written.summary)
        return written.nbytes

    @property
    def is_open(self) -> bool:
        """Whether the next steps belong to it."""
        return self.saves or self._recorded is not None

    def complete(self) -> None:
        """Have the companion write what has followed. A failure is logged."""
        written, self._recorded = self._recorded, None
        if written is None:
            return
        try:
            self._log.send(self._path.with_suffix(""), written.extend())
        except Exception as error:
            self._log.warn(f"cannot record the steps after the incident {self._path}: {type(error).__name__}: {error}")

    def write(self) -> None:
        """Write the record, or replace it."""
        self._log.write(self._path, self._incident)


class IncidentLog:
    """The incidents of one worker.

    Args:
        root: directory of the run.
        worker: name of the worker.
        rank: number of the worker.
        world: number of workers.
        run: URL of the run.
        send: uploads a finished file, given by its key.
        clock: seconds since the epoch, and seconds of a monotonic clock.
        saves: whether this worker writes steps; else it leaves records only.
    """

    def __init__(
        self,
        root: Path,
        worker: str,
        rank: int = 0,
        world: int = 1,
        run: str = "",
        send: Callable[..., object] | None = None,
        clock: Callable[[], tuple[float, float]] = lambda: (time.time(), time.monotonic()),
        saves: bool = True,
    ) -> None:
        self._saves = saves
        self._root = root
        self._worker = worker
        self._about = (rank, world, run)
        self._send = send
        self._clock = clock
        self._numbers = itertools.count()
        self._records = 0
        self._saved = 0
        #: When the latest incidents with steps began.
        self._recent: deque[float] = deque()
        self._warned = False
        #: Statistics whose incidents are not announced any more: one without its steps was.
        self._announced: set[tuple[str, str] | None] = set()

    def open(
        self,
        step: int,
        why: str,
        trigger: Trigger | None,
        place: tuple[int, int] | None = None,
    ) -> OpenIncident | None:
        """Begin an incident at a step; None if the run has too many of them.

        Args:
            step: global step of the cause.
            why: the reason.
            trigger: the statistic that is the reason.
            place: place of its tensor in the causal order of the step.
        """
        wall, now = self._clock()
        while self._recent and now - self._recent[0] >= 3600:
            self._recent.popleft()
        is_full = len(self._recent) >= MOST_AN_HOUR or self._saved >= MOST_A_RUN
        allowed = not is_full
        saves = self._saves and allowed
        self._records += 1
        if allowed:
            self._recent.append(now)
            self._saved += 1
        elif self._records > MOST_RECORDS:
            return None
        rank, world, run = self._about
        incident = Incident(
            self._worker, step, (why,), trigger, (), step + DENSE_STEPS if allowed else step, 0, wall, rank, world, run,
            place=place,
        )  # fmt: skip
        name = f"{int(wall * 1e9)}_{os.getpid()}_{next(self._numbers)}.json"
        self._announce(incident, is_full)
        return OpenIncident(
            self, self._root / INCIDENTS_PREFIX / worker_file_name(self._worker) / name, incident, saves, allowed
        )

    def _announce(self, incident: Incident, is_full: bool) -> None:
        """Log an incident, but of those of a statistic without steps only the first."""
        ending = "; the tensors of the last steps are saved" if self._saves else ""
        if is_full:
            trigger = incident.trigger
            cause = None if trigger is None else (trigger.tensor, trigger.column)
            if cause in self._announced:
                return
            self._announced.add(cause)
            ending = "; too many incidents: this and later ones like it are noted without their steps"
        _, world, run = self._about
        worker = f" of {self._worker}" if world > 1 else ""
        name = shown(run or str(self._root), 200)
        logger.warning("%s: incident at step %d%s: %s%s", name, incident.step, worker, incident.why[0], ending)

    def write(self, path: Path, incident: Incident) -> None:
        """Write or replace the record of an incident. A failure is logged."""
        try:
            replace_file(path, incident.to_json())
            if self._send is not None:
                self._send(path.relative_to(self._root).as_posix())
        except OSError as error:
            self.warn(f"cannot write the incident {path}: {error}")

    def send(self, folder: Path, names: Iterable[str]) -> None:
        """Upload files of an incident, in order, if the run is in a bucket."""
        if self._send is not None:
            for name in names:
                self._send((folder / name).relative_to(self._root).as_posix())

    def warn(self, message: str) -> None:
        """Log the first failure."""
        if not self._warned:
            self._warned = True
            logger.warning("%s", message)

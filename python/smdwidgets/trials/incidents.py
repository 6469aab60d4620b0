"""Read the incidents of a run."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from smdwidgets._text import markup, shown
from smdwidgets.exceptions import RunIOError
from smdwidgets.incident import DENSE_STEPS, INCIDENTS_PREFIX, LARGEST_RECORD, MOST_STEPS, Incident, combined
from smdwidgets.replay.files import RECORDING
from smdwidgets.replay.incident_replay import IncidentReplay, open_replay
from smdwidgets.storage.protocol import Storage, beginning

if TYPE_CHECKING:
    import pandas

__all__ = ["IncidentFiles", "Incidents", "read_incidents"]

_WORKER = re.compile(r"worker_(\d{1,9})")
_RECORD = re.compile(rf"{INCIDENTS_PREFIX}/(?P<worker>[^/]+)/\d+_\d+_\d+\.json")


class Incidents(list[Incident]):
    """Incidents of a run, by step. A list, with a table as its repr.

    >>> Incidents([Incident("worker_0", 337, ("NaN in 'fc1.weight'",))])
    step 337: NaN in 'fc1.weight'
    """

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per incident. Requires pandas."""
        import pandas

        return pandas.DataFrame([one.to_row() for one in self])

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "no incidents"

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{markup(one)}</li>" for one in self)
        return f"<ul>{rows}</ul>" if rows else "<p>no incidents</p>"


class IncidentFiles(NamedTuple):
    """The records of a run: incidents by worker, and the records that are not valid."""

    incidents: list[Incident]
    problems: list[tuple[str, str]]

    @property
    def steps(self) -> frozenset[int]:
        """The steps that were written because of an incident."""
        return frozenset(step for one in self.incidents for step in one.steps)

    def combined(self) -> Incidents:
        """Return the incidents, those of several workers joined."""
        return Incidents(combined(self.incidents))


def read_incidents(storage: Storage, keys: Iterable[str] | None = None) -> IncidentFiles:
    """Read all records of a run, or those of these keys."""
    found: list[Incident] = []
    problems: list[tuple[str, str]] = []
    for key in storage.list(f"{INCIDENTS_PREFIX}/") if keys is None else keys:
        name = _RECORD.fullmatch(key)
        if name is None:
            continue
        try:
            content = beginning(storage, key, LARGEST_RECORD)
            one = Incident.parse(content, name["worker"])
            folder = key.removesuffix(".json")
            others = functools.partial(_recordings_of_others, storage, folder, one.step)
            opener = functools.partial(open_replay, storage, folder, one.rank, others)
            found.append(replace(one, opener=opener if one.recorded is not None else None))
        except FileNotFoundError:
            continue  # the run was deleted meanwhile
        except RunIOError as error:
            problems.append((key, f"cannot read the incident {shown(key)}: {error}"))
        except ValueError as error:
            problems.append((key, f"invalid incident {shown(key)}: {error}"))
    return IncidentFiles(found, problems)


def _recordings_of_others(storage: Storage, folder: str, step: int) -> dict[int, IncidentReplay]:
    """Return what other workers recorded around an incident, by rank.

    A worker that noticed nothing itself has written into a folder with the name of the incident. One that did has its
    own incident, a few steps before or after.
    """
    _, worker, name = folder.split("/")
    names: dict[str, list[str]] = {}
    for key in storage.list(f"{INCIDENTS_PREFIX}/"):
        parts = key.split("/")
        if len(parts) == 4 and parts[3] == RECORDING and parts[1] != worker:
            names.setdefault(parts[1], []).append(parts[2])
    recordings = {}
    for other, theirs in names.items():
        chosen = name if name in theirs else _nearest(storage, other, theirs, step)
        number = _WORKER.fullmatch(other)
        if chosen is not None and number is not None:
            rank = int(number[1])
            replay = open_replay(storage, f"{INCIDENTS_PREFIX}/{other}/{chosen}", rank)
            if replay is not None:
                recordings[rank] = replay
    return recordings


def _nearest(storage: Storage, worker: str, names: Iterable[str], step: int) -> str | None:
    """Return the incident of a worker at the moment of another one's, or None."""
    near = []
    for name in names:
        try:
            content = beginning(storage, f"{INCIDENTS_PREFIX}/{worker}/{name}.json", LARGEST_RECORD)
            distance = abs(Incident.parse(content, worker).step - step)
        except (FileNotFoundError, ValueError):
            continue
        if distance <= MOST_STEPS + DENSE_STEPS:
            near.append((distance, name))
    return min(near)[1] if near else None

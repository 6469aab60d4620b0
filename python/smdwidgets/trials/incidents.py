"""Read the incidents of a run."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from smdwidgets._text import markup, shown
from smdwidgets.exceptions import RunIOError
from smdwidgets.incident import INCIDENTS_PREFIX, LARGEST_RECORD, Incident, combined
from smdwidgets.replay.incident_replay import open_replay
from smdwidgets.storage.protocol import Storage, beginning

if TYPE_CHECKING:
    import pandas

__all__ = ["IncidentFiles", "Incidents", "read_incidents"]

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
            opener = functools.partial(open_replay, storage, key.removesuffix(".json"))
            found.append(replace(one, opener=opener if one.recorded is not None else None))
        except FileNotFoundError:
            continue  # the run was deleted meanwhile
        except RunIOError as error:
            problems.append((key, f"cannot read the incident {shown(key)}: {error}"))
        except ValueError as error:
            problems.append((key, f"invalid incident {shown(key)}: {error}"))
    return IncidentFiles(found, problems)

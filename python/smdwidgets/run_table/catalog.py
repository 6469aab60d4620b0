"""Write and use the catalog of the runs of a team.

:func:`update_catalog` lists the runs below a prefix, reads those that changed, and writes one file with all of them.
:func:`smdwidgets.runs` opens that file in place of the runs.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from smdwidgets._text import listed, natural, shown
from smdwidgets.exceptions import RunNotFound, SMDebugError, SMDebugValueError
from smdwidgets.rules.progress import Progress
from smdwidgets.run_table.catalog_file import CatalogChanged, CatalogFile, files_from_json, row_of, schema
from smdwidgets.run_table.discovery import FoundRun, find_remote_runs, find_run, find_runs, opener
from smdwidgets.run_table.summary import Summary, summarize
from smdwidgets.run_table.table import state_of
from smdwidgets.sources.arrow import MissingPyarrow, arrow_and_parquet
from smdwidgets.sources.parquet import CATALOG
from smdwidgets.sources.recognition import why_no_run
from smdwidgets.storage.address import is_address, parse
from smdwidgets.storage.local import local_path

_logger = logging.getLogger("smdwidgets")
#: Attempts to write while other programs write, too.
_ATTEMPTS: Final = 20


@dataclass(frozen=True)
class CatalogUpdate:
    """What an update of a catalog did."""

    #: The file.
    place: str
    runs: int
    #: Names of runs by what happened to them.
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    #: Findings by state.
    findings: Mapping[str, int]


def update_catalog(
    root: str | os.PathLike[str],
    *,
    findings: bool = True,
    accept: Iterable[tuple[str, str]] = (),
    progress: Callable[[int, int], object] | None = None,
    **connection: Any,
) -> CatalogUpdate:
    """Write or update the catalog of the runs below a directory or an address.

    Only runs whose files changed since the last update are read. If another program writes the catalog at the same
    time, its rows are kept and the update is repeated.

    Args:
        root: the directory, or an address such as ``s3://team/runs``.
        findings: diagnose the runs.
        accept: findings that are known, as (name of the run, id of the finding). Their state becomes ``accepted``.
        progress: called with the number of runs that were read and their total.
        **connection: for a store, the fields of :class:`~smdwidgets.storage.Connection`.

    >>> update_catalog("s3://team/runs").changed                   # doctest: +SKIP
    ('job-17',)
    """
    path = _usual(root)
    arrow_and_parquet("a catalog of runs")
    if is_address(path):
        below = find_remote_runs(path, connection)
    elif os.path.isdir(path):
        below = find_runs(path)
    else:
        raise RunNotFound(path)
    if not below:
        raise RunNotFound(path, "no run below this prefix" if is_address(path) else why_no_run(path))
    runs = {_relative(path, run.path): run for run in below}
    accepted = _known(accept, {run.name: key for key, run in runs.items()})
    file = CatalogFile(path, connection)
    fresh: dict[str, Summary] = {}
    before: dict[str, tuple[str, bool]] = {}
    changed: list[str] = []

    def updated(old: Any) -> Any:
        nonlocal before, changed
        before = _signatures(old)
        kept = {
            key
            for key, run in runs.items()
            if key in before and before[key][0] == run.signature and (before[key][1] or not findings)
        }
        _read([key for key in runs if key not in kept and key not in fresh], runs, findings, fresh, progress)
        states = {} if old is None else _states(old)
        changed = [key for key in runs if key not in kept]
        rows = {key: _row(runs[key], key, fresh[key], states.get(key, {})) for key in changed}
        return _joined(old, kept, rows, accepted)

    table = _replaced(file, updated)
    counts: dict[str, int] = {}
    for one in table["findings"].to_pylist():
        for finding in one or ():
            counts[finding["state"]] = counts.get(finding["state"], 0) + 1
    return CatalogUpdate(
        file.place,
        len(runs),
        tuple(runs[key].name for key in changed if key not in before),
        tuple(runs[key].name for key in changed if key in before),
        tuple(key or Path(path).name for key in before if key not in runs),
        counts,
    )


def add_run(root: str | os.PathLike[str], run: str, **connection: Any) -> None:
    """Add a run of a hook to a catalog, or replace its row.

    It is not diagnosed: :func:`update_catalog` does that later. If there is no catalog yet, all runs below the root are
    read once.

    Args:
        root: the directory or address that has the catalog.
        run: the directory or address of the run, which is below the root.
        **connection: for a store, the fields of :class:`~smdwidgets.storage.Connection`.

    >>> add_run("s3://team/runs", "s3://team/runs/job-17")         # doctest: +SKIP
    """
    path, place = _usual(root), _usual(run)
    key = _relative(path, place)
    is_below = place.startswith(f"{path}/") if is_address(path) else Path(place).is_relative_to(path)
    if not is_below or not key:
        raise SMDebugValueError(
            f"the run {shown(place, 400)} is not below {shown(path, 400)}, whose catalog it is added to"
        )
    file = CatalogFile(path, connection)
    added_run = find_run(path, key, connection)
    if added_run is None:
        raise RunNotFound(place)
    summary = summarize(added_run, with_findings=False)

    def added(old: Any) -> Any:
        if old is None:
            return None
        kept = {other for other in old["run"].to_pylist() if other != key}
        return _joined(old, kept, {key: _row(added_run, key, summary, _states(old).get(key, {}))}, set())

    if _replaced(file, added) is None:
        # There is none, or one with the columns of another version.
        update_catalog(path, findings=False, **connection)


def _usual(root: str | os.PathLike[str]) -> str:
    """Return a directory or an address in its usual form."""
    return parse(os.fspath(root)).url.rstrip("/") if is_address(root) else local_path(root)


def _replaced(file: CatalogFile, change: Callable[[Any], Any]) -> Any:
    """Replace a catalog by what a function makes of it, and return it.

    Others may do the same at the same time.

    Nothing is written if the function returns None.
    """
    for attempt in range(_ATTEMPTS):
        table = change(file.read())
        try:
            if table is not None:
                file.write(table)
        except CatalogChanged:
            if attempt == _ATTEMPTS - 1:
                raise
            # Many trainings of a sweep may end at the same time.
            time.sleep(random.uniform(0, 0.05 * attempt))
            continue
        return table
    return None


#: Columns from which the table of runs is made.
_FOR_TABLE: Final = ("run", "name", "format", "signature", "summary")


class CatalogRuns(NamedTuple):
    """The runs of a catalog."""

    runs: Sequence[tuple[FoundRun, Summary]]
    #: When it was written, as an ISO date.
    as_of: str


def catalog_runs(path: str, connection: Mapping[str, Any]) -> CatalogRuns | None:
    """Return the runs of a catalog; None if there is none that can be used."""
    file = CatalogFile(path, connection)
    try:
        table = file.read([*_FOR_TABLE, "written"])
    except MissingPyarrow as error:
        _logger.warning("%s; the runs are listed and read instead", error)
        return None
    except SMDebugError as error:
        if not is_address(path):
            _logger.warning("%s; the runs are listed and read instead", error)
            return None
        raise
    if table is None:
        return None
    columns = {name: table[name].to_pylist() for name in _FOR_TABLE}
    pa, _ = arrow_and_parquet("a catalog of runs")
    written = table["written"].cast(pa.int64()).to_pylist()
    texts = columns.pop("summary")
    # One document is parsed several times faster than one for each run.
    contents = json.loads(f"[{','.join(texts)}]")
    rows = []
    for content, at, run, name, kind, signature in zip(contents, written, *columns.values(), strict=True):
        files = files_from_json(content["files"])
        place = "/".join([path, run]) if run else path
        opened = opener(path, run, files, name, connection)
        rows.append((FoundRun(name, place, kind, signature, (at or 0) / 1e6, opened, files=files), content["summary"]))
    about = (table.schema.metadata or {}).get(_WRITTEN, b"").decode("ascii", "replace")
    return CatalogRuns(rows, about)


#: Key of the metadata with the time of the last update.
_WRITTEN: Final = b"smdwidgets.written"


def _relative(root: str, path: str) -> str:
    return path.removeprefix(root).replace(os.sep, "/").strip("/")


def _known(accept: Iterable[tuple[str, str]], names: Mapping[str, str]) -> set[tuple[str, str]]:
    pairs = set()
    for name, finding in accept:
        if name not in names:
            raise SMDebugValueError(f"no run {shown(name)}; the runs are {listed(list(names), 10)}")
        pairs.add((names[name], finding))
    return pairs


def _signatures(table: Any) -> dict[str, tuple[str, bool]]:
    """Return the signature of each run, and whether it was diagnosed."""
    if table is None:
        return {}
    columns = (table[name].to_pylist() for name in ("run", "signature", "diagnosed"))
    return {run: (signature, bool(diagnosed)) for run, signature, diagnosed in zip(*columns, strict=True)}


def _states(table: Any) -> dict[str, dict[str, Any]]:
    """Return the findings of each run by id."""
    pairs = zip(table["run"].to_pylist(), table["findings"].to_pylist(), strict=True)
    return {run: {one["id"]: one for one in findings} for run, findings in pairs if findings}


def _read(
    keys: Sequence[str],
    runs: Mapping[str, FoundRun],
    findings: bool,
    fresh: dict[str, Summary],
    progress: Callable[[int, int], object] | None,
) -> None:
    with Progress("runs") as bar, ThreadPoolExecutor() as pool:
        try:
            one = partial(summarize, with_findings=findings)
            for key, summary in zip(keys, pool.map(one, [runs[key] for key in keys]), strict=True):
                fresh[key] = summary
                (progress or bar.update)(len(fresh), len(keys))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _row(found: FoundRun, key: str, summary: Summary, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a run that was read.

    Findings that it had before and has no longer are gone.
    """
    row = row_of(found, key, summary, state_of(found, summary), {id: one["state"] for id, one in before.items()})
    for finding in row["findings"]:
        finding["state"] = "open" if finding["state"] == "gone" else finding["state"]
    if row["diagnosed"]:
        now = {finding["id"] for finding in row["findings"]}
        row["findings"] += [{**one, "state": "gone"} for id, one in before.items() if id not in now]
    else:
        row["findings"] = list(before.values())
    return row


def _joined(old: Any, kept: set[str], rows: Mapping[str, dict[str, Any]], accepted: set[tuple[str, str]]) -> Any:
    """Return the rows of runs that did not change and the new ones, in natural order."""
    pa, _ = arrow_and_parquet("a catalog of runs")
    columns = schema()
    parts = []
    if old is not None:
        old = old.select(columns.names).cast(columns)
        parts.append(old.filter(pa.array([run in kept for run in old["run"].to_pylist()], pa.bool_())))
    parts.append(pa.Table.from_pylist(list(rows.values()), columns))
    table = pa.concat_tables(parts)
    names = table["run"].to_pylist()
    order = sorted(range(len(names)), key=lambda at: [(natural(part), part) for part in names[at].split("/")])
    table = table.take(pa.array(order, pa.int64()))
    if accepted:
        table = _accepted(table, accepted, columns)
    now = datetime.now(UTC).isoformat(timespec="seconds").encode()
    return table.replace_schema_metadata({**(columns.metadata or {}), _WRITTEN: now})


def _accepted(table: Any, accepted: set[tuple[str, str]], columns: Any) -> Any:
    pa, _ = arrow_and_parquet("a catalog of runs")
    findings = table["findings"].to_pylist()
    left = set(accepted)
    for run, of_run in zip(table["run"].to_pylist(), findings, strict=True):
        for one in of_run or ():
            if (run, one["id"]) in accepted:
                one["state"] = "accepted"
                left.discard((run, one["id"]))
    if left:
        run, finding = min(left)
        raise SMDebugValueError(f"run {shown(run)} has no finding {shown(finding)}; `smdwidgets diagnose` lists ids")
    at = columns.names.index("findings")
    return table.set_column(at, columns.field(at), pa.array(findings, columns.field(at).type))


__all__ = ["CATALOG", "CatalogUpdate", "catalog_runs", "update_catalog"]

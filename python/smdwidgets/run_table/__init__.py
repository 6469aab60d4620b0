"""The table of runs: steps, durations, curves, hyperparameters.

:func:`runs` reads all runs once and keeps what the table shows in the user's cache directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from smdwidgets._text import shown
from smdwidgets.exceptions import RunNotFound
from smdwidgets.rules.progress import Progress
from smdwidgets.run_table.catalog import CatalogUpdate, catalog_runs, update_catalog
from smdwidgets.run_table.discovery import FoundRun, find_remote_runs, find_runs
from smdwidgets.run_table.groups import RunGroup, RunGroups, Spread
from smdwidgets.run_table.index import RunIndex
from smdwidgets.run_table.summary import Summary, summarize
from smdwidgets.run_table.table import Run, RunTable
from smdwidgets.run_table.tensors import TensorsFound
from smdwidgets.storage.address import is_address, parse
from smdwidgets.storage.local import local_path

__all__ = [
    "CatalogUpdate",
    "Run",
    "RunGroup",
    "RunGroups",
    "RunTable",
    "Spread",
    "TensorsFound",
    "runs",
    "update_catalog",
]

#: Summaries that are stored at once, so that an interrupted call is continued by the next.
_STORED_AT_ONCE = 200


def runs(
    root: str | os.PathLike[str],
    tags: str | Iterable[str] | None = None,
    *,
    findings: bool = False,
    cache: bool | str | os.PathLike[str] = True,
    catalog: bool = True,
    progress: Callable[[int, int], object] | None = None,
    **connection: Any,
) -> RunTable:
    """Return the table of all runs below a directory or the address of a store.

    TensorBoard logs and runs that hooks saved are found with one walk, and read in parallel. What the table shows is
    kept in the user's cache directory. A later call reads only runs whose files have changed. In a store, each folder
    is listed once, and a run that has ended is read again only if an object directly in its folder has changed.

    Args:
        root: the directory, or an address such as ``s3://bucket/prefix``.
        tags: curves that are columns: tags, or ``min(tag)`` and similar. None: up to four losses and metrics.
        findings: diagnose each run; the column ``findings`` has the number of findings.
        cache: whether to use the cache, or the file of the cache.
        catalog: whether to read the catalog that :func:`update_catalog` wrote, if there is one. It lacks runs that
            began since; ``table.as_of`` says when it was written.
        progress: called with the number of runs that were read and their total. None: a progress bar if it takes long.
        **connection: for a store, the fields of :class:`~smdwidgets.storage.Connection`.

    >>> table = smdwidgets.runs("logs")                            # doctest: +SKIP
    >>> table.sort("min(val_loss)")[:10]                           # doctest: +SKIP
    >>> table.group("hparams.lr").to_pandas()                      # doctest: +SKIP
    """
    path = _place(root, connection)
    index = None if cache is False else RunIndex(None if cache is True else cache)
    known = {} if index is None else index.read(path)
    summaries: dict[str, Summary] = {}
    stored = catalog_runs(path, connection) if catalog else None
    below = _found(path, connection) if stored is None else [run for run, _ in stored.runs]
    if stored is not None:
        known |= {run.path: (run.signature, summary) for run, summary in stored.runs}
    for run in below:
        signature, summary = known.get(run.path, ("", None))
        if summary is not None and signature == run.signature and (not findings or "findings" in summary):
            summaries[run.path] = summary
    missing = [run for run in below if run.path not in summaries]
    if missing:
        summaries |= _read(missing, findings, index, path, progress)
    rows = [Run(run, summaries[run.path]) for run in below]
    table = RunTable(path, rows, complete=stored is None, as_of="" if stored is None else stored.as_of)
    chosen = [tags] if isinstance(tags, str) else tags
    return table if chosen is None else table.columns_of(*chosen)


def _place(root: str | os.PathLike[str], connection: dict[str, Any]) -> str:
    """Return the path or address in its usual form."""
    text = os.fspath(root)
    if is_address(text):
        return parse(text).url.rstrip("/")
    if connection:
        raise TypeError(f"{min(connection)} requires the address of a store, got {shown(text, 400)}")
    path = local_path(root)
    if not os.path.isdir(path):
        raise RunNotFound(path)
    return path


def _found(path: str, connection: dict[str, Any]) -> list[FoundRun]:
    """Return the runs below a path or address."""
    if not is_address(path):
        return find_runs(path)
    with Progress("folders") as bar:
        return find_remote_runs(path, connection, bar.update)


def _read(
    missing: list[FoundRun],
    findings: bool,
    index: RunIndex | None,
    root: str,
    progress: Callable[[int, int], object] | None,
) -> dict[str, Summary]:
    """Read runs in parallel and store their summaries."""
    read: dict[str, Summary] = {}
    unstored: dict[str, tuple[str, Summary]] = {}
    with Progress("runs") as bar, ThreadPoolExecutor() as pool:
        try:
            for run, summary in zip(
                missing, pool.map(partial(summarize, with_findings=findings), missing), strict=True
            ):
                read[run.path] = summary
                if "error" not in summary:
                    unstored[run.path] = run.signature, summary
                (progress or bar.update)(len(read), len(missing))
                if len(unstored) >= _STORED_AT_ONCE and index is not None:
                    index.write(root, unstored)
                    unstored = {}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if index is not None:
                index.write(root, unstored)
    return read

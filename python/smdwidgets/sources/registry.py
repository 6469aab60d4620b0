"""The known formats: those of this package, and those of installed packages."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from threading import Lock
from typing import Final

from smdwidgets._text import shown, visible
from smdwidgets.exceptions import RunIOError
from smdwidgets.sources.source import Format, Source
from smdwidgets.sources.tree import Tree

#: Entry point group in which an installed package declares a format: an instance of it, or a class without arguments.
ENTRY_POINTS = "smdwidgets.sources"

#: Part of the names of TensorBoard's event files.
_EVENT_FILE: Final = "tfevents"

_logger = logging.getLogger("smdwidgets")
_lock = Lock()
_formats: dict[str, Format] = {}
_loaded = False


def register(format: Format) -> None:
    """Add a format, or replace the one of the same name.

    >>> from smdwidgets.sources.tables import Tables
    >>> register(Tables())
    """
    _load()
    _formats[format.name] = format


def formats() -> list[Format]:
    """Return the known formats, in the order in which they were registered."""
    _load()
    return list(_formats.values())


def _load() -> None:
    global _loaded
    with _lock:
        if _loaded:
            return
        _loaded = True
        for one in _built_in():
            _formats[one.name] = one
        for point in entry_points(group=ENTRY_POINTS):
            try:
                found = point.load()
                one = found() if isinstance(found, type) else found
                _formats[one.name] = one
            except Exception as error:  # a broken package must not prevent reading other formats
                _logger.warning("cannot load the format %s: %s", point.value, described(error))


def _built_in() -> Iterable[Format]:
    # Imported at first use: most runs are smdebug's or TensorBoard's.
    from smdwidgets.sources.comet import CometExperiments
    from smdwidgets.sources.distributed_checkpoints import DistributedCheckpoints
    from smdwidgets.sources.inspect_logs import InspectLogs
    from smdwidgets.sources.json_history import JsonHistories
    from smdwidgets.sources.mlflow import MlflowDatabase, MlflowFiles
    from smdwidgets.sources.npz import NumpyArchives
    from smdwidgets.sources.parquet import NeptuneExports, ParquetTables
    from smdwidgets.sources.safetensors import Safetensors
    from smdwidgets.sources.tables import Tables
    from smdwidgets.sources.text_logs import TextLogs
    from smdwidgets.sources.torch_checkpoints import TorchCheckpoints
    from smdwidgets.sources.trackio import TrackioDatabase
    from smdwidgets.sources.trainer_state import TrainerStates
    from smdwidgets.sources.wandb import WandbFiles

    scalars: list[Format] = [
        Tables(),
        TrainerStates(),
        JsonHistories(),
        MlflowFiles(),
        MlflowDatabase(),
        WandbFiles(),
        TrackioDatabase(),
        CometExperiments(),
        InspectLogs(),
        ParquetTables(),
        NeptuneExports(),
    ]
    return [*scalars, Safetensors(), TorchCheckpoints(), DistributedCheckpoints(), NumpyArchives(), TextLogs()]


def files_in(tree: Tree) -> dict[str, dict[str, Sequence[str]]]:
    """Return the files of each run below a directory, by run and format.

    Runs are named by their directories.

    Raises :class:`~smdwidgets.exceptions.RunIOError` if the file that was opened cannot be read.
    """
    found: dict[str, dict[str, Sequence[str]]] = {}
    for one in formats():
        try:
            runs = dict(one.find(tree))
        except RunIOError as error:
            if tree.is_file:
                raise
            _logger.warning("the format %s failed in %s: %s", one.name, shown(tree.root), error)
            continue
        except Exception as error:  # a broken format must not prevent reading the others
            _logger.warning("the format %s failed in %s: %s", one.name, shown(tree.root), described(error))
            continue
        for run, files in runs.items():
            if files:
                found.setdefault(run, {})[one.name] = list(files)
    return _without_last_resorts(tree, found)


def _without_last_resorts(
    tree: Tree, found: dict[str, dict[str, Sequence[str]]]
) -> dict[str, dict[str, Sequence[str]]]:
    """Leave out text where another format or TensorBoard has the same run.

    What a training printed repeats, with fewer digits, what its loggers wrote.
    """
    resorts = {name for name, one in _formats.items() if getattr(one, "is_last_resort", False)}
    better = {run for run, by_format in found.items() if by_format.keys() - resorts}
    better |= {key.rpartition("/")[0] for key in tree.keys if _EVENT_FILE in key}
    around = {folder for run in better for folder in _with_parents(run)}
    kept = {}
    for run, by_format in found.items():
        if by_format.keys() & resorts and (run in around or not better.isdisjoint(_with_parents(run))):
            by_format = {name: files for name, files in by_format.items() if name not in resorts}
        if by_format:
            kept[run] = by_format
    return kept


def _with_parents(run: str) -> list[str]:
    """Return a directory and those above it.

    >>> _with_parents("a/b")
    ['a/b', 'a', '']
    """
    parts = run.split("/") if run else []
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def open_source(format: str, tree: Tree, run: str, files: Sequence[str]) -> Source:
    """Return the source of the files that a format found."""
    return _formats[format].open(tree, run, files)


def described(error: BaseException) -> str:
    """Return an error with its type.

    >>> described(ValueError("no steps"))
    'ValueError: no steps'
    """
    return f"{type(error).__name__}: {visible(error, 1000)}"

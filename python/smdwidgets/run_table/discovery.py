"""Find the runs below a directory or an address, with one walk over it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdwidgets.exceptions import RunNotFound
from smdwidgets.sources import Tree
from smdwidgets.sources.recognition import of_objects
from smdwidgets.storage.address import is_address
from smdwidgets.trials import Trial
from smdwidgets.trials.discovery import RunFiles, runs_in
from smdwidgets.trials.tensorboard.layout import is_event_file
from smdwidgets.trials.utils import open_remote_run, open_run

if TYPE_CHECKING:
    from smdwidgets.storage.remote import Listed

#: Name of the state file that says that a run in smdebug's format has ended.
_END = "training_job_end.ts"
#: Name of a file of hyperparameters in a run.
HPARAMS = "hparams.json"


@dataclass(frozen=True)
class FoundRun:
    """A run that was found: what identifies its content, and how to open it."""

    name: str
    path: str
    kind: str
    #: Changes when a file of the run changes.
    signature: str
    #: When a file of the run was last written, in seconds since 1970.
    written: float
    open: Callable[[], Trial] = field(repr=False, compare=False)
    #: Whether `open` returns a trial that others use, so that it must stay open.
    shared: bool = False
    #: Its files by format; None if they are not known.
    files: RunFiles | None = field(default=None, repr=False, compare=False)


def find_runs(root: str) -> list[FoundRun]:
    """Return the runs below a directory, in natural order of their names.

    The name of a run is its directory relative to ``root``; ``root`` itself is named after its last part.
    """
    tree = Tree(root)
    events: dict[str, list[str]] = {}
    for key in filter(is_event_file, tree.keys):
        events.setdefault(key.rpartition("/")[0], []).append(key)
    last = Path(root).absolute().name
    found = []
    for run, files in runs_in(tree).items():
        path = str(Path(tree.root, run))
        if files.of_hook:
            seen: list[tuple[str, int, object]] = sorted(_written(path))
        else:
            keys = [key for keys in files.sources.values() for key in keys]
            keys += [key for one in files.layout for key in events.get(one.path, ())]
            versions = {key: tree.version(key) for key in keys}
            seen = [(key, version[1], version) for key, version in sorted(versions.items()) if version]
        layout = [(one.path, one.worker, one.mode.value, one.suffix) for one in files.layout]
        opened = opener(tree.root, run, files, run or last, {})
        written = max((time for _, time, _ in seen), default=0) / 1e9
        found.append(
            FoundRun(
                run or last,
                path,
                files.kind,
                _digest([files.kind, layout, seen, _hparams_written(path)]),
                written,
                opened,
                files=files,
            )
        )
    return found


def find_remote_runs(
    address: str, connection: Mapping[str, Any], progress: Callable[[int, int], object] | None = None
) -> list[FoundRun]:
    """Return the runs below an address of a store, in natural order of their names.

    Args:
        address: the address.
        connection: fields of :class:`~smdwidgets.storage.Connection`.
        progress: called with the number of listed folders and of the folders known so far.
    """
    from smdwidgets.storage.connection import Connection  # imported for stores only
    from smdwidgets.trials.remote_discovery import last_write, newest, runs_below, walk

    with closing(Connection(**connection).storage(address)) as storage:
        tree = walk(storage, progress)
        runs = runs_below(storage, tree)
        hooks = [run for run, files in runs.items() if files.of_hook]
        with ThreadPoolExecutor(storage.concurrency) as pool:
            try:
                changing = dict(
                    zip(hooks, pool.map(lambda run: last_write(storage, run, tree.hooks[run]), hooks), strict=True)
                )
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    if not runs and not tree.files:
        raise RunNotFound(address, of_objects(()))
    events: dict[str, list[Listed]] = {}
    for key in tree.event_files():
        events.setdefault(key.rpartition("/")[0], []).append(tree.files[key])
    root = address.rstrip("/")
    found = []
    for run, files in runs.items():
        seen = changing[run] if files.of_hook else [one for part in files.layout for one in events.get(part.path, ())]
        seen = [*seen, *(tree.files[key] for keys in files.sources.values() for key in keys)]
        layout = [(one.path, one.worker, one.mode.value, one.suffix) for one in files.layout]
        name = run or root.rpartition("/")[2]
        path = f"{root}/{run}" if run else root
        # Keys below the run, so that it has one signature whatever prefix was listed.
        base = f"{run}/" if run else ""
        versions = sorted((one.key.removeprefix(base), one.size, one.written, one.etag) for one in seen)
        signature = _digest([files.kind, layout, versions])
        found.append(
            FoundRun(
                name,
                path,
                files.kind,
                signature,
                newest(seen),
                opener(root, run, files, name, connection),
                files=files,
            )
        )
    return found


def find_run(root: str, run: str, connection: Mapping[str, Any]) -> FoundRun | None:
    """Return a run of a hook below a directory or an address, listing nothing but it.

    Args:
        root: the directory or address.
        run: the directory of the run, relative to it.
        connection: for a store, fields of :class:`~smdwidgets.storage.Connection`.
    """
    place = "/".join([root, run]) if is_address(root) else str(Path(root, run))
    below = find_remote_runs(place, connection) if is_address(root) else find_runs(place)
    for one in below:
        if one.path == place and one.files is not None:
            return replace(one, name=run, open=opener(root, run, one.files, run, connection))
    return None


def opener(root: str, run: str, files: RunFiles, name: str, connection: Mapping[str, Any]) -> Callable[[], Trial]:
    """Return what opens a run below a directory or an address."""
    if is_address(root):
        return RemoteOpener(root, run, files, name, connection)
    return partial(_open, root, run, files, name)


@dataclass(frozen=True)
class RemoteOpener:
    """Opens a run below an address, also in another process, unless it needs secrets."""

    root: str
    run: str
    files: RunFiles
    name: str
    connection: Mapping[str, Any] = field(repr=False)

    def __call__(self) -> Trial:
        """Return the run, which is read at its first query."""
        # As with local runs, a run that has not ended may lack files.
        own = {"skip_bad_index": True, "wait": 0.0} if self.files.of_hook else {}
        options = {**self.connection, **own, "lazy": None if self.files.of_hook else True}
        return open_remote_run(self.root, self.run, self.files, self.name, None, options)

    def __getstate__(self) -> dict[str, Any]:
        from smdwidgets.storage.connection import check_picklable  # imported for stores only

        check_picklable(self.connection)
        return vars(self)


def _open(root: str, run: str, files: RunFiles, name: str) -> Trial:
    # A run that has not ended may lack files, and a run with a damaged file is better than none.
    own = {"skip_bad_index": True, "wait": 0.0} if files.of_hook else {"lazy": True}
    return open_run(root, run, files, name, None, own)


def _written(path: str) -> Iterator[tuple[str, int, int]]:
    """Yield what changes when a run of smdebug's format grows: (name, time, size).

    Index files are in directories of 1000 steps, whose times change when a file is added.
    """
    for worker in _entries(Path(path, "segments")):  # which grow
        for file in _entries(Path(worker.path)):
            about = file.stat()
            yield f"segments/{worker.name}/{file.name}", about.st_mtime_ns, about.st_size
    for name in ("collections", "index", "statistics", HPARAMS, _END):
        place = Path(path, name)
        try:
            about = place.stat()
            yield name, about.st_mtime_ns, 0
            if name in ("index", "collections", "statistics"):
                with os.scandir(place) as entries:
                    for entry in entries:
                        about = entry.stat()
                        yield f"{name}/{entry.name}", about.st_mtime_ns, 0 if entry.is_dir() else about.st_size
        except OSError:
            continue


def _entries(path: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a directory, which may not exist."""
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []


def _hparams_written(path: str) -> int:
    """Return when the file of hyperparameters was written; 0 if there is none."""
    try:
        return Path(path, HPARAMS).stat().st_mtime_ns
    except OSError:
        return 0


def _digest(parts: object) -> str:
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]

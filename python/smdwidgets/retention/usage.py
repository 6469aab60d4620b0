"""What runs and their tensors take on disk."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from smdwidgets.exceptions import RunNotFound
from smdwidgets.retention.local_files import files_of
from smdwidgets.retention.saved_steps import lengths_in
from smdwidgets.run_table.discovery import FoundRun, find_remote_runs, find_runs
from smdwidgets.sources import Tree
from smdwidgets.sources.recognition import of_objects, of_store, why_no_run
from smdwidgets.storage.address import is_address
from smdwidgets.storage.local import LocalStorage, local_path
from smdwidgets.trials.discovery import runs_in

#: Name of the parts of a run of a hook, by the directory in the run.
_PARTS: Final = {
    "events": "values",
    "segments": "values",
    "statistics": "statistics",
    "samples": "samples",
    "index": "index",
    "_smdwidgets": "index",
}


@dataclass(frozen=True)
class RunUse:
    """What one run takes on disk, in bytes."""

    name: str
    path: str
    kind: str
    size: int
    #: Values, statistics, samples, index and other files.
    parts: Mapping[str, int] = field(default_factory=dict)
    #: Values by tensor, the largest first.
    tensors: Mapping[str, int] = field(default_factory=dict)


def disk_use(path: str | os.PathLike[str], *, tensors: bool = True, **connection: Any) -> list[RunUse]:
    """Return what each run below a directory or an address takes, the largest first.

    Args:
        path: the directory of a run, or of several, or an address such as ``s3://bucket/prefix``.
        tensors: whether to read the indexes of runs of hooks, for the sizes of tensors.
        **connection: for a store, the fields of :class:`~smdwidgets.storage.Connection`.

    >>> disk_use("runs")[0].tensors                                # doctest: +SKIP
    {'layer0.weight': 1234567, 'layer1.weight': 234567}
    """
    if is_address(path):
        return _in_store(str(path), tensors, connection)
    runs = runs_of(path, {})
    tree = Tree(local_path(path))
    files_of_runs = {Path(tree.root, key): files for key, files in runs_in(tree).items()}
    keys_below: defaultdict[str, list[str]] = defaultdict(list)
    for key in tree.keys:
        keys_below[key.rpartition("/")[0]].append(key)
    uses = []
    for run in runs:
        if run.kind == "smdebug":
            parts: Counter[str] = Counter()
            for file, size in files_of(run.path):
                parts[_PARTS.get(file.partition("/")[0], "other")] += size
            by_tensor: Counter[str] = Counter()
            storage = LocalStorage(run.path)
            for _, content in storage.read_many(storage.list("index/")) if tensors else ():
                for name, length in lengths_in(content):
                    by_tensor[name] += length
            uses.append(RunUse(run.name, run.path, run.kind, parts.total(), dict(parts), dict(by_tensor.most_common())))
            continue
        files = files_of_runs.get(Path(run.path))
        keys = {key for keys in files.sources.values() for key in keys} if files is not None else set()
        folders = {one.path for one in files.layout} if files is not None else set()
        keys |= {key for folder in folders for key in keys_below.get(folder, ())}
        uses.append(RunUse(run.name, run.path, run.kind, sum(tree.size(key) or 0 for key in keys)))
    return sorted(uses, key=lambda one: -one.size)


def _in_store(address: str, tensors: bool, connection: Mapping[str, Any]) -> list[RunUse]:
    """Return what each run below an address takes."""
    from smdwidgets.storage.connection import Connection  # imported for stores only
    from smdwidgets.trials.remote_discovery import store_tree, walk

    uses = []
    root = address.rstrip("/")
    with closing(Connection(**connection).storage(address)) as storage:
        listed = walk(storage)
        tree = store_tree(storage, listed)
        below = runs_in(tree)
        if not below:
            raise RunNotFound(address, of_store(tree) if tree.keys else of_objects(()))
        by_folder: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.keys:
            by_folder[key.rpartition("/")[0]].append(key)
        for run, files in below.items():
            name, path, base = run or root.rpartition("/")[2], f"{root}/{run}".rstrip("/"), f"{run}/" if run else ""
            if files.of_hook:
                parts: Counter[str] = Counter()
                for one in storage.listing(base):
                    parts[_PARTS.get(one.key[len(base) :].partition("/")[0], "other")] += one.size or 0
                by_tensor: Counter[str] = Counter()
                indexes = [key for key in storage.list(f"{base}index/") if key.endswith(".json")] if tensors else []
                for _, content in storage.read_many(indexes):
                    for tensor, length in lengths_in(content):
                        by_tensor[tensor] += length
                uses.append(RunUse(name, path, files.kind, parts.total(), dict(parts), dict(by_tensor.most_common())))
                continue
            keys = {key for keys in files.sources.values() for key in keys}
            folders = {one.path for one in files.layout}
            keys |= {key for folder in folders for key in by_folder.get(folder, ())}
            uses.append(RunUse(name, path, files.kind, sum(tree.size(key) or 0 for key in keys)))
    return sorted(uses, key=lambda one: -one.size)


def runs_of(path: str | os.PathLike[str], connection: Mapping[str, Any]) -> list[FoundRun]:
    """Return the runs below a path; raise an error if there are none."""
    text = os.fspath(path)
    if is_address(text):
        runs = find_remote_runs(text.rstrip("/"), connection)
        if not runs:
            raise RunNotFound(text, "no object below this prefix is a file of a run")
        return runs
    root = local_path(text)
    if not os.path.isdir(root):
        raise RunNotFound(text, "" if not os.path.exists(root) else "it is a file; give a directory with runs below it")
    runs = find_runs(root)
    if not runs:
        raise RunNotFound(text, why_no_run(root))
    return runs

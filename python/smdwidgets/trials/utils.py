"""Open runs of every supported format and storage."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdwidgets._text import did_you_mean, listed, shown
from smdwidgets.exceptions import RunNotFound, SMDebugNotImplementedError, SMDebugValueError
from smdwidgets.sources.recognition import of_objects, of_store
from smdwidgets.sources.tree import of_hook
from smdwidgets.storage.address import FORMS, is_address, parse
from smdwidgets.storage.local import local_path
from smdwidgets.trials.discovery import RunFiles, chosen_run, find_runs, runs_in
from smdwidgets.trials.smdebug.local import LocalTrial
from smdwidgets.trials.sources.trial import SourceTrial
from smdwidgets.trials.tensorboard.layout import Directory
from smdwidgets.trials.tensorboard.trial import TensorBoardTrial
from smdwidgets.trials.trial import Trial

if TYPE_CHECKING:
    from smdwidgets.sources.store_tree import StoreTree
    from smdwidgets.storage.remote import RemoteStorage

#: Arguments of smdebug that have no effect, since reading is always parallel.
_WITHOUT_EFFECT = frozenset({"parallel", "check", "index_mode", "output_dir"})
_KNOWN = frozenset(
    {"range_steps", "lazy", "wait", "skip_bad_index", "trust", "keep_orphans", "live", "cache", "hold", "segment"}
)
#: Arguments for TensorBoard logs only.
_FOR_LOGS = frozenset({"keep_orphans", "live", "cache", "hold", "segment"})


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    range_steps: tuple[int | None, int | None] | None = None,
    profiler: bool = False,
    **kwargs: Any,
) -> Trial:
    """Open a finished or running run.

    A directory with TensorBoard event files, also in subdirectories, is opened as a
    :class:`~smdwidgets.trials.TensorBoardTrial`; a directory or file with a table, a trainer state, an experiment store
    or checkpoints as a :class:`~smdwidgets.trials.SourceTrial`. If it contains several runs,
    :class:`~smdwidgets.exceptions.SeveralRuns` is raised; :func:`create_trials` opens all of them.

    Args:
        path: the hook's ``out_dir``: a directory (``~`` and ``file://`` are expanded) or the address of a store:
            ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix`` or ``https://host/path``.
        name: name of the trial; by default the last part of the path.
        range_steps: begin (inclusive) and end (exclusive) of the global steps to read; None means unbounded.
        profiler: not supported; must be False.
        **kwargs: further options:

            * ``lazy``: read index files only when a query needs them; None (default): only for long runs. If True, a
              TensorBoard log is read at the first query.
            * ``wait``: seconds to wait for a run that has not started, and for its collection files. Without it, or
              with 0, the path must exist.
            * ``skip_bad_index``: skip unreadable index files; ``trial.problems()`` lists them.
            * ``trust``: how a compacted index (see :func:`smdwidgets.compact`) is checked. ``"listing"`` (default): in
              a bucket, it is compared with a listing of the index objects; in a directory, it is not used. ``"root"``:
              it is used without a listing, which makes a run of many steps open faster; index files that changed since
              are not noticed. ``"none"``: it is not used.
            * ``keep_orphans``, ``live``, ``cache``, ``hold``, ``segment``: for TensorBoard logs, see
              :class:`~smdwidgets.trials.TensorBoardTrial`.
            * for stores, the fields of :class:`~smdwidgets.storage.Connection`.

    Raises:
        RunNotFound: there is no run at the path.
        MissingCollectionFiles: the run ended without all collection files.
        IndexReaderException: an index file cannot be read.
        WaitTimeout: the run did not start within ``wait`` seconds.

    >>> trial = create_trial("~/runs/mlp", range_steps=(100, None))    # doctest: +SKIP
    """
    if profiler:
        raise SMDebugNotImplementedError("profiler=True is not supported: smdwidgets reads saved tensors only")
    text, options = _checked(path, kwargs)
    if is_address(text):
        try:
            return _open_remote(text, name, range_steps, options)
        except RunNotFound:
            with closing(remote_runs(text, options)) as below:
                chosen = below.run or chosen_run(text, below.runs)
                if chosen not in below.runs:
                    raise RunNotFound(text, f"runs in {below.root}: {listed(list(below.runs), 20)}") from None
                files = below.runs[chosen]
                return open_remote_run(below.root, chosen, files, name, range_steps, options, below)
    root, run = _in_store(local_path(text))
    runs = _runs_for(options, find_runs(root))
    if run and runs and run not in runs:
        raise RunNotFound(text, f"runs in {Path(root).name}: {listed(list(runs), 20)}")
    waits = options.get("wait") is not None and "" not in runs and all(files.of_hook for files in runs.values())
    if not runs or waits:
        return LocalTrial(name, text, range_steps, **_without(options, _FOR_LOGS))
    run = run or chosen_run(text, runs)
    return open_run(root, run, runs[run], name, range_steps, options)


def has_started(path: str | os.PathLike[str]) -> bool:
    """Return whether there is something to open, or nobody knows.

    A run has not started if its directory is missing or empty, or if its hook has not saved a step yet.

    >>> has_started("/no/such/run"), has_started("s3://bucket/run")
    (False, True)
    """
    text = os.fspath(path)
    if is_address(text):
        return True
    root, run = _in_store(local_path(text))
    if run:
        return True
    try:
        names = [entry.name for entry in Path(root).iterdir()]
    except NotADirectoryError:
        return True
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    if not names:
        return False
    signs = all(of_hook(name) or name in {"events", "tensorboard"} for name in names)
    return not signs or bool(find_runs(root))


def _in_store(path: str) -> tuple[str, str]:
    """Split the path of a run in files into their place and the name of the run."""
    if not os.path.exists(path):
        for above in Path(path).parents:
            if os.path.isfile(above):
                return str(above), Path(path).relative_to(above).as_posix()
            if os.path.isdir(above):
                if next(above.glob("*.parquet"), None) is not None:  # exports of trackers have several runs
                    return str(above), Path(path).relative_to(above).as_posix()
                break
    return path, ""


def _runs_for(options: Mapping[str, Any], runs: dict[str, RunFiles]) -> dict[str, RunFiles]:
    """Return the runs that have what the options select."""
    if options.get("segment") is None:
        return runs
    return {run: RunFiles(layout=files.layout) for run, files in runs.items() if files.layout}


def open_run(
    root: str,
    run: str,
    files: RunFiles,
    name: str | None,
    range_steps: tuple[int | None, int | None] | None,
    options: Mapping[str, Any],
) -> Trial:
    """Open a run below a directory."""
    if files.of_hook:
        return LocalTrial(name, str(Path(root, run)), range_steps, **_without(options, _FOR_LOGS))
    given = {key: options[key] for key in options.keys() & _FOR_LOGS} | {"lazy": options.get("lazy") is True}
    if files.sources:
        return SourceTrial(name, root, range_steps, run=run, **_without(given, {"segment"}))
    return TensorBoardTrial(name, root, range_steps, run=run, layout=files.layout, **given)


def _without(options: Mapping[str, Any], names: Set[str]) -> dict[str, Any]:
    return {key: options[key] for key in options.keys() - names}


def _checked(path: str | os.PathLike[str], kwargs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Validate path and options; drop options without an effect."""
    others = kwargs.keys() - _KNOWN - _WITHOUT_EFFECT
    settings = _settings() if others else frozenset()
    for given in kwargs:
        if given in others - settings:
            raise TypeError(
                f"create_trial got an unexpected argument {given!r}.{did_you_mean(given, _KNOWN | settings)}"
            )
    options = {key: value for key, value in kwargs.items() if key not in _WITHOUT_EFFECT}
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError("path must be a string or os.PathLike, got bytes")
    text = text.strip() if isinstance(path, str) else text
    if not text:
        raise SMDebugValueError("path must not be empty")
    if is_address(text):
        parse(text)
    elif others:
        raise TypeError(f"{min(others)} requires a run on S3 or in another store ({FORMS}), got {shown(text, 400)}")
    return text, options


def _settings() -> frozenset[str]:
    from smdwidgets.storage.connection import SETTINGS  # imported for stores only

    return SETTINGS


def create_trials(
    path: str | os.PathLike[str], range_steps: tuple[int | None, int | None] | None = None, **kwargs: Any
) -> dict[str, Trial]:
    """Open all runs of a directory or a prefix of a store, by name.

    Takes the arguments of :func:`create_trial`. The name of a run is its directory relative to ``path``; a path that is
    itself a run is named after its last part.

    The directory is listed once, in a store each folder once, and each run is read at its first query. With
    ``lazy=False``, all runs are read now, in parallel.

    >>> trials = create_trials("runs")                                 # doctest: +SKIP
    >>> {name: trial.tensor("loss").value(100) for name, trial in trials.items()}    # doctest: +SKIP
    """
    text, options = _checked(path, kwargs)
    root = text if is_address(text) else local_path(text)
    if is_address(text):
        try:
            trial: Trial = _open_remote(text, None, range_steps, options)
            return {trial.name: trial}
        except RunNotFound:
            with closing(remote_runs(text, options)) as below:
                root, run, runs = below.root, below.run, below.runs
            runs = {run: runs[run]} if run in runs else runs
    else:
        runs = _runs_for(options, find_runs(root))
        if not runs:
            trial = create_trial(path, None, range_steps, **kwargs)
            return {trial.name: trial}
    options["lazy"] = options.get("lazy") is not False
    lazy = {**options, "lazy": True}
    opened: dict[str, Trial] = {}
    for run, files in runs.items():
        name = None if len(runs) == 1 or not run else run
        if is_address(text):
            trial = open_remote_run(root, run, files, name, range_steps, lazy)
        else:
            trial = open_run(root, run, files, name, range_steps, lazy)
        opened[run or trial.name] = trial
    if not options["lazy"]:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda trial: trial.reader.read_first(), opened.values()))
    return opened


def _open_remote(
    text: str, name: str | None, range_steps: tuple[int | None, int | None] | None, options: Mapping[str, Any]
) -> Trial:
    from smdwidgets.trials.smdebug.remote import RemoteTrial  # imported for stores only

    return RemoteTrial(name, text, range_steps, **_without(options, _FOR_LOGS))


def _storage(text: str, options: Mapping[str, Any]) -> RemoteStorage:
    from smdwidgets.storage.connection import SETTINGS, Connection  # imported for stores only

    return Connection(**{key: options[key] for key in options.keys() & SETTINGS}).storage(text)


@dataclass
class Below:
    """An address, the run that it names or "", and the runs below it.

    For a run in an object, such as ``s3://b/mlflow.db/run``, the address is that of the object.
    """

    root: str
    run: str
    runs: dict[str, RunFiles]
    _tree: StoreTree | None

    def take(self, place: str, only: str) -> StoreTree | None:
        """Return the files that were listed, if they are those of a place.

        The caller closes their storage.
        """
        tree = self._tree
        if only or tree is None or tree.root != place.rstrip("/"):
            return None
        self._tree = None
        return tree

    def close(self) -> None:
        """Close the connections of files that were not taken."""
        if self._tree is not None:
            self._tree.storage.close()


def remote_runs(text: str, options: Mapping[str, Any]) -> Below:
    """Return the runs below an address.

    Raises an error if there are no runs, with the objects that are there.
    """
    from smdwidgets.trials.remote_discovery import one_object, store_tree  # imported for stores only

    storage = _storage(text, options)
    with ExitStack() as closing_storage:
        closing_storage.callback(storage.close)
        tree = store_tree(storage)
        below = _runs_for(options, runs_in(tree))
        if below:
            closing_storage.pop_all()
            return Below(text, "", below, tree)
        if tree.keys:
            raise RunNotFound(text, of_store(tree))
    parts = parse(text).prefix.split("/")
    for at in reversed(range(len(parts))):
        if "." not in parts[at]:
            continue
        above = text.rstrip("/")[: -len("/".join(parts[at:]))]
        with closing(_storage(above, options)) as storage:
            tree = one_object(storage, parts[at])
            if tree.keys:
                below = runs_in(tree)
                if not below:
                    raise RunNotFound(text, of_store(tree))
                return Below(above + parts[at], "/".join(parts[at + 1 :]), below, None)
    raise RunNotFound(text, of_objects(()))


def open_remote_run(
    text: str,
    run: str,
    files: RunFiles,
    name: str | None,
    range_steps: tuple[int | None, int | None] | None,
    options: Mapping[str, Any],
    below: Below | None = None,
) -> Trial:
    """Open a run below an address.

    What ``below`` has listed is not listed again.
    """
    if files.sources:
        return _open_sources(text, name, range_steps, options, run, files, below)
    if not files.of_hook:
        return _open_log(text, name, range_steps, options, run, files.layout)
    # A run that is found by a listing is read at its first query, like one in a directory.
    unread = {"unread": options.get("lazy") is True}
    return _open_remote(f"{text.rstrip('/')}/{run}", name, range_steps, {**options, **unread})


def _open_sources(
    text: str,
    name: str | None,
    range_steps: tuple[int | None, int | None] | None,
    options: Mapping[str, Any],
    run: str,
    files: RunFiles,
    below: Below | None,
) -> SourceTrial:
    place, only = f"{text.rstrip('/')}/{run}".rstrip("/"), ""
    keys = [key for of_format in files.sources.values() for key in of_format]
    inside = next((key for key in keys if run == key or run.startswith(f"{key}/")), None)
    if files.in_file:
        place, _, only = text.rstrip("/").rpartition("/")
    elif inside is not None:  # a database has several runs
        place, _, only = f"{text.rstrip('/')}/{inside}".rpartition("/")
        run = run[len(inside) + 1 :]
    else:
        # A run in a file that has several is named by it, below the folder of the file.
        folder = run
        while folder and not keys[0].startswith(f"{folder}/"):
            folder = folder.rpartition("/")[0]
        place, run = f"{text.rstrip('/')}/{folder}".rstrip("/"), run[len(folder) :].lstrip("/")
    for_logs = {key: options[key] for key in options.keys() & _FOR_LOGS - {"segment"}}
    tree = None if below is None else below.take(place, only)
    storage = _storage(place, options) if tree is None else tree.storage
    for_logs |= {"storage": storage, "tree": tree, "only": only, "run": run, "lazy": options.get("lazy") is True}
    try:
        return SourceTrial(name, "", range_steps, **for_logs)
    except BaseException:
        storage.close()
        raise


def _open_log(
    text: str,
    name: str | None,
    range_steps: tuple[int | None, int | None] | None,
    options: Mapping[str, Any],
    run: str,
    layout: Sequence[Directory],
) -> TensorBoardTrial:
    log_options: dict[str, Any] = {key: options[key] for key in options.keys() & _FOR_LOGS}
    log_options |= {"run": run, "layout": layout, "lazy": options.get("lazy") is True}
    storage = _storage(text, options)
    try:
        return TensorBoardTrial(name, range_steps=range_steps, storage=storage, **log_options)
    except BaseException:
        storage.close()
        raise

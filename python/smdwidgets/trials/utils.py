"""Open runs of every supported format and storage."""

from __future__ import annotations

import os
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import RunNotFound, SeveralRuns, SMDebugNotImplementedError, SMDebugValueError
from smdwidgets.trials.local import LocalTrial, local_path
from smdwidgets.trials.tensorboard import TensorBoardTrial, is_log
from smdwidgets.trials.trial import Trial

#: Arguments of smdebug that have no effect, since reading is always parallel.
_WITHOUT_EFFECT = frozenset({"parallel", "check", "index_mode", "output_dir"})
_KNOWN = frozenset({"range_steps", "lazy", "wait", "skip_bad_index", "keep_orphans", "live", "cache", "hold"})
#: Arguments for runs on S3.
_ON_S3 = frozenset({"endpoint_url", "session", "client", "concurrency", "cache_bytes", "cache_dir"})
#: Arguments for TensorBoard logs only.
_FOR_LOGS = frozenset({"keep_orphans", "live", "cache", "hold"})


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    range_steps: tuple[int | None, int | None] | None = None,
    profiler: bool = False,
    **kwargs: Any,
) -> Trial:
    """Open a finished or running run.

    A directory with TensorBoard event files, also in subdirectories, is opened as a
    :class:`~smdwidgets.trials.TensorBoardTrial`. If it contains several runs, :class:`~smdwidgets.exceptions.SeveralRuns` is
    raised; :func:`create_trials` opens all of them.

    Args:
        path: the hook's ``out_dir``: a directory (``~`` and ``file://`` are expanded) or ``s3://bucket/prefix``.
        name: name of the trial; by default the last part of the path.
        range_steps: begin (inclusive) and end (exclusive) of the global steps to read; None means unbounded.
        profiler: not supported; must be False.
        **kwargs: further options:

            * ``lazy``: read index files only when a query needs them; None (default): only for long runs.
            * ``wait``: seconds to wait for a run that has not started, and for its collection files. Without it, the path
              must exist.
            * ``skip_bad_index``: skip unreadable index files; ``trial.problems()`` lists them.
            * ``keep_orphans``, ``live``, ``cache``, ``hold``: for TensorBoard logs, see
              :class:`~smdwidgets.trials.TensorBoardTrial`.
            * for S3, the fields of :class:`~smdwidgets.storage.s3.Connection`.

    Raises:
        RunNotFound: there is no run at the path.
        MissingCollectionFiles: the run ended without all collection files.
        IndexReaderException: an index file cannot be read.
        WaitTimeout: the run did not start within ``wait`` seconds.

    >>> trial = create_trial("~/runs/mlp", range_steps=(100, None))    # doctest: +SKIP
    """
    if profiler:
        raise SMDebugNotImplementedError("profiler=True is not supported: smdwidgets reads saved tensors only")
    for given in kwargs:
        if given not in _KNOWN | _ON_S3 | _WITHOUT_EFFECT:
            raise TypeError(f"create_trial got an unexpected argument {given!r}.{did_you_mean(given, _KNOWN | _ON_S3)}")
    options = {key: value for key, value in kwargs.items() if key in _KNOWN | _ON_S3}
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError("path must be a string or os.PathLike, got bytes")
    text = text.strip() if isinstance(path, str) else text
    if not text:
        raise SMDebugValueError("path must not be empty")
    scheme, mark, _ = text.partition("://")
    if _on_s3(text):
        from smdwidgets.trials.s3 import S3Trial  # boto3 is imported only for runs on S3

        try:
            return S3Trial(name, text, range_steps, **{key: options[key] for key in options.keys() - _FOR_LOGS})
        except RunNotFound as missing:
            try:
                return _open_log(text, name, range_steps, options, None)
            except RunNotFound:
                raise missing from None
    if mark and scheme.lower() != "file":
        raise SMDebugValueError(f"unsupported URL scheme {shown(scheme + mark)}; pass a directory, file://… or s3://…")
    for given in options:
        if given in _ON_S3:
            raise TypeError(f"{given} requires a run on S3 (s3://bucket/prefix), got {shown(text, 400)}")
    if is_log(local_path(text)):
        return _open_log(text, name, range_steps, options, None)
    return LocalTrial(name, text, range_steps, **{key: options[key] for key in options.keys() - _FOR_LOGS})


def create_trials(
    path: str | os.PathLike[str], range_steps: tuple[int | None, int | None] | None = None, **kwargs: Any
) -> dict[str, Trial]:
    """Open all runs of a TensorBoard log directory or S3 prefix, by name.

    Takes the arguments of :func:`create_trial`. The name of a run is its directory relative to ``path``; a path that is
    itself a run is named after its last part.

    >>> trials = create_trials("runs")                                 # doctest: +SKIP
    >>> {name: trial.tensor("loss").value(100) for name, trial in trials.items()}    # doctest: +SKIP
    """
    opened: dict[str, Trial] = {}
    try:
        root = create_trial(path, None, range_steps, **kwargs)
    except SeveralRuns as several:
        below = several.runs
    else:
        if not isinstance(root, TensorBoardTrial):
            return {root.name: root}
        opened[root.run or root.name] = root
        below = [run for run in root.runs() if run != root.run]
    for run in below:
        opened[run] = _open_log(os.fspath(path), run, range_steps, kwargs, run)
    return opened


def _open_log(
    text: str,
    name: str | None,
    range_steps: tuple[int | None, int | None] | None,
    options: dict[str, Any],
    run: str | None,
) -> TensorBoardTrial:
    log_options = {key: options[key] for key in options.keys() & _FOR_LOGS}
    if not _on_s3(text):
        return TensorBoardTrial(name, text, range_steps, run=run, **log_options)
    from smdwidgets.storage.s3 import Connection  # boto3 is imported only for runs on S3

    storage = Connection(**{key: options[key] for key in options.keys() & _ON_S3}).storage(text.strip())
    try:
        return TensorBoardTrial(name, range_steps=range_steps, storage=storage, run=run, **log_options)
    except BaseException:
        storage.close()
        raise


def _on_s3(text: str) -> bool:
    scheme, mark, _ = text.strip().partition("://")
    return bool(mark) and scheme.lower() in {"s3", "s3a", "s3n"}

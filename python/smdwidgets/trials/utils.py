"""One door to runs of every kind."""

from __future__ import annotations

import os
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import RunNotFound, SeveralRuns, SMDebugNotImplementedError, SMDebugValueError
from smdwidgets.trials.local import LocalTrial, local_path
from smdwidgets.trials.tensorboard import TensorBoardTrial, is_log
from smdwidgets.trials.trial import Trial

#: Arguments of smdebug's that change nothing here: reading is always parallel.
_WITHOUT_EFFECT = frozenset({"parallel", "check", "index_mode", "output_dir"})
_KNOWN = frozenset({"range_steps", "lazy", "wait", "skip_bad_index", "keep_orphans", "live", "cache", "hold"})
#: Arguments of runs on S3.
_ON_S3 = frozenset({"endpoint_url", "session", "client", "concurrency", "cache_bytes", "cache_dir"})
#: What is said about logs of TensorBoard's only: values of smdebug's format need no cache.
_OF_LOGS = frozenset({"keep_orphans", "live", "cache", "hold"})


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    range_steps: tuple[int | None, int | None] | None = None,
    profiler: bool = False,
    **kwargs: Any,
) -> Trial:
    """Open a run: a finished one, or one that is still being written.

    ``path`` is the hook's ``out_dir``: a directory (``~`` and ``file://`` are understood) or ``s3://bucket/prefix``, for which
    :class:`~smdwidgets.storage.s3.Connection` describes further arguments. ``name`` is its last part unless given.
    ``range_steps=(begin, end)`` leaves out other steps; None is open, end is not part of it.

    ``lazy``: whether index files are read only when a question needs them; None (the default) does so for long runs.
    ``wait``: seconds to wait for a run that is about to begin, and for its collection files; without it the path must exist.
    A directory with TensorBoard's event files, in it or below, is a run as well (see
    :class:`~smdwidgets.trials.TensorBoardTrial`). Where it holds several, :class:`~smdwidgets.exceptions.SeveralRuns` names
    them, and :func:`create_trials` opens all.

    ``keep_orphans``: of a TensorBoard log, keep what a restart from an earlier step has made void.
    ``live``: whether a TensorBoard log may still grow; None: until nobody has written to it for an hour.
    ``cache``: a directory (True: the user's) that keeps what was read of large TensorBoard logs, so that they open at once.
    ``hold``: keep all values of a TensorBoard log in memory; its files are not needed any more.
    ``skip_bad_index``: open a run in spite of index files that can't be read; ``trial.problems()`` lists them.

    Raises :class:`~smdwidgets.exceptions.RunNotFound`, :class:`~smdwidgets.exceptions.MissingCollectionFiles`,
    :class:`~smdwidgets.exceptions.IndexReaderException`, :class:`~smdwidgets.exceptions.WaitTimeout`.

    >>> trial = create_trial("~/runs/mlp", range_steps=(100, None))    # doctest: +SKIP
    """
    if profiler:
        raise SMDebugNotImplementedError("Profiler output is not read: smdwidgets reads saved tensors only.")
    for given in kwargs:
        if given not in _KNOWN | _ON_S3 | _WITHOUT_EFFECT:
            raise TypeError(f"create_trial has no argument {given!r}.{did_you_mean(given, _KNOWN | _ON_S3)}")
    options = {key: value for key, value in kwargs.items() if key in _KNOWN | _ON_S3}
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError("A path is text, not bytes.")
    text = text.strip() if isinstance(path, str) else text
    if not text:
        raise SMDebugValueError("The path of the run is empty.")
    scheme, mark, _ = text.partition("://")
    if _on_s3(text):
        from smdwidgets.trials.s3 import S3Trial  # boto3 is imported only for runs on S3

        try:
            return S3Trial(name, text, range_steps, **{key: options[key] for key in options.keys() - _OF_LOGS})
        except RunNotFound as missing:
            try:
                return _open_log(text, name, range_steps, options, None)
            except RunNotFound:
                raise missing from None
    if mark and scheme.lower() != "file":
        raise SMDebugValueError(f"Runs at {shown(scheme + mark)} can't be opened: give a directory, file://… or s3://…")
    for given in options:
        if given in _ON_S3:
            raise TypeError(f"{given} is for runs on S3 (s3://bucket/prefix), not for {shown(text, 400)}.")
    if is_log(local_path(text)):
        return _open_log(text, name, range_steps, options, None)
    return LocalTrial(name, text, range_steps, **{key: options[key] for key in options.keys() - _OF_LOGS})


def create_trials(
    path: str | os.PathLike[str], range_steps: tuple[int | None, int | None] | None = None, **kwargs: Any
) -> dict[str, Trial]:
    """Open all runs below a directory of TensorBoard logs, or a prefix on S3, by their names: their directories, relative to it.

    Arguments are those of :func:`create_trial`. A directory that is one run itself is called by its own name.

    >>> trials = create_trials("runs")                                 # doctest: +SKIP
    >>> {name: trial.tensor("loss").value(100) for name, trial in trials.items()}    # doctest: +SKIP
    """
    opened: dict[str, Trial] = {}
    try:
        own = create_trial(path, None, range_steps, **kwargs)
    except SeveralRuns as several:
        below = several.runs
    else:
        if not isinstance(own, TensorBoardTrial):
            return {own.name: own}
        opened[own.run or own.name] = own
        below = [run for run in own.runs() if run != own.run]
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
    of_logs = {key: options[key] for key in options.keys() & _OF_LOGS}
    if not _on_s3(text):
        return TensorBoardTrial(name, text, range_steps, run=run, **of_logs)
    from smdwidgets.storage.s3 import Connection  # boto3 is imported only for runs on S3

    storage = Connection(**{key: options[key] for key in options.keys() & _ON_S3}).storage(text.strip())
    try:
        return TensorBoardTrial(name, range_steps=range_steps, storage=storage, run=run, **of_logs)
    except BaseException:
        storage.close()
        raise


def _on_s3(text: str) -> bool:
    scheme, mark, _ = text.strip().partition("://")
    return bool(mark) and scheme.lower() in {"s3", "s3a", "s3n"}

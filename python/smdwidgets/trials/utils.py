"""One door to runs of every kind."""

from __future__ import annotations

import os
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import RunNotFound, SMDebugNotImplementedError, SMDebugValueError
from smdwidgets.trials.local import LocalTrial, local_path
from smdwidgets.trials.tensorboard import TensorBoardTrial, is_log, runs_in
from smdwidgets.trials.trial import Trial

#: Arguments of smdebug's that change nothing here: values need no cache, and reading is always parallel.
_WITHOUT_EFFECT = frozenset({"parallel", "check", "index_mode", "cache", "output_dir"})
_KNOWN = frozenset({"range_steps", "lazy", "wait", "skip_bad_index", "keep_orphans", "live"})
#: Arguments of runs on S3.
_ON_S3 = frozenset({"endpoint_url", "session", "client", "concurrency", "cache_bytes", "cache_dir"})
#: What is said about logs of TensorBoard's only.
_OF_LOGS = frozenset({"keep_orphans", "live"})


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    range_steps: tuple[int | None, int | None] | None = None,
    profiler: bool = False,
    **kwargs: Any,
) -> Trial:
    """Open a run: a finished one, or one that is still being written.

    ``path`` is the hook's ``out_dir``: a directory (``~`` and ``file://`` are understood) or ``s3://bucket/prefix``, for which
    :class:`~smdwidgets.trials.s3.S3Trial` describes further arguments. ``name`` is its last part unless given.
    ``range_steps=(begin, end)`` leaves out other steps; None is open, end is not part of it.

    ``lazy``: whether index files are read only when a question needs them; None (the default) does so for long runs.
    ``wait``: seconds to wait for a run that is about to begin, and for its collection files; without it the path must exist.
    A directory with TensorBoard's event files, in it or below, is a run as well (see
    :class:`~smdwidgets.trials.TensorBoardTrial`). Where it holds several, :class:`~smdwidgets.exceptions.SeveralRuns` names
    them, and :func:`create_trials` opens all.

    ``keep_orphans``: of a TensorBoard log, keep what a restart from an earlier step has made void.
    ``live``: whether a TensorBoard log may still grow; None: until nobody has written to it for an hour.
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
    if mark and scheme.lower() in {"s3", "s3a", "s3n"}:
        from smdwidgets.trials.s3 import S3Trial, open_storage  # boto3 is imported only for runs on S3

        of_logs = {key: options.pop(key) for key in options.keys() & _OF_LOGS}
        try:
            return S3Trial(name, text, range_steps, **options)
        except RunNotFound:
            storage = open_storage(text, **{key: options[key] for key in options.keys() & _ON_S3})
            try:
                if runs_in(storage):
                    return TensorBoardTrial(name, range_steps=range_steps, storage=storage, **of_logs)
            except BaseException:
                storage.close()
                raise
            storage.close()
            raise
    if mark and scheme.lower() != "file":
        raise SMDebugValueError(f"Runs at {shown(scheme + mark)} can't be opened: give a directory, file://… or s3://…")
    for given in options:
        if given in _ON_S3:
            raise TypeError(f"{given} is for runs on S3 (s3://bucket/prefix), not for {shown(text, 400)}.")
    if is_log(local_path(text)):
        of_logs = {key: value for key, value in options.items() if key in _OF_LOGS}
        return TensorBoardTrial(name, text, range_steps, **of_logs)
    return LocalTrial(name, text, range_steps, **{key: options[key] for key in options.keys() - _OF_LOGS})


def create_trials(
    path: str | os.PathLike[str], range_steps: tuple[int | None, int | None] | None = None, **kwargs: Any
) -> dict[str, Trial]:
    """Open all runs below a directory of TensorBoard logs, by their names: their directories, relative to it.

    Arguments are those of :func:`create_trial`. A directory that is one run itself is called by its own name.

    >>> trials = create_trials("runs")                                 # doctest: +SKIP
    >>> {name: trial.tensor("loss").value(100) for name, trial in trials.items()}    # doctest: +SKIP
    """
    root = local_path(os.fspath(path))
    runs = [run for run in runs_in(root) if run] if is_log(root) else []
    own = [] if runs and "" not in runs_in(root) else [create_trial(path, None, range_steps, **kwargs)]
    opened: dict[str, Trial] = {trial.name: trial for trial in own}
    options = {key: kwargs[key] for key in kwargs.keys() & _OF_LOGS}
    return opened | {run: TensorBoardTrial(run, root, range_steps, run=run, **options) for run in runs}

"""Trials of runs in any registered format."""

from __future__ import annotations

import os
from typing import Any

from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.sources.store_tree import StoreTree
from smdwidgets.storage.local import local_path
from smdwidgets.storage.remote import RemoteStorage
from smdwidgets.trials.discovery import find_runs, runs_in
from smdwidgets.trials.remote_discovery import one_object, store_tree
from smdwidgets.trials.sources.run import LocalSourceRun, SourceRun, StoredSourceRun
from smdwidgets.trials.tensorboard.trial import TensorBoardTrial, reading_options


class SourceTrial(TensorBoardTrial):
    """A run with files in one or several formats, see :func:`smdwidgets.create_trial`.

    The formats are tables, trainer states, experiment stores and checkpoints, see ``docs/sources.md``, beside
    TensorBoard's event files. Scalars and tensors of all of them are tensors of the trial. If two formats have a scalar
    of the same name with other numbers, the name of the second one ends with its file.

    Args:
        name: name of the trial; by default the last part of the path.
        dirname: the directory, or a file in it.
        storage: where the files are stored, instead of ``dirname``.
        tree: the files in the storage, if they were listed just now.
        only: the key of the only file that is read from the storage.
        range_steps: begin (inclusive) and end (exclusive) of the steps to read; None means unbounded.
        run: the run's directory relative to ``dirname``, if there are several.
        keep_orphans: keep steps that a restart from an earlier step superseded, unless they were written again.
        live: whether the run may still grow. None: yes, until an hour after the last write.
        cache: directory that caches the index of large event files, or True for the user's cache directory.
        hold: keep all values of event files in memory.
        lazy: read nothing until the first query.

    >>> trial = create_trial("runs/detect/train")            # doctest: +SKIP
    >>> trial.scalars("train/box_loss").to_pandas()          # doctest: +SKIP
    """

    _run: SourceRun

    def __init__(
        self,
        name: str | None = None,
        dirname: str | os.PathLike[str] = "",
        range_steps: tuple[int | None, int | None] | None = None,
        *,
        storage: RemoteStorage | None = None,
        tree: StoreTree | None = None,
        only: str = "",
        run: str = "",
        keep_orphans: bool = False,
        live: bool | None = None,
        cache: bool | str | os.PathLike[str] | None = None,
        hold: bool = False,
        lazy: bool = False,
    ) -> None:
        root = local_path(dirname) if storage is None else storage.url
        self._opened_with = {
            "name": name,
            "dirname": root,
            "storage": storage,
            "only": only,
            "range_steps": range_steps,
            "run": run,
            "keep_orphans": keep_orphans,
            "live": live,
            "cache": cache,
            "hold": hold,
            "lazy": lazy,
        }
        options = reading_options(range_steps, keep_orphans, live, cache, hold)
        if storage is None:
            opened: SourceRun = LocalSourceRun(root, run, **options)
        else:
            if tree is None:
                tree = one_object(storage, only) if only else store_tree(storage)
            opened = StoredSourceRun(tree, run, **options)
        self.run = run
        self._open(opened, name, range_steps, lazy)

    def runs(self) -> list[str]:
        """Return the directories of all runs below the one that was opened."""
        if isinstance(self._run, StoredSourceRun):
            return list(runs_in(self._run.tree))
        return list(find_runs(str(self._opened_with["dirname"])))

    def sources(self) -> list[str]:
        """Return the files and stores that the run is read from, besides event files."""
        return self._run.source_names()

    def identity(self) -> dict[str, str]:
        """Return ``name``, ``owner``, ``group`` and ``commit``, as far as known."""
        self.maybe_refresh()
        return self._run.identity()

    def select_segment(self, segment: int | None) -> None:
        """Raise an error: only the runs of TensorBoard logs have launches."""
        raise SMDebugValueError("cannot select a segment: the run is not only a TensorBoard log")

    def hparams(self) -> dict[str, Any]:
        """Return the hyperparameters of the run."""
        logged = super().hparams()  # reads a run that was not read yet
        return self._run.hparams() | logged

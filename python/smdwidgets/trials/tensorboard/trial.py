"""TensorBoard logs as trials: all steps without sampling, also while they grow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._files import user_cache
from smdwidgets._text import listed, shown
from smdwidgets.exceptions import (
    CorruptDataError,
    DataError,
    RunNotFound,
    SeveralRuns,
    SMDebugValueError,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdwidgets.modes import ModeKeys, as_mode, as_step
from smdwidgets.storage.local import LocalStorage, local_path
from smdwidgets.storage.protocol import Storage
from smdwidgets.trials.columns import Columns, Failure
from smdwidgets.trials.reader import Reopening, checked_range, reopened
from smdwidgets.trials.tensorboard.layout import Directory, FirstTags, Segment, is_event_file, runs_of, segments_of
from smdwidgets.trials.tensorboard.run import LocalTensorBoardRun, TensorBoardRun
from smdwidgets.trials.trial import Trial

#: The rows of a precision-recall curve, in the order of TensorBoard's plugin.
_PR_ROWS = ("true_positives", "false_positives", "true_negatives", "false_negatives", "precision", "recall")


class TensorBoardTrial(Trial):
    """A run of a TensorBoard log. Usually created by :func:`smdwidgets.create_trial`.

    Tags become tensors, and steps are those of the log. If directories are modes (``train``, ``validation``), mode
    steps are the log's steps, and a global step is four times the log's step plus 0 for TRAIN, 1 for EVAL, 2 for
    PREDICT, 3 for others.

    Args:
        name: name of the trial; by default the last part of the path.
        dirname: the log directory.
        range_steps: begin (inclusive) and end (exclusive) of the steps to read; None means unbounded.
        storage: where the log is stored, instead of ``dirname``.
        run: directory of the run in the log, if the log has several.
        keep_orphans: keep steps that a restart from an earlier step superseded, unless they were written again.
        live: whether the log may still grow. None: yes, until an hour after the last write.
        cache: directory that caches the index of large files, or True for the user's cache directory. Processes may
            share it, and it may be deleted at any time. Stale entries are ignored.
        hold: keep all values in memory, in their written form, with verified checksums. The files may then be changed
            or deleted. This needs at most as much memory as the files, and less if steps repeat.
        lazy: read nothing until the first query.
        segment: number of a launch: read only the files that it wrote; negative numbers count from the last. See
            :meth:`segments`. None: all.
        layout: directories of the run, if they are known; None: list the log.

    >>> trial = create_trial("runs/mlp")                     # doctest: +SKIP
    >>> trial.tensor("loss/train").values()                  # doctest: +SKIP
    """

    _run: TensorBoardRun
    #: The run's directory relative to the log; empty for the log's root.
    run: str

    def __init__(
        self,
        name: str | None = None,
        dirname: str | os.PathLike[str] = "",
        range_steps: tuple[int | None, int | None] | None = None,
        *,
        storage: Storage | None = None,
        run: str | None = None,
        keep_orphans: bool = False,
        live: bool | None = None,
        cache: bool | str | os.PathLike[str] | None = None,
        hold: bool = False,
        lazy: bool = False,
        segment: int | None = None,
        layout: Sequence[Directory] | None = None,
    ) -> None:
        root = local_path(dirname) if storage is None else storage.url
        self._opened_with: dict[str, Any] = {
            "name": name,
            "dirname": root,
            "range_steps": range_steps,
            "storage": storage,
            "run": run,
            "keep_orphans": keep_orphans,
            "live": live,
            "cache": cache,
            "hold": hold,
            "lazy": lazy,
            "segment": segment,
            "layout": layout,
        }
        if layout is None:
            run, layout = chosen_run(root, runs_in(root if storage is None else storage), run)
        self.run = run = run or ""
        options = reading_options(range_steps, keep_orphans, live, cache, hold)
        options["files"] = None if segment is None else _files_of(storage or LocalStorage(root), run, layout, segment)
        opened = (
            LocalTensorBoardRun(root, layout, run=run, **options)
            if storage is None
            else TensorBoardRun(storage, layout, run, **options)
        )
        self._open(opened, name, range_steps, lazy)

    def _open(
        self, run: TensorBoardRun, name: str | None, range_steps: tuple[int | None, int | None] | None, lazy: bool
    ) -> None:
        if name is None:
            name = run.path.replace(os.sep, "/").rstrip("/").rpartition("/")[2]
        self._run = run
        cls, opened_with = type(self), self._opened_with
        # Damaged records are reported; the others are read.
        Trial.__init__(
            self,
            run,
            name,
            range_steps,
            skip_bad_index=True,
            lazy=lazy,
            reopening=lambda: Reopening(reopened, (cls, opened_with), {}, has_catalog=False),
        )

    @property
    def _log(self) -> _core.EventLog:
        return self._run.log

    def runs(self) -> list[str]:
        """Return the directories of all runs of the log, relative to it."""
        return list(runs_in(self._run.storage))

    def segments(self) -> list[Segment]:
        """Return the launches of the training that wrote the run, in the order of time.

        A training that was started again writes another file into the same directory. ``create_trial(path,
        segment=-1)`` reads only the last launch.

        >>> [trial.segments()[-1].started, len(trial.segments())]    # doctest: +SKIP
        [1700000000.0, 3]
        """
        return _segments(self._run.storage, self.run, self._run.directories)

    @property
    def segment(self) -> int | None:
        """The number of the launch that is read; None: all."""
        segment: int | None = self._opened_with.get("segment")
        return segment if segment is None or segment >= 0 else segment + len(self.segments())

    def select_segment(self, segment: int | None) -> None:
        """Read only the files of one launch from now on, or of all.

        Rules and widgets of the trial start over, as if another run had been written to the directory.

        Args:
            segment: number of the launch; negative numbers count from the last. None: all.

        >>> trial.select_segment(-1)                         # doctest: +SKIP
        """
        self.reader.read_first()
        with self.reader.lock:
            if segment == self._opened_with.get("segment"):
                return
            run = self._run
            files = None if segment is None else _files_of(run.storage, self.run, run.directories, segment)
            self._opened_with["segment"] = segment
            run.chosen_files = files
            self.reader.start_over()
            self.refresh_data()

    def scalars(self, names: Iterable[str] | str | None = None, mode: ModeKeys | str = ModeKeys.GLOBAL) -> Columns:
        """Return scalars with their wall times.

        The columns are name, step, mode, mode_step, worker, wall_time and value. ``names=None`` selects all scalars.

        >>> trial.scalars("loss/train").to_pandas()          # doctest: +SKIP
        """
        self.maybe_refresh()
        return self._table(self._chosen("scalar", names), as_mode(mode).value, orphans=False)

    def histograms(self, names: Iterable[str] | str | None = None, mode: ModeKeys | str = ModeKeys.GLOBAL) -> Columns:
        """Return histograms with their wall times, in the columns of :meth:`scalars`.

        A ``value`` has the shape (buckets, 3): left edge, right edge, count. All are read in one pass over the files.
        If all have the same number of buckets, the column is one array (rows, buckets, 3). ``names=None`` selects all
        histograms.

        >>> trial.histograms("layer1/weights")["value"][:, :, 2]    # doctest: +SKIP
        """
        self.maybe_refresh()
        chosen = self._chosen("histogram", names)
        table = self._table(chosen, as_mode(mode).value, orphans=False)
        rows = list(zip(table["name"].tolist(), table["step"].tolist(), table["worker"].tolist(), strict=True))
        values, failed = self._run.values(rows)
        return _with_values(table, values, [Failure(*rows[at], error) for at, error in failed])

    def pr_curve(self, name: str, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL) -> Columns:
        """Return a precision-recall curve at a step.

        The columns are threshold, precision, recall, true_positives, false_positives, true_negatives and
        false_negatives. Thresholds are evenly spaced from 0 to 1, as TensorBoard's writers use them. A value counts as
        positive from the threshold on. The precision is NaN where there is no positive.

        >>> trial.pr_curve("pr", 100).to_pandas()            # doctest: +SKIP
        """
        tensor = self.tensor(name)
        if self._run.kind_of(name) != "pr_curve":
            raise SMDebugValueError(f"cannot read {shown(name)} as a precision-recall curve: it is of another kind")
        rows = np.asarray(tensor.value(step, mode), np.float64)
        if rows.ndim != 2 or len(rows) != len(_PR_ROWS):
            raise CorruptDataError(f"a precision-recall curve must have the shape (6, thresholds), got {rows.shape}")
        columns = dict(zip(_PR_ROWS, rows, strict=True))
        positives = columns["true_positives"] + columns["false_positives"]
        columns["precision"] = np.where(positives > 0, columns["precision"], np.nan)
        first = ("precision", "recall")
        ordered = [*first, *(column for column in _PR_ROWS if column not in first)]
        return Columns(
            {"threshold": np.linspace(0, 1, rows.shape[1])} | {column: columns[column] for column in ordered}
        )

    def _chosen(self, wanted: str, names: Iterable[str] | str | None) -> list[str]:
        known = [name for name, _, kind, _, _ in self._log.series() if kind == wanted]
        chosen = known if names is None else [names] if isinstance(names, str) else list(names)
        for name in chosen:
            if name not in set(known):
                raise TensorUnavailable(name, known)
        return chosen

    def orphans(self, name: str) -> Columns:
        """Return the superseded steps of a tensor, in the columns of :meth:`scalars`.

        A restart from an earlier step supersedes the steps after it. A run opened with ``keep_orphans=True`` contains
        those that were not written again.

        >>> trial.orphans("loss/train")["step"]              # doctest: +SKIP
        """
        self.maybe_refresh()
        if not self.has_tensor(name):
            raise TensorUnavailable(name, self._log.names())
        table = self._table([name], ModeKeys.GLOBAL.value, orphans=True)
        if self._run.kind_of(name) == "scalar":
            return table
        values: list[NDArray[Any] | None] = []
        errors = []
        for place in self._log.orphans(name):
            try:
                values.append(self._run.value(place))
            except DataError as error:
                values.append(None)
                errors.append(Failure(name, place.step, place.worker, error))
        return _with_values(table, values, errors)

    def _table(self, names: list[str], mode: int, orphans: bool) -> Columns:
        log = self._log
        directories = log.directories()
        workers = np.array([worker for worker, _ in directories], dtype=object)
        modes = np.array([ModeKeys(number).name for _, number in directories], dtype=object)
        courses = [log.course(name, mode, orphans) for name in names]
        lengths = [len(course[0]) for course in courses]
        none = [np.empty(0, np.int64)] * 2 + [np.empty(0)] * 2 + [np.empty(0, np.uint32)]
        steps, mode_steps, times, values, lanes = (
            np.concatenate(column) for column in zip(none, *courses, strict=True)
        )
        return Columns(
            {
                "name": np.repeat(np.array(names, dtype=object), lengths),
                "step": steps,
                "mode": modes[lanes],
                "mode_step": mode_steps,
                "worker": workers[lanes],
                "wall_time": times,
                "value": values,
            }
        )

    def event(
        self, name: str, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL, worker: str | None = None
    ) -> _core.Event:
        """Return the event at a step in its written form.

        It contains a histogram's fields, the header of an audio clip, or an encoded image. Scalars have no events: see
        :meth:`scalars`.
        """
        self.maybe_refresh()
        mode, step = as_mode(mode), as_step(step)
        at = self.reader.global_step(mode, step)
        place = None if at is None else self._log.find(name, at, worker)
        if place is None or place.number is not None:
            reason = "" if place is None else "the tensor is a scalar, see trial.scalars()"
            raise TensorUnavailableForStep(name, step, mode, reason=reason)
        [event] = self._run.events([place])
        return event

    def events(self, name: str, mode: ModeKeys | str = ModeKeys.GLOBAL) -> dict[int, _core.Event]:
        """Return the events of a non-scalar tensor by step, read in one pass.

        >>> trial.events("samples")[100].value["encoded"][:4]    # doctest: +SKIP
        b'\\x89PNG'
        """
        self.maybe_refresh()
        mode = as_mode(mode)
        if not self.has_tensor(name):
            raise TensorUnavailable(name, self._log.names())
        steps = self._log.steps_of(name, mode.value)
        places = [place for step in steps if (place := self._log.find(name, step)) and place.number is None]
        mode_steps = {place.step: self._log.mode_of(place.step) or (0, place.step) for place in places}
        keys = [place.step if mode == ModeKeys.GLOBAL else mode_steps[place.step][1] for place in places]
        return dict(zip(keys, self._run.events(places), strict=True))

    def wall_time(
        self, name: str, step: int, mode: ModeKeys | str = ModeKeys.GLOBAL, worker: str | None = None
    ) -> float:
        """Return when a value was written, in seconds since the epoch."""
        self.maybe_refresh()
        mode, step = as_mode(mode), as_step(step)
        at = self.reader.global_step(mode, step)
        place = None if at is None else self._log.find(name, at, worker)
        if place is None:
            raise TensorUnavailableForStep(name, step, mode)
        return float(place.wall_time)

    def hparams(self) -> dict[str, Any]:
        """Return the hyperparameters that were logged for the run."""
        self.maybe_refresh()
        found: dict[str, Any] = {}
        for name, _, kind, _, _ in self._log.series():
            if kind == "hparams":
                for step in self._log.steps_of(name):
                    place = self._log.find(name, step)
                    if place is not None:
                        [event] = self._run.events([place])
                        found |= _core.hparams(event.plugin_content)
        return found

    def notes(self) -> list[tuple[str, str]]:
        """Return notes on the log as (worker, text), such as the number of hidden values."""
        self.maybe_refresh()
        log = self._log
        superseded = 0 if self._opened_with["keep_orphans"] else sum(count for _, count in log.superseded())
        if not superseded:
            return super().notes()
        hidden = f"{superseded:,} value{' is' if superseded == 1 else 's are'} hidden, because a restart superseded "
        hidden += "it" if superseded == 1 else "them"
        return [*super().notes(), ("", f"{hidden}; keep_orphans=True shows those that were not written again")]

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (type(self), self._opened_with)


def _with_values(table: Columns, values: NDArray[Any] | list[NDArray[Any] | None], errors: list[Failure]) -> Columns:
    """Return the table with a column of values, without the rows that failed."""
    keep = [at for at, value in enumerate(values) if value is not None]
    columns = {name: column[keep] if errors else column for name, column in table.items()}
    if isinstance(values, list):
        cells, values = values, np.empty(len(keep), dtype=object)
        for row, at in enumerate(keep):
            values[row] = cells[at]
    return Columns(columns | {"value": values}, errors)


def _segments(storage: Storage, run: str, layout: Sequence[Directory]) -> list[Segment]:
    folders = {directory.path for directory in layout}
    keys = storage.list(run + "/" if run else "")
    return segments_of(key for key in keys if key.rpartition("/")[0] in folders)


def _files_of(storage: Storage, run: str, layout: Sequence[Directory], segment: int) -> list[str]:
    found = _segments(storage, run, layout)
    if not -len(found) <= segment < len(found):
        raise SMDebugValueError(f"invalid segment {segment}; the run has {len(found)} segments, see trial.segments()")
    return list(found[segment].files)


def runs_in(place: str | Storage) -> dict[str, list[Directory]]:
    """Return the runs of a log by directory; the empty name is the log's root."""
    if not isinstance(place, str):
        return runs_of(place.list(""), FirstTags(place))
    storage = LocalStorage(place)
    # Ignore pipes and devices, since reading them could block.
    keys = (key for key in storage.list("") if not is_event_file(key) or Path(place, key).is_file())
    return runs_of(keys, FirstTags(storage))


def reading_options(
    range_steps: tuple[int | None, int | None] | None,
    keep_orphans: bool,
    live: bool | None,
    cache: bool | str | os.PathLike[str] | None,
    hold: bool,
) -> dict[str, Any]:
    """Return arguments of a trial as a run takes them."""
    first, end = checked_range(range_steps)
    return {
        "first_step": first,
        "end_step": end,
        "keep_orphans": keep_orphans,
        "live": live,
        "cache": cache_directory(cache),
        "hold": hold,
    }


def cache_directory(given: bool | str | os.PathLike[str] | None) -> str | None:
    """Return the cache directory of logs, or None if the cache is off.

    >>> cache_directory(None), cache_directory("/tmp/cache")
    (None, '/tmp/cache')
    """
    if given is None or given is False:
        return None
    if given is not True:
        return local_path(given)
    return str(user_cache("logs"))


def chosen_run(root: str, runs: dict[str, list[Directory]], run: str | None = None) -> tuple[str, list[Directory]]:
    """Return the requested run, else the only run, else the run in the root."""
    if run is not None:
        if run not in runs:
            raise RunNotFound(f"{root}/{run}", f"runs in the log: {listed(sorted(runs), 20) or 'none'}")
        return run, runs[run]
    if not runs:
        raise RunNotFound(root, "no TensorBoard event files found")
    if len(runs) == 1:
        return next(iter(runs.items()))
    if "" in runs:
        return "", runs[""]
    raise SeveralRuns(root, sorted(runs))

"""The base class of all hooks.

A framework's hook reports when a step begins and which tensors occur in it. The base class does not depend on any framework.
Each layer of it adds one idea to the layer below:

* :mod:`~smdwidgets.hooks.guarded_hook`: one thread at a time, never after a fork;
* :mod:`~smdwidgets.hooks.configured_hook`: arguments, run directory, collections;
* :mod:`~smdwidgets.hooks.saving_hook`: copies tensors and queues them for the writer's thread;
* :mod:`~smdwidgets.hooks.step_hook`: counts steps and decides what is saved at each;
* :mod:`~smdwidgets.hooks.incident_hook`: keeps the last steps in memory and writes them when something breaks;
* this module: opens and closes the run.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from smdwidgets._text import shown
from smdwidgets.config import CapturePlan, ReductionConfig
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.hooks import process
from smdwidgets.hooks.capture_log import CaptureLog
from smdwidgets.hooks.disk_budget import DiskBudget, free_space
from smdwidgets.hooks.guarded_hook import guarded
from smdwidgets.hooks.incident_hook import IncidentHook
from smdwidgets.hooks.planned_steps import PlannedSteps
from smdwidgets.hooks.run_dir import DirectoryInUse, RunDirectory
from smdwidgets.hooks.source_rules import SourceRule
from smdwidgets.hooks.step_statistics import StatisticsRecorder
from smdwidgets.hooks.thinning import Thinning
from smdwidgets.modes import ModeKeys
from smdwidgets.run_end import COMPLETED, RunEnd

__all__ = ["Hook", "current_hook", "guarded", "set_current_hook"]

logger = logging.getLogger("smdwidgets.hooks")

_current: Hook | None = None


def current_hook() -> Hook | None:
    """Return the hook that was created last in this process."""
    return _current


def set_current_hook(hook: Hook | None) -> None:
    """Set the hook that :func:`current_hook` returns; None unsets it."""
    global _current
    _current = hook


class Hook(IncidentHook):
    """Save tensors of a training. The base class of every framework's hook.

    Args:
        out_dir: directory of the run, which must not contain a run; or the address of a
            store: ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``.
        export_tensorboard: also write scalars and histograms for TensorBoard, into ``tensorboard_dir`` or
            ``out_dir/tensorboard``.
        tensorboard_dir: directory of the TensorBoard files; implies ``export_tensorboard``.
        dry_run: count steps, write nothing.
        reduction_config: what to save of a tensor, unless its collection has a configuration; default: the whole tensor.
        save_config: when to save a tensor, unless its collection has a configuration: a SaveConfig, a SaveConfigMode or a
            dictionary of modes; default: every 500th step. Any collection with a configuration is exempt from ``plan``.
        include_regex: save tensors whose names match, as the collection ``default``.
        include_collections: names of collections to save, in addition to those that the framework always saves.
        save_all: save every tensor.
        include_workers: which workers of a distributed training save: ``"one"`` (the first; of sharded tensors, one copy of every shard)
            or ``"all"``.
        plan: a :class:`~smdwidgets.config.CapturePlan`, a dictionary of its arguments, or the path of a JSON or YAML file with
            them. It is the default if none of ``reduction_config``, ``save_config``, ``include_regex``,
            ``include_collections`` and ``save_all`` is given; False: save by ``save_config`` alone.
        overwrite: delete the run in ``out_dir``.
        resume: True: continue after the last step of the run in ``out_dir``. A number: delete the steps from this number
            on, and continue with it.
        recorder_bytes: maximum number of bytes of the last steps that stay in memory, to be written when something breaks.
            0: no flight recorder.
        rules: rules that are evaluated on the statistics of every step: a `Threshold`, or functions of (step, statistics)
            that return a message if they fire.
        queue_bytes: maximum number of queued bytes before the training waits for the disk.
        flush_seconds: maximum age of a complete step in the queue, in seconds, before the training waits for the disk. A
            killed process loses at most the steps of this time. Does not apply to a run on S3.
        fsync: flush every step to the disk before it becomes visible.
        compact: write the compacted index (see :func:`smdwidgets.compact`) when the run has ended, so that a run of many steps
            opens faster.
    """

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: object = None,
        include_regex: str | Iterable[str] | None = None,
        include_collections: str | Iterable[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        *,
        plan: CapturePlan | Mapping[str, Any] | str | os.PathLike[str] | Literal[False] | None = None,
        overwrite: bool = False,
        resume: bool | int = False,
        recorder_bytes: int = 512 << 20,
        rules: Iterable[SourceRule] = (),
        queue_bytes: int = 1 << 30,
        flush_seconds: float = 1.0,
        fsync: bool = False,
        compact: bool = False,
    ) -> None:
        if not (isinstance(flush_seconds, int | float) and flush_seconds > 0):
            raise SMDebugValueError(f"flush_seconds must be a positive number, got {shown(flush_seconds)}.")
        super().__init__(
            recorder_bytes,
            rules,
            queue_bytes,
            flush_seconds,
            out_dir,
            export_tensorboard,
            tensorboard_dir,
            dry_run,
            reduction_config,
            save_config,
            include_regex,
            include_collections,
            save_all,
            include_workers,
            plan,
        )
        self._born_in = _in_flight()
        #: Called once, after everything was written, however the run ends.
        self.when_closed: Callable[[Hook, RunEnd], None] | None = None
        self._compact = bool(compact)
        self._open_options = (overwrite, resume, fsync)
        if not self.dry_run and self._writes_here():
            self._close_predecessor()
            self._open(*self._open_options)
        process.opened(self)
        set_current_hook(self)

    def _open(self, overwrite: bool, resume: bool | int, fsync: bool) -> None:
        """Claim the directory.

        If another process writes to it, the training continues without being recorded.
        """
        directory = self.run_dir
        try:
            resumed = directory.open(overwrite=overwrite, resume=resume)
        except DirectoryInUse as error:
            self._closed, self._inactive = True, str(error)
            logger.error("nothing is recorded: %s", error)
            return
        self._step = self._last_step = resumed.step
        self._mode_steps.update(resumed.mode_steps)
        send = None if directory.bucket is None else directory.bucket.send
        planned, statistics = self._open_plan(resumed.step >= 0)
        self._write_queue.open(
            directory.path,
            self.worker,
            self.tensorboard_dir,
            fsync,
            send,
            directory.touch,
            directory.lost,
            planned,
            statistics,
        )
        self._start_recorder()

    def _open_plan(self, resumed: bool) -> tuple[PlannedSteps | None, StatisticsRecorder | None]:
        """Return the parts of the capture plan on the writer's thread."""
        capture, directory = self._plan.capture, self.run_dir
        if capture is None:
            return None, None
        root, worker = directory.path, self.worker
        if directory.bucket is not None:  # what was uploaded is not deleted
            capture.open(DiskBudget(capture.plan, self._saving_workers), lambda line: None)
            return PlannedSteps(capture, None, self._write_queue.hold_bytes, self.out_dir), None
        log = CaptureLog(root, worker)
        disk = DiskBudget(capture.plan, self._saving_workers, functools.partial(free_space, str(root)))
        if resumed:
            disk.values.used = directory.size_of_steps()
        capture.open(disk, log.plan)
        statistics = None
        if capture.plan.statistics:
            statistics = StatisticsRecorder(
                root, worker, self._write_queue.staging, self._is_parameter, disk.wrote_statistics
            )
        return PlannedSteps(
            capture, Thinning(root, worker, log.thinned), self._write_queue.hold_bytes, self.out_dir
        ), statistics

    def _save_shards(self, workers: int) -> None:
        """Save this worker's shards of sharded tensors.

        ``workers`` is the number of workers that save shards.
        A worker that saves nothing else opens the directory now.
        """
        self._saving_workers = self.run_dir.num_workers = workers
        if not (self.dry_run or self._write_queue.writes or self._closed):
            self._only_shards = True
            self.run_dir = RunDirectory(self.out_dir, self.worker, workers)
            self._open(*self._open_options)

    def _close_predecessor(self) -> None:
        """Close an open hook on the same directory.

        There is one if a notebook cell was run again.
        """
        for other in process.open_hooks():
            if other._write_queue.writes and other.worker == self.worker and other.run_dir.same_as(self.run_dir):
                logger.warning(
                    "%s: closed the open hook on this directory, because a new one was created", self.out_dir
                )
                other.close()

    @guarded
    def flush(self) -> None:
        """Wait until every complete step is on disk."""
        if self._alive():
            self._write_queue.wait()

    @guarded
    def close(self) -> None:
        """End the run: end the current step, write what is queued, write the end marker.

        Calling it again does nothing.

        A hook that is still open when the process ends is closed then.
        """
        # A hook that was created while an exception was being handled (a retry) is not ended by that exception.
        self._close(RunEnd.of(None if _in_flight() == self._born_in else sys.exc_info()[1]))

    @guarded
    def _close(self, end: RunEnd) -> None:
        """Close the hook. A second call after an interrupt continues the first."""
        if self._pid != os.getpid():
            return
        if self._finished or self._inactive:
            process.closed(self)
            return
        self._closed = True
        for part in (
            self._detach,
            self._save_leftovers,
            self._end_step,
            functools.partial(self._dump_at_end, end),
            self._stop_recorder,
            functools.partial(self._report_missing, end),
            functools.partial(self._export, last=True),
            self._write_queue.close,
            functools.partial(self.run_dir.close, end),
            self._compact_index,
        ):
            try:
                part()
            except Exception:
                logger.exception("%s: part of closing the hook failed; the other parts were completed", self.out_dir)
        self._finished = True
        process.closed(self)
        if self.when_closed is not None:
            try:
                self.when_closed(self, end)
            except Exception:
                logger.exception("%s: what follows the end of the run failed", self.out_dir)

    def _compact_index(self) -> None:
        """Write the compacted index, if this worker has ended the run."""
        if self._compact and self.run_dir.ended_run:
            from smdwidgets.trials.compaction import compact  # not needed by a training before its end

            compact(self.run_dir.url)

    @guarded
    def _continue_at(self, mode: ModeKeys, mode_step: int) -> None:
        """Continue with a step of a mode.

        The training was resumed from a checkpoint. The run's step of this number and all later ones are deleted. Nothing happens if this hook has recorded a step.
        """
        if mode_step <= 0 or not self._alive() or self._is_open or self._ended_steps:
            return
        if self._write_queue.writes and self._mode_steps.get(mode, -1) >= mode_step:
            resumed = self.run_dir.rewind(mode, mode_step)
            self._step = self._last_step = resumed.step
            self._mode_steps = dict(resumed.mode_steps)
        self._mode_steps[mode] = mode_step - 1

    @guarded
    def _rest(self) -> None:
        """Make the run complete on disk, because a training has ended.

        The hook stays open; another step withdraws the end marker.
        """
        if self._alive() and self._write_queue.writes:
            self._report_missing(COMPLETED)
            self._export()
            self._write_queue.publish()
            self._write_queue.wait()
            self.run_dir.mark_end(COMPLETED)
            self._end_marked = True

    @guarded
    def _interrupted(self, end: RunEnd) -> None:
        """Write everything before the script's own signal handler runs.

        The handler may end the process or return.
        """
        if self._alive():
            self._export()
            self._write_queue.publish()
            self._dump_at_end(end)
            self._write_queue.wait()
            self.run_dir.mark_end(end)
            self._end_marked = True

    def _cleanup(self) -> None:
        """Close the hook. smdebug scripts use this name."""
        self.close()

    def _save_leftovers(self) -> None:
        """Save tensors that the script passed after the last step in a separate step."""
        if self._script_tensors and not self._is_open:
            self._stop_seen = True  # the training ends anyway
            self._begin_step()

    def _detach(self) -> None:
        """Remove the hook's callbacks from the framework's objects."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._close(RunEnd.of(error))

    def __copy__(self) -> Self:
        """Return the hook itself, since one run has one hook.

        ``sklearn.base.clone`` copies an estimator's callbacks.
        """
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """Pickle to an inactive hook, because only one process writes a run."""
        return (_inactive_copy, (type(self), self.out_dir))

    def __repr__(self) -> str:
        state = "inactive" if self._inactive else "closed" if self._closed else "dry run" if self.dry_run else "open"
        return (
            f"<{type(self).__module__}.{type(self).__name__} {state}: out_dir={shown(self.out_dir, 200)}, "
            f"step={self._step}, mode={self.mode.name}, collections={', '.join(self.include_collections) or 'none'}, "
            f"{self.save_config!r}>"
        )


def _in_flight() -> tuple[int, type[BaseException]] | None:
    """Identify the exception being handled.

    No reference to its traceback is kept, since that keeps tensors alive.
    """
    error = sys.exc_info()[1]
    return None if error is None else (id(error), type(error))


def _inactive_copy(kind: type[Hook], out_dir: str) -> Hook:
    """Return a hook that accepts every call and saves nothing."""
    current = current_hook()
    try:
        hook = kind("inactive", dry_run=True)
    except TypeError:  # a subclass defined by the script, with other arguments
        hook = kind.__new__(kind)
        Hook.__init__(hook, "inactive", dry_run=True)
    process.closed(hook)
    set_current_hook(current)
    hook.out_dir, hook.dry_run, hook._closed = out_dir, False, True
    hook._inactive = "this is a copy of the hook from another process; only that process records"
    return hook

"""The side of a hook towards the writer's thread.

It is the run's directory, the queue of steps, and the end of the run.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

from smdwidgets import _extensions
from smdwidgets.hooks.capture.disk_budget import DiskBudget, free_space
from smdwidgets.hooks.capture.plan import Plan
from smdwidgets.hooks.core.guard import Guard
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.writing.capture_log import CaptureLog
from smdwidgets.hooks.writing.planned_steps import PlannedSteps
from smdwidgets.hooks.writing.run_dir import DirectoryInUse, Resumed, RunDirectory
from smdwidgets.hooks.writing.samples import SampledSteps
from smdwidgets.hooks.writing.segments import OWN_FILES, Segments
from smdwidgets.hooks.writing.step_files import StepFiles
from smdwidgets.hooks.writing.step_statistics import StatisticsRecorder
from smdwidgets.hooks.writing.tensorboard import TensorBoardExport
from smdwidgets.hooks.writing.thinning import Thinning
from smdwidgets.hooks.writing.witness import Witness
from smdwidgets.hooks.writing.write_queue import WriteQueue
from smdwidgets.run_end import COMPLETED, RunEnd
from smdwidgets.signals.file import SignalFile, SignalWriter

__all__ = ["Recorder"]

logger = logging.getLogger("smdwidgets.hooks")


class Recorder:
    """Opens, writes and ends the run of one worker.

    Args:
        options: the hook's options.
        worker: name of this worker, and the number of workers.
        plan: the collections of the run.
        guard: the hook's guard, whose failures are noted in the run.
    """

    def __init__(self, options: HookOptions, worker: tuple[str, int], plan: Plan, guard: Guard) -> None:
        self._options = options
        self._plan = plan
        self._guard = guard
        self.worker, self.num_workers = worker
        self.run_dir = RunDirectory(options.out_dir, self.worker, self._saving_workers)
        self.tensorboard_dir = options.tensorboard(self.run_dir.path)
        memory = options.memory
        self.queue = WriteQueue(memory.queue, float(options.flush_seconds), memory.recorder)
        #: Writes the signals of this worker.
        self.signals = SignalWriter(self._append_signals)
        self._signal_file: SignalFile | None = None
        #: Notes on expected tensors that were never captured.
        self.notes: list[str] = []
        #: Whether this worker has statistics and incidents of its steps, and saves no tensors.
        self.is_witness = False
        self._exported: tuple[object, ...] | None = None
        self._end_is_marked = False

    def _append_signals(self, lines: bytes) -> None:
        if self._signal_file is None:
            self._signal_file = SignalFile(self.run_dir.path, self.worker)
        self._signal_file.append(lines)

    @property
    def _saving_workers(self) -> int:
        return self.num_workers if self._options.include_workers == "all" else 1

    @property
    def is_saving_worker(self) -> bool:
        """Whether this worker saves whole tensors."""
        return self._options.include_workers == "all" or self.worker == "worker_0"

    # ------------------------------------------------------------------------------------------------------- opening

    def open(self, is_parameter: Callable[[str], bool]) -> Resumed | None:
        """Claim the directory and write to it from now on.

        Returns None if another process writes to it; the training then continues without being recorded.

        Args:
            is_parameter: whether a tensor is a weight, whose change has statistics.
        """
        directory, options = self.run_dir, self._options
        try:
            resumed = directory.open(overwrite=options.overwrite, resume=options.resume)
        except DirectoryInUse as error:
            self._guard.closed, self._guard.inactive = True, str(error)
            logger.error("nothing is recorded: %s", error)
            return None
        segments = None
        if self._plan.capture is not None and directory.bucket is None and not options.fsync:
            segments = Segments(directory.path, self.worker, OWN_FILES if resumed.step < 0 else 0)
        planned, statistics = self._open_plan(resumed.step >= 0, is_parameter, segments)
        samples = None
        if self._plan.capture is not None and directory.bucket is None:
            samples = SampledSteps(directory.path, self.worker, self._plan.capture.disk, options.fsync)
        files = StepFiles(
            directory.path,
            self.worker,
            self.queue.staging,
            None if self.tensorboard_dir is None else TensorBoardExport(self.tensorboard_dir),
            options.fsync,
            send=None if directory.bucket is None else directory.bucket.send,
            lost=directory.lost,
            planned=planned,
            statistics=statistics,
            segments=segments,
            samples=samples,
        )
        self.queue.open(files, directory.touch, uploads=directory.bucket is not None)
        return resumed

    def _open_plan(
        self, resumed: bool, is_parameter: Callable[[str], bool], segments: Segments | None
    ) -> tuple[PlannedSteps | None, StatisticsRecorder | None]:
        """Return the parts of the capture plan on the writer's thread."""
        capture, directory, hold_bytes = self._plan.capture, self.run_dir, self.queue.hold_bytes
        if capture is None:
            return None, None
        root, worker, workers = directory.path, self.worker, directory.num_workers
        if directory.bucket is not None:  # what was uploaded is not deleted
            send = functools.partial(self.queue.call, directory.bucket.copy)
            capture.open(DiskBudget(capture.plan, workers), CaptureLog(root, worker, send).plan)
            return PlannedSteps(capture, None, hold_bytes, directory.url), None
        log = CaptureLog(root, worker)
        disk = DiskBudget(capture.plan, workers, functools.partial(free_space, str(root)))
        if resumed:
            disk.values.used = directory.size_of_steps()
            disk.samples.used = directory.size_of_samples()
        capture.open(disk, log.plan)
        statistics = None
        if capture.plan.statistics:
            statistics = StatisticsRecorder(
                root, worker, self.queue.staging, is_parameter, self._options.memory.previous, disk.wrote_statistics
            )
        thinning = Thinning(root, worker, log.thinned, segments)
        return PlannedSteps(capture, thinning, hold_bytes, directory.url), statistics

    def witness(self, is_number: Callable[[str], bool]) -> Resumed | None:
        """Follow the steps of a worker that saves nothing.

        Returns the last step of the run.

        Returns None if there is nothing to do: without a capture plan, and for a run in a bucket.

        Args:
            is_number: whether a tensor is a loss, a norm or a scalar, of which this worker has statistics.
        """
        capture, directory, options = self._plan.capture, self.run_dir, self._options
        if (
            options.dry_run
            or self.queue.writes
            or self._guard.closed
            or self.is_saving_worker
            or directory.bucket is not None
            or capture is None
            or not capture.plan.statistics
        ):
            return None
        self.is_witness = True
        resumed = directory.last_steps(options.resume)
        disk = DiskBudget(capture.plan, self.num_workers, functools.partial(free_space, str(directory.path)))
        capture.open(disk, lambda line: None)
        statistics = StatisticsRecorder(
            directory.path, self.worker, self.queue.staging, lambda name: False, appends=is_number
        )
        files = Witness(directory.path, self.worker, self.queue.staging, statistics, disk)
        self.queue.open(files, lambda: None, uploads=False)
        return resumed

    def save_shards(self, workers: int) -> bool:
        """Save this worker's shards; return whether the run must be opened for them.

        ``workers`` is the number of workers that save shards.
        """
        self.run_dir.num_workers = workers
        if self._options.dry_run or self.queue.writes or self._guard.closed:
            return False
        self.run_dir = RunDirectory(self.run_dir.url, self.worker, workers)
        return True

    # ------------------------------------------------------------------------------------------------------- writing

    def export(self, last: bool = False) -> None:
        """Write the collection file if collections have changed."""
        self._plan.look_for_changes()
        self.export_known(last)

    def export_known(self, last: bool = False) -> None:
        """Write the collection file if changes of collections are known."""
        collections, failures = self._plan.collections, self._guard.failures
        described = (collections.num_modules, collections.num_aliases)
        state = (self._plan.revision, len(self.queue.names), *described, *self.notes, *failures)
        if self.queue.writes and (last or state != self._exported):
            self._exported = state
            collections.set_num_workers(self.run_dir.num_workers)
            collections.set_notes(self.worker, [*failures, *self.notes])
            self.queue.collections(collections.to_json(self.queue.names))

    def publish(self) -> None:
        """Make visible what was captured of the current step."""
        self.export()
        self.queue.publish()

    # -------------------------------------------------------------------------------------------------- end of the run

    def mark_end(self, end: RunEnd = COMPLETED) -> None:
        """Write what is queued and the end marker. Another step withdraws the marker."""
        self.queue.wait()
        if not self.is_witness:
            self.run_dir.mark_end(end)
            self._end_is_marked = True

    def withdraw_end(self) -> None:
        """Remove the end marker, because the training continues."""
        if self._end_is_marked:
            self._end_is_marked = False
            self.run_dir.withdraw_end()

    def compact(self) -> None:
        """Write the compacted index, if requested and this worker ended the run."""
        if self._options.compact and self.run_dir.ended_run:
            from smdwidgets.trials.smdebug.compaction import compact  # not needed by a training before its end

            compact(self.run_dir.url)

    def add_to_catalog(self) -> None:
        """Add the run to a catalog, if requested and this worker ended the run."""
        if self._options.catalog and self.run_dir.ended_run:
            _extensions.catalog_writer.load()(self._options.catalog, self.run_dir.url)

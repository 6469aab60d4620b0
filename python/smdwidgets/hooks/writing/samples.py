"""Keep a strided sample of each tensor that a capture plan copies.

Whole values are deleted as the spacing of steps doubles, and tensors that exceed their share have none. Their samples
stay: they are a run inside the run, in the folder ``samples``, with a share of the disk budget. Runs on the writer's
thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.hooks.capture.captured import Captured, StepKey
from smdwidgets.hooks.capture.disk_budget import DiskBudget
from smdwidgets.hooks.capture.elements import LARGEST_SAMPLE, sample_of
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.writing.capture_log import CaptureLog
from smdwidgets.hooks.writing.segments import Segments
from smdwidgets.hooks.writing.thinning import Thinning

__all__ = ["SAMPLES", "SampledSteps"]

logger = logging.getLogger("smdwidgets.hooks")

#: Folder of the samples in a run.
SAMPLES: Final = "samples"


def _is_sampled(spec: SaveSpec) -> bool:
    """Whether a value may be deleted, or is copied for its statistics only."""
    return spec.planned or (spec.statistics and not spec.raw)


class SampledSteps:
    """Writes the samples of one worker. Not thread-safe.

    Args:
        root: directory of the run.
        worker: name of the worker.
        disk: the plan's budget.
        fsync: whether files are flushed to the disk.
    """

    def __init__(self, root: Path, worker: str, disk: DiskBudget, fsync: bool = False) -> None:
        self._root, self._worker, self._fsync = root / SAMPLES, worker, fsync
        self._disk = disk
        self._segments: Segments | None = None
        self._thinning: Thinning | None = None
        self._writers: dict[StepKey, _core.StepWriter] = {}
        self._bytes: dict[StepKey, int] = {}
        self._said = False

    def add(self, key: StepKey, captured: Sequence[Captured]) -> None:
        """Take samples of those tensors of a step that the plan has copied."""
        disk = self._disk
        if disk.paused or not disk.samples.wants(key[2]):
            return
        taken: list[tuple[str, str, tuple[int, ...], NDArray[Any]]] = []
        shapes: list[tuple[str, tuple[int, ...]]] = []
        for one in captured:
            copy = one.copy
            if copy is None or not _is_sampled(one.spec) or copy.reductions or copy.dtype == "str":
                continue
            if copy.is_whole and one.spec.planned and copy.array.size <= LARGEST_SAMPLE and not disk.values.is_thinned:
                continue  # the sample would be the value, and no values are deleted yet
            sample = sample_of(copy.array, copy.shape[-1] if copy.shape else 1) if copy.is_whole else copy.sample
            if sample is None or not sample.size:
                continue
            nbytes = self._bytes.get(key, 0) + sample.nbytes
            if nbytes > disk.samples.share // 2:
                self._say(one.name, key[0])
                break
            self._bytes[key] = nbytes
            taken.append((one.name, copy.dtype, sample.shape, sample))
            shapes.append((one.name, copy.shape))
        if taken:
            writer = self._writer(key)
            writer.tensors(taken)
            for name, shape in shapes:
                writer.shape(name, name, shape)

    def finish(self, key: StepKey) -> None:
        """Make the samples of a step visible, and delete others to fit the share."""
        writer, nbytes = self._writers.pop(key, None), self._bytes.pop(key, 0)
        if writer is None:
            return
        samples = self._disk.samples
        fits, thinned = samples.make_room(key, nbytes)
        segments, thinning = self._opened()
        for each in thinned:
            thinning.thin(each, None, samples.every)
        thinning.delete()
        if not fits or key[2] % samples.every:
            writer.discard()
        elif writer.is_in_memory:
            nbytes = segments.append(key[0], writer)
            writer.discard()
            samples.saved(key, nbytes)
        else:
            samples.saved(key, writer.finish()[2])

    def drop(self, key: StepKey) -> None:
        """Give up the samples of a step."""
        self._bytes.pop(key, None)
        writer = self._writers.pop(key, None)
        if writer is not None:
            writer.discard()

    def reopen(self) -> None:
        """Begin again, because the directory was removed."""
        if self._segments is not None:
            self._segments.reopen()

    def close(self) -> None:
        """Give up unfinished steps, and close the files."""
        for key in list(self._writers):
            self.drop(key)
        if self._segments is not None:
            self._segments.close(shows=False)

    def _opened(self) -> tuple[Segments, Thinning]:
        if self._segments is None or self._thinning is None:
            self._segments = Segments(self._root, self._worker, 0)
            log: Callable[[dict[str, Any]], None] = CaptureLog(self._root, self._worker).thinned
            self._thinning = Thinning(self._root, self._worker, log, self._segments)
        return self._segments, self._thinning

    def _writer(self, key: StepKey) -> _core.StepWriter:
        writer = self._writers.get(key)
        if writer is None:
            step, mode, mode_step = key
            writer = _core.StepWriter(self._root, step, self._worker, mode.value, mode_step, self._fsync, True)
            self._writers[key] = writer
        return writer

    def _say(self, name: str, step: int) -> None:
        if not self._said:
            self._said = True
            logger.info("no samples of %s and later tensors of step %d: their share is too small", shown(name), step)

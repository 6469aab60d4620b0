"""Write captured tensors to files; this part of a hook runs on the writer thread.

If a step cannot be written, for example on a full disk, the whole step is dropped. A warning is logged once until
saving works again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._atomic import replace_file
from smdwidgets._looks import Looks
from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX
from smdwidgets.exceptions import SMDebugError
from smdwidgets.hooks.capture.arrays import Staging
from smdwidgets.hooks.capture.captured import Captured, StepKey, StepObserver, StepStatistics
from smdwidgets.hooks.capture.lazy_norm import measure
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.writing.planned_steps import PlannedSteps
from smdwidgets.hooks.writing.samples import SampledSteps
from smdwidgets.hooks.writing.segments import Segments
from smdwidgets.hooks.writing.step_statistics import StatisticsRecorder
from smdwidgets.hooks.writing.tensorboard import TensorBoardExport

__all__ = ["StepFiles"]

logger = logging.getLogger("smdwidgets.hooks")

_VALUE = SaveSpec(raw=True)
#: Seconds between two looks at whether the directory is still there and belongs to this writer.
_LOOK_EVERY = 0.1


class StepFiles:
    """Writes the steps of one worker. Not thread-safe.

    Steps are written one after the other, except that an evaluation may be written while a training step is unfinished.
    """

    def __init__(
        self,
        root: Path,
        worker: str,
        staging: Staging,
        tensorboard: TensorBoardExport | None,
        fsync: bool,
        send: Callable[..., object] | None = None,
        lost: Callable[[], str | None] = lambda: None,
        planned: PlannedSteps | None = None,
        statistics: StatisticsRecorder | None = None,
        segments: Segments | None = None,
        samples: SampledSteps | None = None,
    ) -> None:
        self._root = str(root)
        self._worker = worker
        self._staging = staging
        self._tensorboard = tensorboard
        self._fsync = fsync
        #: Uploads finished files, given by their keys.
        self._send = send
        #: Returns the reason if this writer no longer owns the directory, else None.
        self._lost = lost
        self._observers: list[StepObserver] = []
        #: Chooses what is written, if a capture plan does.
        self._planned = planned
        self._statistics = statistics
        #: Has the small steps, if a capture plan chooses what is written.
        self._segments = segments
        self._samples = samples
        #: Why samples of a step could not be written, until that is said, once.
        self._without_samples: Exception | None = None
        self._said_without_samples = False
        self._gone = False
        self._looks = Looks(_LOOK_EVERY)
        self._content = ""
        self._writers: dict[StepKey, _core.StepWriter] = {}
        self._key: StepKey | None = None
        #: Unfinished steps that could not be written.
        self._failed: set[StepKey] = set()
        #: Names of the tensors whose values are in the files of each open step.
        self._written: dict[StepKey, set[str]] = {}
        #: Steps that are left open when they end.
        self._left_open: set[StepKey] = set()
        self._warned = False
        #: Whether the values of a tensor are missing.
        self._incomplete = False
        #: Number of saved steps, and of dropped steps.
        self.saved = 0
        self.dropped = 0

    def observe(self, observer: StepObserver) -> None:
        """Tell an observer of the steps from now on."""
        self._observers.append(observer)

    def write(self, key: StepKey, captured: Sequence[Captured]) -> None:
        """Write tensors of a step, or their statistics, reductions and shapes."""
        ready = [one for one in captured if self._complete(one)]
        self._write_ready(key, captured, ready, None)

    def write_steps(self, steps: Sequence[tuple[StepKey, Sequence[Captured]]]) -> None:
        """Write steps of a few numbers, and complete them.

        Their statistics are computed together. Everything else happens step after step.
        """
        ready = [(key, [one for one in captured if self._complete(one)]) for key, captured in steps]
        described = None if self._gone else self._statistics_of(ready)
        for place, ((key, captured), (_, of_step)) in enumerate(zip(steps, ready, strict=True)):
            self._write_ready(key, captured, of_step, described and described[place : place + 1])
            self.finish(key)

    def _write_ready(
        self,
        key: StepKey,
        captured: Sequence[Captured],
        ready: Sequence[Captured],
        described: Sequence[StepStatistics | None] | None,
    ) -> None:
        """Write tensors of a step whose values are there.

        Args:
            key: the step.
            captured: its tensors, which are released.
            ready: those of them whose values are there.
            described: their statistics; None: they are to be computed.
        """
        if key != self._key:
            self._key = key
            if self._looks.is_due():
                self._look()
        self._tell(lambda observer: observer.tensors(key, ready))
        held: Sequence[Captured] = ()
        try:
            self._describe(key, ready, described)
            if self._gone or key in self._failed:
                return
            self._with_samples(key, lambda samples: samples.add(key, ready))
            if self._planned is None:
                self._write(key, ready)
                return
            held = [one for one in ready if one.spec.writes_value or one.spec.shape]
            if self._planned.hold(key, held):
                self._write_held(key)
        except OSError as error:
            self._drop(key, error)
        finally:
            kept = {id(one) for one in held}
            self._release([one for one in captured if id(one) not in kept])

    def _look(self) -> None:
        """Look whether the directory is still there and belongs to this writer."""
        self._gone = self._gone or self._check_directory()

    def publish(self, key: StepKey) -> None:
        """Make a step visible to readers.

        More tensors may follow until :meth:`finish`.
        """
        self._write_held(key)
        self.flush_statistics()
        self.show(key)

    def show(self, key: StepKey) -> None:
        """Make visible what was written of a step."""
        writer = self._writers.get(key)
        if writer is not None and self._send is None:
            try:
                if not self._append(key, writer):
                    writer.publish()
            except OSError as error:
                self._drop(key, error)

    def finish(self, key: StepKey) -> None:
        """Complete a step and make it visible to readers atomically."""
        self._write_held(key)
        self._with_samples(key, lambda samples: samples.finish(key))
        self._tell(lambda observer: observer.finished(key))
        if key in self._left_open:
            self.show(key)
        else:
            self._finish(key)
        self._failed.discard(key)
        self._say_without_samples()

    def unwritten(self, key: StepKey, captured: Sequence[Captured]) -> list[Captured]:
        """Return those tensors whose values are not in the files of an open step."""
        known = self._written.get(key, ())
        return [one for one in captured if one.name not in known]

    def hold(self, key: StepKey) -> None:
        """Leave a step open when it ends, so that tensors can be added.

        What was written becomes visible.
        """
        self._left_open.add(key)

    def add(self, key: StepKey, captured: Sequence[Captured]) -> bool:
        """Write the values of tensors that are not in the files of an open step yet.

        Returns whether that worked. If it did not, the step is as it was.
        """
        if self._gone:
            return False
        try:
            if rest := [replace(one, spec=_VALUE) for one in self.unwritten(key, captured)]:
                self._write(key, rest)
        except OSError as error:
            self._drop(key, error)
            return False
        return True

    def allows_incident(self, nbytes: int) -> bool:
        """Whether the plan lets the steps around an incident take so many bytes more."""
        return self._planned is None or self._planned.allows_incident(nbytes)

    def took_incident(self, nbytes: int) -> None:
        """So many bytes were written beside the steps of an incident."""
        if self._planned is not None:
            self._planned.took_incident(nbytes)

    def keep(self, key: StepKey) -> None:
        """Never delete a step: it belongs to an incident."""
        if self._planned is not None:
            self._planned.keep(key)

    def flush_statistics(self) -> None:
        """Make statistics visible."""
        self._with_statistics(StatisticsRecorder.flush)

    def complete(self, key: StepKey) -> bool:
        """Complete a step that was left open, and return whether that worked."""
        self._left_open.discard(key)
        done = self._finish(key)
        self._failed.discard(key)
        return done

    def _finish(self, key: StepKey) -> bool:
        self._written.pop(key, None)
        writer = self._writers.pop(key, None)
        if writer is None:
            return key not in self._failed
        try:
            if nbytes := self._append(key, writer):
                writer.discard()
                if self._planned is not None:
                    self._planned.saved(key, nbytes, own_files=False)
                self._saved(key)
                return True
            event_key, index_key, nbytes = writer.finish()
            if self._segments is not None and key[0] in self._segments:  # it has become too large for them
                self._segments.drop(key[0])
            if self._planned is not None:
                self._planned.saved(key, nbytes)
            if self._send is not None:
                self._send(event_key, index_key)
            self._saved(key)
        except OSError as error:
            if self._planned is not None:
                self._planned.without_values(key, (), error)
            self._drop(key, error)
            return False
        return True

    def _append(self, key: StepKey, writer: _core.StepWriter) -> int:
        """Append a step to a segment; return its bytes, or 0 if it has separate files."""
        segments = self._segments
        if segments is None or not writer.is_in_memory or writer.first is None:
            return 0
        if self.saved < segments.own_files and key[0] not in segments:
            return 0
        return segments.append(key[0], writer)

    def _saved(self, key: StepKey) -> None:
        self.saved += 1
        if self._warned:
            logger.warning("saving works again from step %d", key[0])
            self._warned = False

    def idle(self) -> None:
        """Nothing is queued: make visible what is pending."""
        self._with_statistics(StatisticsRecorder.flush_if_due)

    def collections(self, content: str) -> None:
        """Write the collection file atomically."""
        self._content = content
        if self._gone:
            return
        target = Path(self._root, COLLECTIONS_PREFIX, f"{self._worker}_collections.json")
        try:
            replace_file(target, content)
            if self._send is not None:
                self._send(target.relative_to(self._root).as_posix())
        except OSError as error:
            self._warn(f"cannot write the collection file {target}: {error}")

    @property
    def _number(self) -> int:
        return -1 if self._key is None else self._key[0]

    def close(self) -> None:
        """Finish the unfinished steps and close all files."""
        self._look()
        unfinished = dict.fromkeys([*self._writers, *(() if self._planned is None else self._planned.held_steps())])
        for key in [key for key in unfinished if key not in self._left_open]:
            self.finish(key)
        for key in list(self._writers):
            self.complete(key)
        self._with_statistics(StatisticsRecorder.close)
        self._with_samples(None, SampledSteps.close)
        self._say_without_samples()
        if self._segments is not None:
            try:
                self._segments.close()
            except (OSError, SMDebugError) as error:
                self._warn(f"cannot complete the segments: {error}")
        if self._tensorboard is not None:
            self._tensorboard.close()

    # ------------------------------------------------------------------------------------------------------- inside

    def _with_statistics(self, call: Callable[[StatisticsRecorder], object]) -> None:
        if self._statistics is not None:
            try:
                call(self._statistics)
            except OSError as error:
                self._warn(f"cannot write statistics: {error}")

    def _with_samples(self, key: StepKey | None, call: Callable[[SampledSteps], object]) -> None:
        """Call what may fail without harm to the step; its samples are given up then."""
        if self._samples is not None and not self._gone:
            try:
                call(self._samples)
            except (OSError, SMDebugError) as error:
                if key is not None:
                    self._samples.drop(key)
                self._without_samples = error

    def _say_without_samples(self) -> None:
        """Warn once that samples could not be written.

        A step that could not be written has its warning before.
        """
        error, self._without_samples = self._without_samples, None
        if error is not None and not self._said_without_samples:
            self._said_without_samples = True
            logger.warning("cannot write samples: %s; further failures are not logged", error)

    def _statistics_of(
        self, steps: Sequence[tuple[StepKey, Sequence[Captured]]]
    ) -> Sequence[StepStatistics | None] | None:
        """Append the statistics of some steps, and return them. None: there are none."""
        if self._statistics is None or not steps:
            return None
        first, began = steps[0][0][0], time.perf_counter()
        described = self._statistics.add(
            steps, lambda error: self._warn(f"cannot write statistics from step {first} on: {error}")
        )
        if self._planned is not None:
            self._planned.described([one for _, captured in steps for one in captured], time.perf_counter() - began)
        return described

    def _describe(
        self, key: StepKey, captured: Sequence[Captured], described: Sequence[StepStatistics | None] | None
    ) -> None:
        """Compute statistics that are not known yet, and write what TensorBoard shows."""
        if not self._gone:
            if described is None:
                described = self._statistics_of([(key, captured)])
            for rows in described or ():
                if rows is not None:
                    self._tell(lambda observer, rows=rows: observer.statistics(key, rows))  # type: ignore[misc]
        if self._tensorboard is not None:
            for one in captured:
                if (
                    one.copy is not None
                    and one.copy.dtype != "str"
                    and (one.spec.scalar or one.spec.histogram is not None)
                ):
                    self._tensorboard.add(one.name, one.copy, one.spec, key[0], key[1], one.time)

    def _write_held(self, key: StepKey) -> None:
        """Write the tensors of a step that the plan chooses."""
        if self._planned is None:
            return
        chosen, held = self._planned.take(key)
        try:
            if chosen and not self._gone:
                began = time.perf_counter()
                self._write(key, chosen)
                self._planned.wrote(time.perf_counter() - began)
        except OSError as error:
            instead = self._planned.without_values(key, chosen, error)
            self._discard(key)
            try:
                if not instead:
                    raise
                self._write(key, instead)
            except OSError as again:
                self._drop(key, again)
        finally:
            self._release(held)

    def _release(self, captured: Sequence[Captured]) -> None:
        for one in captured:
            if one.copy is not None and one.copy.slab is not None:
                self._staging.release(one.copy.slab)

    def _complete(self, one: Captured) -> bool:
        """Wait for the values of a tensor; return whether they are there."""
        try:
            if one.copy is not None:
                one.copy.complete()
                if one.copy.wants_norm:
                    measure(one.copy)
                if self._planned is not None:
                    self._planned.copied(one)
        except Exception:
            if not self._incomplete:
                logger.exception("%s was not copied and is not saved; further failures are not logged", one.name)
            self._incomplete = True
            return False
        return True

    def _tell(self, what: Callable[[StepObserver], None]) -> None:
        """Call every observer. One that fails is removed, so that steps are still written."""
        for observer in list(self._observers):
            try:
                what(observer)
            except Exception:
                logger.exception("observer %s failed and was removed", type(observer).__name__)
                self._observers.remove(observer)

    def _check_directory(self) -> bool:
        """Return whether another process took over the directory.

        If the directory was removed, the files that a run needs are written again.
        """
        lost = self._lost()
        if lost == "removed":
            logger.warning(
                "%s was removed during the training; recording continues from step %d", self._root, self._number
            )
            if self._content:
                self.collections(self._content)
            self._with_statistics(StatisticsRecorder.reopen)
            self._with_samples(None, SampledSteps.reopen)
            if self._segments is not None:
                self._segments.reopen()
        elif lost is not None:
            logger.error("recording stopped; no steps are saved from step %d: %s", self._number, lost)
        return lost not in (None, "removed")

    def _step_writer(self, key: StepKey) -> _core.StepWriter:
        writer = self._writers.get(key)
        if writer is None:
            step, mode, mode_step = key
            in_memory = self._segments is not None
            writer = _core.StepWriter(self._root, step, self._worker, mode.value, mode_step, self._fsync, in_memory)
            self._writers[key] = writer
        return writer

    def _write(self, key: StepKey, captured: Sequence[Captured]) -> None:
        writer = self._step_writer(key)
        # Group tensors with equal settings into one call, because the call releases the GIL for the training.
        alike: dict[
            tuple[bool, tuple[tuple[str, bool], ...]], list[tuple[str, str, tuple[int, ...], NDArray[Any]]]
        ] = {}
        for one in captured:
            copy, spec = one.copy, one.spec
            if spec.shape:
                writer.shape(one.name, one.name, one.shape)
            if copy is None:
                continue
            if copy.shard is not None:
                writer.shard(one.name, copy.shard)
                if not copy.array.size:  # the elements of the tensor are on other workers
                    continue
            if copy.reductions:
                for (operation, of_magnitudes), number in zip(copy.reductions, copy.array, strict=True):
                    name = _core.reduction_name(operation, of_magnitudes, one.name)
                    writer.tensor(name, number.astype(copy.dtype))
                continue
            if copy.dtype == "str":
                if spec.raw:
                    writer.tensor(one.name, copy.array)
                continue
            if spec.raw or spec.reductions:
                array = copy.array if copy.shape else copy.array.reshape(1)
                alike.setdefault((spec.raw, spec.reductions), []).append((one.name, copy.dtype, copy.shape, array))
        for (raw, reductions), ready in alike.items():
            writer.tensors(ready, raw, reductions)
        self._written.setdefault(key, set()).update(
            one.name for one in captured if one.copy is not None and one.spec.raw
        )

    def _discard(self, key: StepKey) -> None:
        self._written.pop(key, None)
        writer = self._writers.pop(key, None)
        if writer is not None:
            writer.discard()

    def _drop(self, key: StepKey, error: OSError) -> None:
        self._discard(key)
        self._failed.add(key)
        self.dropped += 1
        self._warn(f"cannot save step {key[0]}: {error}; the training continues, and later steps are saved if possible")

    def _warn(self, message: str) -> None:
        if not self._warned:
            logger.warning(message)
            self._warned = True

"""Incidents of a run: when the last steps are written because something breaks."""

from __future__ import annotations

from smdwidgets._text import visible
from smdwidgets.hooks.capture.capture import Capture
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.core.recorder import Recorder
from smdwidgets.hooks.incidents.companion import Companion
from smdwidgets.hooks.incidents.flight_recorder import FlightRecorder
from smdwidgets.hooks.incidents.incident_log import IncidentLog
from smdwidgets.hooks.incidents.source_rules import SourceRules
from smdwidgets.naming.tensors import Kinds
from smdwidgets.run_end import RunEnd

__all__ = ["Incidents"]

#: Exceptions that end a training without anything being wrong with it.
_EXPECTED_ENDS = frozenset({"KeyboardInterrupt", "SystemExit", "TrainingStopped"})


class Incidents:
    """Runs the flight recorder on the writer's thread.

    Args:
        options: the hook's options.
        recorder: the queue to the writer's thread.
        kinds: the kinds of the run's tensors.
        rules: rules that are evaluated at each step.
        capture: captures all tensors of the steps after an incident; None: there is no capture plan.
    """

    def __init__(
        self, options: HookOptions, recorder: Recorder, kinds: Kinds, rules: SourceRules, capture: Capture | None
    ) -> None:
        self._limit = options.memory.recorder
        self._recorder = recorder
        self._kinds = kinds
        self._rules = rules
        self._capture = capture
        self._flight_recorder: FlightRecorder | None = None
        #: What records beside the flight recorder. Set before the directory is opened.
        self.companion: Companion | None = None

    def start(self) -> None:
        """Keep the last steps in memory from now on. The directory is open."""
        recorder = self._recorder
        queue, directory = recorder.queue, recorder.run_dir
        if not self._limit or not queue.writes:
            return
        rank = recorder.worker.rpartition("_")[2]
        log = IncidentLog(
            directory.path,
            recorder.worker,
            int(rank) if rank.isdecimal() else 0,
            recorder.num_workers,
            directory.url,
            None if directory.bucket is None else directory.bucket.send,
            saves=not recorder.is_witness,
        )
        self._flight_recorder = FlightRecorder(
            self._limit, queue.staging, self._kinds, queue.files, log, self._rules, self._capture,
            keeps=not recorder.is_witness, companion=self.companion,
        )  # fmt: skip
        queue.observe(self._flight_recorder)

    def dump(self, why: str, step: int) -> None:
        """Write the steps in memory, and the next ones whole. Does not wait."""
        if self._flight_recorder is not None:
            self._recorder.queue.call(self._flight_recorder.dump, visible(why, 1000), max(step, 0))

    def dump_at_end(self, end: RunEnd, step: int) -> None:
        """Write the steps in memory if an exception or a signal ends the training."""
        is_expected = end.how not in ("exception", "signal") or end.detail.partition(":")[0] in _EXPECTED_ENDS
        if self._flight_recorder is not None and not is_expected:
            reason = f"{end.how} {end.detail}"
            is_error = end.how == "exception"
            self._recorder.queue.call(self._flight_recorder.dump_at_end, reason, max(step, 0), is_error)

    def stop(self) -> None:
        """Complete the steps that are still in memory, and release the memory."""
        if self._flight_recorder is not None:
            self._recorder.queue.call(self._flight_recorder.close)

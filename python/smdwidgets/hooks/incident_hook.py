"""The incident layer of a hook: flight recorder, triggers and source rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from smdwidgets._text import shown, visible
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.flight_recorder import FlightRecorder
from smdwidgets.hooks.guarded_hook import guarded
from smdwidgets.hooks.incident_log import IncidentLog
from smdwidgets.hooks.source_rules import SourceRule, SourceRules
from smdwidgets.hooks.step_hook import StepHook
from smdwidgets.hooks.tensor_kinds import Kind, Kinds
from smdwidgets.run_end import RunEnd

__all__ = ["IncidentHook"]

#: Exceptions that end a training without anything being wrong with it.
_WANTED_ENDS = frozenset({"KeyboardInterrupt", "SystemExit", "TrainingStopped"})


class IncidentHook(StepHook):
    """Writes the last steps when something breaks.

    Args:
        recorder_bytes: bytes of the steps in memory; 0: no flight recorder.
        rules: rules to evaluate at each step.
        *args: the arguments of the layer below.
    """

    def __init__(self, recorder_bytes: int, rules: Iterable[SourceRule], *args: Any) -> None:
        super().__init__(*args)
        if isinstance(recorder_bytes, bool) or not isinstance(recorder_bytes, int) or recorder_bytes < 0:
            raise SMDebugTypeError(f"recorder_bytes must be a number of bytes >= 0, got {shown(recorder_bytes)}")
        self._recorder_bytes = recorder_bytes
        self._rules = SourceRules(rules, str(self.run_dir.path), self._report_failure)
        self._flight_recorder: FlightRecorder | None = None
        self._tensor_kinds = Kinds(self._is_member)

    def _start_recorder(self) -> None:
        """Record the steps in memory from now on. The directory is open."""
        queue = self._write_queue
        if not self._recorder_bytes or not queue.writes:
            return
        rank = self.worker.rpartition("_")[2]
        bucket = self.run_dir.bucket
        log = IncidentLog(
            self.run_dir.path,
            self.worker,
            int(rank) if rank.isdecimal() else 0,
            self.num_workers,
            self.out_dir,
            None if bucket is None else bucket.send,
        )
        capture, files = self._plan.capture, queue.files
        self._flight_recorder = FlightRecorder(
            self._recorder_bytes,
            queue.staging,
            self._tensor_kinds,
            files,
            log,
            [self._rules.judge],
            files.allows_incident,
            files.keep,
            (lambda until: None) if capture is None else capture.capture_densely,
            files.flush_statistics,
        )
        queue.observe(self._flight_recorder)

    def _is_parameter(self, name: str) -> bool:
        """Whether a tensor is a weight or a bias."""
        return self._tensor_kinds[name] is Kind.WEIGHT

    def _is_member(self, collection: str, name: str) -> bool:
        """Whether a tensor belongs to a collection."""
        known = self.get_collections().get(collection)
        return known is not None and (name in known.tensor_names or self._plan.matches(known, name))

    @guarded
    def dump(self, why: str = "requested") -> None:
        """Write the last steps in memory, and the next 8 steps whole.

        The run keeps the reason: see `Trial.incidents`. Does nothing if the hook has no flight recorder.

        Args:
            why: the reason.
        """
        if not self._alive():
            self._warn_inactive()
        elif self._flight_recorder is not None:
            self._write_queue.call(self._flight_recorder.dump, visible(why, 1000), max(self._step, 0))

    def _signalled(self, signal: str) -> None:
        """Write the last steps because a signal asks for it. Does not wait."""
        self.dump(signal)

    def _dump_at_end(self, end: RunEnd) -> None:
        """Write the last steps if an exception or a signal ends the training."""
        recorder = self._flight_recorder
        if recorder is not None and end.how in ("exception", "signal"):
            kind = end.detail.partition(":")[0]
            if kind not in _WANTED_ENDS:
                self._write_queue.call(recorder.dump_at_end, f"{end.how} {end.detail}", max(self._step, 0))

    def _stop_recorder(self) -> None:
        """Complete the steps that are still in memory, and give the memory back."""
        if self._flight_recorder is not None:
            self._write_queue.call(self._flight_recorder.close)

"""The step layer of a hook.

It counts steps by mode, and says what was to be saved and did not come.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from smdwidgets._text import listed, shown
from smdwidgets.exceptions import TrainingStopped
from smdwidgets.hooks.guarded_hook import guarded
from smdwidgets.hooks.saving_hook import SavingHook
from smdwidgets.hooks.write_queue import SuspendedStep
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.run_end import RunEnd
from smdwidgets.stop import STOP_FILE, StopRequest, stop_requested

__all__ = ["StepHook"]

#: After this many steps the hook says what was to be saved and did not come.
_STEPS_BEFORE_REPORT = 20


class StepHook(SavingHook):
    """Begins and ends the steps of a run."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._stop_file = str(self.run_dir.path / STOP_FILE)
        self._stop_seen = False
        #: What ends the loop if a stop is requested. Without it, TrainingStopped is raised.
        self._stop_loop: Callable[[StopRequest], None] | None = None
        self.mode = ModeKeys.GLOBAL
        #: Number of the current step, and of the latest one.
        self._step = self._last_step = -1
        self._suspended: tuple[ModeKeys, int, SuspendedStep] | None = None
        self._mode_steps: dict[ModeKeys, int] = {}
        #: Number of steps that this hook has ended.
        self._ended_steps = 0
        self._end_marked = False
        #: What was to be saved and did not come.
        self._notes: list[str] = []
        self._exported: tuple[object, ...] | None = None

    @property
    def global_step(self) -> int:
        """Number of the current or last step; -1 before the first step."""
        return self._step

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """Number of the current or last step of each mode, counted per mode."""
        return {**self._mode_steps, ModeKeys.GLOBAL: self._step}

    @property
    def mode_step(self) -> int:
        """Number of the current or last step within its mode; -1 before the first step."""
        return self._step if self.mode is ModeKeys.GLOBAL else self._mode_steps.get(self.mode, -1)

    @guarded
    def set_mode(self, mode: ModeKeys | str) -> None:
        """End the current step, and set the mode of the next one.

        The modes are ``modes.TRAIN``, ``EVAL`` and ``PREDICT``.
        """
        mode = as_mode(mode)
        if mode is not self.mode:
            if self._alive():
                self._end_step()
            self.mode = mode

    def should_save_step(self) -> bool:
        """Whether anything is saved at the current step, or at the next between steps."""
        if not self._alive():
            return False
        if self._is_open:
            return bool(self._saving)
        if not self._plan.prepared:
            self._prepare()
        return bool(self._plan.at(self.mode, self.mode_step + 1))

    def _begin_step(self) -> bool:
        """Begin a step of the current mode; return whether any collection is saved at it."""
        self._end_step()
        self._check_stop()
        if self._end_marked:  # the training continued after a signal
            self._end_marked = False
            self.run_dir.withdraw_end()
        if not self._plan.prepared:
            self._prepare()
        self._last_step += 1
        self._step = self._last_step
        if self.mode is not ModeKeys.GLOBAL:
            self._mode_steps[self.mode] = self._mode_steps.get(self.mode, -1) + 1
        self._is_open = True
        if (capture := self._plan.capture) is not None:
            capture.measure(self._step, self._gate.seconds, self._write_queue.waited_seconds)
            capture.begin(self._step, self.mode_step)
        saves = self._plan.begin(self.mode, self.mode_step)
        self._write_queue.begin((self._step, self.mode, self.mode_step))
        if saves:
            self._export()
        self._add_script_tensors()
        return saves

    def _end_step(self) -> None:
        """End the current step, if any."""
        if not self._is_open:
            return
        self._is_open = False
        self._plan.end()
        self._ended_steps += 1
        if self._ended_steps == _STEPS_BEFORE_REPORT:
            self._report_missing()
        if not self._write_queue.empty:
            self._export()
            self._write_queue.end()

    def _suspend_step(self) -> None:
        """Set the current step aside, so that another step can be saved before it ends."""
        if self._is_open:
            self._suspended = (self.mode, self.mode_step, self._write_queue.suspend())
            self._is_open = False
            self._plan.end()

    def _resume_step(self) -> None:
        """Continue the step that was set aside. The step after it has ended."""
        if self._suspended is not None:
            (self.mode, mode_step, state), self._suspended = self._suspended, None
            self._step = state.key[0]
            self._is_open = True
            if self._plan.capture is not None:
                self._plan.capture.begin(self._step, mode_step)
            self._plan.begin(self.mode, mode_step)
            self._write_queue.resume(state)
            self._add_script_tensors()

    def _export(self, last: bool = False) -> None:
        """Write the collection file if collections have changed."""
        state = (*self._plan.state(), len(self.collection_manager.modules), *self._notes, *self._failures)
        if self._write_queue.writes and (last or state != self._exported):
            self._exported = state
            self.collection_manager.set_num_workers(self._saving_workers)
            self.collection_manager.set_notes(self.worker, [*self._failures, *self._notes])
            self._write_queue.collections(self.collection_manager.to_json())

    # ------------------------------------------------------------------------------------------------------ stopping

    @property
    def stop_requested(self) -> StopRequest | None:
        """The request to stop the training, or None.

        The action StopTraining of a rule writes it as a file of the run.
        """
        # This runs at every step; pathlib would be slower.
        return stop_requested(self.run_dir.path) if os.path.exists(self._stop_file) else None

    def _check_stop(self) -> None:
        """End the loop once if a stop was requested, or raise TrainingStopped."""
        request = None if self._stop_seen else self.stop_requested
        if request is not None:
            self._stop_seen = True
            if self._stop_loop is not None:
                self._stop_loop(request)
                return
            raise TrainingStopped(request.by, request.reason, request.step)

    # --------------------------------------------------------------------------------------- what was asked for and did not come

    def _report_missing(self, end: RunEnd | None = None) -> None:
        """Log what was to be saved and did not come, and note it in the run.

        Each collection is logged once.

        ``end``: how the training ended, if it has. Until then, a collection that was not due at any step may still come.
        """
        if not self._write_queue.writes or self._only_shards:
            return
        steps = f"{self._ended_steps} step{'s' if self._ended_steps != 1 else ''}"
        notes = []
        if not self._ended_steps:
            if end is not None and end.how == "completed":
                notes.append(("steps", f"no step was recorded: {self._why_no_step()}"))
        else:
            for name, due in self._plan.missing().items():
                what = f"collection {shown(name)} {'is included' if name in self._plan.asked else 'is saved by default'}, but"
                if due:
                    notes.append((name, f"{what} nothing was saved for it in {steps}: {self._why_missing(name)}"))
                elif end is not None:
                    notes.append((name, f"{what} its save_config selected none of the {steps} of its modes"))
        for name, note in notes:
            if name != "steps" and self._plan.is_empty(name):
                continue  # which was logged when the first step began
            self._warn_once(f"missing {name}", "%s: %s", shown(self.out_dir, 200), note)
        self._notes = [note for _, note in notes]

    def _why_no_step(self) -> str:
        """Return why no step may have been recorded."""
        return "the training did not reach the hook"

    def _why_missing(self, name: str) -> str:
        """Return why nothing may have been saved for a collection, although steps were."""
        patterns = self.get_collection(name).include_regex
        if patterns:
            return f"no tensor matched {listed([shown(pattern) for pattern in patterns], 4)}"
        return (
            "no tensor was saved to it, and it has no patterns" if self.meets_tensors else "no tensor was saved to it"
        )

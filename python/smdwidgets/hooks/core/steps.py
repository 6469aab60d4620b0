"""The steps of a run: numbers by mode, beginning, suspension, end."""

from __future__ import annotations

from collections.abc import Callable

from smdwidgets.config import Collection
from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.capture.plan import Plan
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.core.guard import Guard
from smdwidgets.hooks.core.recorder import Recorder
from smdwidgets.hooks.core.stopping import Stopping
from smdwidgets.hooks.core.tensors import TensorCapture
from smdwidgets.hooks.writing.write_queue import SuspendedStep
from smdwidgets.modes import ModeKeys

__all__ = ["Steps"]

#: After this many steps, expected tensors that were never captured are reported.
_STEPS_BEFORE_REPORT = 20

#: A tensor that the script passed between two steps: copy, what to save (None: decide at the step), time, collections.
_ScriptTensor = tuple[TensorCopy, SaveSpec | None, float | None, tuple[Collection, ...]]


class Steps:
    """Counts steps, and begins and ends them.

    Args:
        guard: the hook's guard.
        plan: selects what is saved at a step.
        tensors: queues the tensors that the script passed between steps.
        recorder: receives the beginning and the end of each step.
        stopping: ends the training if that was requested.
        report: reports expected tensors that were never captured.
    """

    def __init__(
        self,
        guard: Guard,
        plan: Plan,
        tensors: TensorCapture,
        recorder: Recorder,
        stopping: Stopping,
        report: Callable[[], object],
    ) -> None:
        self._guard = guard
        self._plan = plan
        self._tensors = tensors
        self._recorder = recorder
        self._queue = recorder.queue
        self._stopping = stopping
        self._report = report
        self.mode = ModeKeys.GLOBAL
        #: Whether a step is in progress, to which the next tensor belongs.
        self.is_open = False
        #: Number of the current step, and of the latest one.
        self.step = self.last = -1
        #: Number of the last step at which anything was to be saved.
        self.last_saved: int | None = None
        self._mode_steps: dict[ModeKeys, int] = {}
        self._suspended: tuple[ModeKeys, int, SuspendedStep] | None = None
        self._pending: dict[str, _ScriptTensor] = {}
        #: Tensors of the pass that is about to begin, which may be a step.
        self._of_next_pass: dict[str, _ScriptTensor] = {}
        #: Number of steps that this hook has ended.
        self.ended = 0

    @property
    def mode_steps(self) -> dict[ModeKeys, int]:
        """Number of the current or last step of each mode, counted per mode."""
        return {**self._mode_steps, ModeKeys.GLOBAL: self.step}

    @property
    def mode_step(self) -> int:
        """Number of the current or last step within its mode; -1 before the first step."""
        return self.step if self.mode is ModeKeys.GLOBAL else self._mode_steps.get(self.mode, -1)

    def continue_after(self, step: int, mode_steps: dict[ModeKeys, int]) -> None:
        """Continue a run after its last step."""
        self.step = self.last = step
        self._mode_steps = dict(mode_steps)

    def continue_at(self, mode: ModeKeys, mode_step: int) -> None:
        """Continue with a step of a mode, after a checkpoint was loaded.

        The run's step of this number and all later ones are deleted. Nothing happens if this hook has recorded a step.
        """
        if mode_step <= 0 or self.is_open or self.ended:
            return
        if self._queue.writes and self._mode_steps.get(mode, -1) >= mode_step:
            resumed = self._recorder.run_dir.rewind(mode, mode_step)
            self.continue_after(resumed.step, resumed.mode_steps)
        self._mode_steps[mode] = mode_step - 1

    def begin(self) -> bool:
        """Begin a step of the current mode; return whether any collection is saved at it."""
        self.end()
        self._stopping.check()
        self._recorder.withdraw_end()
        plan = self._plan
        if not plan.prepared:
            plan.prepare()
        self.last += 1
        self.step = self.last
        if self.mode is not ModeKeys.GLOBAL:
            self._mode_steps[self.mode] = self._mode_steps.get(self.mode, -1) + 1
        self.is_open = True
        mode_step = self.mode_step
        if (capture := plan.capture) is not None:
            capture.measure(self.step, self._guard.gate.elapsed, self._queue.waited_seconds)
            capture.begin(self.step, mode_step)
        saves = plan.begin(self.mode, mode_step)
        self._queue.begin((self.step, self.mode, mode_step))
        if saves:
            self.last_saved = self.step
            self._recorder.export_known()
        self._queue_pending()
        return saves

    def repeat(self, step: int, mode_step: int) -> None:
        """Begin a step of which the same is saved as of the one before.

        Args:
            step: its global number.
            mode_step: its number within the mode.
        """
        self.step = self.last = self.last_saved = step
        self.ended += 1
        if self.ended == _STEPS_BEFORE_REPORT:
            self._report()
        if self.mode is not ModeKeys.GLOBAL:
            self._mode_steps[self.mode] = mode_step

    def end(self) -> None:
        """End the current step, if any."""
        if not self.is_open:
            return
        self.is_open = False
        self._plan.end()
        self.ended += 1
        if self.ended == _STEPS_BEFORE_REPORT:
            self._report()
        if not self._queue.empty:
            self._recorder.export_known()
            self._queue.end()

    def suspend(self) -> None:
        """Suspend the current step, so that another step can be saved before it ends."""
        if self.is_open:
            self._suspended = (self.mode, self.mode_step, self._queue.suspend())
            self.is_open = False
            self._plan.end()

    def resume(self) -> None:
        """Continue the suspended step. The step after it has ended."""
        if self._suspended is not None:
            (self.mode, mode_step, state), self._suspended = self._suspended, None
            self.step = state.key[0]
            self.is_open = True
            if self._plan.capture is not None:
                self._plan.capture.begin(self.step, mode_step)
            self._plan.begin(self.mode, mode_step)
            self._queue.resume(state)
            self._queue_pending()

    def is_saved(self) -> bool:
        """Whether anything is saved at the current step, or at the next between steps."""
        if self.is_open:
            return bool(self._plan.saving)
        if not self._plan.prepared:
            self._plan.prepare()
        return bool(self._plan.at(self.mode, self.mode_step + 1))

    # ---------------------------------------------------------------------------------------- tensors of the script

    def save(
        self,
        name: str,
        copy: TensorCopy,
        spec: SaveSpec | None,
        timestamp: float | None,
        collections: tuple[Collection, ...],
    ) -> None:
        """Add a tensor of the script to the current step, or to the next between steps."""
        if self.is_open:
            self._tensors.queue_script_tensor(name, copy, spec, timestamp, collections)
        else:
            if name in self._pending:
                advice = "save it once a step, or save it under different names"
                self._guard.report_repeated(name, f"before step {self.last + 1} began", advice)
            self._pending.pop(name, None)  # the order is that of the last calls
            self._pending[name] = (copy, spec, timestamp, collections)

    def save_for_next_pass(
        self,
        name: str,
        copy: TensorCopy,
        spec: SaveSpec | None,
        timestamp: float | None,
        collections: tuple[Collection, ...],
    ) -> None:
        """Keep a tensor of the script for the step that begins with the next pass."""
        self._of_next_pass[name] = (copy, spec, timestamp, collections)

    def forget_next_pass(self) -> None:
        """Drop the tensors that were kept for a pass, because it belongs to no step."""
        self._of_next_pass.clear()

    def save_leftovers(self, failed: bool) -> None:
        """Save tensors that the script passed after the last step in a separate step.

        Those for the next pass are saved if the training ``failed`` before it.
        """
        if not failed:
            self.forget_next_pass()
        if (self._pending or self._of_next_pass) and (failed or not self.is_open):
            self._stopping.seen = True  # the training ends anyway
            self.begin()

    def _queue_pending(self) -> None:
        pending = self._pending | self._of_next_pass
        self._pending, self._of_next_pass = {}, {}
        for name, (copy, spec, timestamp, collections) in pending.items():
            self._tensors.queue_script_tensor(name, copy, spec, timestamp, collections)

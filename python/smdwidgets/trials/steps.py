"""Wait for steps of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable

from smdwidgets.exceptions import NoMoreData, StepUnavailable
from smdwidgets.modes import ModeKeys, as_step
from smdwidgets.trials.reader import RunReader, StepState
from smdwidgets.trials.wait import wait_until


def wait_for_steps(reader: RunReader, steps: Iterable[int] | int, mode: ModeKeys, timeout: float | None) -> None:
    """Implement :meth:`smdwidgets.Trial.wait_for_steps`."""
    steps = list(steps) if isinstance(steps, Iterable) else [steps]
    missing = [as_step(step, "required_steps") for step in reversed(steps)]
    if timeout is not None and (math.isnan(timeout) or timeout < 0):
        raise ValueError(f"timeout must be >= 0 seconds or None, got {timeout!r}")

    def done() -> bool:
        while missing and _is_available(reader, missing[-1], mode):
            missing.pop()
        return not missing

    def what() -> str:
        seen = reader.steps(mode)
        last = f"last step so far: {seen[-1]}" if seen else "no steps so far"
        return f"step {missing[-1]} of {mode.name} of {reader.path} ({last})"

    with reader.refreshing(True):
        wait_until(done, what, timeout)


def _is_available(reader: RunReader, step: int, mode: ModeKeys) -> bool:
    reader.maybe_refresh()
    state = reader.step_state(step, mode)
    if state == StepState.UNAVAILABLE:
        seen = reader.steps(mode)
        last = seen[-1] if seen else -1
        if not reader.loaded_all_steps or step < last:
            raise StepUnavailable(step, mode)
        raise NoMoreData(step, mode, last)
    return state == StepState.AVAILABLE

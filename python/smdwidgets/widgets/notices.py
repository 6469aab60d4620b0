"""What an explorer was asked for and does not exist.

It says so in words, and shows something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smdwidgets._text import capitalized, did_you_mean, shown
from smdwidgets.exceptions import NoMoreData
from smdwidgets.modes import ModeKeys

if TYPE_CHECKING:
    from smdwidgets.trials import Trial


def leave_out_unknown(trials: Sequence[Trial], traits: dict[str, Any]) -> list[str]:
    """Remove the run, the tensor and the step that do not exist from traits.

    Runs that have not started, and those that go on, can still get them.

    Returns:
        sentences about what was removed.
    """
    from smdwidgets.pictures.signal_view import can_show, names_shown
    from smdwidgets.trials.refresh import no_refresh  # a widget of an array needs no trials

    notices = []
    run = traits.get("run", 0)
    if isinstance(run, int) and not 0 <= run < len(trials):
        runs = f"{len(trials):,} runs, from 0 to {len(trials) - 1:,}" if len(trials) > 1 else "one run"
        notices.append(f"There is no run {run:,}: the explorer has {runs}.")
        del traits["run"]
        run = 0
    trial = trials[run] if isinstance(run, int) else trials[0]
    with no_refresh(trial):
        names = names_shown(trial)
        tensor = traits.get("tensor", "")
        if tensor and names and isinstance(tensor, str) and not any(can_show(one, tensor) for one in trials):
            notices.append(f"There is no tensor {shown(tensor, 200)}.{did_you_mean(tensor, names)}")
            del traits["tensor"]
    step = traits.get("step", -1)
    if isinstance(step, int) and step >= 0:
        steps = trial.steps(show_incomplete_steps=True)
        if trial.loaded_all_steps and steps and step > steps[-1]:
            notices.append(f"{capitalized(str(NoMoreData(step, ModeKeys.GLOBAL, steps[-1])))}.")
            del traits["step"]
    return notices

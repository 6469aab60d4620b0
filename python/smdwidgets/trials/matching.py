"""Tensors that a pattern selects, where one that finds nothing is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.modes import ModeKeys

if TYPE_CHECKING:
    from smdwidgets.trials.trial import Trial


def matching_names(
    trial: Trial, patterns: str | Sequence[str] | None, mode: ModeKeys | str = ModeKeys.GLOBAL
) -> list[str]:
    """Return the names that patterns select; None selects all.

    Raises:
        SMDebugValueError: no name of a run with tensors matches. The message suggests similar names.
    """
    names = trial.tensor_names(mode=mode, regex=patterns)
    if not names and (known := trial.tensor_names(mode=mode)):
        hint = did_you_mean(patterns, known) if isinstance(patterns, str) else ""
        raise SMDebugValueError(
            f"no tensor of run {shown(trial.name)} matches {shown(patterns)}.{hint} `smdwidgets inspect` lists the tensors"
        )
    return names

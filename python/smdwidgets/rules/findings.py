"""Numbers and steps in messages of rules."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["number", "step_text"]


def number(value: object) -> str:
    """Format a number with at most six significant digits.

    >>> number(3.0), number(1.23456789e-9), number(float("nan"))
    ('3', '1.23457e-09', 'NaN')
    """
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    as_float = float(value)  # type: ignore[arg-type]
    if math.isnan(as_float):
        return "NaN"
    return f"{as_float:.6g}"


def step_text(trial: Any, step: int) -> str:
    """Return a global step for messages.

    It is ``step 10``, or ``EVAL step 10`` if the trial numbers global steps itself.
    """
    reader = getattr(trial, "reader", None)  # tests pass trials in memory
    if reader is None or not reader.run.numbers_steps:
        return f"step {step}"
    mode, mode_step = trial.mode_modestep(step)
    return f"step {step}" if mode is None else f"{mode.name} step {mode_step}"

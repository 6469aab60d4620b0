"""Findings of rules: tensor, step, value and limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from smdwidgets._text import visible

__all__ = ["Finding", "number", "step_text"]


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
    describe = getattr(trial, "_step_text", None)
    return f"step {step}" if describe is None else str(describe(step))


@dataclass(frozen=True)
class Finding:
    """One problem that a rule found in a tensor.

    >>> print(Finding("gradient/fc1.weight", 20, 3.2e-9, 1e-7, "mean |g| = 3.2e-09 is below 1e-07"))
    gradient/fc1.weight: mean |g| = 3.2e-09 is below 1e-07
    """

    tensor: str
    step: int
    value: float | None
    limit: float | None
    message: str
    worker: str | None = None

    def __str__(self) -> str:
        where = f"{self.tensor} of {self.worker}" if self.worker else self.tensor
        where = visible(where, 200)
        return f"{where}: {visible(self.message, 2000)}" if where else visible(self.message, 2000)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; NaN and infinities, which JSON lacks, become strings."""
        return {
            "tensor": self.tensor,
            "worker": self.worker,
            "step": self.step,
            "value": _plain(self.value),
            "limit": _plain(self.limit),
            "message": self.message,
        }


def _plain(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else number(value)

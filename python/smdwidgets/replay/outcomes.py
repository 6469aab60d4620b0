"""What a change of an incident's steps does: outcomes, which need no PyTorch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from smdwidgets._text import ShownAsText, json_number
from smdwidgets.replay.protocol import StepResult

__all__ = ["FACTOR", "Change", "Course", "WhatIf", "WhatIfTable"]

#: A factor of a number, such as ``0.1x``.
FACTOR: Final = re.compile(r"\s*([0-9.eE+-]+)\s*[x×]\s*")


@dataclass(frozen=True)
class Change:
    """What is changed from a step on.

    Attributes:
        lr: learning rate, or ``"0.1x"``: a factor of it.
        clip: largest norm of the gradient of an optimizer's parameters.
        drop_rows: rows of the batch of the step that are left out.
        dtype: ``"fp32"``: autocast is off.
        eps: the optimizer's epsilon.
        batch: ``"skip"``: no update at the step.
    """

    lr: float | str | None = None
    clip: float | None = None
    drop_rows: tuple[int, ...] = ()
    dtype: str | None = None
    eps: float | None = None
    batch: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.lr, str) and not FACTOR.fullmatch(self.lr):
            raise ValueError(f'invalid lr {self.lr!r}; expected a number, or a factor such as "0.1x"')
        for name in ("clip", "eps"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ValueError(f"invalid {name} {value!r}; expected a positive number")
        if self.dtype not in (None, "fp32"):
            raise ValueError(f"invalid dtype {self.dtype!r}; expected 'fp32'")
        if self.batch not in (None, "skip"):
            raise ValueError(f"invalid batch {self.batch!r}; expected 'skip'")
        if not str(self):
            raise ValueError("nothing is changed; pass lr, clip, drop_rows, dtype, eps or batch")

    def __str__(self) -> str:
        parts = [
            f"learning rate {self.lr}" if self.lr is not None else "",
            f"clip {self.clip:g}" if self.clip is not None else "",
            f"without row{'s' * (len(self.drop_rows) > 1)} {', '.join(map(str, self.drop_rows))}"
            if self.drop_rows
            else "",
            "without autocast" if self.dtype else "",
            f"eps {self.eps:g}" if self.eps is not None else "",
            "without the update of the step" if self.batch else "",
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Course:
    """Losses and gradient norms of executed steps, and what is wrong with them.

    Attributes:
        steps: the steps.
        losses: loss of each step, the sum of its backward passes; NaN without one.
        norms: gradient norm of each step.
        problems: what is wrong from the step of the incident on, the first one first: (step, text).
        results: the results of the execution.
    """

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    norms: tuple[float, ...]
    problems: tuple[tuple[int, str], ...] = ()
    results: tuple[StepResult, ...] = ()

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass(frozen=True, repr=False)
class WhatIf(ShownAsText):
    """The outcome of a change.

    Attributes:
        change: what was changed.
        since: the first step with the change.
        recorded: the steps without the change.
        changed: the steps with it.
        error: the error that the changed steps raised; empty if none.
    """

    change: Change
    since: int
    recorded: Course
    changed: Course
    error: str = ""

    @property
    def heals(self) -> bool:
        """Whether the incident happened without the change and does not with it."""
        return not self.error and not self.recorded.is_healthy and self.changed.is_healthy

    @property
    def happens(self) -> bool:
        """Whether something is wrong with the change."""
        return bool(self.error) or not self.changed.is_healthy

    def __str__(self) -> str:
        since = (
            f"from step {self.since:,} on"
            if not (self.change.drop_rows or self.change.batch)
            else f"at step {self.since:,}"
        )
        if self.error:
            return f"{self.change} {since}: raised {self.error}"
        if self.recorded.is_healthy:
            return f"{self.change} {since}: nothing was wrong without it; " + _outcome(self.changed, self.since)
        return f"{self.change} {since}: {'heals' if self.heals else 'stays'}; {_outcome(self.changed, self.since)}"

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as JSON values. Numbers that JSON does not have are strings."""
        return {
            "version": 1,
            "change": str(self.change),
            "since": self.since,
            "heals": self.heals,
            "happens": self.happens,
            "error": self.error,
            "recorded": _course_json(self.recorded),
            "changed": _course_json(self.changed),
            "text": str(self),
        }


class WhatIfTable(ShownAsText, tuple[WhatIf, ...]):
    """Outcomes of several changes, those that heal first."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no change was tried"


def _outcome(course: Course, since: int) -> str:
    if course.problems:
        step, text = course.problems[0]
        return f"step {step:,}: {text}"
    after = [one for step, one in zip(course.steps, course.losses, strict=True) if step >= since and math.isfinite(one)]
    return f"largest loss {max(after):.3g}" if after else "no loss"


def _course_json(course: Course) -> Mapping[str, Any]:
    return {
        "steps": list(course.steps),
        "losses": list(map(json_number, course.losses)),
        "gradient_norms": list(map(json_number, course.norms)),
        "problems": [{"step": step, "text": text} for step, text in course.problems],
    }

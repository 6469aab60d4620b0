"""Execute the steps of an incident with one change: does it still happen?

Everything else is as it was: the batches, the random numbers, the state before. Only the change differs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final, Literal

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from smdwidgets._text import ShownAsText
from smdwidgets.incident import Incident
from smdwidgets.replay.norms import GradientNorms
from smdwidgets.replay.protocol import Execution, StepObserver, StepResult, sentence
from smdwidgets.replay.rows import rows_of
from smdwidgets.replay.tracing import batch_size

__all__ = ["Change", "Course", "WhatIf", "WhatIfTable", "try_all", "what_if"]

#: How far above the median of the steps before a loss or gradient norm is a spike.
_SPIKE: Final = 5.0
_FACTOR: Final = re.compile(r"\s*([0-9.eE+-]+)\s*[x×]\s*")


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
        if isinstance(self.lr, str) and not _FACTOR.fullmatch(self.lr):
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


def what_if(
    execution: Execution,
    trigger: Incident | int,
    *,
    lr: float | str | None = None,
    clip: float | None = None,
    drop_rows: Sequence[int] = (),
    dtype: Literal["fp32"] | None = None,
    eps: float | None = None,
    batch: Literal["skip"] | None = None,
) -> WhatIf:
    """Execute the steps with a change from the step of the incident on.

    Args:
        execution: the steps that can be executed.
        trigger: the incident, or the step from which on the change holds.
        lr: learning rate of all optimizers, or a factor of it, such as ``"0.1x"``.
        clip: largest norm of the gradient of each optimizer's parameters.
        drop_rows: rows of the step's batch to leave out.
        dtype: ``"fp32"`` turns autocast off.
        eps: epsilon of optimizers that have one.
        batch: ``"skip"`` leaves out the update of the step.

    Raises:
        ValueError: nothing is changed, the step cannot be executed, or the executed steps are not those that were
            recorded, so that an outcome would be no evidence.
    """
    change = Change(lr, clip, tuple(drop_rows), dtype, eps, batch)
    since = _step_of(execution, trigger)
    return _tried(execution, change, since, _recorded(execution, since))


def try_all(execution: Execution, trigger: Incident | int, rows: Sequence[int] = ()) -> WhatIfTable:
    """Try usual changes from a step on, and order them by their outcome.

    Args:
        execution: the steps that can be executed.
        trigger: the incident, or the step from which on a change holds.
        rows: rows of the step's batch that are suspected; each is left out alone, and all together.

    Raises:
        ValueError: as `what_if` does.
    """
    since = _step_of(execution, trigger)
    recorded = _recorded(execution, since)
    changes = [Change(lr="0.1x"), Change(lr="0.01x"), Change(clip=1.0), Change(clip=0.1), Change(batch="skip")]
    if any("eps" in group for optimizer in execution.optimizers for group in optimizer.param_groups):
        changes.append(Change(eps=1e-6))
    changes.append(Change(dtype="fp32"))
    groups = [(row,) for row in rows] if len(rows) < 4 else []
    changes += [Change(drop_rows=one) for one in dict.fromkeys([*groups, tuple(rows)]) if one]
    outcomes = [_tried(execution, change, since, recorded) for change in changes]
    return WhatIfTable(sorted(outcomes, key=lambda one: (not one.heals, bool(one.error), _height(one.changed, since))))


def _step_of(execution: Execution, trigger: Incident | int) -> int:
    step = trigger.step if isinstance(trigger, Incident) else int(trigger)
    if step not in execution.steps:
        raise ValueError(
            f"step {step} cannot be executed again; steps {execution.steps[0]} to {execution.steps[-1]} can"
        )
    return step


def _recorded(execution: Execution, since: int) -> Course:
    course = _run(execution, None, since)
    if any(one.equal is False for one in course.results):
        raise ValueError(
            f"the executed steps are not those that were recorded ({sentence(course.results, len(course.results))}), so that an "
            "outcome would be no evidence"
        )
    return _judged(course, course, since)


def _tried(execution: Execution, change: Change, since: int, recorded: Course) -> WhatIf:
    try:
        course = _run(execution, change, since)
    except Exception as error:
        return WhatIf(change, since, recorded, Course((), (), ()), f"{type(error).__name__}: {error}"[:400])
    return WhatIf(change, since, recorded, _judged(course, recorded, since, skips=change.batch == "skip"))


def _run(execution: Execution, change: Change | None, since: int) -> Course:
    norms = GradientNorms(execution.modules)
    observers: list[StepObserver] = [norms]
    if change is not None:
        observers.insert(0, _Changed(change, since))
    results = execution.run(observers)
    steps = tuple(one.step for one in results)
    losses = tuple(math.fsum(one.losses) if _all_finite(one.losses) else math.nan for one in results)
    return Course(steps, losses, tuple(norms.by_step.get(step, math.nan) for step in steps), (), tuple(results))


def _all_finite(values: Sequence[float]) -> bool:
    return bool(values) and all(map(math.isfinite, values))


def _judged(course: Course, recorded: Course, since: int, skips: bool = False) -> Course:
    """Return a course with what is wrong from a step on.

    A value is a spike if it is far above the recorded steps before. The loss and gradients of a step without an update
    do not count.
    """
    problems = []
    for name, values, usual in (
        ("loss", course.losses, recorded.losses),
        ("gradient norm", course.norms, recorded.norms),
    ):
        before = [one for step, one in zip(recorded.steps, usual, strict=True) if step < since and math.isfinite(one)]
        limit = _SPIKE * abs(median(before)) if before else math.inf
        for step, value in zip(course.steps, values, strict=True):
            if step < since or (skips and step == since):
                continue
            if not math.isfinite(value):
                problems.append((step, f"{name} is not finite"))
            elif value > limit > 0:
                problems.append((step, f"{name} {value:.3g} is {value / (limit / _SPIKE):.3g} times the median before"))
    return replace(course, problems=tuple(sorted(problems, key=lambda one: one[0])))


def _outcome(course: Course, since: int) -> str:
    if course.problems:
        step, text = course.problems[0]
        return f"step {step:,}: {text}"
    after = [one for step, one in zip(course.steps, course.losses, strict=True) if step >= since and math.isfinite(one)]
    return f"largest loss {max(after):.3g}" if after else "no loss"


def _height(course: Course, since: int) -> float:
    after = [one for step, one in zip(course.steps, course.losses, strict=True) if step >= since]
    return max((one if math.isfinite(one) else math.inf for one in after), default=math.inf)


def _course_json(course: Course) -> Mapping[str, Any]:
    def number(value: float) -> float | str:
        return value if math.isfinite(value) else str(value)

    return {
        "steps": list(course.steps),
        "losses": [number(one) for one in course.losses],
        "gradient_norms": [number(one) for one in course.norms],
        "problems": [{"step": step, "text": text} for step, text in course.problems],
    }


class _Changed(StepObserver):
    """Applies a change from a step on."""

    def __init__(self, change: Change, since: int) -> None:
        self._change = change
        self._since = since
        self._step = -1
        #: Settings of groups that are put back after an update.
        self._settings: list[tuple[dict[str, Any], str, Any]] = []

    def context(self) -> AbstractContextManager[object]:
        return self._applied()

    @contextmanager
    def _applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            before = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: self._before(optimizer))
            stack.callback(before.remove)
            after = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: self._after())
            stack.callback(after.remove)
            stack.callback(self._after)
            if self._change.dtype == "fp32":
                stack.enter_context(self._without_autocast())
            yield

    @contextmanager
    def _without_autocast(self) -> Iterator[None]:
        kind = torch.amp.autocast_mode.autocast
        enter = kind.__enter__

        def entered(autocast: Any) -> Any:
            if self._step >= self._since:
                autocast._enabled = False  # noqa: SLF001 - set by its constructor only
            return enter(autocast)

        kind.__enter__ = entered
        try:
            yield
        finally:
            kind.__enter__ = enter

    def begin_step(self, step: int) -> None:
        self._step = step

    def batch(self, step: int, batch: object) -> object:
        """Leave rows out of the batch of the step."""
        dropped = set(self._change.drop_rows)
        if step != self._since or not dropped:
            return batch
        size = batch_size(batch)
        if not dropped <= set(range(size)):
            raise ValueError(f"invalid drop_rows {sorted(dropped)}; the batch has the rows 0 to {size - 1}")
        if len(dropped) == size:
            raise ValueError("drop_rows would leave no row")
        return rows_of(batch, [row for row in range(size) if row not in dropped])

    def _before(self, optimizer: torch.optim.Optimizer) -> None:
        if self._step < self._since:
            return
        change = self._change
        parameters = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
        if change.batch == "skip" and self._step == self._since:
            for one in parameters:
                one.grad = None
            return
        if change.clip is not None and parameters:
            torch.nn.utils.clip_grad_norm_(parameters, change.clip)
        for group in optimizer.param_groups:
            if change.lr is not None:
                self._set(group, "lr", self._rate(group["lr"]))
            if change.eps is not None and "eps" in group:
                self._set(group, "eps", change.eps)

    def _rate(self, rate: Any) -> Any:
        if isinstance(self._change.lr, str):
            factor = _FACTOR.fullmatch(self._change.lr)
            assert factor is not None
            return rate * float(factor[1])
        return self._change.lr

    def _set(self, group: dict[str, Any], name: str, value: Any) -> None:
        self._settings.append((group, name, group[name]))
        group[name] = value

    def _after(self) -> None:
        for group, name, value in reversed(self._settings):
            group[name] = value
        self._settings.clear()

"""Execute the steps of an incident with one change: does it still happen?

Everything else is as it was: the batches, the random numbers, the state before. Only the change differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from statistics import median
from typing import Any, Final, Literal

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from smdwidgets.exceptions import CannotReplay
from smdwidgets.incident import Incident
from smdwidgets.replay.norms import GradientNorms
from smdwidgets.replay.outcomes import FACTOR, Change, Course, WhatIf, WhatIfTable
from smdwidgets.replay.protocol import Execution, StepObserver, sentence
from smdwidgets.replay.rows import rows_of
from smdwidgets.replay.tracing import batch_size

__all__ = ["recorded_course", "try_all", "what_if"]

#: How far above the median of the steps before a loss or gradient norm is a spike.
_SPIKE: Final = 5.0


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
    recorded: Course | None = None,
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
        recorded: the steps without a change, of `recorded_course`; None: they are executed, too.

    Raises:
        ValueError: nothing is changed, the step cannot be executed, or the executed steps are not those that were
            recorded, so that an outcome would be no evidence.
    """
    change = Change(lr, clip, tuple(drop_rows), dtype, eps, batch)
    since = _step_of(execution, trigger)
    return _tried(execution, change, since, recorded or recorded_course(execution, since))


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
    recorded = recorded_course(execution, since)
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


def recorded_course(execution: Execution, since: int) -> Course:
    """Execute the steps without a change, with which those of changes are compared.

    Args:
        execution: the steps that can be executed.
        since: the step from which on something is wrong.

    Raises:
        ValueError: the executed steps are not those that were recorded.
    """
    try:
        course = _run(execution, None, since)
    except CannotReplay:
        raise
    except Exception as error:  # the incident itself may be an error of the script
        return Course((), (), (), ((since, f"raised {type(error).__name__}"),))
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


def _height(course: Course, since: int) -> float:
    after = [one for step, one in zip(course.steps, course.losses, strict=True) if step >= since]
    return max((one if math.isfinite(one) else math.inf for one in after), default=math.inf)


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
            factor = FACTOR.fullmatch(self._change.lr)
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

"""An execution of a plain training loop, which keeps the state of one step."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from smdwidgets._suspend import hooks_suspended
from smdwidgets.replay.protocol import StepObserver, StepResult

#: A training step: takes a batch and returns the loss.
Step = Callable[[Any], torch.Tensor]


class PlainExecution:
    """Record a loop over batches.

    It ends where a value is not finite or a gradient jumps. Each batch is given to `step`, which updates the model. The
    attribute `error` has what a step raised.
    """

    def __init__(
        self,
        step: Step,
        batches: Sequence[Any],
        modules: Sequence[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        stops: bool = True,
        keep: int = 12,
    ) -> None:
        self.modules, self.optimizers = modules, optimizers
        self.step, self.batches = step, list(batches)
        self.recorded: list[tuple[tuple[float, ...], float]] = []
        self.error: Exception | None = None
        self.incident: int | None = None
        self.final: Any = None
        states, norms = [], []
        for number, batch in enumerate(self.batches):
            states.append(self._state())
            try:
                loss = float(self.step(copy.deepcopy(batch)))
            except Exception as error:
                self.error, self.incident = error, number
                break
            norms.append(self._gradient_norm())
            self.recorded.append(((loss,), self._digest()))
            broken = not math.isfinite(loss + norms[-1] + self._digest())
            if stops and (broken or norms[-1] > 1000 * float(np.median(norms))):
                self.incident = number
                break
        last = len(states) - 1
        first = max(0, (last if self.incident is None else self.incident) - keep)
        self.steps = range(first, last + 1)
        self._start = states[first]
        self.live_changed = False

    def run(self, observers: Sequence[StepObserver] = (), *, last: int | None = None) -> list[StepResult]:
        """Run the steps again, and put the live state back."""
        live = self._state()
        results = []
        self._load(self._start)
        try:
            with hooks_suspended(), ExitStack() as stack:  # a test before may have left one open
                for observer in observers:
                    stack.enter_context(observer.context())
                for number in self.steps:
                    if last is not None and number > last:
                        break
                    for observer in observers:
                        observer.begin_step(number)
                    batch = copy.deepcopy(self.batches[number])
                    for observer in observers:
                        batch = observer.batch(number, batch)
                    loss = float(self.step(batch))
                    for observer in observers:
                        observer.end_step(number)
                    digest = self._digest()
                    recorded = self.recorded[number] if number < len(self.recorded) else None
                    equal = None if recorded is None else repr(recorded) == repr(((loss,), digest))
                    results.append(StepResult(number, (loss,), equal, "" if equal else "weights"))
        finally:
            self._load(live)
        return results

    def _gradient_norm(self) -> float:
        gradients = [p.grad.double().norm() for model in self.modules for p in model.parameters() if p.grad is not None]
        return float(torch.stack(gradients).norm()) if gradients else 0.0

    def _digest(self) -> float:
        return sum(float(one.double().sum()) for model in self.modules for one in model.state_dict().values())

    def _state(self) -> Any:
        return (
            [copy.deepcopy(model.state_dict()) for model in self.modules],
            [model.training for model in self.modules],
            [copy.deepcopy(one.state_dict()) for one in self.optimizers],
            [[None if p.grad is None else p.grad.clone() for p in model.parameters()] for model in self.modules],
            torch.get_rng_state(),
            np.random.get_state(),
            random.getstate(),
        )

    def _load(self, state: Any) -> None:
        models, training, optimizers, gradients, torch_random, numpy_random, python_random = state
        for model, values, mode, grads in zip(self.modules, models, training, gradients, strict=True):
            model.load_state_dict(copy.deepcopy(values))
            model.train(mode)
            for parameter, grad in zip(model.parameters(), grads, strict=True):
                parameter.grad = None if grad is None else grad.clone()
        for optimizer, values in zip(self.optimizers, optimizers, strict=True):
            optimizer.load_state_dict(copy.deepcopy(values))
        torch.set_rng_state(torch_random)
        np.random.set_state(numpy_random)
        random.setstate(python_random)

"""What the mechanisms share: the log, the step, and the reader of values."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn
from torch.optim import Optimizer

from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.torch.values import Values

__all__ = ["Context"]

#: The first updates are all looked at, then every 16th or 64th, and some after an event such as a new optimizer.
_FIRST, _EVERY, _SELDOM, _AFTER = 8, 16, 64, 8
#: Such events after which updates are looked at. An inner loop creates an optimizer for each copy of a model.
_EVENTS = 16


class Context:
    """What the mechanisms share.

    Args:
        log: the checks that fired.
        models: yields the models of the training with their names.
        wrappers: yields the models with their wrappers, such as DistributedDataParallel.
        step: returns the global step.
    """

    def __init__(
        self,
        log: CheckLog,
        models: Callable[[], Iterator[tuple[str, nn.Module]]],
        wrappers: Callable[[], Iterator[nn.Module]],
        step: Callable[[], int],
    ) -> None:
        self.log = log
        self.values = Values(self._judging_failed)
        self._models = models
        self.wrappers = wrappers
        self._step = step
        #: Number of updates so far.
        self.updates = 0
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        #: The number of the epoch of a loader that gave the last batch while gradients were enabled; 0: none did.
        self.loader = 0
        #: Batches that it has had, and that it has in all; None: not known.
        self.loader_batches = 0
        self.batches: int | None = None
        #: Rows of the last batch, if these are as many as the loader was asked for.
        self.batch_rows: int | None = None
        #: Rows of the tokens that the model got last; 0: it got none.
        self.token_rows = 0
        #: The parameters that losses depend on, by id, and whether functions of the script may hide some.
        self.leaves: dict[int, weakref.ref[Any]] = {}
        self.hides_leaves = False
        #: A recent loss of the training; not a number: there was none.
        self.loss = math.nan
        #: Outputs of the last loss of classes; 0: there was none.
        self.classes = 0
        #: Whether gradients were enabled when the event came that mechanisms are called for. They are not meanwhile.
        self.gradients = True
        #: Whether samples are read at fewer updates, because these are many and short.
        self.is_seldom = False
        self._due_until = _FIRST
        self._events = 0
        self._names: dict[int, str] = {}

    @property
    def step(self) -> int:
        """The global step of the run; 0 before the first."""
        return max(self._step(), 0)

    @property
    def begins_again(self) -> bool:
        """Whether a new optimizer or another change has begun a new stage just now."""
        return _FIRST <= self.updates < self._due_until

    @property
    def due(self) -> bool:
        """Whether samples are read at this update."""
        return self.updates < self._due_until or self.updates % (_SELDOM if self.is_seldom else _EVERY) == 0

    def steps(self, optimizer: Optimizer) -> None:
        """An optimizer is known."""
        self._optimizers.add(optimizer)

    def optimizers(self) -> list[Optimizer]:
        """Return the optimizers that are known."""
        return list(self._optimizers)

    def held(self) -> set[int]:
        """Return the ids of the parameters that the optimizers hold."""
        return {id(one) for each in self.optimizers() for group in each.param_groups for one in group["params"]}

    def look_closer(self) -> None:
        """Read samples at each of the next updates, after the first events only."""
        self._events += 1
        if self._events <= _EVENTS:
            self._due_until = max(self._due_until, self.updates + _AFTER)

    def is_in_loss(self, parameters: Iterable[Any]) -> bool:
        """Whether a loss depends on one of these parameters, or may do so unseen."""
        return self.hides_leaves or not self.leaves or any(id(one) in self.leaves for one in parameters)

    def is_leaf(self, parameter: Any) -> bool:
        """Whether a loss is known to depend on a parameter."""
        leaf = self.leaves.get(id(parameter))
        return leaf is not None and leaf() is parameter

    def gets_loss(self, value: Any) -> None:
        """A loss of the training has been computed."""
        self.loss = float(value)

    def models(self) -> Iterator[nn.Module]:
        """Yield the models of the training."""
        yield from (model for _, model in self._models())

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield each parameter of the models once, with its name."""
        seen: set[int] = set()
        for root, model in self._models():
            for name, parameter in model.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{root}_{name}", parameter

    def name_of(self, tensor: Any) -> str:
        """Return the name of a parameter, or its shape."""
        if id(tensor) not in self._names:
            self._names = {id(parameter): name for name, parameter in self.parameters()}
        return self._names.get(id(tensor)) or f"tensor of shape {tuple(tensor.shape)}"

    def name_of_module(self, module: nn.Module) -> str:
        """Return the name of a module of the models, or its class."""
        for root, model in self._models():
            for name, part in model.named_modules():
                if part is module:
                    return f"{root}_{name}" if name else root
        return type(module).__name__

    def _judging_failed(self, error: Exception) -> None:
        self.log.off(("values",), f"{type(error).__name__}: {error}")

"""Check of optimizers of the script: in which direction they move weights."""

from __future__ import annotations

import weakref
from collections import defaultdict
from itertools import pairwise
from typing import Any

import torch
from torch.optim import Optimizer

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.functions import is_installed
from smdwidgets.checks.torch.trials_apart import apart, is_self_contained

__all__ = ["OwnOptimizerChecks"]

#: Updates of a copy, looks at an optimizer whose rate is 0, and the side of the matrix that is updated.
_UPDATES, _LOOKS, _SIDE = 4, 12, 4
#: Attributes that a schedule or a scaler gives to an optimizer.
_OF_OTHERS = frozenset({"step", "_opt_called", "_step_count", "_wrapped_by_lr_sched", "_step_supports_amp_scaling"})
#: Values that an update cannot change in place.
_SIMPLE = (bool, int, float, str, tuple, type(None))


class OwnOptimizerChecks:
    """Updates a matrix with an optimizer of the script.

    With a gradient that is the matrix itself, each update must make it smaller, and with a gradient of 0 and weight
    decay none may make it larger. The copy has the settings of the first group and a state of its parameter only.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._looks: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()

    def before_update(self, optimizer: Optimizer, closure: bool) -> None:
        """An optimizer is about to step."""
        looks = self._looks.get(optimizer, 0)
        if looks >= _LOOKS or closure or not self._context.log.runs("update_reversed"):
            return
        self._looks[optimizer] = looks + 1
        kind = type(optimizer)
        if looks == 0 and (is_installed(kind) or not is_self_contained(kind)):
            self._looks[optimizer] = _LOOKS
            return
        group = optimizer.param_groups[0]
        base = vars(torch.optim.SGD([torch.zeros(1)], lr=0.1)).keys() | _OF_OTHERS
        # Attributes that the update may change in place are not shared.
        is_simple = all(isinstance(one, _SIMPLE) for name, one in vars(optimizer).items() if name not in base)
        if group.get("maximize") or not is_simple:
            self._looks[optimizer] = _LOOKS
            return
        # The update of the copy may print, fail or draw numbers, which the training must not miss.
        what: str | None = None
        with apart(), torch.no_grad():
            what = _tried(optimizer, group)
        if what is not None:
            self._looks[optimizer] = _LOOKS
        if what:
            self._context.log.say("update_reversed", self._context.step, {"optimizer": kind.__name__, "what": what})


def _step_of(kind: type[Optimizer]) -> Any:
    """Return what updates, without what counts its calls."""
    step: Any = kind.step
    return getattr(step, "__wrapped__", step) if getattr(step, "hooked", False) else step


def _tried(optimizer: Optimizer, group: dict[str, Any]) -> str | None:
    """Return what is wrong with an optimizer; None: its updates change nothing."""
    start = torch.linspace(-1, 1, _SIDE * _SIDE).reshape(_SIDE, _SIDE)
    downhill = _steps(optimizer, group, start, 1.0)
    if all(torch.equal(one, start) for one in downhill):
        return None
    sizes = [float(one.norm()) for one in (start, *downhill)]
    if all(after > before for before, after in pairwise(sizes)):
        return "moves weights along their gradients, in place of against them"
    if not float(group.get("weight_decay") or 0) > 0:
        return ""
    decayed = _steps(optimizer, group, start, 0.0)
    sizes = [float(one.norm()) for one in (start, *decayed)]
    if all(after > before for before, after in pairwise(sizes)):
        return "makes weights larger by its weight decay"
    return ""


def _steps(optimizer: Optimizer, group: dict[str, Any], start: torch.Tensor, slope: float) -> list[torch.Tensor]:
    """Return a matrix after each update by a copy of an optimizer.

    Args:
        optimizer: the optimizer.
        group: the settings of the copy.
        start: the matrix.
        slope: its gradient, as a factor of the matrix.
    """
    weight = torch.nn.Parameter(start.clone())
    settings = {name: one.clone() if isinstance(one, torch.Tensor) else one for name, one in group.items()}
    copy = object.__new__(type(optimizer))
    copy.__dict__.update(optimizer.__dict__)
    copy.state = defaultdict(dict)
    copy.param_groups = [{**settings, "params": [weight]}]
    step = _step_of(type(optimizer))
    after = []
    for _ in range(_UPDATES):
        weight.grad = slope * weight.detach()
        step(copy)
        after.append(weight.detach().clone())
    return after

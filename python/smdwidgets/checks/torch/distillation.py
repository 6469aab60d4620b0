"""Check of distillations: that both sides have the same temperature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.copies import Watch
from smdwidgets.checks.torch.graph import LossCall, kind_of, number_of, values_before
from smdwidgets.checks.torch.sums import same
from smdwidgets.checks.torch.values import is_plain, some_rows
from smdwidgets.checks.torch.variables import modules_of_script

__all__ = ["DistillationChecks"]

#: Rows that are read, the fewest classes, losses that show the fault, and elements of an output that is kept.
_ROWS, _FEWEST, _NEED, _KEPT = 32, 3, 3, 262_144
#: How well the logarithms of the targets must fit the outputs of the teacher, and how far two temperatures are apart.
_FITS, _APART = 1e-3, 1.2
#: Modules that may be a teacher, and updates until which they are watched.
_MOST_MODULES, _LONGEST = 8, 64
#: How near a temperature is to 1.
_ONE = 0.01


class DistillationChecks:
    """Compares the temperatures of the two sides of a divergence.

    That of the student is in the graph. That of the teacher follows from its last output and the targets.

    Args:
        context: what the mechanisms share.
        guarded: wraps a function so that it never raises.
    """

    def __init__(self, context: Context, guarded: Callable[[Callable[..., object]], Callable[..., object]]) -> None:
        self._context = context
        self._guarded = guarded
        self._teacher: torch.Tensor | None = None
        #: Callbacks of modules that may be the teacher, once they have been looked for.
        self._handles: list[Any] | None = None

    def leaves(self, output: Any) -> None:
        """A model has returned. Without a gradient, it may be a teacher."""
        if isinstance(output, torch.Tensor) and is_plain(output) and not output.requires_grad:
            self._teacher = output if output.numel() <= _KEPT and self._context.due else None

    def _watch(self) -> None:
        """Watch modules of the script that are not trained."""
        if self._handles is not None:
            return
        self._handles = []
        own = {id(one) for one in self._context.models()}
        modules = [one for one in modules_of_script() if id(one) not in own]
        self._handles = [one.register_forward_hook(Watch(self._has_returned)) for one in modules[:_MOST_MODULES]]

    def _has_returned(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._guarded(self.leaves)(output)

    def close(self) -> None:
        """Watch no module any more."""
        for handle in self._handles or ():
            handle.remove()
        self._handles = []

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        teacher, target = self._teacher, call.target
        if call.kind == "cross_entropy" and target.is_floating_point() and teacher is None:
            self._watch()
        if teacher is None or call.kind != "cross_entropy" or not self._context.log.runs("temperature_one_side"):
            return
        classes = target.shape[-1] if target.ndim else 0
        if self._context.updates > _LONGEST:
            self.close()
        if not target.is_floating_point() or teacher.shape != target.shape or classes < _FEWEST or not is_plain(target):
            return
        own = _temperature(call.before)
        if own is None:
            return

        def judge(outputs: Any, targets: Any) -> None:
            fitted = _fitted(outputs, targets)
            if fitted is None:
                return
            # Two temperatures that differ may be meant, and so may a teacher that is made surer.
            if abs(min(own, fitted) - 1) < _ONE and max(own, fitted) > _APART:
                facts = {"student": f"{own:.3g}", "teacher": f"{fitted:.3g}"}
                self._context.log.say("temperature_one_side", self._context.step, facts, ["loss"], need=_NEED)
            else:
                self._context.log.unseen("temperature_one_side")

        read = (some_rows(one.detach().reshape(-1, classes), _ROWS) for one in (teacher, target))
        self._context.values.read(judge, *read)


def _temperature(node: Any) -> float | None:
    """Return the number that logits were divided by; None: it is not known."""
    if node is None:
        return None
    node = same((node, 0))[0]
    if kind_of(node) not in ("Div", "Mul") or len(values_before(node)) != 1:
        return 1.0
    number = number_of(node, "other")
    if number is None or number <= 0:
        return None
    return number if kind_of(node) == "Div" else 1 / number


def _fitted(outputs: Any, targets: Any) -> float | None:
    """Return the temperature of targets that are a softmax of outputs, or None."""
    usable = (targets > 1e-6).all(1)
    outputs, targets = outputs[usable], targets[usable]
    if len(outputs) < 2 or abs(targets.sum(1) - 1).max() > _FITS:
        return None
    logs = np.log(targets)
    logs, outputs = logs - logs.mean(1, keepdims=True), outputs - outputs.mean(1, keepdims=True)
    size = float((outputs**2).sum())
    slope = float((logs * outputs).sum()) / size if size else 0.0
    if slope <= 0 or abs(logs - slope * outputs).max() > _FITS * max(1.0, abs(logs).max()):
        return None
    return 1 / slope

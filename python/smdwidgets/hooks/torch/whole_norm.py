"""The norm of the gradients of all parameters, where no optimizer alone has them.

The norm that an optimizer uses is saved under its name. Several optimizers that share a model use the gradients of one
backward pass. In a training without an optimizer of PyTorch, the norm is that of the gradients which the last backward
pass of a step leaves. Without a capture plan there is none: such runs have the tensors of smdebug's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.capture.lazy_norm import norm_of
from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch.capture import TorchCapture
from smdwidgets.hooks.torch.optimizers import PREFIX
from smdwidgets.hooks.torch.registered import RegisteredModels, Updated

__all__ = ["WHOLE_NORM", "NormParts", "WholeNorm"]

WHOLE_NORM = f"{PREFIX}all/gradient_norm"
"""Name of the norm."""


@dataclass(slots=True)
class NormParts:
    """What is known of the gradients of a step.

    Attributes:
        of_backward: their norm after the last backward pass, if no optimizer has used them.
        of_updates: the norm of each optimizer by name, and the number of backward passes before its update.
    """

    of_backward: object = None
    of_updates: dict[str, tuple[TensorCopy, int]] = field(default_factory=dict)


class WholeNorm:
    """Computes the norm, and saves it.

    Args:
        parts: the parts of the hook.
        tensors: copies tensors of PyTorch.
        models: the registered models.
    """

    def __init__(self, parts: Parts, tensors: TorchCapture, models: RegisteredModels) -> None:
        self._plan = parts.plan
        self._queue = parts.recorder.queue
        self._tensors = tensors
        self._models = models
        #: All parameters, and how their norm is computed.
        self._every: Updated | None = None

    def backward_ended(self, step: NormParts) -> None:
        """A backward pass has ended, and no optimizer is known to use the gradients."""
        if not self._is_saved:
            return
        named = [*self._models.parameters()]
        every = self._every
        if every is None or every.changes != self._models.changes:
            every = self._every = Updated([], self._models.changes, [name for name, _ in named], range(len(named)))
        step.of_backward = self._tensors.norm_of_parameters(every, [parameter for _, parameter in named])

    def update_begins(self, step: NormParts, name: str, norm: object, backwards: int) -> TensorCopy:
        """One of several optimizers is about to use its gradients; return their norm.

        Args:
            step: the norms of the step.
            name: name of the optimizer's norm.
            norm: the norm.
            backwards: number of backward passes so far.
        """
        copy = self._tensors.copy_number(name, norm)
        copy.wants_norm = True
        step.of_updates[name] = copy, backwards
        return copy

    @property
    def _is_saved(self) -> bool:
        return self._plan.capture is not None and self._plan.spec(WHOLE_NORM) is not None and self._queue.writes

    def save(self, step: NormParts) -> None:
        """Save the norm of a step whose last update, or backward pass, is done."""
        norm, step.of_backward = step.of_backward, None
        of_updates, step.of_updates = step.of_updates, {}
        if len(of_updates) > 1 and len({backwards for _, backwards in of_updates.values()}) == 1:
            # Those of a GAN are not of one loss.
            norm = norm_of([copy for copy, _ in of_updates.values()])
        if norm is not None:
            self._tensors.number(WHOLE_NORM, norm)

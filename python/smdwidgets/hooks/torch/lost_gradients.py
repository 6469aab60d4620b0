"""Notice when gradients are no longer finite at a step that captures none of them.

Most steps save only the norm of the gradients. Where it turns NaN, the gradients that are not finite are saved, so that
an incident names the first of them and not the norm.
"""

from __future__ import annotations

from math import isfinite

import torch

from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.torch.capture import GRADIENTS

__all__ = ["LOST", "LostGradients"]

LOST = SaveSpec(raw=False, statistics=True, kind=GRADIENTS)
"""What is saved of a gradient that is not finite."""


class LostGradients:
    """Remembers whether the norm of the gradients was finite.

    >>> lost = LostGradients()
    >>> [lost.begin(norm) for norm in (1.0, float("nan"), float("inf"), 2.0, torch.tensor(float("nan")))]
    [False, True, False, False, True]
    """

    def __init__(self) -> None:
        self._are_lost = False

    def begin(self, norm: object) -> bool:
        """Return whether a norm is the first one that is not finite.

        That on a device is not read, because the training would wait for it.
        """
        if isinstance(norm, torch.Tensor):
            if not norm.is_cpu or norm.numel() != 1:
                return False
            norm = norm.item()
        if not isinstance(norm, float):
            return False
        before, self._are_lost = self._are_lost, not isfinite(norm)
        return self._are_lost and not before

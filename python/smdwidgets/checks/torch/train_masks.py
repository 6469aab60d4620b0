"""Check of masks that name the rows to train on."""

from __future__ import annotations

from typing import Any

import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.values import is_plain
from smdwidgets.checks.torch.variables import tensors_by_name

__all__ = ["TrainMaskChecks"]

#: Names of a mask of rows that belong to the training, and losses that show the fault.
_NAMES, _NEED = frozenset({"train_mask", "mask_train", "training_mask", "tr_mask", "trainmask"}), 2
#: Looks without a mask after which none follow.
_IDLE = 4


class TrainMaskChecks:
    """Compares the rows of a loss with a mask of the script.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._idle = 0

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        log, step, rows = self._context.log, self._context.step, len(call.target) if call.target.ndim else 0
        # A loss of each row may be multiplied with the mask.
        is_whole = call.kind in ("cross_entropy", "nll_loss") and call.reduction in ("mean", "sum")
        if self._idle >= _IDLE or not is_whole or not log.runs("train_mask_unused"):
            return
        masks = [
            one
            for one in tensors_by_name(_NAMES.__contains__).values()
            if one.dtype is torch.bool and one.numel() == rows == call.target.numel() and is_plain(one)
        ]
        self._idle = 0 if masks else self._idle + 1
        if len(masks) != 1 or not rows:
            return

        def judge(mask: Any, targets: Any) -> None:
            chosen = int(mask.sum())
            if 0 < chosen < rows and (targets.reshape(-1)[mask.reshape(-1) == 0] != call.ignored).all():
                log.say("train_mask_unused", step, {"rows": rows, "chosen": chosen}, ["loss"], need=_NEED)

        self._context.values.read(judge, masks[0], call.target)

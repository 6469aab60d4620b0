"""Check of averages of weights that share the memory of the weights."""

from __future__ import annotations

import weakref

import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.copies import living
from smdwidgets.checks.torch.values import is_plain

__all__ = ["AliasChecks"]

#: The update after which aliases are looked for, and updates after which all of them are changed.
_LOOK, _NEED = 2, 4


class AliasChecks:
    """Looks for tensors that share the memory of all weights and change by the script.

    They change after each update. `parameter.data` is such a tensor. It counts its own changes, so that those by the
    optimizer do not count. Tensors that exist for a moment only, as for limiting weights, are not found.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._aliases: list[weakref.ref[torch.Tensor]] = []
        #: Numbers of changes of each when the last update began and when it ended.
        self._begun: list[int] = []
        self._ended: list[int] = []

    def before_update(self) -> None:
        """The next update begins. The script has changed its average, if it has one."""
        if not self._ended:
            return
        self._begun = self._now()
        if len(self._begun) < len(self._ended) or not all(
            one > last for one, last in zip(self._begun, self._ended, strict=True)
        ):
            self._forget()
            return
        self._context.log.say("average_is_model", self._context.step, {"count": len(self._begun)}, need=_NEED)
        if self._context.log.has_fired("average_is_model"):
            self._forget()

    def after_update(self) -> None:
        """An update has ended."""
        if self._context.updates == _LOOK and self._context.log.runs("average_is_model"):
            self._find()
        self._ended = self._now() if self._aliases else []
        if self._begun and self._begun != self._ended:  # the optimizer changes them, or they count its changes
            self._forget()

    def _forget(self) -> None:
        self._aliases, self._begun, self._ended = [], [], []

    def _now(self) -> list[int]:
        return [one._version for each in self._aliases if (one := each()) is not None]  # noqa: SLF001

    def _find(self) -> None:
        weights = {one.data_ptr(): one for _, one in self._context.parameters() if _is_trained(one)}
        sharing: dict[int, torch.Tensor] = {}
        for one in living(torch.Tensor):
            weight = weights.get(one.data_ptr()) if type(one) is torch.Tensor and is_plain(one) else None
            if weight is not None and one.shape == weight.shape and not one.requires_grad and not one.is_inference():
                sharing[one.data_ptr()] = one
        for model in self._context.models():
            own = {one.data_ptr() for one in model.parameters() if _is_trained(one)}
            if len(own) > 1 and own <= sharing.keys():
                self._aliases = [weakref.ref(sharing[each]) for each in own]
                return


def _is_trained(weight: torch.nn.Parameter) -> bool:
    return weight.requires_grad and is_plain(weight) and weight.numel() > 0

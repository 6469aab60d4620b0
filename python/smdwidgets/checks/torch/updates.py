"""Checks of updates: sampled weights before and after, and gradients."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.decay import updates_until_half
from smdwidgets.checks.torch.values import is_plain, sampled
from smdwidgets.finding import Level

__all__ = ["UpdateChecks"]

#: Tensors of an optimizer that are sampled, and elements of each.
_TENSORS, _ELEMENTS = 128, 64
#: An update below this share of a weight may be lost to rounding: for float32, and for the types of 16 bits.
_SMALL, _SMALL_HALF = 1e-6, 2**-7
#: Updates without a gradient, and updates without a change, after which a tensor is named.
_WITHOUT = 8
#: The same where other parameters have had a gradient after updates without one: parts of the model take turns, as the
#: experts of a mixture do.
_NOW_AND_THEN = 100
#: The same for a parameter of another shape than all that have gradients, such as the weights of a router.
_NO_PART = 24
#: A share by which an update shrinks all tensors, updates in succession that do so, and elements that show it.
_SHRINKS, _SHRINKING, _SHRUNK_ELEMENTS = 0.02, 6, 32
_HALVES = (torch.bfloat16, torch.float16)
#: Shares of the elements of a matrix that have its largest size: of one that is held within limits, and of one whose
#: elements all have one size; updates that show it.
_HELD, _OF_ONE_SIZE, _CLAMPED = 0.1, 0.98, 6
#: Changes in place of a parameter, after which an earlier training has updated it.
_TRAINED = 64


class UpdateChecks:
    """Compares sampled weights before and after an update.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: tuple[Any, ...] | None = None
        #: The optimizer and the number of its next update, and the weights before and after the last one.
        self._last: tuple[tuple[int, int], torch.Tensor, torch.Tensor] | None = None
        #: By id of a parameter: updates without a gradient (below 0: it has had one), and without a change.
        self._without: Counter[int] = Counter()
        #: The step of the first look at the gradients of an optimizer.
        self._began: dict[int, int] = {}
        #: Updates after which a parameter without a gradient is named.
        self._least_without = _WITHOUT
        self._unmoved: Counter[int] = Counter()
        self._looked: Counter[int] = Counter()
        #: Ids of the parameters that were trained before this training.
        self._trained: set[int] = set()
        #: A function with steps that the loss was computed with, and updates of an optimizer whose gradients are all 0.
        self.steps_of = ""
        self._zeros: Counter[int] = Counter()
        #: By id of a parameter: updates at which all its gradients were 0 (below 0: one was not).
        self._behind: Counter[int] = Counter()
        #: By id of a parameter: updates at which it and its gradient were 0 (below 0: one was not).
        self._stays: Counter[int] = Counter()

    def before(self, optimizer: Optimizer, closure: bool) -> None:
        """An optimizer is about to step."""
        self._before = None
        context = self._context
        if not context.due or closure:
            return
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        self._gradients(optimizer, parameters)
        if any(one.dtype is torch.float16 for one in parameters) and not any(
            "master" in str(key) for state in list(optimizer.state.values())[:1] for key in state
        ):
            context.log.say("half_state", context.step, {"optimizer": type(optimizer).__name__})
        if getattr(optimizer, "found_inf", None) is not None:
            return  # a fused optimizer may skip the update, and only the device knows
        usable = [one for one in parameters if _is_usable(one)]
        if len(usable) > _TENSORS:  # evenly spread, the same ones each time
            usable = usable[:: -(-len(usable) // _TENSORS)]
        if not usable or len({one.device for one in usable}) > 1:
            return
        weights = torch.cat([sampled(one, _ELEMENTS) for one in usable])
        gradients = torch.cat([sampled(one.grad, _ELEMENTS) for one in usable if one.grad is not None])
        if weights.shape == gradients.shape:
            self._before = id(optimizer), usable, weights, gradients
            self._restored(optimizer, weights)

    def _restored(self, optimizer: Optimizer, weights: torch.Tensor) -> None:
        """Look whether the weights are those before the last update again."""
        context, step, last = self._context, self._context.step, self._last
        self._last = None
        if last is None or last[0] != (id(optimizer), context.updates) or last[1].shape != weights.shape:
            return
        name = type(optimizer).__name__

        def judge(now: Any, before: Any, after: Any) -> None:
            if (now == before).all() and (after != before).any():
                context.log.say("weights_restored", step, {"optimizer": name}, [name], need=3)
            else:
                context.log.unseen("weights_restored")

        context.values.read(judge, weights, last[1], last[2])

    def after(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        before, self._before = self._before, None
        if before is None or before[0] != id(optimizer):
            return
        _, usable, weights, gradients = before
        rates = _rates(optimizer, usable)
        if rates is None:
            return
        name, context, step = type(optimizer).__name__, self._context, self._context.step
        sizes = [min(one.numel(), len(sampled(one, _ELEMENTS))) for one in usable]
        halves = [one.dtype in _HALVES for one in usable]
        adaptive = any("exp_avg_sq" in optimizer.state.get(one, {}) for one in usable[:1])
        has_copy = any(one.dtype is torch.float32 for state in _states(optimizer, usable) for one in state) and any(
            halves
        )
        names = [context.name_of(one) for one in usable]
        ids = [id(one) for one in usable]
        is_matrix = [one.ndim > 1 for one in usable]
        dtype = str(usable[0].dtype).removeprefix("torch.")

        key, function = id(optimizer), self.steps_of

        def judge(weights: Any, gradients: Any, updated: Any) -> None:
            self._zeros[key] += 1 if function and not gradients.any() else -1_000_000
            if self._zeros[key] >= _WITHOUT and len(names) > 1:
                self._say_behind(function, name, names, len(names), step)
            elif function:
                self._name_behind(
                    function, name, [*zip(names, ids, sizes, is_matrix, strict=True)], weights, gradients, step
                )
            self._name_zeros(names, ids, sizes, is_matrix, weights, gradients, step)
            if len(self._looked) == 1:  # the weights of a critic are held on purpose
                self._clamps([*zip(names, sizes, is_matrix, strict=True)], weights, step)
            rate = np.repeat(rates, sizes)
            half = np.repeat(halves, sizes)
            size = np.abs(gradients)
            with np.errstate(all="ignore"):
                update = rate * (size / (size + 1e-8) if adaptive else size)
                counts = np.isfinite(gradients) & (gradients != 0) & (update > _SMALL * np.abs(weights))
            moved = updated != weights
            if not counts.any() or not np.isfinite(gradients).all():
                return
            sure = counts & (~half | (update > _SMALL_HALF * np.abs(weights)))
            if sure.sum() >= 4 and not moved.any():
                context.log.say("no_update", step, {"optimizer": name}, need=3)
                return
            context.log.unseen("no_update")
            self._shrinks(name, [*zip(usable, sizes, strict=True)], weights, updated, step)
            halved = counts & half
            if halved.sum() >= 4 and not has_copy:
                lost = float(1 - moved[halved].mean())
                if lost > 0.5:
                    facts = {"share": f"{lost:.0%}", "dtype": dtype}
                    context.log.say("update_lost", step, facts, need=4)
            self._name_unmoved(name, names, ids, sizes, sure & ~half, moved, step)

        updated = torch.cat([sampled(one, _ELEMENTS) for one in usable])
        if len(self._looked) == 1:  # the only optimizer
            self._last = (id(optimizer), context.updates + 1), weights, updated
        context.values.read(judge, weights, gradients, updated)

    def _clamps(self, parts: list[tuple[str, int, bool]], weights: Any, step: int) -> None:
        """Look whether many weights of matrices have exactly the largest size."""
        limits, begin = [], 0
        for name, size, is_matrix in parts:
            part = np.abs(weights[begin : begin + size])
            begin += size
            if is_matrix and size >= _SHRUNK_ELEMENTS:
                largest = float(part.max())
                limits += [(name, largest, float((part == largest).mean()))]
        held = [one for one in limits if _HELD <= one[2] < _OF_ONE_SIZE]
        log = self._context.log
        if held and len(held) == len(limits) and len({one[1] for one in held}) == 1:
            facts = {"tensor": held[0][0], "share": f"{held[0][2]:.0%}", "limit": f"{held[0][1]:.4g}"}
            log.say("weights_clamped", step, facts, [one[0] for one in held], need=_CLAMPED)
        else:
            log.unseen("weights_clamped")

    def _shrinks(self, optimizer: str, parts: list[tuple[Any, int]], weights: Any, updated: Any, step: int) -> None:
        """Look whether an update shrinks all tensors by one share.

        A decay does so that no rate multiplies.
        """
        shares, begin = [], 0
        for parameter, size in parts:
            part = slice(begin, begin + size)
            begin += size
            before = weights[part].astype(np.float64)
            if parameter.ndim > 1 and size >= _SHRUNK_ELEMENTS and (before**2).sum() > 0:
                shares.append(1 - float((updated[part] * before).sum() / (before**2).sum()))
        usual = float(np.median(shares)) if len(shares) > 1 else 0.0
        log = self._context.log
        if _SHRINKS < usual < 1 and all(usual / 2 < one < usual * 2 for one in shares):
            half = updates_until_half(usual)
            facts = {"optimizer": optimizer, "share": f"{usual:.1%}", "why": "measured", "half": half}
            log.say("strong_decay", step, facts, [optimizer], need=_SHRINKING)
        elif not log.has_fired("strong_decay"):
            log.unseen("strong_decay")

    def _name_behind(
        self,
        function: str,
        optimizer: str,
        parts: list[tuple[str, int, int, bool]],
        weights: Any,
        gradients: Any,
        step: int,
    ) -> None:
        """Count updates at which all gradients of a matrix are 0, while others are not.

        The loss depends on it through a function that has steps, as where weights are rounded.
        """
        behind, begin = [], 0
        for name, key, size, is_matrix in parts:
            part = slice(begin, begin + size)
            begin += size
            if is_matrix and weights[part].any() and not gradients[part].any():
                self._behind[key] += 1
                behind += [name] if self._behind[key] >= _WITHOUT else []
            else:
                self._behind[key] = -1_000_000
        if behind:
            self._say_behind(function, optimizer, behind, len(parts), step)

    def _say_behind(self, function: str, optimizer: str, names: list[str], total: int, step: int) -> None:
        """Say which tensors have gradients of 0 because a function has steps."""
        facts = {"count": len(names), "total": total, "optimizer": optimizer, "tensor": names[0]}
        facts["why"] = f" other than 0, since `{function}` has steps"
        self._context.log.say("no_gradient", step, facts, names, level="problem")

    def _name_zeros(
        self,
        names: list[str],
        ids: list[int],
        sizes: list[int],
        is_matrix: list[bool],
        weights: Any,
        gradients: Any,
        step: int,
    ) -> None:
        """Count updates at which matrices and their gradients are 0.

        One of two that are multiplied may begin at 0, not both.
        """
        if not gradients.any() and weights.any():  # nothing depends on them at this step
            return
        zeros, begin = [], 0
        for name, key, size, counts in zip(names, ids, sizes, is_matrix, strict=True):
            part = slice(begin, begin + size)
            begin += size
            if counts and not weights[part].any() and not gradients[part].any():
                self._stays[key] += 1
                zeros += [name] if self._stays[key] >= _WITHOUT else []
            else:
                self._stays[key] = -1_000_000
        if len(zeros) > 1:
            self._context.log.say(
                "stays_zero", step, {"count": len(zeros), "tensor": zeros[0], "other": zeros[1]}, zeros
            )

    def _name_unmoved(
        self, optimizer: str, names: list[str], ids: list[int], sizes: list[int], sure: Any, moved: Any, step: int
    ) -> None:
        unmoved, begin = [], 0
        for name, key, size in zip(names, ids, sizes, strict=True):
            part = slice(begin, begin + size)
            begin += size
            if sure[part].sum() >= min(4, size) and not moved[part].any():
                self._unmoved[key] += 1
                if self._unmoved[key] >= _WITHOUT:
                    unmoved.append(name)
            elif moved[part].any():
                self._unmoved[key] = -1_000_000
        if unmoved:
            facts = {"count": len(unmoved), "optimizer": optimizer, "tensor": unmoved[0]}
            self._context.log.say("some_not_updated", step, facts, unmoved)

    def _gradients(self, optimizer: Optimizer, parameters: list[Any]) -> None:
        """Count updates at which a parameter has no gradient while others have one."""
        if not any(one.grad is not None for one in parameters):
            return
        context = self._context
        self._looked[id(optimizer)] += 1
        self._began.setdefault(id(optimizer), context.step)
        if self._looked[id(optimizer)] == 1:
            self._trained |= {id(one) for one in parameters if is_plain(one) and one._version > _TRAINED}  # noqa: SLF001
        for one in parameters:
            # The script may drop the gradient of a parameter that the loss depends on, to freeze a layer for a while.
            if one.grad is not None or (context.is_leaf(one) and not context.hides_leaves):
                if self._without[id(one)] > 0:
                    self._least_without = _NOW_AND_THEN
                self._without[id(one)] = -1_000_000
            elif one.requires_grad:
                self._without[id(one)] += 1
        shapes = {one.shape for one in parameters if self._without[id(one)] < 0}
        least = {True: self._least_without, False: min(self._least_without, _NO_PART)}
        missing = [one for one in parameters if self._without[id(one)] >= least[one.shape in shapes]]
        if missing and len(missing) < len(parameters) and self._looked[id(optimizer)] >= _WITHOUT:
            names = [context.name_of(one) for one in missing]
            facts = {
                "count": len(missing),
                "total": len(parameters),
                "optimizer": type(optimizer).__name__,
                "tensor": names[0],
                "why": "",
            }
            # The last bias of a model whose loss takes derivatives of the output has none. A model that was trained
            # before is a teacher, or a base that stays as it is.
            meant = all(one.ndim < 2 or id(one) in self._trained for one in missing)
            level: Level | None = "note" if meant else None
            context.log.say("no_gradient", self._began[id(optimizer)], facts, names, level=level)


def _is_usable(parameter: Any) -> bool:
    gradient = parameter.grad
    return (
        gradient is not None
        and is_plain(parameter)
        and is_plain(gradient)
        and parameter.shape == gradient.shape
        and parameter.stride() == gradient.stride()
        and parameter.is_floating_point()
        and parameter.numel() > 0
    )


def _rates(optimizer: Optimizer, usable: list[Any]) -> list[float] | None:
    """Return the learning rate of each tensor.

    The result is None if it is on a device, or the optimizer has none.
    """
    rates: dict[int, float] = {}
    for group in optimizer.param_groups:
        rate = group.get("lr")
        if isinstance(rate, torch.Tensor):
            if rate.device.type != "cpu" or rate.numel() != 1:
                return None
            rate = float(rate)
        if not isinstance(rate, int | float):
            return None
        rates |= {id(one): float(rate) for one in group["params"]}
    return [rates.get(id(one), 0.0) for one in usable]


def _states(optimizer: Optimizer, usable: list[Any]) -> list[list[Any]]:
    """Return state of the shape of its parameter, except for moments."""
    return [
        [
            value
            for key, value in optimizer.state.get(one, {}).items()
            if isinstance(value, torch.Tensor)
            and value.shape == one.shape
            and "avg" not in str(key)
            and "momentum" not in str(key)
        ]
        for one in usable[:4]
    ]

"""Relative updates, second moments that lag, and largest singular values.

Some elements of each tensor are read. Tensor subclasses, such as sharded ones, are left out: reading them may
communicate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["Measured", "OptimizerHealth"]

_TENSORS, _ELEMENTS = 512, 1024
#: Matrices whose largest singular value is estimated, and their least size.
_MATRICES, _LEAST_SIZE = 256, 16

Measured = dict[str, tuple[list[torch.Tensor], torch.Tensor]]
"""By kind of signal: the parameters and one value for each."""


class OptimizerHealth:
    """Reads one optimizer before and after its updates."""

    def __init__(self) -> None:
        self._before: tuple[list[torch.Tensor], torch.Tensor] | None = None
        self._calls, self._read_at = 0, -(1 << 20)
        self._vectors: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._random: torch.Generator | None = None

    def is_due(self, interval: int) -> bool:
        """Count an update, and return whether it is to be read."""
        self._calls += 1
        self._before = None
        return self._calls - self._read_at >= interval

    @property
    def begun(self) -> bool:
        """Whether the update in progress is read."""
        return self._before is not None

    def before(self, optimizer: Optimizer) -> None:
        """The optimizer is about to step."""
        self._read_at = self._calls
        every = [one for group in optimizer.param_groups for one in group["params"] if _is_usable(one)]
        every = every[:: -(-len(every) // _TENSORS)] if len(every) > _TENSORS else every
        if every and len({one.device for one in every}) == 1:
            self._before = every, torch.cat([sampled(one, _ELEMENTS).float() for one in every])

    def after(self, optimizer: Optimizer) -> Measured:
        """The optimizer has stepped; return what was measured."""
        before, self._before = self._before, None
        if before is None:
            return {}
        every, weights = before
        sizes = [min(one.numel(), len(sampled(one, _ELEMENTS))) for one in every]
        now = torch.cat([sampled(one, _ELEMENTS).float() for one in every])
        sums = [part.square().sum() for part in (now - weights).split(sizes)]
        norms = [part.square().sum() for part in weights.split(sizes)]
        size = torch.stack(norms)
        size = torch.where(size > 0, size, torch.nan)  # a weight that is 0 has no relative update
        measured: Measured = {"update_ratio": (every, (torch.stack(sums) / size).sqrt())}
        stale = self._stale(optimizer, every)
        if stale:
            measured["stale"] = list(stale), torch.stack(list(stale.values()))
        matrices = [one for one in every if one.ndim == 2 and min(one.shape) >= _LEAST_SIZE][:_MATRICES]
        if matrices:
            measured["sigma_max"] = matrices, torch.stack([self._sigma(one) for one in matrices])
        return measured

    def _stale(self, optimizer: Optimizer, every: list[torch.Tensor]) -> dict[Any, torch.Tensor]:
        """Return the root of the mean of squared gradients over second moments, by matrix."""
        decay = {id(one): group.get("betas", (0, 0))[1] for group in optimizer.param_groups for one in group["params"]}
        ratios: dict[Any, torch.Tensor] = {}
        for one in every:
            state = optimizer.state.get(one, {})
            moments, step = state.get("exp_avg_sq"), state.get("step")
            if one.ndim < 2 or not isinstance(moments, torch.Tensor) or one.grad is None:
                continue
            if (moments.shape, moments.stride(), one.grad.stride()) != (one.shape, one.stride(), one.stride()):
                continue
            beta = decay[id(one)]
            if not isinstance(beta, float) or step is None:
                continue
            gradient, moment = sampled(one.grad, _ELEMENTS).float(), sampled(moments, _ELEMENTS).float()
            # The step may be on the device, where reading it would wait.
            steps = step.to(moment.device, torch.float32) if isinstance(step, torch.Tensor) else float(step)
            corrected = moment / (1 - beta**steps)
            ratios[one] = (gradient.square() / corrected.clamp_min(1e-30)).mean().sqrt()
        return ratios

    def _sigma(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the estimate of half a step of the power method.

        It begins where the last one ended: a vector of the input's size, or of the output's, is multiplied by the
        weight. The first estimate is that of a whole step.
        """
        state = self._vectors.get(weight)
        key, weight = weight, weight.detach()
        if state is None:
            if self._random is None:
                self._random = torch.Generator().manual_seed(0)
            vector = torch.randn(weight.shape[0], generator=self._random).to(
                weight.device, weight.dtype, non_blocking=True
            )
            vector = weight.T @ (vector / vector.norm())
            is_input, vector = True, vector / vector.norm().clamp_min(1e-12)
        else:
            is_input, vector = state
        product = (weight if is_input else weight.T) @ vector
        size = product.norm()
        self._vectors[key] = not is_input, product / size.clamp_min(1e-12)
        return size.float()


def _is_usable(parameter: Any) -> bool:
    gradient = parameter.grad
    return bool(
        gradient is not None
        and is_plain(parameter)
        and is_plain(gradient)
        and parameter.shape == gradient.shape
        and parameter.is_floating_point()
        and parameter.numel() > 0
    )

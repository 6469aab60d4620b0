"""Relative updates, second moments that lag, and largest singular values.

Some elements of each tensor are read. Tensor subclasses, such as sharded ones, are left out: reading them may
communicate.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["Measured", "OptimizerHealth"]

_TENSORS, _ELEMENTS = 512, 1024
#: Matrices whose largest singular value is estimated, and their least size.
_MATRICES, _LEAST_SIZE = 256, 16

Measured = dict[str, tuple[list[torch.Tensor], torch.Tensor]]
"""By kind of signal: the parameters and one value for each."""


class OptimizerHealth:
    """Reads one optimizer before and after its updates.

    Operators take lists of tensors: one call for each tensor would take longer than its samples.
    """

    def __init__(self) -> None:
        self._before: tuple[list[torch.Tensor], torch.Tensor] | None = None
        self._calls, self._read_at = 0, -(1 << 20)
        #: By id of a matrix: the matrix, and what `_sigma` has left.
        self._vectors: dict[int, tuple[weakref.ref[torch.Tensor], bool, torch.Tensor]] = {}
        self._random: torch.Generator | None = None

    def is_due(self, interval: int) -> bool:
        """Count an update, and return whether it is to be read."""
        self._calls += 1
        self._before = None
        return self._calls - self._read_at >= interval

    def count(self, updates: int) -> None:
        """Count updates that are not read."""
        self._calls += updates

    @property
    def since(self) -> int:
        """Number of updates since the last one that was read."""
        return self._calls - self._read_at

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
            self._before = every, torch.cat(_samples(every)).float()

    def after(self, optimizer: Optimizer) -> Measured:
        """The optimizer has stepped; return what was measured."""
        before, self._before = self._before, None
        if before is None:
            return {}
        every, weights = before
        samples = _samples(every)
        sizes = list(map(len, samples))
        changes = _norms(torch.cat(samples).float() - weights, sizes)
        norms = _norms(weights, sizes)
        # A weight that is 0 has no relative update.
        measured: Measured = {"update_ratio": (every, changes / torch.where(norms > 0, norms, torch.nan))}
        stale = self._stale(optimizer, every)
        if stale is not None:
            measured["stale"] = stale
        matrices = [one for one in every if one.ndim == 2 and min(one.shape) >= _LEAST_SIZE][:_MATRICES]
        if matrices:
            measured["sigma_max"] = matrices, self._sigma(matrices)
        return measured

    def _stale(self, optimizer: Optimizer, every: list[torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor] | None:
        """Return the root of the mean of squared gradients over second moments, by matrix."""
        decay = {id(one): group.get("betas", (0, 0))[1] for group in optimizer.param_groups for one in group["params"]}
        matrices: list[torch.Tensor] = []
        gradients: list[torch.Tensor] = []
        moments: list[torch.Tensor] = []
        #: What a moment is divided by. A step may be on the device, where reading it would wait.
        corrections: list[Any] = []
        for one in every:
            state = optimizer.state.get(one, {})
            moment, step = state.get("exp_avg_sq"), state.get("step")
            if one.ndim < 2 or not isinstance(moment, torch.Tensor) or one.grad is None:
                continue
            if (moment.shape, moment.stride(), one.grad.stride()) != (one.shape, one.stride(), one.stride()):
                continue
            beta = decay[id(one)]
            if not isinstance(beta, float) or step is None:
                continue
            matrices.append(one)
            gradients.append(one.grad)
            moments.append(moment)
            is_elsewhere = isinstance(step, torch.Tensor) and not step.is_cpu
            corrections.append(1 - beta**step if is_elsewhere else 1 - beta ** float(step))
        if not matrices:
            return None
        samples = _samples(moments)
        sizes = list(map(len, samples))
        moment = torch.cat(samples).float()
        parts = moment.split(sizes)
        if all(isinstance(one, float) for one in corrections):
            torch._foreach_div_(parts, corrections)
        else:
            for part, correction in zip(parts, corrections, strict=True):
                part.div_(correction)
        ratios = torch.cat(_samples(gradients)).float() * moment.clamp_min_(1e-30).rsqrt_()
        parts = ratios.split(sizes)
        torch._foreach_div_(parts, [math.sqrt(size) for size in sizes])
        return matrices, _norms(ratios, sizes)

    def _sigma(self, matrices: list[torch.Tensor]) -> torch.Tensor:
        """Return the estimates of half a step of the power method.

        It begins where the last one ended: a vector of the input's size, or of the output's, is multiplied by the
        matrix. The first estimate is that of a whole step.
        """
        known = self._vectors
        of_inputs: list[bool] = []
        products: list[torch.Tensor] = []
        for matrix in matrices:
            weight = matrix.detach()
            reference, of_input, vector = known.get(id(matrix)) or (None, True, None)
            if vector is None or reference is None or reference() is not matrix:
                of_input, vector = True, self._first_vector(weight)
            of_inputs.append(of_input)
            products.append((weight if of_input else weight.T) @ vector)
        sizes = torch._foreach_norm(products)
        vectors = torch._foreach_div(products, torch._foreach_clamp_min(sizes, 1e-12))
        self._vectors = {
            id(matrix): (weakref.ref(matrix), not of_input, vector)
            for matrix, of_input, vector in zip(matrices, of_inputs, vectors, strict=True)
        }
        return torch.stack([one.float() for one in sizes])

    def _first_vector(self, weight: torch.Tensor) -> torch.Tensor:
        if self._random is None:
            self._random = torch.Generator().manual_seed(0)
        vector = torch.randn(weight.shape[0], generator=self._random)
        vector = vector.to(weight.device, weight.dtype, non_blocking=True)
        vector = weight.T @ (vector / vector.norm())
        return vector / vector.norm().clamp_min(1e-12)


def _samples(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    # A small tensor is taken whole: views of it would take longer.
    return [one.flatten() if one.numel() <= _ELEMENTS else sampled(one, _ELEMENTS) for one in tensors]


def _norms(values: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """Return the norm of each part of a row of values."""
    if not values.is_cpu:
        return torch.stack(torch._foreach_norm(values.split(sizes)))
    starts = np.cumsum([0, *sizes[:-1]])
    with np.errstate(all="ignore"):  # weights may have exploded
        return torch.from_numpy(np.sqrt(np.add.reduceat(np.square(values.numpy()), starts)))


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

"""Check of discounted returns: that each is the sum of the rewards that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.values import is_plain
from smdwidgets.checks.torch.variables import variables_of_script

__all__ = ["ReturnChecks"]

#: Names that scripts give to returns and rewards.
_RETURNS = ("returns", "rets", "discounted_returns", "discounted_rewards", "disc_rewards", "gains", "G")
_REWARDS = ("rewards", "rews", "ep_rewards", "episode_rewards", "reward_list", "rs")
#: Fewest and most steps, most numbers, losses that show the fault, and looks without both after which none follow.
_FEWEST, _STEPS, _NUMBERS, _NEED, _IDLE = 8, 4096, 65_536, 2, 8
#: Discounts that tell the direction, and how exactly returns are sums.
_DISCOUNTS, _EXACTLY = (0.3, 0.9995), 1e-4


class ReturnChecks:
    """Compares the returns of a script with its rewards.

    The return of a step is its reward and the discounted return of the next step. Returns that are appended while the
    rewards are gone through from the last to the first are in reverse order.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._idle = 0

    def backward_begins(self) -> None:
        """A backward pass begins."""
        log = self._context.log
        if self._idle >= _IDLE or not log.runs("returns_reversed"):
            return
        self._idle += 1
        for variables in variables_of_script():
            returns = next((variables[name] for name in _RETURNS if name in variables), None)
            rewards = next((variables[name] for name in _REWARDS if name in variables), None)
            if returns is None or rewards is None:
                continue
            sums, summed = _numbers(returns), _numbers(rewards)
            if sums is None or summed is None or sums.shape != summed.shape or len(sums) < _FEWEST:
                continue
            self._idle = 0
            if what := _wrong_order(sums, summed):
                log.say("returns_reversed", self._context.step, {"what": what}, ["loss"], need=_NEED)
            else:
                log.unseen("returns_reversed")
            return


def _numbers(values: Any) -> NDArray[np.float64] | None:
    """Return numbers of steps as a matrix, or None."""
    kind = type(values)
    if kind is torch.Tensor:
        values, usable = [values], is_plain(values) and values.is_cpu and 0 < values.ndim < 3
    elif kind is np.ndarray:
        values, usable = [values], values.dtype.kind in "fiu" and 0 < values.ndim < 3
    else:
        usable = kind in (list, tuple) and _FEWEST <= len(values) <= _STEPS and all(map(_is_number, values))
    if not usable or sum(_size(one) for one in values) > _NUMBERS:
        return None
    parts = [one.detach().numpy() if isinstance(one, torch.Tensor) else one for one in values]
    if len({np.shape(one) for one in parts}) > 1:
        return None
    matrix = np.asarray(parts[0] if kind in (torch.Tensor, np.ndarray) else parts, np.float64)
    return matrix.reshape(len(matrix), -1)


def _is_number(value: Any) -> bool:
    """Whether this is a number of a step, or one for each of several environments."""
    if type(value) is torch.Tensor:
        return is_plain(value) and value.is_cpu and value.ndim < 2 and value.dtype.is_floating_point
    return type(value) in (float, int, bool) or isinstance(value, np.floating | np.integer) or type(value) is np.ndarray


def _size(value: Any) -> int:
    return int(value.numel()) if isinstance(value, torch.Tensor) else int(np.size(value))


def _wrong_order(returns: NDArray[np.float64], rewards: NDArray[np.float64]) -> str:
    """Return what is wrong with the order of returns, or an empty string.

    They may be shifted and scaled, as by their mean and deviation.

    >>> rewards = np.arange(12.0)[:, None] % 5
    >>> right = np.array([[(0.9 ** np.arange(12 - t) * rewards[t:, 0]).sum()] for t in range(12)])
    >>> _wrong_order(right, rewards), _wrong_order(right[::-1] / 3 - 1, rewards)
    ('', 'are in reverse order: the first one belongs to the last reward')
    >>> _wrong_order(np.array([[(0.9 ** np.arange(t + 1) * rewards[t::-1, 0]).sum()] for t in range(12)]), rewards)
    'add up the rewards of the steps before, and not of those after'
    """
    if not (np.isfinite(returns).all() and np.isfinite(rewards).all()) or returns.std() == 0:
        return ""
    if _adds_up(returns[::-1], rewards[::-1], (0.0, 1.001)):
        return ""
    if _adds_up(returns, rewards[::-1], _DISCOUNTS):
        return "are in reverse order: the first one belongs to the last reward"
    return (
        "add up the rewards of the steps before, and not of those after"
        if _adds_up(returns, rewards, _DISCOUNTS)
        else ""
    )


def _adds_up(sums: NDArray[np.float64], values: NDArray[np.float64], discounts: Sequence[float]) -> bool:
    """Whether each sum is a discounted sum of the values up to it, shifted and scaled."""
    columns = np.stack([sums[:-1].ravel(), values[1:].ravel(), np.ones(sums[1:].size)], axis=1)
    solution, _, _, _ = np.linalg.lstsq(columns, sums[1:].ravel(), rcond=None)
    rest = np.abs(columns @ solution - sums[1:].ravel()).max()
    discount, scale = float(solution[0]), float(solution[1])
    is_scaled = scale > 0 or values[1:].std() == 0
    return bool(rest < _EXACTLY * sums.std() and is_scaled and discounts[0] <= discount <= discounts[1])

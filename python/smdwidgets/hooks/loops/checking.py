"""Read trees of JAX for the checks of a training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from smdwidgets.checks.trees import Role, Tree, TreeChecks
from smdwidgets.hooks.core.checking import check_log, stop_after
from smdwidgets.hooks.core.options import HookOptions
from smdwidgets.hooks.core.parts import Parts

__all__ = ["Checking"]

#: Tensors of a tree that are read, and elements of the largest.
_TENSORS, _ELEMENTS = 32, 1_000_000
#: Elements of a batch that is read.
_BATCH = 4_000_000
_ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("gradient", "gradients", "grads"), "gradient"),  # type: ignore[dict-item, unused-ignore]
    **dict.fromkeys(("update", "updates"), "update"),  # type: ignore[dict-item, unused-ignore]
}


class Checking:
    """Passes the trees of a training on to its checks.

    Args:
        parts: the parts of the hook.
        options: which checks run, and whether the training stops after a number of steps.
    """

    def __init__(self, parts: Parts, options: HookOptions) -> None:
        log = check_log(parts.recorder, options)
        self._checks = None if log is None else TreeChecks(log, stop_after(options))

    def tree(self, prefix: str, arrays: Callable[[], Iterable[tuple[str, Any]]]) -> None:
        """The script saves a tree: paths and arrays."""
        checks = self._checks
        if checks is None or not checks.looks:
            return
        kind, _, name = prefix.partition("/")
        if kind in ("optimizer", "opt_state"):
            checks.optimizer(lambda: _numbers(arrays()))
        else:
            role: Role = _ROLES.get(kind, "weights")
            checks.tree(lambda: _tree(role, prefix if role == "weights" else name, arrays()))

    def inputs(self, name: str, value: Any) -> None:
        """The script saves inputs of a model."""
        if self._checks is not None:
            self._checks.inputs(name, lambda: _host(value) if math.prod(np.shape(value)) <= _BATCH else None)

    def step_ends(self, step: int) -> None:
        """A step of the training has ended."""
        if self._checks is not None:
            self._checks.step_ends(step)

    def close(self) -> None:
        """Write what is known at the end."""
        if self._checks is not None:
            self._checks.close()


def _tree(role: Role, name: str, arrays: Iterable[tuple[str, Any]]) -> Tree:
    trained = [(path, one) for path, one in arrays if jax.numpy.issubdtype(one.dtype, jax.numpy.inexact)]
    small = itertools.islice((pair for pair in trained if pair[1].size <= _ELEMENTS), _TENSORS)
    sample = {path: host for path, one in small if (host := _host(one)) is not None}
    return Tree(role, name, {path: tuple(one.shape) for path, one in trained}, sample)


def _numbers(arrays: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the numbers of an optimizer's state by path."""
    numbers = {}
    for path, one in arrays:
        if one.size == 1 and path.rpartition("/")[2] in ("learning_rate", "mini_step"):
            host = _host(one)
            if host is not None:
                numbers[path] = host.reshape(-1)[0]
    return numbers


def _host(value: Any) -> NDArray[Any] | None:
    """Return an array in host memory; None if this process has a part of it only."""
    if isinstance(value, jax.Array):
        if isinstance(value, jax.core.Tracer) or value.is_deleted():
            return None
        if not value.is_fully_addressable:
            if not value.is_fully_replicated:
                return None
            value = value.addressable_data(0)
        return np.asarray(value)
    return value if isinstance(value, np.ndarray) else None

"""Reductions of one tensor: the saved ones, else computed from the value."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import did_you_mean, shown
from smdwidgets.exceptions import SMDebugValueError, TensorUnavailableForStep, UFuncTypeError
from smdwidgets.modes import ModeKeys, as_mode
from smdwidgets.trials.run import REDUCTIONS
from smdwidgets.trials.shards import Sharded
from smdwidgets.trials.tensor_values import TensorValues

_GLOBAL = ModeKeys.GLOBAL


class TensorReductions(TensorValues):
    """A tensor with reductions."""

    __slots__ = ()

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys | str = _GLOBAL,
        worker: str | None = None,
        abs: bool = False,
    ) -> Any:
        """Return a reduction: the saved one, else computed from the value.

        ``reduction_name`` is min, max, mean, std, variance, sum, prod, l1 or l2. ``abs`` applies it to absolute values.
        Computed std and variance divide by n; norms are over all elements.
        """
        mode = as_mode(mode)
        with self._telling_deleted(step_num, mode):
            return self._reduction(step_num, reduction_name, mode, worker, abs)

    def _reduction(self, step_num: int, reduction_name: str, mode: ModeKeys, worker: str | None, abs: bool) -> Any:
        step = self._resolver.global_step(step_num, mode, worker)
        known = reduction_name in REDUCTIONS
        sharded = self._sharded(step, worker)
        if known and sharded is not None:
            return self._sharded_reduction(sharded, reduction_name, abs, step_num, mode)
        stored = self._index.stored_reduction(self.name, step, reduction_name, abs, worker) if known else None
        if stored is not None:
            return self._read(stored, step_num, mode)
        place = self._index.find(self.name, step, worker)
        if place is None:
            has_reductions = bool(self._index.stored_reductions(self.name, step, worker))
            which = f"{'abs_' if abs else ''}{reduction_name}"
            reason = f"neither the value nor its reduction {shown(which)} was saved"
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions, reason)
        if not known:
            self._head(place, step_num, mode)  # an unreadable value takes precedence as an error
            hint = did_you_mean(reduction_name, REDUCTIONS)
            choice = ", ".join(REDUCTIONS)
            raise SMDebugValueError(f"invalid reduction {shown(reduction_name)}; choose from {choice}.{hint}")
        value = self._read(place, step_num, mode)
        if value.dtype.kind not in "biufcV":
            raise UFuncTypeError(
                f"cannot compute {reduction_name} of tensor {shown(self.name)}: dtype {value.dtype.name} is not numeric"
            )
        return _core.reduction(value, reduction_name, abs)

    def _sharded_reduction(
        self, sharded: Sharded, reduction_name: str, absolute: bool, step_num: int, mode: ModeKeys
    ) -> Any:
        if self._has_values(sharded):
            return _core.reduction(self._assembled(sharded, step_num, mode), reduction_name, absolute)
        found = sharded.reduce(self._stored(sharded, step_num, mode), reduction_name, absolute)
        if found is None:
            # Raises if shards are missing.
            sharded.select(lambda worker: bool(self._index.stored_reductions(self.name, sharded.step, worker)))
            reason = f"the saved reductions of its shards cannot be combined to {reduction_name}"
            raise TensorUnavailableForStep(self.name, step_num, mode, True, reason)
        return found

    def _stored(
        self, sharded: Sharded, step_num: int, mode: ModeKeys
    ) -> dict[str, dict[tuple[str, bool], NDArray[Any]]]:
        """Return the saved reductions of each shard, by worker."""
        stored = {worker: self._index.stored_reductions(self.name, sharded.step, worker) for worker in sharded.shards}
        return {
            worker: {(op, absolute): self._read(place, step_num, mode) for op, absolute, place in places}
            for worker, places in stored.items()
        }

    def reduction_values(
        self, step_num: int, mode: ModeKeys | str = _GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], Any]:
        """Return the saved reductions at a step, by (name, abs). Computes none."""
        mode = as_mode(mode)
        with self._telling_deleted(step_num, mode):
            return self._saved_reductions(step_num, mode, worker)

    def _saved_reductions(self, step_num: int, mode: ModeKeys, worker: str | None) -> dict[tuple[str, bool], Any]:
        step = self._resolver.global_step(step_num, mode, worker)
        sharded = self._sharded(step, worker)
        if sharded is not None:
            of_shards = self._stored(sharded, step_num, mode)
            saved = dict.fromkeys(name for of in of_shards.values() for name in of)
            combined = {(op, absolute): sharded.reduce(of_shards, op, absolute) for op, absolute in saved}
            return {name: value for name, value in combined.items() if value is not None}
        stored = self._index.stored_reductions(self.name, step, worker)
        return {(name, absolute): self._read(place, step_num, mode) for name, absolute, place in stored}

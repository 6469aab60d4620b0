"""See what each operator of one step returns, as checksums and samples.

`Fingerprints` observes an execution. Two executions of it are compared by :mod:`smdwidgets.replay.operators`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path

from smdwidgets.replay.callers import UNINITIALISED, Callers, is_own_call
from smdwidgets.replay.operators import Executed, Operator, Value

__all__ = ["Fingerprints"]

#: Operators after which a tensor has memory that nothing has written yet.
_STORAGE: Final = frozenset(("set_", "resize_", "pin_memory"))
#: Elements of a tensor that are kept.
_SAMPLE: Final = 64


class Fingerprints(Callers):
    """Keeps what the operators of one step return.

    The models are those that the step calls, so that an execution may find them late.

    Args:
        step: the step.
    """

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step
        self._given: list[Operator] = []
        self._operators: list[Operator] = []
        self._called: set[int] = set()
        self._is_open = False

    def executed(self, verified: str = "") -> Executed | None:
        """Return what was seen; None if the step was not executed."""
        seen = (*self._given, *self._operators)
        return Executed(self._step, seen, verified) if seen else None

    def begin_step(self, step: int) -> None:
        """Begin with the operators of the step."""
        self._is_open = step == self._step

    def end_step(self, step: int) -> None:
        """End with them."""
        self._is_open = False
        self._forget_callers()

    def batch(self, step: int, batch: object) -> object:
        """Look at a delivered batch."""
        if self._is_open:
            with _disable_current_modes():
                self._give(
                    (f"batch{keystr(path)}", one)
                    for path, one in tree_flatten_with_path(batch)[0]
                    if isinstance(one, torch.Tensor)
                )
        return batch

    def _enter(self, module: torch.nn.Module, arguments: object) -> None:
        if self._is_open and not self._stack and id(module) not in self._called:
            self._called.add(id(module))
            self._name_parts(module)
            with _disable_current_modes():
                self._give((f"parameter {name}", one) for name, one in module.named_parameters())
                self._give((f"buffer {name}", one) for name, one in module.named_buffers())
        super()._enter(module, arguments)

    def _give(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        for name, tensor in tensors:
            self._given.append(Operator("given", name, values=(_value(name, tensor),)))

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator and look at its result."""
        if not self._is_open or is_own_call():
            return function(*args, **kwargs)
        name = function.overloadpacket.__name__
        caller = self._caller(name, args)
        result = function(*args, **kwargs)
        if name in UNINITIALISED or name in _STORAGE:
            return result
        outputs = [one for one in tree_flatten(result)[0] if isinstance(one, torch.Tensor)]
        if not outputs and name.endswith("_") and args:  # operators on lists change their first argument
            outputs = [one for one in tree_flatten(args[0])[0] if isinstance(one, torch.Tensor)]
        if getattr(function, "is_view", False):  # it returns what its input has, which may not be written yet
            outputs = []
        numbers = tuple(repr(one) for one in tree_flatten((args, kwargs))[0] if isinstance(one, float | int))
        values = tuple(_value(f"result {number}", one) for number, one in enumerate(outputs, 1))
        self._operators.append(
            Operator(caller.phase, f"aten.{name}", caller.module, caller.node, *caller[3:], numbers, values)
        )
        return result


def _value(name: str, tensor: torch.Tensor) -> Value:
    """Return the checksum and some elements of a tensor.

    >>> _value("x", torch.tensor([0.5, -2.0]))
    Value(name='x', shape=(2,), dtype='float32', checksum=3158072570, largest=2.0, sample=(0.5, -2.0))
    """
    shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
    try:
        flat = tensor.detach().contiguous().reshape(-1).cpu()
        checksum = zlib.crc32(flat.view(torch.uint8).numpy()) if flat.numel() else 0
        sizes = flat if flat.dtype is torch.bool else flat.abs()
        sample = (sizes if flat.is_complex() else flat)[:: max(1, -(-flat.numel() // _SAMPLE))]
        largest = float(sizes.max()) if flat.numel() else 0.0
    except (RuntimeError, NotImplementedError, TypeError):  # a layout or dtype without these operators
        return Value(name, shape, dtype, 0, 0.0)
    return Value(name, shape, dtype, checksum, largest, tuple(map(float, sample.tolist())))

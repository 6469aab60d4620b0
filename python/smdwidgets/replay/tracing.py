"""Trace the operators of executed steps, and where bad values come from.

A `Trace` observes an execution. It sees every operator of PyTorch below autograd: those of the forward pass, of the
backward pass and of optimizers. A value that is not finite is followed from the operator that produced it through all
operators that use it, until a finite result absorbs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import torch
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path

from smdwidgets._text import visible
from smdwidgets.replay.callers import FRAMEWORK, UNINITIALISED, Caller, Callers, is_own_call
from smdwidgets.replay.explanation import Operand
from smdwidgets.replay.places import Place, places_of_error

__all__ = ["Batch", "Birth", "Operation", "StepTrace", "Trace", "batch_size"]

#: Operators that write infinities on purpose: masks.
_MASKS: Final = frozenset(
    (
        *("masked_fill", "masked_fill_", "where", "full", "full_like", "new_full", "fill", "fill_", "scalar_tensor"),
        *("triu", "tril", "triu_", "tril_", "copy_", "lift_fresh", "index_fill", "index_fill_", "index_put_"),
        *("masked_scatter", "masked_scatter_", "constant_pad_nd"),
    )
)
#: Operators with indices, and the dimension of the first floating-point input that limits them.
_INDEXED: Final = {
    "embedding": 0,
    "index_select": 0,
    "gather": -1,
    "nll_loss_forward": -1,
    "nll_loss2d_forward": 1,
    "index": 0,
}
_MOST_ORIGINS: Final = 8


@dataclass(eq=False)
class Birth:
    """An operator that returned a value that is not finite, from finite inputs.

    Attributes:
        order: place in the execution order of the step; -1 for values that were there before.
        operator: name of the operator, or what holds a given value.
        value: ``"NaN"`` or ``"Inf"``.
        is_mask: whether the operator writes infinities on purpose.
        phase: forward, backward, optimizer, or ``"given"``.
        module: path and class of the module that called it.
        node: node of the backward pass.
        place: the innermost line outside of PyTorch.
        user: the innermost line of the user.
        operands: its inputs.
        rows: rows of the batch with bad elements.
        count: number of bad elements.
        shape: shape of the result.
        first: index of the first bad element.
        error: message of the error that it raised.
    """

    order: int
    operator: str
    value: str
    phase: str
    is_mask: bool = False
    module: str = ""
    node: str = ""
    place: Place | None = None
    user: Place | None = None
    operands: tuple[Operand, ...] = ()
    rows: tuple[int, ...] = ()
    count: int = 0
    shape: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    error: str = ""


class Operation(NamedTuple):
    """An operator that ran: its identity, largest magnitude, and caller."""

    phase: str
    name: str
    module: str
    node: str
    largest: float
    place: Place | None
    user: Place | None

    @property
    def key(self) -> tuple[Any, ...]:
        """What the same operator of another step has, too."""
        return self.phase, self.name, self.module, self.node, self.place and (self.place.file, self.place.line)


class Batch(NamedTuple):
    """A tensor of a batch: its path, and the largest magnitude of each row."""

    path: str
    largest: tuple[float, ...]


@dataclass(eq=False)
class StepTrace:
    """What was seen of one step."""

    step: int
    births: list[Birth] = field(default_factory=list)
    #: Births whose values reached the loss, a gradient or a parameter.
    reached: list[Birth] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    raised: Birth | None = None
    rows: int = 0
    #: Whether a backward pass began.
    has_loss: bool = False


class Trace(Callers):
    """Trace the operators of some steps of an execution.

    Args:
        modules: the models of the training; those of a training that starts again may be added until they are called.
        first: the first step to trace.
    """

    def __init__(self, modules: Sequence[torch.nn.Module], first: int) -> None:
        self.steps: dict[int, StepTrace] = {}
        super().__init__()
        self._modules = modules
        self._first = first
        self._parameters: set[tuple[int, ...]] = set()
        self._current: StepTrace | None = None
        #: Births by the storage that holds their values; the tensors, so that their addresses are not reused.
        self._origins: dict[int, list[Birth]] = {}
        self._held: list[torch.Tensor] = []
        self._roots: list[torch.Tensor] = []
        self._order = 0

    # ---------------------------------------------------------------------------------------------------- observer

    def begin_step(self, step: int) -> None:
        """Begin to trace a step: parameters that are not finite are given."""
        if self._current is not None:
            self.end_step(self._current.step)
        if step < self._first or step in self.steps:
            return
        self._forget()
        self._know_models()
        self._current = self.steps[step] = StepTrace(step)
        self._order = 0
        with torch.utils._python_dispatch._disable_current_modes():
            for model in self._modules:
                for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                    self._give(
                        tensor, f"parameter {name}" if tensor.requires_grad else f"buffer {name}", has_rows=False
                    )

    def _know_models(self) -> None:
        if not self._parameters:
            for model in self._modules:
                self._name_parts(model)
            self._parameters = {tuple(one.shape) for model in self._modules for one in model.parameters()}

    def _enter(self, module: torch.nn.Module, arguments: object) -> None:
        self._know_models()
        super()._enter(module, arguments)

    def batch(self, step: int, batch: object) -> object:
        """Look at a delivered batch: its size, and values that are not finite."""
        if self._current is None:
            return batch
        with torch.utils._python_dispatch._disable_current_modes():
            self._current.rows = self._current.rows or batch_size(batch)
            for path, tensor in tree_flatten_with_path(batch)[0]:
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.dim():
                    name = f"batch{keystr(path)}"
                    self._give(tensor, name)
                    largest = tensor.detach().reshape(len(tensor), -1).abs().amax(1) if tensor.numel() else tensor
                    self._current.batches.append(Batch(name, tuple(largest.float().tolist())))
        return batch

    def end_step(self, step: int) -> None:
        """End the step: which bad values reached the loss, a gradient or a parameter."""
        trace, self._current = self._current, None
        if trace is None:
            return
        with torch.utils._python_dispatch._disable_current_modes():
            parameters = [one for model in self._modules for one in model.parameters()]
            ends = [*self._roots, *(one.grad for one in parameters if one.grad is not None), *parameters]
            reached = {id(birth): birth for tensor in ends for birth in self._births_of(tensor)}
        trace.reached, trace.has_loss = list(reached.values()), bool(self._roots)
        self._forget()

    def _forget(self) -> None:
        self._origins.clear()
        self._held.clear()
        self._roots.clear()
        self._forget_callers()

    def _root(self, gradient: torch.Tensor) -> None:
        self._roots.append(gradient)

    # --------------------------------------------------------------------------------------------------- operators

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator and look at its result."""
        trace = self._current
        if trace is None or is_own_call():
            return function(*args, **kwargs)
        name = function.overloadpacket.__name__
        caller = self._caller(name, args)
        inputs = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        floats = [one for one in inputs if one.is_floating_point() or one.is_complex()]
        bad = [one for one in floats if self._births_of(one)]
        had_nan = any(bool(torch.isnan(one).any()) for one in bad)
        operands = _operands(args, floats) if name.endswith("_") and _is_small(floats) else ()
        self._order += 1
        order = self._order
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            if trace.raised is None:
                trace.raised = self._raised(error, order, name, caller, args, inputs)
            raise
        if name in UNINITIALISED:
            return result
        outputs = [one for one in tree_flatten(result)[0] if isinstance(one, torch.Tensor)]
        if not outputs and name.endswith("_") and args:  # operators on lists change their first argument
            outputs = [one for one in tree_flatten(args[0])[0] if isinstance(one, torch.Tensor)]
        try:
            largest = self._look(
                trace,
                order,
                name,
                caller,
                args,
                floats,
                bad,
                had_nan,
                operands,
                [one for one in outputs if one.is_floating_point() or one.is_complex()],
            )
        except (RuntimeError, NotImplementedError, TypeError):  # a layout or dtype without these operators
            largest = float("nan")
        trace.operations.append(Operation(caller.phase, name, caller.module, caller.node, largest, *caller[3:]))
        return result

    def _look(
        self,
        trace: StepTrace,
        order: int,
        name: str,
        caller: Caller,
        args: tuple[Any, ...],
        floats: list[torch.Tensor],
        bad: list[torch.Tensor],
        had_nan: bool,
        operands: tuple[Operand, ...],
        outputs: list[torch.Tensor],
    ) -> float:
        """Follow bad values from inputs to outputs; return the largest magnitude."""
        overall = 0.0
        for output in outputs:
            if not output.numel():
                continue
            value = output.detach()
            largest = float(value.abs().max())
            key = _storage(value)
            if largest == largest and largest != float("inf"):
                overall = max(overall, largest)
                if key in self._origins and value.numel() * value.element_size() == value.untyped_storage().nbytes():
                    del self._origins[key]
                continue
            overall = float("inf")
            is_nan = largest != largest
            # A NaN from infinities is a birth, unless the infinities are bad themselves.
            origins = [birth for one in bad for birth in self._births_of(one)]
            if not origins and not name.endswith("_"):
                origins = self._unseen(trace, name, caller, floats)
            if not origins or (is_nan and not had_nan):
                parents = [birth for birth in origins if not birth.is_mask]
                if not parents:
                    birth = self._birth(trace, order, name, caller, value, is_nan)
                    birth = replace(birth, operands=operands or _operands(args, floats, value, birth.first))
                    trace.births.append(birth)
                    parents = [birth]
                origins = parents
            births = self._origins.get(key, [])
            self._origins[key] = list({id(one): one for one in [*births, *origins]}.values())[:_MOST_ORIGINS]
            self._held.append(value)
        return overall

    def _birth(
        self, trace: StepTrace, order: int, name: str, caller: Caller, value: torch.Tensor, is_nan: bool
    ) -> Birth:
        wrong = torch.isnan(value) if is_nan else ~torch.isfinite(value)
        return Birth(
            order,
            f"aten.{name}",
            "NaN" if is_nan else "Inf",
            caller.phase,
            not is_nan and name in _MASKS,
            caller.module,
            caller.node,
            caller.place,
            caller.user,
            rows=self._rows(wrong, trace.rows),
            count=int(wrong.sum()),
            shape=tuple(value.shape),
            first=tuple(wrong.nonzero()[0].tolist()) if wrong.dim() else (),
        )

    def _unseen(self, trace: StepTrace, name: str, caller: Caller, floats: Sequence[torch.Tensor]) -> list[Birth]:
        """Return given values for inputs that no operator has made not finite."""
        listed = []
        for place, tensor in enumerate(floats, 1):
            if not bool(torch.isfinite(tensor.detach()).all()):
                self._give(tensor, f"input {place} of aten.{name}")
                births = self._births_of(tensor)
                for birth in births:
                    birth.place, birth.user, birth.module = caller.place, caller.user, caller.module
                listed += births
        return listed

    def _raised(
        self,
        error: Exception,
        order: int,
        name: str,
        caller: Caller,
        args: tuple[Any, ...],
        inputs: Sequence[torch.Tensor],
    ) -> Birth:
        birth = Birth(order, f"aten.{name}", type(error).__name__, caller.phase, error=visible(error, 400))
        birth.module, birth.node, birth.place, birth.user = caller.module, caller.node, caller.place, caller.user
        if birth.user is None:
            birth.place, birth.user = places_of_error(error, FRAMEWORK)
        floats = [one for one in inputs if one.is_floating_point()]
        indices = [one for one in inputs if not one.is_floating_point() and one.dtype is not torch.bool and one.numel()]
        if name in _INDEXED and floats and indices and floats[0].dim():
            limit, index = floats[0].shape[_INDEXED[name]], indices[-1]
            wrong = (index >= limit) | (index < (0 if name != "index" else -limit))
            if "loss" in name:
                wrong &= index != args[4] if len(args) > 4 and isinstance(args[4], int) else index != -100
            if bool(wrong.any()) and self._current is not None:
                birth.rows = self._rows(wrong, self._current.rows)
                birth.count, birth.shape = int(wrong.sum()), tuple(index.shape)
                birth.first = tuple(wrong.nonzero()[0].tolist())
                element = float(index[birth.first])
                low, high = float(index.min()), float(index.max())
                dtype = str(index.dtype).removeprefix("torch.")
                birth.operands = (
                    Operand(f"indices into {limit:,} entries", tuple(index.shape), dtype, low, high, element),
                )
        return birth

    # ------------------------------------------------------------------------------------------------------ values

    def _give(self, tensor: torch.Tensor, what: str, has_rows: bool = True) -> None:
        """Note a tensor that was not finite before any operator ran."""
        value = tensor.detach()
        if not value.is_floating_point() or not value.numel() or bool(torch.isfinite(value).all()):
            return
        assert self._current is not None
        wrong = ~torch.isfinite(value)
        birth = Birth(-1, what, "NaN" if bool(torch.isnan(value).any()) else "Inf", "given")
        birth.rows = self._rows(wrong, self._current.rows) if has_rows else ()
        birth.count, birth.shape = int(wrong.sum()), tuple(value.shape)
        birth.first = tuple(wrong.nonzero()[0].tolist()) if wrong.dim() else ()
        self._current.births.append(birth)
        self._origins.setdefault(_storage(value), []).append(birth)
        self._held.append(value)

    def _births_of(self, tensor: torch.Tensor) -> list[Birth]:
        """Return where the bad values of a tensor come from, if it has any."""
        births = self._origins.get(_storage(tensor))
        if not births or bool(torch.isfinite(tensor.detach()).all()):
            return []
        return births

    def _rows(self, wrong: torch.Tensor, rows: int) -> tuple[int, ...]:
        """Return the rows of the batch that bad elements belong to, from the shape.

        >>> trace = Trace([], 0)
        >>> wrong = torch.zeros(8, 3, dtype=torch.bool)
        >>> wrong[6, 1] = True
        >>> trace._rows(wrong, 8), trace._rows(wrong, 5), trace._rows(wrong.flatten(), 8)
        ((6,), (), (6,))
        """
        if rows < 1 or not wrong.dim() or tuple(wrong.shape) in self._parameters:
            return ()
        sizes = list(wrong.shape)
        if sizes[-2:] == [rows, rows] and (one := _crossing(wrong.reshape(-1, rows, rows).any(0))) is not None:
            return (one,)
        if rows in sizes:
            axis = sizes.index(rows)
            several = wrong.movedim(axis, 0).reshape(rows, -1).any(1)
        elif rows > 1 and sizes[0] and sizes[0] % rows == 0:  # rows and positions folded into one dimension
            several = wrong.reshape(rows, -1).any(1)
        else:
            return ()
        return tuple(several.nonzero().flatten().tolist())


def batch_size(batch: object) -> int:
    """Return the number of rows of a batch: the length of its first tensor.

    >>> batch_size({"x": torch.zeros(8, 3), "y": torch.zeros(8)})
    8
    """
    for one in tree_flatten(batch)[0]:
        if isinstance(one, torch.Tensor) and one.dim():
            return len(one)
    return 0


def _crossing(wrong: torch.Tensor) -> int | None:
    """Return the only row and column of a matrix that has all bad elements, or None.

    >>> wrong = torch.zeros(4, 4, dtype=torch.bool)
    >>> wrong[2, :3] = wrong[:3, 2] = True
    >>> _crossing(wrong)
    2
    """
    inside = wrong.sum(0) + wrong.sum(1) - wrong.diagonal().int()
    listed = (inside == wrong.sum()).nonzero().flatten().tolist()
    return int(listed[0]) if len(listed) == 1 else None


def _storage(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage().data_ptr()
    return address


def _is_small(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether operands are small enough to be described at each call."""
    return bool(sum(one.numel() for one in tensors) <= 1 << 16)


def _operands(
    args: tuple[Any, ...],
    floats: Sequence[torch.Tensor],
    result: torch.Tensor | None = None,
    first: tuple[int, ...] = (),
) -> tuple[Operand, ...]:
    """Describe inputs of an operator, and their elements at the first bad element."""
    listed = []
    for place, tensor in enumerate(floats[:4], 1):
        value = tensor.detach()
        finite = value[torch.isfinite(value)] if not value.is_complex() else value.real
        low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (float("nan"), float("nan"))
        element = None
        if result is not None and not value.is_complex():
            try:
                element = float(value.expand(result.shape)[first])
            except RuntimeError:
                element = None
        dtype = str(value.dtype).removeprefix("torch.")
        wrong = int((~torch.isfinite(value)).sum())
        listed.append(Operand(f"input {place}", tuple(value.shape), dtype, low, high, element, wrong))
    for place, number in enumerate(args[:2], 1):
        if isinstance(number, float):
            listed.append(Operand(f"input {place}", (), "number", float("nan"), float("nan"), number))
    return tuple(listed)

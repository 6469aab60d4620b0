"""Which rows of a batch stand out: the loss and the gradient norm of each row.

All rows are computed at once (``vmap`` of the gradient) where the model allows it, else one after the other. The order
is a suspicion. What is claimed is only what a row shows by itself: a loss, gradient or input that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import torch
from torch.utils._pytree import tree_flatten, tree_map

from smdwidgets.replay.norms import GradientNorms
from smdwidgets.replay.protocol import Execution, StepObserver
from smdwidgets.replay.ranking import RowRanking, RowScore
from smdwidgets.replay.tracing import batch_size

__all__ = ["RowRanking", "RowScore", "execute_rows", "rank_rows", "rank_step", "rows_of"]

#: Steps that are executed at most to rank the rows of a batch.
_MOST_EXECUTED: Final = 4096

#: A function of a batch that returns its loss. It calls the module that it is given.
LossOf = Callable[[Callable[..., Any], Any], torch.Tensor]


def rank_rows(
    module: torch.nn.Module, loss_of: LossOf, batch: Any, identities: Sequence[Any] | None = None
) -> RowRanking:
    """Rank the rows of a batch by their losses, gradients and inputs.

    The module is in evaluation mode meanwhile. Parameters, gradients, buffers and random numbers are as before.

    Args:
        module: the model.
        loss_of: returns the loss of a batch, and calls its first argument in place of the model.
        batch: a batch whose tensors have the rows as their first dimension.
        identities: identities of the rows in the data set.

    Raises:
        ValueError: the batch has no row.

    >>> model = torch.nn.Linear(2, 1)
    >>> x = torch.tensor([[1.0, 2.0], [float("nan"), 0.0], [0.5, 1.0]])
    >>> rank_rows(model, lambda call, x: call(x).square().mean(), x).claims
    ('row 1 is not finite',)
    """
    size = batch_size(batch)
    if not size:
        raise ValueError("the batch has no tensor with rows")
    note = ""
    with _unchanged(module):
        try:
            losses, norms = _at_once(module, loss_of, batch, size)
            method = "vmap"
        except Exception as error:  # any operator, hook or branch on values that vmap does not support
            reason = str(error).strip().splitlines() or [type(error).__name__]
            note = f"one row after the other, because vmap failed: {reason[0][:200]}"
            losses, norms = _one_by_one(module, loss_of, batch, size)
            method = "loop"
    return _ranked(batch, losses, norms, identities, method, note)


def execute_rows(execution: Execution, step: int, identities: Sequence[Any] | None = None) -> RowRanking:
    """Rank the rows of a step's batch by executing the step with each row alone.

    This needs no loss function, and any loop can be executed. It costs the steps from the keyframe on for each row.
    The model is in the mode of the training, so that dropout adds noise to the order. A step that fails for one row, as
    batch normalization does, gives a row without numbers.

    Args:
        execution: the steps that can be executed.
        step: the step whose batch is ranked.
        identities: identities of the rows in the data set.

    Raises:
        ValueError: the step cannot be executed, its batch has no rows, or too many steps would be executed.
    """
    if step not in execution.steps:
        raise ValueError(
            f"step {step} cannot be executed again; steps {execution.steps[0]} to {execution.steps[-1]} can"
        )
    whole = _OneRow(step, None)
    with suppress(Exception):  # the step of the incident may raise; its batch was seen
        execution.run([whole], last=step)
    size = batch_size(whole.seen)
    if not size:
        raise ValueError(f"the batch of step {step} has no tensor with rows")
    executed = size * (step - execution.steps[0] + 1)
    if executed > _MOST_EXECUTED:
        raise ValueError(
            f"{executed:,} steps would be executed for {size} rows, more than {_MOST_EXECUTED:,}; pass the loss function"
        )
    losses: list[float | None] = []
    norms: list[float | None] = []
    failed = ""
    for row in range(size):
        observer, measured = _OneRow(step, row), GradientNorms(execution.modules)
        try:
            result = execution.run([observer, measured], last=step)[-1]
            losses.append(math.fsum(result.losses) if all(map(math.isfinite, result.losses)) else math.nan)
            norms.append(measured.by_step.get(step, math.nan))
        except Exception as error:
            failed = failed or f"{type(error).__name__}: {error}"[:200]
            losses.append(None)
            norms.append(None)
    if all(one is None for one in losses):
        raise ValueError(f"no row can be executed alone ({failed}); pass the loss function")
    note = f"some rows cannot be executed alone: {failed}" if failed else ""
    chosen = [row for row in range(size) if losses[row] is not None]
    names = range(size) if identities is None else identities
    ranking = _ranked(
        rows_of(whole.seen, chosen),
        [one for one in losses if one is not None],
        [one for one in norms if one is not None],
        None if identities is None else [names[row] for row in chosen if row < len(names)],
        "execution",
        note,
    )
    return replace(ranking, rows=tuple(replace(one, row=chosen[one.row]) for one in ranking.rows))


def rank_step(execution: Execution, step: int, loss: LossOf, identities: Sequence[Any] | None = None) -> RowRanking:
    """Rank the rows of a step's batch with its weights, by a loss function.

    Args:
        execution: the steps that can be executed.
        step: the step whose batch is ranked.
        loss: returns the loss of a batch, and calls its first argument in place of the model.
        identities: identities of the rows in the data set.
    """
    observer = _Ranks(execution.modules[0], step, loss, identities)
    with suppress(_Ranked):
        execution.run([observer], last=step)
    if observer.ranking is None:
        raise ValueError(f"step {step} delivered no batch")
    return observer.ranking


class _Ranked(BaseException):
    """The batch was ranked, so that the step need not be executed."""


class _Ranks(StepObserver):
    """Ranks the rows of the first batch of a step when it is delivered."""

    def __init__(self, module: torch.nn.Module, step: int, loss: LossOf, identities: Sequence[Any] | None) -> None:
        self._module, self._step, self._loss, self._identities = module, step, loss, identities
        self.ranking: RowRanking | None = None

    def batch(self, step: int, batch: object) -> object:
        if step == self._step and self.ranking is None:
            self.ranking = rank_rows(self._module, self._loss, batch, self._identities)
            raise _Ranked
        return batch


class _OneRow(StepObserver):
    """Leaves one row in the batch of a step; all of them if it is None."""

    def __init__(self, step: int, row: int | None) -> None:
        self._step, self._row = step, row
        self.seen: Any = None

    def batch(self, step: int, batch: object) -> object:
        if step != self._step:
            return batch
        self.seen = batch
        return batch if self._row is None else rows_of(batch, [self._row])


def _ranked(
    batch: Any,
    losses: Sequence[float],
    norms: Sequence[float],
    identities: Sequence[Any] | None,
    method: str,
    note: str,
) -> RowRanking:
    size = len(losses)
    inputs = _input_norms(batch, size)
    scores = _scores(losses, norms, inputs)
    order = sorted(range(size), key=lambda row: (-scores[row], row))
    rows = tuple(
        RowScore(
            row,
            losses[row],
            norms[row],
            inputs[row],
            scores[row],
            identities[row] if identities is not None and row < len(identities) else None,
        )
        for row in order
    )
    return RowRanking(rows, method, note)


def rows_of(batch: Any, rows: Sequence[int]) -> Any:
    """Return a batch with some of its rows.

    >>> rows_of({"x": torch.arange(3), "names": ["a", "b", "c"]}, [2])
    {'x': tensor([2]), 'names': ['c']}
    """
    size = batch_size(batch)

    def chosen(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and len(value) == size:
            return value[list(rows)]
        return value

    def is_list_of_rows(value: Any) -> bool:
        return (
            isinstance(value, list) and len(value) == size and not any(isinstance(one, torch.Tensor) for one in value)
        )

    return tree_map(
        lambda value: [value[row] for row in rows] if is_list_of_rows(value) else chosen(value),
        batch,
        is_leaf=is_list_of_rows,
    )


def _at_once(module: torch.nn.Module, loss_of: LossOf, batch: Any, size: int) -> tuple[list[float], list[float]]:
    parameters = {name: one.detach() for name, one in module.named_parameters() if one.requires_grad}
    others = {name: one.detach() for name, one in module.named_parameters() if not one.requires_grad}
    buffers = dict(module.named_buffers())

    def of_row(values: dict[str, torch.Tensor], row: Any) -> tuple[torch.Tensor, torch.Tensor]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return torch.func.functional_call(module, ({**values, **others}, buffers), args, kwargs)

        loss = loss_of(call, tree_map(lambda one: one.unsqueeze(0) if isinstance(one, torch.Tensor) else one, row))
        return loss, loss.detach()

    axes = tree_map(lambda one: 0 if isinstance(one, torch.Tensor) and one.dim() and len(one) == size else None, batch)
    gradients, losses = torch.func.vmap(torch.func.grad(of_row, has_aux=True), in_dims=(None, axes), randomness="same")(
        parameters, batch
    )
    squares = [one.flatten(1).double().square().sum(1) for one in gradients.values()]
    return losses.double().tolist(), torch.stack(squares).sum(0).sqrt().tolist()


def _one_by_one(module: torch.nn.Module, loss_of: LossOf, batch: Any, size: int) -> tuple[list[float], list[float]]:
    losses, norms = [], []
    parameters = [one for one in module.parameters() if one.requires_grad]
    for row in range(size):
        loss = loss_of(module, rows_of(batch, [row]))
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        losses.append(float(loss.detach()))
        norms.append(math.sqrt(sum(float(one.double().square().sum()) for one in gradients if one is not None)))
    return losses, norms


@contextmanager
def _unchanged(module: torch.nn.Module) -> Iterator[None]:
    """Put buffers, modes and random numbers back after a block."""
    modes = [(one, one.training) for one in module.modules()]
    buffers = [(one, one.detach().clone()) for one in module.buffers()]
    state = torch.get_rng_state()
    module.eval()
    try:
        with torch.enable_grad():
            yield
    finally:
        for one, mode in modes:
            one.training = mode
        with torch.no_grad():
            for one, value in buffers:
                one.copy_(value)
        torch.set_rng_state(state)


def _input_norms(batch: Any, size: int) -> list[float]:
    norms = [
        one.detach().reshape(size, -1).double().square().sum(1)
        for one in tree_flatten(batch)[0]
        if isinstance(one, torch.Tensor) and one.is_floating_point() and one.dim() > 1 and len(one) == size
    ]
    return torch.stack(norms).sum(0).sqrt().tolist() if norms else [math.nan] * size


def _scores(losses: Sequence[float], norms: Sequence[float], inputs: Sequence[float]) -> list[float]:
    """Return the largest robust distance of each row.

    Losses and gradients count upwards, inputs in both directions.
    """
    distances = [_distances(losses), _distances(norms), [abs(one) for one in _distances(inputs)]]
    return [
        math.inf
        if not (math.isfinite(losses[row]) and math.isfinite(norms[row]))
        else max(one[row] for one in distances)
        for row in range(len(losses))
    ]


def _distances(values: Sequence[float]) -> list[float]:
    """Return the robust standard scores of the logarithms of numbers.

    >>> [round(one) for one in _distances([1.0, 1.1, 0.9, 1.0, 50.0])]
    [0, 1, -1, 0, 29]
    """
    logarithms = torch.tensor(values, dtype=torch.float64).clamp_min(1e-12).log()
    finite = logarithms[torch.isfinite(logarithms)]
    if not len(finite):
        return [0.0] * len(values)
    middle = finite.median()
    spread = 1.4826 * (finite - middle).abs().median() + 0.05
    scores: list[float] = ((logarithms - middle) / spread).nan_to_num(nan=0.0, posinf=math.inf).tolist()
    return scores

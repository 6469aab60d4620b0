"""Checks of noise that models predict: its mean, and that it differs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import REGRESSION, LossCall
from smdwidgets.checks.torch.values import is_plain

__all__ = ["NoiseChecks", "NoisyBatches", "is_normal", "moments"]

#: Rows and elements of each that are read of a batch, the fewest rows, and batches that are looked at.
_ROWS, _ELEMENTS, _FEWEST_ROWS, _LOOKS = 512, 64, 8, 64
#: Fewest targets that are judged, and bins of their histogram.
_TARGETS, _BINS = 1024, 16
#: Elements of noise of which all are the same at so many updates, and the fewest; their least correlation with the
#: input, and looks without equal ones after which none follow.
_SAME, _FEWEST, _PART, _OTHERS = 4, 64, 0.1, 3
#: Elements of normal noise that are compared with inputs, and a correlation that shows that these contain it.
_RELATED, _CONTAINED = 4096, 0.08
#: Elements after which data that look like noise are taken for noise, and standard errors of one of many moments.
_LIKE_NOISE, _OF_MANY = 32_768, 6.0
#: Fewest rows whose fourth powers are compared, which have a long tail.
_FOURTHS = 1024
#: Standard errors by which the share of the noise must rise with the time, and within which all else is chance.
_RISES, _CHANCE = 6.0, 5.0


class NoiseChecks:
    """Looks at targets that are noise which the input of the model contains.

    Normal noise must differ from update to update. Where it is equal, it is drawn from the same seed each time. The
    input contains it: otherwise, it was drawn a second time.

    Uniform noise has another mean than 0. It is recognized by later inputs, which contain more of it.

    The time is another input of the model, with one number for each row. Data that a model gives back have a share that
    does not depend on it, or that falls.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._batches = NoisyBatches(context)
        self._may_be_uniform = True
        #: The last targets with their update, updates with equal ones, and those with others.
        self._last: tuple[int, NDArray[np.float64]] | None = None
        self._equal = self._differ = 0
        self._bins: NDArray[np.int64] = np.zeros(_BINS, np.int64)
        #: The sum of the products of neighbours, and their number.
        self._products, self._pairs = 0.0, 0
        #: Of normal noise and the input: the sum of their products, and those of their squares, and the number.
        self._related: NDArray[np.float64] = np.zeros(4)
        #: Moments of the columns of the input, and whether its rows are other than normal noise.
        self._columns: _Columns | None = None
        self._is_of_data = False
        #: Of early and late rows: sums of the squares of the targets, of their products with the input, and of the
        #: squares of the input, and the number.
        self._sums: NDArray[np.float64] = np.zeros((2, 4))

    def enters(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        asks = self._may_be_uniform or self._differ < _OTHERS or 0 <= self._related[3] < _LIKE_NOISE
        self._batches.keep(tensors, looks and asks)

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        if read := self._batches.take(call):
            update = self._context.updates
            self._context.values.read(self._relate, *read[:2])
            self._context.values.read(lambda *values: self._compare(update, *values[:2]), *read)
            self._context.values.read(self._judge, *read)

    def _relate(self, noisy: Any, targets: Any) -> None:
        """Look whether an input contains the normal noise that the model is to predict."""
        if not 0 <= self._related[3] < _LIKE_NOISE or not self._context.log.runs("noise_unrelated"):
            return
        if not is_normal(targets) or not _is_white(targets) or not noisy.std() > 0:
            self._related[3] = -1  # these targets are no noise
            return
        # Random numbers in place of data and targets only show that a training runs.
        self._is_of_data |= not _is_white(noisy)
        if self._columns is None or self._columns.products.shape[0] != noisy.shape[1]:
            self._columns = _Columns(noisy.shape[1])
        self._columns.add(noisy)
        if self._last is not None and np.array_equal(self._last[1], targets):
            self._related[3] = -1
            return
        noisy = (noisy - noisy.mean()) / noisy.std()
        self._related += (targets * noisy).sum(), (targets**2).sum(), (noisy**2).sum(), targets.size
        products, squares, of_input, number = self._related
        if number < _RELATED:
            return
        if abs(products) >= _CONTAINED * math.sqrt(squares * of_input):
            self._related[3] = _LIKE_NOISE
        elif self._is_of_data or not self._columns.are_normal():
            self._context.log.say("noise_unrelated", self._context.step, {"count": f"{int(number):,}"})
            self._related[3] = _LIKE_NOISE

    def _compare(self, update: int, noisy: Any, targets: Any) -> None:
        """Compare normal noise with that of the update before."""
        last, self._last = self._last, (update, targets)
        log = self._context.log
        if not log.runs("noise_repeated") or last is None or last[0] == update or self._differ >= _OTHERS:
            return
        if last[1].shape != targets.shape or (last[1] != targets).any():
            self._equal, self._differ = 0, self._differ + 1
            return
        self._equal += 1
        if self._equal >= _SAME - 1 and is_normal(targets) and abs(np.corrcoef(noisy.flat, targets.flat)[0, 1]) > _PART:
            log.say("noise_repeated", self._context.step, {"count": targets.size, "updates": self._equal + 1})

    def _judge(self, noisy: Any, targets: Any, times: Any) -> None:
        if not self._may_be_uniform or targets.min() < 0 or targets.max() >= 1:
            self._may_be_uniform = False
            return
        times = times[:, 0]
        middle = np.median(times)
        halves = times < middle, times > middle
        if min(half.sum() for half in halves) < 2:
            return
        self._bins += np.histogram(targets, _BINS, (0, 1))[0]
        targets, noisy = targets - 0.5, noisy - noisy.mean(0)
        # Along rows if these have one element.
        neighbours = (targets[:, 1:], targets[:, :-1]) if targets.shape[1] > 1 else (targets[1:], targets[:-1])
        self._products += float((neighbours[0] * neighbours[1]).sum())
        self._pairs += neighbours[0].size
        for sums, half in zip(self._sums, halves, strict=True):
            sums += moments(targets[half], noisy[half])
        self._say()

    def _say(self) -> None:
        number = int(self._bins.sum())
        if number < _TARGETS or not _is_uniform(self._bins):
            return
        if abs(self._products) * 12 > _CHANCE * np.sqrt(self._pairs):  # neighbours of data are alike
            return
        squares, products, of_input, count = self._sums.T
        slopes = products / squares
        errors = np.sqrt(np.maximum(of_input - slopes * products, 0) / count / squares)
        if slopes[1] - slopes[0] > _RISES * np.hypot(*errors) and slopes[1] > _RISES * errors[1]:
            facts = {"count": f"{number:,}", "early": f"{slopes[0]:.2f}", "late": f"{slopes[1]:.2f}"}
            self._context.log.say("noise_not_centred", self._context.step, facts)


class _Columns:
    """Moments of columns, which show whether their values are normal noise.

    Args:
        number: how many columns there are.
    """

    def __init__(self, number: int) -> None:
        self._rows = 0
        self._sums = np.zeros((2, number))
        self.products = np.zeros((number, number))

    def add(self, rows: Any) -> None:
        """Add rows to the moments."""
        self._rows += len(rows)
        self._sums += rows.sum(0), (rows**4).sum(0)
        self.products += rows.T @ rows

    def are_normal(self) -> bool:
        """Whether all moments differ by chance from those of normal noise.

        >>> columns, draw = _Columns(2), np.random.default_rng(0)
        >>> columns.add(draw.standard_normal((900, 2)))
        >>> columns.are_normal(), columns.add(draw.uniform(-1, 1, (900, 2))), columns.are_normal()
        (True, None, False)
        """
        # Sums of x, x * y, x ** 2 and x ** 4, each with the variance of one value.
        fourths = self._sums[1] - 3 * self._rows
        among = self.products[~np.eye(len(self.products), dtype=bool)]
        squares = self.products.diagonal() - self._rows
        kinds = [(self._sums[0], 1), (among, 1), (squares, 2), *([(fourths, 96)] if self._rows >= _FOURTHS else [])]
        error = _OF_MANY * math.sqrt(self._rows)
        return all(np.abs(sums).max(initial=0) <= error * math.sqrt(variance) for sums, variance in kinds)


class NoisyBatches:
    """Finds the batches of a model that gets noise, and a time for each row.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._inputs: list[torch.Tensor] = []
        #: How many were taken.
        self.count = 0
        #: The shape of a row of the input with noise, and the places of the two inputs among those of the model.
        self.place: tuple[tuple[int, ...], int, int] | None = None

    def keep(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """Keep the inputs of a model until a loss function has targets."""
        is_looked_at = looks and self.count < _LOOKS and self._context.due and 2 <= len(tensors) <= 4
        self._inputs = tensors if is_looked_at and all(is_plain(one) for one in tensors) else []

    def take(self, call: LossCall) -> list[torch.Tensor]:
        """Return the input with noise, the targets and the times of some rows.

        Empty: the targets are no noise that the model got with a time for each row.
        """
        tensors, self._inputs = self._inputs, []
        target = call.target
        if not tensors or call.kind not in REGRESSION or target.ndim < 2 or not is_plain(target):
            return []
        rows = target.shape[0]
        noisy = [one for one in tensors if one.shape == target.shape and one.is_floating_point()]
        times = [one for one in tensors if one.numel() == rows]
        if len(noisy) != 1 or len(times) != 1 or noisy[0] is times[0] or rows < _FEWEST_ROWS:
            return []
        read = [one.detach().reshape(rows, -1)[:_ROWS, :_ELEMENTS] for one in (noisy[0], target, times[0])]
        if len({one.device for one in read}) > 1:
            return []
        self.count += 1
        at = [next(at for at, each in enumerate(tensors) if each is one[0]) for one in (noisy, times)]
        self.place = tuple(target.shape[1:]), at[0], at[1]
        return read

    def times_of(self, tensors: list[torch.Tensor]) -> torch.Tensor | None:
        """Return the times that a model gets with other rows of the same shape, or None."""
        if self.place is None or len(tensors) <= max(self.place[1:]):
            return None
        shape, at, of_times = self.place
        noisy, times = tensors[at], tensors[of_times]
        is_alike = noisy.ndim > 1 and noisy.shape[1:] == shape and times.numel() == len(noisy) > 1
        return times if is_alike and is_plain(times) else None

    def end(self) -> None:
        """Take no more of them."""
        self.count = _LOOKS


def moments(targets: Any, noisy: Any) -> tuple[Any, ...]:
    """Return sums of squares and products of targets and input, and the number."""
    return (targets**2).sum(), (targets * noisy).sum(), (noisy**2).sum(), targets.size


def is_normal(values: Any) -> bool:
    """Whether values have the mean and the deviation of normal noise, and differ."""
    error = _CHANCE / np.sqrt(max(values.size, 1))
    is_like_it = abs(values.mean()) <= error and abs(values.std() - 1) <= error
    return bool(values.size >= _FEWEST and is_like_it and len(np.unique(values)) > values.size / 2)


def _is_white(values: Any) -> bool:
    """Whether neighbours in a row, and those in a column, differ by chance."""
    pairs = (values[1:], values[:-1]), (values[:, 1:], values[:, :-1])
    return all(abs((one * other).sum()) <= _CHANCE * math.sqrt(one.size) for one, other in pairs)


def _is_uniform(bins: NDArray[np.int64]) -> bool:
    """Whether counts of equal bins differ by chance.

    >>> _is_uniform(np.array([100, 104, 97, 99])), _is_uniform(np.array([150, 50, 150, 50]))
    (True, False)
    """
    usual = bins.mean()
    degrees = len(bins) - 1
    return bool(((bins - usual) ** 2).sum() / usual < degrees + _CHANCE * np.sqrt(2 * degrees))

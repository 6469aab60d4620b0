"""Checks of inputs: targets among them, and other inputs in the evaluation."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.values import is_plain, sampled, some_rows

__all__ = ["InputChecks"]

#: Rows and columns that are compared with targets, the fewest rows, and steps at which one column equals them.
_ROWS, _COLUMNS, _FEWEST_ROWS, _STEPS = 64, 4096, 12, 4
#: How near a correlation is to 1, and that of inputs of few bits.
_SAME, _SAME_ROUNDED = 1e-8, 1e-5
#: Bytes of a number that is not rounded.
_FULL = 4
#: Elements of an input that are read, passes of a training that are known first, and of evaluations that are read.
_SAMPLED, _KNOWN, _EVALUATIONS = 512, 6, 32
#: Ratio of the sizes of inputs, of an evaluation and between passes of the training.
_OTHER, _STEADY = 6.0, 2.0
#: Ratio of their deviations, if their means differ by this share of the larger deviation, too.
_SPREAD, _MOVED = 3.0, 0.3
#: Places of inputs that are remembered, elements of each, how near to a multiple they are, how many must be, and are
#: looked at of one place, by about the same factor and offset.
_PLACES, _PLACE, _EXACT, _CHANGES, _ALIKE_CHANGE = 256, 97, 1e-4, 3, 1e-2
#: Pictures that are read, and the distance of values that lie as many places apart as there are channels, relative to
#: that of others.
_PICTURES, _SMOOTH = 16, 0.6
#: Fewest pixels of a side; correlation of a picture with its mask that shows where it belongs, and how much larger that
#: of a mirrored one is; masks that are needed and compared, and the share that is mirrored at least, and is not.
_SIDE, _IN_PLACE, _MIRRORED, _KNOWN_MASKS, _MOST_MASKS, _SOME = 8, 0.3, 0.15, 48, 512, 0.15
#: Correlation of two inputs in a row of which one was made of the other.
_ALIKE = 0.9


class InputChecks:
    """Compares inputs with targets, and with those of the evaluation.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._input: torch.Tensor | None = None
        self._column = -1
        #: Mean sizes, means and deviations of inputs of the training.
        self._sizes: deque[float] = deque(maxlen=32)
        self._moments: deque[tuple[float, float]] = deque(maxlen=32)
        self._ndim = 0
        self._evaluations = 0
        #: By their place in memory: how often inputs were looked at, and the last sample.
        self._places: dict[int, tuple[int, NDArray[np.float64] | None]] = {}
        #: The last factor and offset of an input that came again.
        self._change: tuple[float, float] | None = None
        #: Masks that show where the objects of their pictures are, and how many do so mirrored, along both axes.
        self._masks_known = 0
        self._masks_mirrored = [0, 0]
        #: Whether an evaluation is in progress, and the sample of its last input.
        self._in_evaluation = False
        self._last: NDArray[np.float64] = np.empty(0)

    def enters(self, model: nn.Module, tensors: list[torch.Tensor]) -> None:
        """A model is called with these tensors."""
        self._input = None
        first = tensors[0] if tensors else None
        if first is None or not is_plain(first) or not first.is_floating_point() or first.ndim < 2:
            return
        context = self._context
        if context.gradients and model.training and first.is_cpu:
            self._changed(first)
            self._channels(first)
        if context.gradients:
            self._input, self._in_evaluation = first, False
            if context.due and model.training:
                self._ndim = first.ndim
                context.values.read(self._trained, sampled(first, _SAMPLED))
        elif (
            not model.training
            and first.ndim == self._ndim
            and first.numel() >= _FEWEST_ROWS
            and self._evaluations < _EVALUATIONS
            and len(list(context.models())) == 1
        ):
            self._evaluations += 1
            step, is_first, self._in_evaluation = context.step, not self._in_evaluation, True
            context.values.read(lambda values: self._evaluated(values, step, is_first), sampled(first, _SAMPLED))

    def _changed(self, first: torch.Tensor) -> None:
        """Look whether a part of the data has been multiplied, or moved."""
        if self._context.loader_batches:  # a loader copies the rows of a batch
            return
        key = first.data_ptr()
        looks, before = self._places.get(key, (0, None))
        if looks > _CHANGES or (not looks and len(self._places) >= _PLACES):
            return
        now = sampled(first, _PLACE).to(torch.float64).numpy().copy()
        self._places[key] = looks + 1, now
        if before is None or before.shape != now.shape or np.array_equal(before, now) or len(np.unique(before)) < 8:
            return
        factor, offset = np.polyfit(before, now, 1)
        # The place may have been given to another batch.
        if np.abs(factor * before + offset - now).max() > _EXACT * max(now.std(), 1e-30) or not factor:
            return
        # The code that changes the data does so alike each time; an augmentation draws at random.
        usual, self._change = self._change, (float(factor), float(offset))
        if usual is not None and not np.allclose(usual, self._change, rtol=_ALIKE_CHANGE, atol=_ALIKE_CHANGE):
            self._context.log.unseen("inputs_changed")
            return
        facts = {"what": f"they are {factor:.3g} times what they were, plus {offset:.3g}"}
        self._context.log.say("inputs_changed", self._context.step, facts, need=_CHANGES)

    def _channels(self, first: torch.Tensor) -> None:
        """Look whether each row of pixels has the values of its channels side by side."""
        if first.ndim != 4 or not 2 <= first.shape[1] <= 4 or first.shape[1] >= first.shape[3] or not self._context.due:
            return
        if not first.is_contiguous() or not self._context.log.runs("channels_mixed"):
            return
        channels = first.shape[1]
        rows = first[:_PICTURES].detach().reshape(min(len(first), _PICTURES), -1).to(torch.float64).numpy()
        apart = {lag: np.abs(rows[:, lag:] - rows[:, :-lag]).mean(1) for lag in range(1, channels + 2)}
        others = np.min([each for lag, each in apart.items() if lag != channels], axis=0)
        if (apart[channels] < _SMOOTH * others).all() and others.min() > 0:
            what = f"Pictures of shape {tuple(first.shape)} have the values of their {channels} channels side by side"
            facts = {"what": what}
            self._context.log.say("channels_mixed", self._context.step, facts, need=_CHANGES)
        else:
            self._context.log.unseen("channels_mixed")

    def _trained(self, values: Any) -> None:
        size = float(np.abs(values).mean())
        if np.isfinite(size):
            self._sizes.append(size)
            self._moments.append((float(values.mean()), float(values.std())))

    def _evaluated(self, values: Any, step: int, is_first: bool) -> None:
        last, self._last = self._last, values
        if not is_first and _are_alike(last, values):
            return  # a sampler has made it of the last one, so that it says what the model does
        size = float(np.abs(values).mean())
        if len(self._sizes) < _KNOWN or not np.isfinite(size) or min(self._sizes) <= 0 or size <= 0:
            return
        usual = float(np.median(self._sizes))
        ratio = max(size / usual, usual / size)
        facts = {"value": f"a mean size of {size:.3g}", "usual": f"{usual:.3g}"}
        differ = ratio > _OTHER
        if not differ:
            differ = self._are_others(float(values.mean()), float(values.std()))
            mean, deviation = np.median(np.array(self._moments), axis=0)
            facts = {
                "value": f"a mean of {values.mean():.2g} and a deviation of {values.std():.2g}",
                "usual": f"{mean:.2g} and {deviation:.2g}",
            }
        if max(self._sizes) < _STEADY * min(self._sizes) and differ:
            self._context.log.say("eval_inputs_differ", step, facts, need=2)
        else:
            self._context.log.unseen("eval_inputs_differ")

    def _are_others(self, mean: float, deviation: float) -> bool:
        """Whether these are the moments of other inputs, as before normalization."""
        means, deviations = np.array(self._moments).T
        usual = float(np.median(deviations))
        if deviation <= 0 or deviations.min() <= 0 or deviations.max() >= _STEADY * deviations.min():
            return False
        away = abs(mean - float(np.median(means)))
        is_steady = np.ptp(means) < away / 2
        ratio = max(deviation / usual, usual / deviation)
        return bool(is_steady and ratio > _SPREAD and away > _MOVED * max(usual, deviation))

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        first, self._input = self._input, None
        target = call.target
        if first is not None and first.ndim == 4 and is_plain(target):
            self._mirrored(first, target)
        if first is None or not is_plain(target) or not target.ndim or not self._context.log.runs("target_in_input"):
            return
        rows = first.shape[0]
        columns = first.numel() // max(1, rows)
        if rows < _FEWEST_ROWS or target.numel() != rows or target.shape[0] != rows or not 1 < columns <= _COLUMNS:
            return
        step = self._context.step

        is_rounded = min(first.element_size(), target.element_size()) < _FULL and first.is_floating_point()
        near = _SAME_ROUNDED if is_rounded else _SAME

        def judge(inputs: Any, targets: Any) -> None:
            self._compare(inputs, targets, near, step)

        self._context.values.read(
            judge, some_rows(first.reshape(rows, -1), _ROWS), some_rows(target.reshape(-1), _ROWS)
        )

    def _mirrored(self, pictures: torch.Tensor, targets: torch.Tensor) -> None:
        """Compare the places of objects in pictures and in their masks, also mirrored."""
        masks = targets.squeeze(1) if targets.ndim == 4 and targets.shape[1] == 1 else targets
        size = (pictures.shape[0], *pictures.shape[2:])
        if (
            masks.shape != size
            or min(size[1:]) < _SIDE
            or masks.device != pictures.device
            or self._masks_known >= _MOST_MASKS
        ):
            return
        step = self._context.step

        def judge(pictures: Any, masks: Any) -> None:
            masks = masks if is_share else masks > 0
            alike = [_correlations(pictures, each) for each in (masks, masks[:, :, ::-1], masks[:, ::-1])]
            best = np.max(alike, axis=0)
            self._masks_known += int((best > _IN_PLACE).sum())
            for place, mirrored in enumerate(alike[1:]):
                self._masks_mirrored[place] += int(((best > _IN_PLACE) & (mirrored > alike[0] + _MIRRORED)).sum())
            total = self._masks_known
            for axis, count in zip(("horizontally", "vertically"), self._masks_mirrored, strict=True):
                if total >= _KNOWN_MASKS and _SOME < count / total < 1 - _SOME:
                    facts = {"share": f"{count / total:.0%}", "axis": axis}
                    self._context.log.say("targets_mirrored", step, facts, need=2)

        is_share = masks.is_floating_point()
        self._context.values.read(judge, pictures[:_PICTURES].detach().mean(1), masks[:_PICTURES])

    def _compare(self, inputs: Any, targets: Any, near: float, step: int) -> None:
        """Look for a column that is the target, or a multiple of it."""
        with np.errstate(all="ignore"):
            inputs, targets = inputs - inputs.mean(0), targets - targets.mean()
            lengths = np.sqrt((inputs**2).sum(0)) * np.sqrt((targets**2).sum())
            alike = np.abs(targets @ inputs) / lengths
        alike[~np.isfinite(alike)] = 0.0
        column = int(alike.argmax())
        if alike[column] < 1 - near or (self._column >= 0 and column != self._column):
            self._column = -1
            self._context.log.unseen("target_in_input")
            return
        self._column = column
        facts = {"column": column, "rows": len(targets)}
        self._context.log.say("target_in_input", step, facts, ["loss"], need=_STEPS)


def _correlations(pictures: NDArray[np.float64], masks: NDArray[Any]) -> NDArray[np.float64]:
    """Return the size of the correlation of each picture with its mask.

    >>> picture = np.arange(6.0).reshape(1, 2, 3)
    >>> _correlations(picture, picture).round(2), _correlations(picture, picture[:, ::-1, ::-1]).round(2)
    (array([1.]), array([1.]))
    """
    first, second = (each.reshape(len(each), -1).astype(np.float64) for each in (pictures, masks))
    first, second = first - first.mean(1, keepdims=True), second - second.mean(1, keepdims=True)
    sizes = np.sqrt((first**2).sum(1) * (second**2).sum(1))
    alike: NDArray[np.float64] = np.abs((first * second).sum(1)) / np.where(sizes > 0, sizes, np.inf)
    return alike


def _are_alike(before: NDArray[np.float64], values: NDArray[np.float64]) -> bool:
    """Whether the elements of two samples rise and fall together.

    >>> _are_alike(np.array([1.0, 2.0, 0.0]), np.array([10.0, 21.0, 1.0]))
    True
    """
    if before.shape != values.shape or values.size < 2:
        return False
    a, b = before - before.mean(), values - values.mean()
    with np.errstate(all="ignore"):
        return bool((a * b).sum() > _ALIKE * np.sqrt((a * a).sum() * (b * b).sum()))

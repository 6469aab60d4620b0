"""Check of weights of classes, which should not favour frequent classes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.loaders import weighted_sampler
from smdwidgets.checks.torch.values import is_plain

__all__ = ["BalanceChecks"]

#: Labels that are counted at least and at most, and ratios of frequencies and of weights that are meant.
_LEAST_LABELS, _MOST_LABELS, _UNEVEN, _MEANT = 256, 16_384, 2.0, 1.5
#: Correlation of the logarithms of weights and frequencies, of two classes or more.
_ALIKE = 0.9
#: Shares of positive labels that are rare, and that are frequent.
_RARE, _FREQUENT = 0.35, 0.65


class BalanceChecks:
    """Compares weights of a loss or sampler with how frequent the classes are.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._counts: Counter[int] = Counter()
        self._positive = self._labels = 0

    def look(self, call: LossCall) -> None:
        """A loss function has targets, and maybe weights of their classes."""
        weights, target = call.weights, call.target
        if weights is None or not is_plain(weights) or not is_plain(target) or weights.device != target.device:
            return
        if not self._context.log.runs("weights_inverted") or self._labels >= _MOST_LABELS:
            return
        if call.kind in ("cross_entropy", "nll_loss") and not target.is_floating_point() and weights.numel() > 1:
            self._context.values.read(self._classes, weights, target.reshape(-1)[:4096])
        elif call.kind == "binary_cross_entropy_with_logits" and weights.numel() == 1:
            self._context.values.read(self._binary, weights.reshape(1), target.reshape(-1)[:4096])

    def _classes(self, weights: Any, labels: Any) -> None:
        self._counts.update(labels.astype(np.int64).tolist())
        self._labels += len(labels)
        counts = np.array([self._counts.get(each, 0) for each in range(len(weights))], np.float64)
        if self._labels >= _LEAST_LABELS and favours_frequent(weights, counts):
            self._say("The loss", weights, counts)

    def _binary(self, weight: Any, labels: Any) -> None:
        if not np.isin(labels, (0, 1)).all():
            return
        self._positive += int(labels.sum())
        self._labels += len(labels)
        share = self._positive / self._labels
        is_inverted = (share < _RARE and weight[0] < 1 / _MEANT) or (share > _FREQUENT and weight[0] > _MEANT)
        if self._labels >= _LEAST_LABELS and 0 < share < 1 and is_inverted:
            self._say("The loss", np.array([1.0, weight[0]]), self._labels * np.array([1 - share, share]))

    def sampler(self, iterator: Any) -> None:
        """A data loader begins, maybe with weights of its rows."""
        sampler = weighted_sampler(iterator)
        tensors = getattr(getattr(iterator, "_dataset", None), "tensors", ())
        if sampler is None or not tensors or not is_plain(tensors[-1]):
            return
        labels, weights = tensors[-1], torch.as_tensor(sampler.weights)
        if labels.is_floating_point() or labels.ndim != 1 or len(labels) != len(weights) or not labels.is_cpu:
            return
        classes, places, counts = np.unique(labels.numpy(), return_inverse=True, return_counts=True)
        if len(labels) < _LEAST_LABELS or not 1 < len(classes) <= len(labels) / 4:
            return
        each = np.bincount(places, weights.to(torch.float64).numpy()) / counts
        if favours_frequent(each, counts.astype(np.float64)):
            self._say("The sampler", each, counts.astype(np.float64))

    def _say(self, what: str, weights: NDArray[np.float64], counts: NDArray[np.float64]) -> None:
        most, least = int(counts.argmax()), int(np.where(counts > 0, counts, np.inf).argmin())
        facts = {
            "what": what,
            "frequent": f"{counts[most] / counts.sum():.0%} of the labels a weight of {weights[most]:.3g}",
            "rare": f"{counts[least] / counts.sum():.1%} one of {weights[least]:.3g}",
        }
        self._context.log.say("weights_inverted", self._context.step, facts)


def favours_frequent(weights: NDArray[np.float64], counts: NDArray[np.float64]) -> bool:
    """Whether weights of classes grow with how frequent the classes are.

    >>> counts = np.array([90.0, 10.0])
    >>> [favours_frequent(np.array(weights), counts) for weights in ([0.9, 0.1], [0.1, 0.9], [1.0, 1.0])]
    [True, False, False]
    """
    usable = (counts > 0) & (weights > 0)
    weights, counts = weights[usable], counts[usable]
    if len(counts) < 2 or counts.max() < _UNEVEN * counts.min() or weights.max() < _MEANT * weights.min():
        return False
    return bool(np.corrcoef(np.log(weights), np.log(counts))[0, 1] > _ALIKE)

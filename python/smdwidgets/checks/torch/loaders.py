"""Checks of data loaders: batches, labels, the random state of workers."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.values import is_plain

__all__ = ["LoaderChecks"]

#: Elements of a batch in its digest; equal batches, and twins, that prove a fault; batches whose labels are looked at.
_ELEMENTS, _SAME, _TWINS, _FEWEST_LABELLED, _MOST_LABELLED, _LABELS = 97, 8, 3, 12, 40, 8
#: Batches with equal rows that prove a fault.
_EQUAL = 3


class LoaderChecks:
    """Checks the batches that data loaders give while gradients are enabled.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._last = b""
        self._same = self._twins = 0
        self._positions: WeakIdKeyDictionary = WeakIdKeyDictionary()
        #: Per batch: its first label, how many different ones it has, and whether they are in order.
        self._labels: list[tuple[int, int, bool]] = []
        #: The number of the epoch of a loader to which the last batch belongs.
        self.epoch = 0
        self._epochs: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._latest = self._looked = 0
        self._states_seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def batch(self, iterator: Any, batch: Any, states: Any) -> None:
        """A data loader has given a batch.

        Args:
            iterator: the iterator of the loader.
            batch: what it gave.
            states: digests of the random states of its workers, if it has several.
        """
        if states is not None and iterator not in self._states_seen:
            self._workers(iterator, states)
        position = self._positions.get(iterator, 0)
        self._positions[iterator] = position + 1
        self._begin(iterator, position)
        if not torch.is_grad_enabled():
            return
        tensors = [one for one in _values(batch) if isinstance(one, torch.Tensor)]
        if not tensors or not is_plain(tensors[0]) or tensors[0].device.type != "cpu" or tensors[0].numel() < 2:
            return
        self._count(iterator, tensors[0], position)
        self._equal(iterator, tensors, position)
        self._rows(tensors[0])
        if len(tensors) > 1 and is_plain(tensors[-1]) and tensors[-1].device.type == "cpu":
            self._sorted(tensors[-1], position)

    def _weights(self, iterator: Any) -> None:
        """Look whether a sampler with weights leaves rows out."""
        sampler: Any = getattr(getattr(iterator, "_index_sampler", None), "sampler", None)
        if type(sampler) is not torch.utils.data.WeightedRandomSampler:
            return
        with suppress(TypeError):  # a stream has no length
            weights, rows = len(sampler.weights), len(iterator._dataset)  # noqa: SLF001
            if 0 < weights < rows:
                self._context.log.say("few_weights", self._context.step, {"weights": weights, "rows": rows})

    def _begin(self, iterator: Any, position: int) -> None:
        """Number the epochs. Persistent workers have one iterator for all."""
        if position == 0:
            self._weights(iterator)
        if iterator not in self._epochs or getattr(iterator, "_num_yielded", position + 1) == 1:
            self._epochs[iterator] = self._latest = self._latest + 1
        self.epoch = self._epochs[iterator]

    def _count(self, iterator: Any, first: torch.Tensor, position: int) -> None:
        context, sampler = self._context, getattr(iterator, "_index_sampler", None)
        try:
            context.batches = None if sampler is None else len(sampler)
        except TypeError:
            context.batches = None
        position = getattr(iterator, "_num_yielded", position + 1) - 1
        context.loader, context.loader_batches = self.epoch, position + 1
        rows = first.shape[0] if first.ndim else None
        context.batch_rows = rows if rows is not None and rows == getattr(sampler, "batch_size", None) else None

    def _rows(self, inputs: torch.Tensor) -> None:
        """Look whether all rows of a batch are equal."""
        if self._looked >= _MOST_LABELLED or not inputs.is_floating_point() or inputs.ndim < 2 or inputs[0].numel() < 2:
            return
        if inputs.shape[0] < _LABELS:
            return
        self._looked += 1
        if bool((inputs[:_LABELS] == inputs[0]).all()) and bool(inputs[0].any()):
            self._context.log.say("equal_rows", self._context.step, {"rows": inputs.shape[0]}, need=_EQUAL)
        else:
            self._context.log.unseen("equal_rows")

    def _equal(self, iterator: Any, tensors: list[torch.Tensor], position: int) -> None:
        sample = _sample(tensors[0])
        digest = b"".join(_sample(one).tobytes() for one in tensors if is_plain(one) and one.device.type == "cpu")
        log, step = self._context.log, self._context.step
        is_same = digest == self._last
        self._last = digest
        # The position that the loader itself counts is right also for an iterator that was made before.
        position = getattr(iterator, "_num_yielded", position + 1) - 1
        has_more = _has_more(iterator)
        if is_same and position == 0 and has_more:
            self._same += 1
            if self._same >= _SAME - 1:
                why = ", the first one of a new iterator of the data loader"
                log.say("same_batch", step, {"batches": self._same + 1, "why": why})
        elif not is_same:
            self._same = 0
        if is_same and position > 0 and len(sample) > _LABELS and tensors[0].is_floating_point():
            self._twins += 1
            if self._twins >= _TWINS:
                log.say("twin_batches", step)

    def _sorted(self, labels: torch.Tensor, position: int) -> None:
        if labels.ndim != 1 or labels.is_floating_point() or labels.dtype is torch.bool or labels.numel() < _LABELS:
            return
        if len(self._labels) >= _MOST_LABELLED:
            return
        values = labels.numpy()
        self._labels.append((int(values[0]), len(np.unique(values)), bool((values[1:] >= values[:-1]).all())))
        if len(self._labels) < _FEWEST_LABELLED:
            return
        pure = np.mean([number <= 2 and ordered for _, number, ordered in self._labels])
        mean = np.mean([number for _, number, _ in self._labels])
        firsts = [first for first, _, _ in self._labels]
        changes = int(np.count_nonzero(np.diff(firsts)))
        # Labels of several classes, each in one stretch of batches.
        if pure >= 0.7 and mean < 1.5 and len(set(firsts)) >= 2 and changes <= len(set(firsts)):
            self._context.log.say("labels_sorted", self._context.step, {"batches": len(self._labels)})

    def _workers(self, iterator: Any, states: Any) -> None:
        values = list(states)
        arrays, generators = values[0::2], values[1::2]
        if not all(values):
            return  # a worker has not begun
        self._states_seen.add(iterator)
        which = [name for name, each in (("NumPy", arrays), ("random", generators)) if len(set(each)) < len(each)]
        if which:
            self._context.log.say("worker_twins", self._context.step, {"which": " and ".join(which)})


def _values(batch: Any) -> list[Any]:
    if isinstance(batch, dict):
        return list(batch.values())
    return list(batch) if isinstance(batch, list | tuple) else [batch]


def _sample(tensor: torch.Tensor) -> Any:
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // _ELEMENTS)
    part = flat[::step]
    return (part.float() if part.dtype is torch.bfloat16 else part).numpy()


def _has_more(iterator: Any) -> bool:
    """Whether the loader of an iterator is known to have several batches."""
    sampler = getattr(iterator, "_index_sampler", None)
    try:
        return sampler is not None and len(sampler) > 1
    except TypeError:
        return False

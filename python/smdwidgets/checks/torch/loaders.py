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
from smdwidgets.checks.torch.worker_states import NUMBERS

__all__ = ["LoaderChecks", "tensors_of", "weighted_sampler"]

#: Elements of a batch in its digest; equal batches, and twins, that prove a fault; batches whose labels are looked at.
_ELEMENTS, _SAME, _TWINS, _FEWEST_LABELLED, _MOST_LABELLED, _LABELS = 97, 8, 3, 12, 40, 8
#: Rows of an evaluation, and the share of them, whose classes the training has not had.
_UNTRAINED, _UNTRAINED_SHARE = 8, 0.1
#: Batches with equal rows that prove a fault.
_EQUAL = 3
#: Classes beyond which they are not counted.
_MOST_CLASSES = 10_000
#: Iterators whose workers have not ended that are remembered.
_MOST_WAITING = 4


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
        #: The classes of all batches of the training, and rows of the evaluation: all, and those of other classes.
        self._trained: set[int] = set()
        self._evaluated = self._untrained = 0
        #: The number of the epoch of a loader to which the last batch belongs.
        self.epoch = 0
        self._epochs: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._latest = self._looked = 0
        self._states_seen: weakref.WeakSet[Any] = weakref.WeakSet()
        #: What the workers of the last iterators say of the generators of their data set, when they have ended.
        self._waiting: list[Any] = []

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
        tensors = tensors_of(batch)
        self._classes(tensors)
        if not self._context.gradients:
            return
        if not tensors or not is_plain(tensors[0]) or tensors[0].device.type != "cpu" or tensors[0].numel() < 2:
            return
        self._count(iterator, tensors[0], position)
        self._equal(iterator, tensors, position)
        self._rows(tensors[0])
        if len(tensors) > 1:
            self._sorted(tensors[-1], position)

    def _weights(self, iterator: Any) -> None:
        """Look whether a sampler with weights leaves rows out."""
        sampler = weighted_sampler(iterator)
        if sampler is None:
            return
        with suppress(TypeError):  # a stream has no length
            weights, rows = len(sampler.weights), len(iterator._dataset)  # noqa: SLF001
            if 0 < weights < rows:
                self._context.log.say("few_weights", self._context.step, {"weights": weights, "rows": rows})

    def _begin(self, iterator: Any, position: int) -> None:
        """Number the epochs. Persistent workers have one iterator for all."""
        if position == 0:
            self._weights(iterator)
            self.look()
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

    def _classes(self, tensors: list[torch.Tensor]) -> None:
        """Look whether an evaluation has classes that no batch of an epoch has had."""
        context = self._context
        if len(tensors) < 2 or not _are_labels(tensors[-1]) or not context.log.runs("classes_not_trained"):
            return
        if self._context.gradients:
            if len(self._trained) <= _MOST_CLASSES:
                self._trained.update(np.unique(tensors[-1].numpy()).tolist())
            return
        is_whole = context.batches is not None and context.loader_batches >= context.batches
        if not is_whole or not context.classes or not 1 < len(self._trained) <= _MOST_CLASSES:
            return
        labels = tensors[-1].numpy()
        # A class without an output belongs to another task, such as that of finding similar rows.
        others = [int(one) for one in np.unique(labels) if 0 <= one < context.classes and int(one) not in self._trained]
        self._evaluated += len(labels)
        self._untrained += int(np.isin(labels, others).sum())
        if self._untrained >= _UNTRAINED and self._untrained >= _UNTRAINED_SHARE * self._evaluated and others:
            numbers = ", ".join(map(str, others[:5]))
            what = f"The evaluation has classes that no batch of the training has had ({numbers})"
            context.log.say("classes_not_trained", context.step, {"what": what})

    def _sorted(self, labels: torch.Tensor, position: int) -> None:
        if not _are_labels(labels) or labels.numel() < _LABELS:
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
        arrays, generators, own = values[0::NUMBERS], values[1::NUMBERS], values[2::NUMBERS]
        if not all(arrays):
            return  # a worker has not begun
        self._states_seen.add(iterator)
        which = [name for name, each in (("NumPy", arrays), ("random", generators)) if len(set(each)) < len(each)]
        if which:
            self._context.log.say("worker_twins", self._context.step, {"which": " and ".join(which)})
        # An evaluation may draw the same numbers each time.
        if self._context.gradients and all(own) and len(set(own)) < len(own):
            self._waiting = [*self._waiting[1 - _MOST_WAITING :], states]

    def look(self) -> None:
        """Look at workers that have ended.

        They may have drawn equal numbers from generators that their data set keeps.
        """
        for states in self._waiting:
            values = list(states)
            own = [one for one, is_drawn in zip(values[2::NUMBERS], values[3::NUMBERS], strict=True) if is_drawn]
            if len(set(own)) < len(own):
                which = "a generator that the data set keeps; each epoch draws the same numbers again"
                self._context.log.say("worker_twins", self._context.step, {"which": which})
        self._waiting = [one for one in self._waiting if not any(list(one)[3::NUMBERS])]


def weighted_sampler(iterator: Any) -> Any:
    """Return the sampler with weights of a loader's iterator, or None."""
    sampler: Any = getattr(getattr(iterator, "_index_sampler", None), "sampler", None)
    return sampler if type(sampler) is torch.utils.data.WeightedRandomSampler else None


def _are_labels(tensor: torch.Tensor) -> bool:
    """Whether a tensor has one class for each row, in host memory."""
    is_on_host = is_plain(tensor) and tensor.device.type == "cpu"
    return is_on_host and tensor.ndim == 1 and not tensor.is_floating_point() and tensor.dtype is not torch.bool


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """Return the tensors of a batch."""
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else (batch,)
    return [one for one in values if isinstance(one, torch.Tensor)]


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

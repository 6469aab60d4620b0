"""Keep what is needed to execute the last steps of a training again.

Batches, random states, keyframes.

Everything is copied on the training thread. A snapshot for an incident is taken by another thread.
"""

from __future__ import annotations

import collections
import itertools
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from smdwidgets._text import byte_size
from smdwidgets.replay.torch.loop import Place, places, user_frames
from smdwidgets.replay.torch.pace import EVERY, LONGEST, Pace, spacing_of
from smdwidgets.replay.torch.random_states import all_states, torch_states
from smdwidgets.replay.torch.state import State, World, array_bytes
from smdwidgets.replay.tree import mapped

__all__ = ["Delivery", "Frame", "Mode", "ReplayRecorder", "Snapshot", "StepRecord"]

Mode = Literal["full", "ids"]

#: Steps whose batches and rows are kept if no keyframe is.
_STEPS_WITHOUT = 16
#: Steps that are given up together, where batches are not kept.
_TOGETHER = 16
#: Steps after which the last ones are given up, whether they were judged or not.
_MOST_STEPS = 1024
#: Deliveries among which the inputs of a forward pass are looked for.
_RECENT = 16
#: Bytes of the random states that are kept with a batch, and of those with a forward pass.
_STATES, _STATE = 10 << 10, 5 << 10
#: Share of a batch's elements in its fingerprint.
_SAMPLE = 64


@dataclass(eq=False)
class Delivery:
    """What a data loader gave.

    Attributes:
        number: its number, in the order of all deliveries.
        kind: ``"batch"``; ``"end"``: the loader had no more.
        rows: the rows of the data set; None: they are not known.
        batch: a copy of the batch; None: it was not kept.
        rng: the random states after it.
        loader: number of the iterator.
        position: how many batches the iterator had given before.
        evaluates: whether it was for an evaluation.
    """

    number: int
    kind: str
    rows: tuple[Any, ...] | None = None
    batch: Any = None
    rng: Any = None
    loader: int = 0
    position: int = 0
    evaluates: bool = False
    nbytes: int = 0
    tensors: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    prints: frozenset[Any] | None = None

    @property
    def has_batch(self) -> bool:
        """Whether the batch was kept."""
        return self.kind == "batch" and self.rng is not None

    def forget_batch(self) -> None:
        """Keep the rows only."""
        self.batch = self.rng = None
        self.nbytes = 0


@dataclass(eq=False, slots=True)
class StepRecord:
    """What happened in a step; see `RecordedStep`.

    Attributes:
        number: its number, in the order of all steps.
        is_complete: whether the step has ended. Nothing changes afterwards.
    """

    number: int
    step: int
    first: int
    end: int = -1
    batches: list[int] = field(default_factory=list)
    losses: list[torch.Tensor] = field(default_factory=list)
    updates: list[str] = field(default_factory=list)
    digest: int | None = None
    forwards: list[Any] = field(default_factory=list)
    by_order: bool = False
    is_complete: bool = False


@dataclass(eq=False)
class Frame:
    """A keyframe: the state at the beginning of a step.

    Attributes:
        step: the step; -1 until it begins.
        state: the state.
        began: where the frames of the script were when the step began.
        ended: where they were when it ended.
        by_delivery: whether a delivery began it.
        epoch: number of the iterator that gave its first batch.
        position: how many batches that iterator had given before.
        gradients: which gradients existed at the first forward pass.
        is_pinned: whether a snapshot refers to it, so that its memory is not used again.
    """

    step: int
    state: State
    began: list[Place] = field(default_factory=list)
    ended: list[Place] = field(default_factory=list)
    by_delivery: bool = False
    epoch: int = -1
    position: int = 0
    gradients: tuple[str, ...] | None = None
    is_pinned: bool = False


@dataclass(frozen=True)
class Snapshot:
    """What is known when an incident begins.

    They are references. Of their objects only a step in progress changes.
    """

    frame: Frame | None
    later: tuple[Frame, ...]
    steps: tuple[StepRecord, ...]
    deliveries: tuple[Delivery, ...]
    why_not: str
    world: World


class ReplayRecorder:
    """Records the steps of a training.

    Args:
        models: yields the registered models.
        step: returns the global step that is in progress.
        in_step: whether a training step is in progress.
        budget: bytes of keyframes and batches.
        mode: ``"full"``, or ``"ids"``: rows only.
        workers: number of workers of the training. Those of one training keep states at the same steps, because all
            of them execute the steps again together: the interval follows from the size of a state, not from its time.
    """

    def __init__(
        self,
        models: Callable[[], Iterable[nn.Module]],
        step: Callable[[], int],
        in_step: Callable[[], bool],
        budget: int,
        mode: Mode = "full",
        workers: int = 1,
    ) -> None:
        self._models, self._step, self._in_step = models, step, in_step
        self.budget, self.mode, self.workers = budget, mode, workers
        #: Why steps cannot be executed again, if that is known.
        self.cannot = ""
        #: Keyframes that are kept at least. Another worker's incident is noticed some steps later.
        self._kept = 2 if workers == 1 else 3
        self.world = World()
        #: The last step of which it is known whether an incident begins with it; None: nobody judges.
        self.judged: int | None = None
        #: Time that recording has taken on the training thread, and the part of it that keyframes took.
        self.seconds = self._frame_seconds = 0.0
        #: Steps between the last two keyframes.
        self.every = EVERY
        self._pace: Pace | None = None
        #: Objects that the script passes to have their state kept.
        self.extra: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._deliveries: collections.OrderedDict[int, Delivery] = collections.OrderedDict()
        self._numbers = 0
        self._loaders: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._steps: collections.OrderedDict[int, StepRecord] = collections.OrderedDict()
        self._step_numbers = itertools.count()
        self._frames: list[Frame] = []
        self._spare: State | None = None
        self._batch_bytes = 0
        self._now: StepRecord | None = None
        #: The keyframe of the step that has not begun yet, and whether something came between since it was taken.
        self._pending: Frame | None = None
        self._is_stale = False
        self._start = 0
        self._delivered = False
        self._rng_end: Any = None
        self._since_frame = 0
        #: Whether steps go by of which no event is passed on, because no data loader has given a batch.
        self.is_resting = False
        #: Keyframes that were given up while a snapshot referred to them.
        self._lent: list[weakref.ref[Frame]] = []
        self._too_large = ""

    # --------------------------------------------------------------------------------------------------------- events

    def delivered(self, iterator: Any, batch: Any, rows: tuple[Any, ...] | None) -> None:
        """A data loader has given a batch, which has these rows of the data set."""
        began = time.perf_counter()
        evaluates = not torch.is_grad_enabled() or not any(one.training for one in self._models())
        one = Delivery(self._numbers, "batch", rows, evaluates=evaluates)
        one.loader = self._loaders.setdefault(iterator, len(self._loaders) + self._numbers)
        one.position = max(getattr(iterator, "_num_yielded", 1) - 1, 0)
        if not self._in_step() or self._now is None:
            self._before_step(one)
        if self.mode == "full":
            self._keep_batch(one, batch)
        self._add(one)
        if evaluates and self._now is None:
            self._start = self._numbers
        else:
            self._delivered = True
        self._end_call(began)

    def exhausted(self, iterator: Any) -> None:
        """A data loader has no more batches."""
        one = Delivery(self._numbers, "end", loader=self._loaders.get(iterator, -1))
        self._add(one)
        if self._now is None:
            self._start, self._is_stale = self._numbers, True

    def enters(self, inputs: Any, training: bool) -> None:
        """A registered model is called, and no other model around it.

        Args:
            inputs: its arguments.
            training: whether the pass belongs to a training step.
        """
        began = time.perf_counter()
        if not training:
            if self._now is None or self._now.is_complete:
                self._finish()
                self._start, self._is_stale = self._numbers, True
            return
        step = self._step()
        if self._now is None or self._now.step != step:
            self._begin(step)
        now = self._now
        assert now is not None
        if self.mode == "full":
            if not now.forwards and self._frames and self._frames[-1].step == step:
                self._frames[-1].gradients = tuple(name for name, _ in self.world.tensors() if "/g/" in name)
            if not self.cannot:
                now.forwards.append(torch_states())
                self._batch_bytes += _STATE
        self._match(now, inputs)
        self._end_call(began)

    def backward_begins(self, roots: Any) -> None:
        """``backward()`` is called."""
        if self._now is None or self.mode != "full" or self.cannot:
            return
        for root in [roots] if isinstance(roots, torch.Tensor) else roots if isinstance(roots, list | tuple) else ():
            if isinstance(root, torch.Tensor) and root.numel() == 1:
                self._now.losses.append(root.detach().clone())

    def updated(self, optimizer: Optimizer) -> None:
        """An optimizer has updated the models, or a GradScaler has skipped the update."""
        began = time.perf_counter()
        now = self._now
        if now is None or self.mode != "full":
            if now is not None and not self._in_step():
                self._finish()
            return
        if self.world.add_optimizer(optimizer):
            self._frames.clear()  # they lack its state
            self._since_frame = LONGEST
        name = self.world.optimizer_name(optimizer)
        if not name:
            return
        now.updates.append(name)
        if self._frames and self._frames[-1].step == now.step:
            self._frames[-1].ended = places(names=False)
        if not self._in_step():
            self._finish()
        self._end_call(began)

    def schedule_steps(self, schedule: Any) -> None:
        """A learning rate schedule or GradScaler is used."""
        self.world.add_schedule(schedule)

    # ---------------------------------------------------------------------------------------------------------- steps

    def rest(self) -> bool:
        """Return whether the next steps need no events, until :meth:`resume`.

        The recording keeps only the number of a step without batches.
        """
        self.is_resting = self.mode == "ids" and not self._deliveries
        return self.is_resting

    def resume(self) -> None:
        """The next events are passed on again."""
        with self._lock:
            self._add_missed()
        self.is_resting = False
        self._evict()

    def _add_missed(self) -> None:
        """Add the steps that went by. Called with the lock, by any thread."""
        if not self.is_resting:
            return
        last = self._step()
        last -= self._in_step()  # in this order: the training goes on
        judged = last if self.judged is None else self.judged
        known = next(reversed(self._steps), -1)
        for step in range(max(known + 1, judged - _STEPS_WITHOUT, last - _MOST_STEPS), last + 1):
            self._steps[step] = StepRecord(
                next(self._step_numbers), step, self._numbers, self._numbers, by_order=True, is_complete=True
            )

    def _before_step(self, one: Delivery) -> None:
        """A delivery may begin a step: take the keyframe, or take it again."""
        self._finish()
        if one.evaluates:
            self._is_stale = True
            return
        if self._pending is not None and not self._is_stale:
            return
        if self._pending is not None or self._is_due(one.position == 0):
            self._take_frame(one)
        self._is_stale = False

    def _is_due(self, begins_epoch: bool = False) -> bool:
        """Whether the next step begins with a keyframe."""
        if self._pace is None or self._since_frame >= LONGEST:
            return True
        if self.workers > 1:
            return self._since_frame >= self.every
        # A replay cannot begin in the epoch before.
        allowed = self._pace.allows(time.perf_counter(), self.seconds - self._frame_seconds, ahead=begins_epoch)
        return allowed and self._since_frame >= (1 if begins_epoch else EVERY)

    def _take_frame(self, delivery: Delivery | None) -> None:
        if self.mode != "full" or self.cannot:
            return
        began, walked = time.perf_counter(), self.world.walk_seconds
        if self._pace is None:
            self._pace = Pace(began)
        if self._pending is not None:
            self._recycle(self._pending)
            self._pending = None
        nbytes = self._copy_state(delivery)
        seconds = time.perf_counter() - began
        self._pace.took(max(seconds - (self.world.walk_seconds - walked), 0.0))
        self._frame_seconds += seconds
        self.every = spacing_of(nbytes) if self.workers > 1 else max(EVERY, self._since_frame)
        self._since_frame = 0

    def _copy_state(self, delivery: Delivery | None) -> int:
        """Take the keyframe of the next step if it fits.

        Return its size without the objects of the loop, which is the same for all workers of a training.
        """
        frames = user_frames()
        for model in self._models():
            self.world.add_model(model)
        self.world.discover(frames, self.extra)
        if any(type(one).__name__ == "DTensor" for one in self.world.parameters_and_buffers()):
            self.cannot = f"the weights are sharded over {self.workers} workers"
            return 0
        nbytes = self.world.nbytes
        if not self._has_room(nbytes):
            return nbytes
        spare, self._spare = self._spare, None
        state = self.world.take(spare)
        if not self._has_room(state.nbytes):  # the objects of the loop belong to it, too
            return nbytes
        frame = Frame(-1, state, [Place.of(one) for one in frames])
        if delivery is not None:
            frame.by_delivery, frame.epoch, frame.position = True, delivery.loader, delivery.position
        elif self._rng_end is not None:
            frame.state.light["rng"] = {**frame.state.light["rng"], "top": self._rng_end}
        self._pending = frame
        return nbytes

    def _has_room(self, nbytes: int) -> bool:
        """Whether a keyframe fits; older ones are given up for it."""
        spare = 0 if self._spare is None else self._spare.nbytes
        while self._frames and self.nbytes - spare + nbytes > self.budget:
            with self._lock:
                self._drop_frame()
            spare = 0 if self._spare is None else self._spare.nbytes
        fits = self.nbytes - spare + nbytes <= self.budget
        self._too_large = (
            ""
            if fits
            else f"no keyframe: the budget holds none (a state takes {byte_size(nbytes)} of {byte_size(self.budget)})"
        )
        if not fits:
            self._spare = None
        return fits

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        spare = 0 if self._spare is None else self._spare.nbytes
        pending = 0 if self._pending is None else self._pending.state.nbytes
        lent = sum(one.state.nbytes for ref in self._lent if (one := ref()) is not None)
        return self._batch_bytes + spare + pending + lent + sum(one.state.nbytes for one in self._frames)

    def _begin(self, step: int) -> None:
        self._finish()
        if self.mode == "full" and not self._delivered and (self._is_due() or self._pending is not None):
            self._take_frame(None)
        now = self._now = StepRecord(next(self._step_numbers), step, self._start)
        frame, self._pending = self._pending, None
        self._is_stale = False
        with self._lock:
            self._steps[step] = now
            if frame is not None:
                frame.step = step
                self._frames.append(frame)
        self._since_frame += 1

    def _finish(self) -> None:
        """End the step in progress."""
        now, self._now = self._now, None
        if now is None:
            return
        now.end = self._numbers
        if not now.batches:
            if now.first < now.end:
                with self._lock:
                    now.batches = [
                        number
                        for number in range(now.first, now.end)
                        if (one := self._deliveries.get(number)) is not None
                        and one.kind == "batch"
                        and not one.evaluates
                    ]
            now.by_order = True
        if self.mode == "full" and not self.cannot:
            now.digest = self.world.digest(now.step)
            self._rng_end = None if self._delivered else all_states()
        now.is_complete = True
        self._start, self._delivered = self._numbers, False
        if self.mode == "full" or now.number % _TOGETHER == 0:  # a step without a copy of its batch takes little memory
            self._evict()

    def _match(self, now: StepRecord, inputs: Any) -> None:
        """Find the deliveries that a forward pass received."""
        if not self._deliveries:
            return
        tensors: list[torch.Tensor] = []
        mapped(inputs, lambda one: tensors.append(one) if isinstance(one, torch.Tensor) else None)
        with self._lock:
            recent = [one for one in list(self._deliveries.values())[-_RECENT:] if one.kind == "batch"][::-1]
        if not tensors or not recent:
            return
        storages = {_storage(one) for one in tensors}
        number = next((one.number for one in recent if not storages.isdisjoint(_storages(one))), None)
        if number is None and all(one.device.type == "cpu" for one in tensors):
            prints = {_print(one) for one in tensors if one.numel() > 1}
            number = next((one.number for one in recent if not prints.isdisjoint(_prints(one))), None)
        if number is None:
            return
        if not now.batches and number < now.first:  # the loader reads ahead
            now.first = number
        if number not in now.batches:
            now.batches.append(number)

    # --------------------------------------------------------------------------------------------------------- memory

    def _keep_batch(self, one: Delivery, batch: Any) -> None:
        tensors: list[torch.Tensor] = []

        def leaf(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                tensors.append(value)
                return value.detach().clone()
            return value.copy() if isinstance(value, np.ndarray) else value

        nbytes = _STATES + array_bytes(batch)
        if not self._make_room(nbytes):
            return
        one.batch, one.rng, one.nbytes = mapped(batch, leaf), all_states(), nbytes
        one.tensors = [weakref.ref(each) for each in tensors]
        self._batch_bytes += nbytes

    def _make_room(self, nbytes: int) -> bool:
        """Whether a batch fits.

        Keyframes but the last, and older batches are given up for it.
        """
        while self.nbytes + nbytes > self.budget:
            with self._lock:
                if len(self._frames) > 1:
                    self._drop_frame()
                    self._forget_before()
                    continue
                if self._spare is not None:
                    self._spare = None
                    continue
                oldest = next((one for one in self._deliveries.values() if one.nbytes), None)
                if oldest is None:
                    return False
                self._batch_bytes -= oldest.nbytes
                oldest.forget_batch()
                if self._frames and oldest.number >= self._first_of(self._frames[0]):
                    self._drop_frame()
        return True

    def _first_of(self, frame: Frame) -> int:
        step = self._steps.get(frame.step)
        return self._start if step is None else step.first

    def _drop_frame(self) -> None:
        self._recycle(self._frames.pop(0))

    def _recycle(self, frame: Frame) -> None:
        if not frame.is_pinned:
            self._spare = frame.state
        else:
            self._lent = [ref for ref in self._lent if ref() is not None] + [weakref.ref(frame)]

    def _add(self, one: Delivery) -> None:
        with self._lock:
            self._deliveries[one.number] = one
        self._numbers += 1

    def _evict(self) -> None:
        """Give up keyframes that no incident needs, and what lies before the oldest."""
        judged = self.judged
        with self._lock:
            last = next(reversed(self._steps), 0)
            if judged is None or last - judged > _MOST_STEPS:
                judged = last
            while len(self._frames) > self._kept and self._frames[self._kept].step <= judged + 1:
                self._drop_frame()
            self._forget_before()

    def _forget_before(self) -> None:
        if self._frames:
            first_step = self._frames[0].step
        else:
            judged = next(reversed(self._steps), 0) if self.judged is None else self.judged
            first_step = judged - _STEPS_WITHOUT
        while self._steps and (oldest := next(iter(self._steps))) < first_step:
            self._batch_bytes -= _STATE * len(self._steps.pop(oldest).forwards)
        first = next(iter(self._steps.values())).first if self._steps else self._start
        while self._deliveries and (number := next(iter(self._deliveries))) < min(first, self._numbers - 2):
            self._batch_bytes -= self._deliveries.pop(number).nbytes

    def _end_call(self, began: float) -> None:
        self.seconds += time.perf_counter() - began

    # ------------------------------------------------------------------------------------------------------ incidents

    def snapshot(self, step: int, after: int = -1) -> Snapshot:
        """Return what is known around a step.

        ``after``: only deliveries from this number on.

        May be called by another thread.
        """
        with self._lock:
            self._add_missed()
            frames = [one for one in self._frames if one.step <= step]
            # Where loaders give the batches, a pass without one is in the middle of an iteration: nothing begins there.
            frames = [one for one in frames if one.by_delivery] or frames
            if self.workers > 1:
                frame = next((one for one in frames[::-1] if one.step <= step - EVERY // 2), next(iter(frames), None))
            else:
                epoch = frames[-1].epoch if frames else -1
                frame = next((one for one in frames if one.epoch == epoch or not one.by_delivery), None)
            if frame is not None:
                frame.is_pinned = True
            later = tuple(one for one in self._frames if frame is not None and one.step > frame.step)
            for one in later:
                one.is_pinned = True
            first = frame.step if frame is not None else step - _STEPS_WITHOUT
            steps = tuple(one for one in self._steps.values() if one.step >= first)
            numbers = min((one.first for one in steps), default=0)
            deliveries = tuple(one for one in self._deliveries.values() if one.number >= max(numbers, after))
        why_not = self.cannot or self._too_large
        if not why_not and self.mode == "ids":
            why_not = "only the rows of batches were recorded; pass replay=True to the hook"
        if not why_not and frame is None:
            why_not = "no keyframe: the training had not begun, or its optimizers were new"
        return Snapshot(frame, later, steps, deliveries, why_not, self.world)

    def close(self) -> None:
        """Give up everything."""
        with self._lock:
            self._frames.clear()
            self._deliveries.clear()
            self._steps.clear()
            self._spare = self._pending = self._now = None
            self._batch_bytes = 0


def _storage(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # no storage, such as that of a sparse tensor
        return -1


def _storages(one: Delivery) -> Iterator[int]:
    for ref in one.tensors:
        if (tensor := ref()) is not None and tensor.numel() and (pointer := _storage(tensor)) > 0:
            yield pointer


def _print(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the shape and a checksum of a sample of a tensor's elements."""
    flat = tensor.detach().reshape(-1)
    if flat.numel() > _SAMPLE:
        flat = flat[:: flat.numel() // _SAMPLE][:_SAMPLE]
    try:
        return tuple(tensor.shape), zlib.crc32(flat.contiguous().view(torch.uint8).numpy())
    except (RuntimeError, TypeError):
        return tuple(tensor.shape), None


def _prints(one: Delivery) -> frozenset[Any]:
    if one.prints is None:
        prints: set[Any] = set()
        mapped(
            one.batch,
            lambda leaf: (
                prints.add(_print(leaf))
                if isinstance(leaf, torch.Tensor) and leaf.numel() > 1 and leaf.device.type == "cpu"
                else None
            ),
        )
        one.prints = frozenset(prints)
    return one.prints

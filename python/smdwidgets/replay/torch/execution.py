"""Execute recorded steps again, in the process that trained.

The state of the keyframe is loaded into the live objects, the loop of the script is executed with recorded batches and
random states, and the live state is put back, whatever happens.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from smdwidgets._suspend import hooks_suspended
from smdwidgets.exceptions import CannotReplay
from smdwidgets.replay.files import RecordedStep, Recording
from smdwidgets.replay.protocol import StepObserver, StepResult
from smdwidgets.replay.torch.loop import Loop
from smdwidgets.replay.torch.random_states import set_states
from smdwidgets.replay.torch.state import Keep, World, checksum
from smdwidgets.replay.torch.taps import muted, tapped
from smdwidgets.replay.torch.writing import NUMPY, Reference
from smdwidgets.replay.tree import Lost, decode, mapped

__all__ = ["Keyframe", "LiveExecution", "ReplayFinished", "Replayed", "is_training_pass"]

_DTYPES = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
#: Batches that a generator is given after the last step at most.
_MOST_LATE = 16


class ReplayFinished(BaseException):
    """The last step has been executed. No script catches it by accident."""


class Keyframe:
    """The state of a recording, as tensors.

    Args:
        recording: the recording.
    """

    def __init__(self, recording: Recording) -> None:
        if recording.why_not or recording.keyframe is None:
            raise CannotReplay(recording.why_not or "no keyframe was recorded")
        self.recording = recording
        about = recording.light
        if not isinstance(about, dict):
            raise CannotReplay("the recording has no state")
        self.light: dict[str, Any] = self.value(about.get("state"))
        self.gradients: list[str] | None = about.get("gradients")
        self.by_delivery = bool(about.get("by_delivery"))
        self.position = int(about.get("position") or 0)
        self.tensors = {
            name: self.tensor(name)
            for name in recording.names
            if name.partition("/")[0] not in ("batch", "rng", "light") and "forward/" not in name
        }

    def tensor(self, name: str) -> Any:
        """Return a tensor of the recording, or an array that was one."""
        dtype, array = self.recording.stored(name)
        if name.endswith(NUMPY):
            return array
        tensor = torch.from_numpy(array)
        return tensor.view(_DTYPES[dtype]) if dtype in _DTYPES else tensor

    def value(self, content: Any) -> Any:
        """Return nested values of the recording."""
        try:
            return decode(content, self.tensor)
        except ValueError as error:
            raise CannotReplay(f"the recording is damaged: {error}") from None


def is_training_pass(module: nn.Module, trains_in_eval: bool) -> bool:
    """Whether the call of a model belongs to a training step."""
    return bool(
        torch.is_grad_enabled()
        and (module.training or trains_in_eval)
        and torch._C._current_graph_task_id() == -1
        and not torch.jit.is_tracing()
    )


class Replayed:
    """Follows the executed steps: gives batches, sets random states, compares.

    Args:
        keyframe: the state and the recording.
        world: the live objects; None until the model is known.
        observers: what sees the steps.
        last: the last step.
        batches: batches with the classes that the loaders gave, by number; else those of the recording are used.
    """

    def __init__(
        self,
        keyframe: Keyframe,
        world: World | None,
        observers: Sequence[StepObserver],
        last: int,
        batches: Mapping[int, Any] | None = None,
    ) -> None:
        self._keyframe, self._observers = keyframe, observers
        self.world = world
        recording = keyframe.recording
        self._steps = [
            one
            for one in recording.recorded
            if recording.keyframe is not None and recording.keyframe <= one.step <= last
        ]
        self._deliveries = recording.deliveries
        self._next = self._steps[0].first if self._steps else 0
        self._batches = batches or {}
        self._index = 0
        self._is_open = False
        self._depth = 0
        self._forwards = 0
        self._losses: list[float] = []
        self._detail = ""
        self._compared = False
        #: Returns the last batch, and how often it was given after the last step.
        self._last_batch: Callable[[], Any] | None = None
        self._late = 0
        #: Number of updates so far.
        self.updates = 0
        self._updates_in_step = 0
        self.results: list[StepResult] = []
        modules = keyframe.light.get("modules", {})
        self.trains_in_eval = bool(modules) and not any(part[0] for parts in modules.values() for part in parts[:1])

    @property
    def is_done(self) -> bool:
        """Whether all steps have been executed."""
        return self._index >= len(self._steps)

    @property
    def gives(self) -> bool:
        """Whether data loaders give recorded batches now."""
        return True

    @property
    def observers(self) -> Sequence[StepObserver]:
        """What sees the steps."""
        return self._observers

    @property
    def _now(self) -> RecordedStep:
        return self._steps[self._index]

    # --------------------------------------------------------------------------------------------------------- events

    def deliver(self) -> Any:
        """Return the next batch."""
        if self._is_open and not self._now.updates and self._next >= self._now.end:
            self._end()
        if self.is_done:
            if self._last_batch is None or self._late >= _MOST_LATE or not _in_generator():
                raise ReplayFinished
            self._late += 1
            return self._last_batch()
        if self._next >= len(self._deliveries):
            raise StopIteration  # a loader that reads ahead still gives its last batch
        number, one = self._next, self._deliveries[self._next]
        self._next += 1
        if one.kind == "end":
            raise StopIteration
        if one.rng is None:
            raise CannotReplay(f"a batch at step {self._now.step} was not kept: the memory or the disk held no more")
        self._last_batch = functools.partial(self._batch, number)
        batch = self._last_batch()
        if not self._is_open and number >= self._now.first:
            self._begin()
        if self._is_open:
            for observer in self._observers:
                batch = observer.batch(self._now.step, batch)
        set_states(self._keyframe.value(one.rng))
        return batch

    def _batch(self, number: int) -> Any:
        if number in self._batches:
            return mapped(self._batches[number], self._filled)
        batch = self._keyframe.value(self._deliveries[number].batch)
        lost: list[str] = []

        def look(value: Any) -> None:
            if isinstance(value, Lost):
                lost.append(value.type)
            elif isinstance(value, dict | list | tuple):
                for one in value.values() if isinstance(value, dict) else value:
                    look(one)

        look(batch)
        if lost:
            raise CannotReplay(f"a batch has a value of the type {lost[0]}, which a recording cannot hold")
        return batch

    def _filled(self, leaf: Any) -> Any:
        return self._keyframe.tensor(leaf.name) if isinstance(leaf, Reference) else leaf

    def enters(self, module: nn.Module) -> None:
        """A model is called."""
        self._depth += 1
        if self._depth > 1 or not is_training_pass(module, self.trains_in_eval):
            return
        if self._is_open and not self._now.updates and self._forwards >= len(self._now.forwards):
            self._end()
        if self.is_done:
            self._depth = 0
            raise ReplayFinished
        if not self._is_open:
            self._begin()
        if self._forwards < len(self._now.forwards):
            set_states(self._keyframe.value(self._now.forwards[self._forwards]))
        self._forwards += 1

    def leaves(self) -> None:
        """A model has returned, or raised."""
        self._depth = max(0, self._depth - 1)

    def backward_begins(self, roots: Any) -> None:
        """``backward()`` is called."""
        if not self._is_open:
            return
        for root in [roots] if isinstance(roots, torch.Tensor) else roots if isinstance(roots, list | tuple) else ():
            if isinstance(root, torch.Tensor) and root.numel() == 1:
                self._losses.append(float(root.detach()))

    def updated(self, optimizer: Any) -> None:
        """An optimizer has updated the model."""
        self.updates += 1
        if not self._is_open or self.world is None or not self.world.optimizer_name(optimizer):
            return
        self._updates_in_step += 1
        if self._updates_in_step >= len(self._now.updates) > 0:
            self._end()

    # ---------------------------------------------------------------------------------------------------------- steps

    def _begin(self) -> None:
        step = self._now.step
        self._is_open, self._forwards, self._updates_in_step = True, 0, 0
        self._losses, self._detail, self._compared = [], "", False
        recorded = self._keyframe.recording.checks.get(step)
        if recorded is not None and self.world is not None:
            crc = checksum(
                one for name, one in self.world.tensors() if name[0] == "m" and name.split("/", 2)[1] in ("p", "b")
            )
            self._compare(crc, recorded, "the weights before the step differ")
        for observer in self._observers:
            observer.begin_step(step)

    def _end(self) -> None:
        now = self._now
        recorded = list(now.losses)
        self._compare(
            [_bits(one) for one in self._losses] if recorded else None,
            [_bits(one) for one in recorded],
            f"the loss is {_shown(self._losses)}, and it was {_shown(recorded)}",
        )
        if now.digest is not None and self.world is not None:
            self._compare(self.world.digest(now.step), now.digest, "the weights after the step differ")
        self.results.append(
            StepResult(now.step, tuple(self._losses), not self._detail if self._compared else None, self._detail)
        )
        for observer in self._observers:
            observer.end_step(now.step)
        self._is_open = False
        self._index += 1

    def _compare(self, new: Any, recorded: Any, detail: str) -> None:
        if new is None or recorded is None:
            return
        self._compared = True
        if new != recorded and not self._detail:
            self._detail = detail

    @contextmanager
    def following(self, modules: Sequence[nn.Module]) -> Iterator[None]:
        """Follow calls of models, loaders, backward passes and updates."""
        with contextlib.ExitStack() as stack:
            for observer in self._observers:
                stack.enter_context(observer.context())
            stack.enter_context(tapped(self))
            for module in modules:
                before = module.register_forward_pre_hook(lambda one, args: self.enters(one), prepend=True)
                after = module.register_forward_hook(lambda one, args, out: self.leaves(), always_call=True)
                stack.callback(before.remove)
                stack.callback(after.remove)
            yield


def _in_generator() -> bool:
    """Whether a generator asks for a batch, which an exception would end for good.

    The next forward pass ends the replay instead.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "__replay__":
        if frame.f_code.co_flags & inspect.CO_GENERATOR:
            return True
        frame = frame.f_back
    return False


def _bits(value: float) -> float | str:
    return "nan" if math.isnan(value) else value


def _shown(losses: Sequence[float]) -> str:
    return ", ".join(f"{one:.9g}" for one in losses[:4]) or "none"


class LiveExecution:
    """The steps of an incident in the process that trained; see `Execution`.

    Args:
        recording: what was recorded.
        world: the live objects.
        objects: the objects of the loop at the keyframe.
        loop: the loop of the script; or a function that executes a step with a batch; or why neither is known.
        batches: batches with the classes that the loaders gave, and references in place of tensors, by number.
    """

    def __init__(
        self,
        recording: Recording,
        world: World,
        objects: Mapping[str, Keep],
        loop: Loop | Callable[[Any], object] | str,
        batches: Mapping[int, Any] | None = None,
    ) -> None:
        if isinstance(loop, str):
            raise CannotReplay(f"{loop}. Pass a function that executes a step: hook.replayable(step)")
        self._keyframe = Keyframe(recording)
        self._world, self._objects = world, dict(objects)
        self._loop: Loop | Callable[[Any], object] = loop
        self._batches = batches or {}
        self._start: str | None = None
        self.steps: range = recording.steps
        if not world.registered:
            raise CannotReplay("the model does not exist any more")

    @property
    def modules(self) -> list[nn.Module]:
        """The models of the training."""
        return list(self._world.modules.values())

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers that update them."""
        return list(self._world.optimizers.values())

    def run(self, observers: Sequence[StepObserver] = (), *, last: int | None = None) -> list[StepResult]:
        """Execute the steps; see `Execution.run`.

        An exception of a step is raised, after the live state was put back.

        Raises:
            CannotReplay: a step cannot be executed.
        """
        last = self.steps[-1] if last is None else last
        if last not in self.steps:
            raise CannotReplay(f"step {last} is none of steps {self.steps[0]} to {self.steps[-1]}")
        if self._start is None:
            self._start = self._best_start(self.steps[0])
        return self._run(self._start, observers, last)

    def _best_start(self, first: int) -> str:
        """Return how the loop is entered such that the first step is what was recorded."""
        if not isinstance(self._loop, Loop):
            return "top"
        starts = self._loop.starts(self._keyframe.by_delivery)
        for start in starts[:-1]:
            with contextlib.suppress(Exception):
                results = self._run(start, (), first)
                if results and results[0].equal:
                    return start
        return starts[-1]

    def _run(self, start: str, observers: Sequence[StepObserver], last: int) -> list[StepResult]:
        world, keyframe = self._world, self._keyframe
        replayed = Replayed(keyframe, world, observers, last, self._batches)
        threads = torch.get_num_threads()
        objects, world.objects = world.objects, self._objects
        live = world.take()
        grad = torch.is_grad_enabled()
        try:
            with hooks_suspended(), muted(), contextlib.ExitStack() as stack:
                rebound = world.rebound(keyframe.light)
                call: Callable[[], object]
                if isinstance(self._loop, Loop):
                    call = stack.enter_context(self._loop.running(start, keyframe.position, rebound))
                else:
                    call = self._called_with_batches(self._loop, replayed)
                recorded_threads = keyframe.recording.about.get("threads")
                if type(recorded_threads) is int and 0 < recorded_threads <= 1024:
                    torch.set_num_threads(recorded_threads)
                world.load(keyframe.tensors, keyframe.light)
                if start == "top" and (top := keyframe.light["rng"].get("top")):
                    set_states(top)
                torch.set_grad_enabled(True)
                with replayed.following(world.registered), contextlib.suppress(ReplayFinished):
                    call()
        finally:
            torch.set_grad_enabled(grad)
            torch.set_num_threads(threads)
            world.load(live.tensors, live.light)
            world.objects = objects
        if not replayed.results:
            raise CannotReplay(f"the loop ended before step {self.steps[0]} did; pass the step: hook.replayable(step)")
        return replayed.results

    @staticmethod
    def _called_with_batches(step: Callable[[Any], object], replayed: Replayed) -> Callable[[], object]:
        def call() -> None:
            with contextlib.suppress(StopIteration):
                while True:
                    step(replayed.deliver())

        return call

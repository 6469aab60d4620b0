"""The signals of one training of PyTorch: when they are read, and what is written.

A mechanism that fails is switched off, and the run says why. Nothing is raised into the training.
"""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer

from smdwidgets.checks.torch.values import Values
from smdwidgets.signals.file import SignalWriter
from smdwidgets.signals.noise import NOISE_KIND
from smdwidgets.signals.torch import attention, routing
from smdwidgets.signals.torch.blocks import Blocks, log_z
from smdwidgets.signals.torch.fused import FUSED, of_attention, read_fused
from smdwidgets.signals.torch.micro_batches import MicroBatches, examples_of
from smdwidgets.signals.torch.optimizers import Measured, OptimizerHealth
from smdwidgets.signals.torch.replaced import Replaced

__all__ = ["TorchSignals"]

#: Updates between two saves, and at the start and after attention logits have become large. Routers are read at each of
#: the first updates.
_EVERY, _CLOSER, _LARGEST_INTERVAL, _ROUTER_FIRST = 8, 2, 1 << 14, 1024
#: Attention logits that are large.
_LARGE = 20.0
#: Share of the time that reading may take, and the seconds of reading or the updates that end the start, when more is
#: read.
_SHARE, _START_SECONDS, _START_UPDATES = 0.005, 1.0, 256
#: Bytes after which the interval of all saves doubles, and doubles again.
_BYTES = 16 << 20
#: Passes that were read, after which a kind that is missing is named.
_PASSES = 4
_MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "attention": ("attention_max", "attention_entropy"),
    "routing": ("router_load",),
    "blocks": ("residual_rms", "residual_kurtosis", "log_z"),
    "optimizer": ("update_ratio", "stale", "sigma_max"),
    "noise": (NOISE_KIND,),
}

Key = tuple[str, str]


class TorchSignals:
    """Records the signals of a training.

    Args:
        writer: writes the signals of the run.
        step: returns the global step.
        name_of: returns the name of a module.
        parameters: returns all parameters with their names.
        ranks: returns the number of processes that average gradients.
        is_compiled: whether torch.compile has made a graph of a model.
        is_passive: whether a module is called for another reason than a pass.
        seconds: returns the processor time of this thread.
    """

    def __init__(
        self,
        writer: SignalWriter,
        step: Callable[[], int],
        name_of: Callable[[nn.Module], str],
        parameters: Callable[[], Iterable[tuple[str, nn.Parameter]]],
        ranks: Callable[[], int],
        is_compiled: Callable[[nn.Module], bool],
        is_passive: Callable[[], bool],
        seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self._writer = writer
        self._step, self._name_of, self._parameters = step, name_of, parameters
        self._is_compiled, self._is_passive, self._seconds = is_compiled, is_passive, seconds
        self._values = Values(lambda error: self._fail("optimizer", error))
        self._replaced = Replaced()
        #: Which rows and queries are read. A separate generator leaves those of the training as they are.
        self._chance = random.Random(0)
        self._fused = {name: partial(self._sees_fused, name) for name in FUSED}
        #: A fused function that was called.
        self._kernel = ""
        self._thread = get_ident()
        self._updates = 0
        self._every, self._closer_until = _EVERY, 0
        self._adapted_at = -1
        #: Seconds that reading took at the start, then since the last time the interval was adapted, and when that was.
        self._spent, self._began = 0.0, time.perf_counter()
        self._is_start = True
        self._off: set[str] = set()
        self._health: dict[int, OptimizerHealth] = {}
        #: That of the optimizer whose next updates are counted later.
        self._unread_health = OptimizerHealth()
        self._names: Mapping[int, str] = {}
        #: The models that are being called, and the modules of the pass that is read, the innermost last.
        self._calls: list[nn.Module] = []
        self._inside: list[nn.Module] = []
        self._handles: list[Any] = []
        self._busy = False
        #: The model that was read last, which may have been deleted since, and its blocks.
        self._blocks: tuple[weakref.ref[nn.Module], Blocks] | None = None
        #: The numbers of the updates whose pass was read, and read whole, and whether one was made since the last pass.
        self._read_at = self._whole_at = -_LARGEST_INTERVAL
        self._stepped = False
        self._passes = 0
        self._is_whole = False
        self._routes = False
        self._seen: set[str] = set()
        #: What the pass has given so far: kind and layer, and values on their device.
        self._found: dict[Key, torch.Tensor] = {}
        self._shapes: dict[Key, tuple[int, int, int]] = {}
        self._batches = MicroBatches(ranks, self._run_in_backward)
        self._noise_at, self._noisy_updates = -_LARGEST_INTERVAL, 0

    # ------------------------------------------------------------------------------------------------------ intervals

    @property
    def _interval(self) -> int:
        every, size = self._every, self._writer.size
        if size >= _BYTES:
            every <<= min((size // _BYTES + 1).bit_length() - 1, 10)
        return _CLOSER if every == _EVERY and (self._is_start or self._updates < self._closer_until) else every

    def _spend(self, begin: float) -> None:
        """Count the time since ``begin``."""
        self._spent += self._seconds() - begin

    def _adapt(self) -> None:
        """Adapt the interval to what reading took since the last time.

        Called when an update is about to be read.
        """
        if self._adapted_at == self._updates:
            return
        self._adapted_at = self._updates
        if self._is_start and self._spent < _START_SECONDS and self._updates < _START_UPDATES:
            return
        now = time.perf_counter()
        spent, passed = self._spent, now - self._began
        self._spent, self._began = 0.0, now
        if self._is_start:
            self._is_start = False
        elif spent > _SHARE * passed:
            self._every = min(self._every * 2, _LARGEST_INTERVAL)
        elif self._every > _EVERY and spent < _SHARE * passed / 4:
            self._every //= 2

    def _fail(self, mechanism: str, error: Exception) -> None:
        self._off.add(mechanism)
        for kind in _MECHANISMS[mechanism]:
            self._writer.off(kind, f"reading it failed: {type(error).__name__}: {error}")

    def _is_elsewhere(self) -> bool:
        """Return whether this is another thread, or torch.compile traces the call.

        A traced call cannot ask for its thread. What the hook calls is not traced.
        """
        return torch.compiler.is_compiling() or get_ident() != self._thread

    # --------------------------------------------------------------------------------------------------------- passes

    def enters(self, model: nn.Module, inputs: Iterable[Any]) -> None:
        """A registered model is called, for a pass."""
        if get_ident() != self._thread:
            return
        if not self._calls and torch.is_grad_enabled():
            self._batches.called(examples_of(inputs))
        self._calls.append(model)
        if len(self._calls) > 1:
            return
        if self._handles:
            self._end_reading()
        self._updates += self._stepped
        self._stepped = False
        whole = self._updates - self._whole_at >= self._interval
        routes = self._routes and self._updates < _ROUTER_FIRST and self._every == _EVERY
        if not (whole or routes) or self._read_at == self._updates or not (model.training and torch.is_grad_enabled()):
            return
        self._adapt()
        if self._is_compiled(model):
            self._read_at = self._whole_at = self._updates  # to look again after as many updates
            for mechanism in ("attention", "routing", "blocks"):
                for kind in _MECHANISMS[mechanism]:
                    self._writer.off(kind, "torch.compile has made the graph of the model")
            return
        begin = self._seconds()
        self._read_at, self._is_whole = self._updates, whole
        self._whole_at = self._updates if whole else self._whole_at
        if whole and "blocks" not in self._off and (self._blocks is None or self._blocks[0]() is not model):
            self._blocks = weakref.ref(model), Blocks(model)
        self._found.clear()
        self._inside = [model]
        self._handles = [
            register_module_forward_pre_hook(self._module_begins),
            register_module_forward_hook(self._module_ends, always_call=True),
        ]
        self._replaced.begin(self._sees_attention, self._sees_softmax, self._sees_topk, self._fused, model.modules())
        self._spend(begin)

    def leaves(self, model: nn.Module, output: Any) -> None:
        """A registered model has returned, or raised."""
        if not self._calls or get_ident() != self._thread or self._calls[-1] is not model:
            return
        self._calls.pop()
        if self._calls or not self._handles:
            return
        self._end_reading()
        begin = self._seconds()
        if self._is_whole:
            self._run("blocks", self._read_output, model, output)
            self._passes += 1
            if self._passes == _PASSES:
                self._name_missing(model)
        values, self._found = self._found, {}
        self._send(values)
        self._spend(begin)

    def _end_reading(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._replaced.end()
        self._inside = []

    def _name_missing(self, model: nn.Module) -> None:
        """Say what a model should have given and did not."""
        has_attention = any(attention.is_attention(one) for one in model.modules())
        if "attention_max" not in self._seen and has_attention:
            kernel = self._kernel or attention.fused_kernel(model)
            reason = (
                f"the model attends by {kernel}, whose arguments show no logits; train some steps with "
                "scaled_dot_product_attention, or give the logits with hook.save_signal"
                if kernel
                else "the model has attention, but calls neither scaled_dot_product_attention nor softmax on scores of "
                "four axes while it is trained"
            )
            for kind in _MECHANISMS["attention"]:
                self._writer.off(kind, reason)
        if "router_load" not in self._seen and routing.looks_like_experts(model):
            self._writer.off(
                "router_load",
                "the model has experts, but no topk over as many scores as its router has outputs was seen",
            )

    # ------------------------------------------------------------------------------------------------ inside of a pass

    def _module_begins(self, module: nn.Module, inputs: Any) -> None:
        if not self._is_elsewhere():
            self._inside.append(module)

    def _module_ends(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._is_elsewhere() or not self._inside:
            return
        while self._inside and self._inside.pop() is not module:
            pass  # a module below it raised
        if self._is_whole and self._blocks is not None:
            self._run("blocks", self._read_block, module, output)

    def _read_block(self, module: nn.Module, output: Any) -> None:
        assert self._blocks is not None
        measured = self._blocks[1].measured(module, output)
        if measured is None:
            return
        blocks, place, count, values = measured
        layer = self._name_of(blocks)
        for kind, value in zip(("residual_rms", "residual_kurtosis"), values, strict=True):
            row = self._found.get((kind, layer))
            if row is None or len(row) != count:
                row = self._found[kind, layer] = torch.full((count,), torch.nan, device=value.device)
            if row.device == value.device:  # blocks may be spread over devices
                row[place] = value

    def _read_output(self, model: nn.Module, output: Any) -> None:
        value = log_z(model, output)
        if value is not None:
            self._found["log_z", ""] = value

    def _run(self, mechanism: str, call: Callable[..., object], *args: Any) -> None:
        """Call a mechanism, without gradients. The first failure switches it off."""
        if mechanism in self._off or self._busy:
            return
        self._busy = True  # its own softmax is not one of the model
        inside = bool(self._inside)
        begin = self._seconds() if inside else 0.0  # which takes as long as a small operation
        try:
            with torch.no_grad():
                call(*args)
        except Exception as error:
            self._fail(mechanism, error)
        finally:
            self._busy = False
            if inside:  # elsewhere the caller counts the time
                self._spent += self._seconds() - begin

    def _inner(self) -> nn.Module | None:
        """Return the innermost module that is being called in this thread."""
        return self._inside[-1] if self._inside and not self._is_elsewhere() else None

    def _sees_attention(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        module = self._inner()
        if self._is_whole and module is not None:
            self._run("attention", lambda: self._keep(module, of_attention(args, kwargs, self._chance)))

    def _sees_fused(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        module = self._inner()
        self._kernel = name
        if self._is_whole and module is not None:
            self._run("attention", lambda: self._keep(module, read_fused(name, args, kwargs, self._chance)))

    def _sees_softmax(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        module = self._inner()
        if self._is_whole and module is not None:
            self._run(
                "attention",
                lambda: self._keep(module, attention.of_softmax(args, kwargs, result, module, self._chance)),
            )

    def _keep(self, module: nn.Module, sample: attention.AttentionSample | None) -> None:
        if sample is None:
            return
        layer = self._name_of(module)
        largest, entropy = sample
        earlier = self._found.get(("attention_max", layer))
        if earlier is not None and earlier.shape == largest.shape:  # called several times, such as a shared layer
            largest = torch.maximum(earlier, largest)
        self._found["attention_max", layer] = largest
        self._found["attention_entropy", layer] = entropy

    def _sees_topk(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        module = self._inner()
        if module is not None:
            self._run("routing", self._read_router, module, args, kwargs, result)

    def _read_router(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        load = routing.load_of(args, kwargs, result, module)
        if load is not None:  # of several calls in one module, the last one chooses experts
            layer, count = self._name_of(module), load.shape[0]
            self._routes = True
            self._writer.declare("router_load", layer, most=count / result[1].shape[-1])
            self._found["router_load", layer] = load

    # ------------------------------------------------------------------------------------------------- backward passes

    def backward_begins(self) -> None:
        """``backward()`` is called."""
        if get_ident() != self._thread or self._is_passive():
            return
        batches = self._batches
        is_late = self._updates - self._noise_at >= self._interval and batches.last_passes > 0
        is_due = is_late and not batches.why_not and not _is_capturing()
        if is_late and not batches.passes:  # also if there is nothing to read, to look again after as many updates
            self._noise_at = self._updates
        if is_due or batches.listens:
            self._count_time("noise", batches.begins, lambda: (one for _, one in self._parameters()), is_due)
        else:
            batches.begins(tuple, False)

    def backward_ends(self) -> None:
        """``backward()`` has returned, or raised."""
        if self._batches.listens and get_ident() == self._thread and not self._is_passive():
            self._count_time("noise", self._batches.ends)
            self._batches.listens_no_more()  # also after a failure

    def _count_time(self, mechanism: str, call: Callable[..., object], *args: Any) -> None:
        begin = self._seconds()
        self._run(mechanism, call, *args)
        self._spend(begin)

    def _run_in_backward(self, call: Callable[..., object], *args: Any) -> None:
        """Call a function in the hook of a parameter, whose thread may be another one."""
        begin = self._seconds()
        self._run("noise", call, *args)
        self._spent += self._seconds() - begin

    def _end_batches(self, optimizer: Optimizer) -> None:
        """Write what the gradients of an update have given."""
        batches = self._batches
        if not batches.listens:
            batches.finishes_unread()
        elif batches.updates({id(one) for group in optimizer.param_groups for one in group["params"]}):
            self._run("noise", self._judge_noise)
        else:
            return
        self._noisy_updates += 1
        if self._noisy_updates == _PASSES and NOISE_KIND not in self._seen and batches.why_not:
            self._writer.off(NOISE_KIND, batches.why_not)

    def _judge_noise(self) -> None:
        measured = self._batches.finished()
        if measured is not None:
            values, judge = measured
            step = max(self._step(), 0)
            self._seen.add(NOISE_KIND)
            self._values.read(lambda flat: self._write_noise(step, judge(flat)), values)

    def _write_noise(self, step: int, values: tuple[float, ...] | None) -> None:
        if values is not None:
            self._writer.write(step, {(NOISE_KIND, ""): values})

    # -------------------------------------------------------------------------------------------------------- updates

    def before_update(self, optimizer: Optimizer) -> None:
        """``optimizer.step()`` is called."""
        if get_ident() != self._thread:
            return
        if id(optimizer) not in self._health and len(self._health) > 16:  # optimizers are created again and again
            self._health.clear()
        health = self._health.get(id(optimizer))
        if health is None:
            health = self._health[id(optimizer)] = OptimizerHealth()
        if health.is_due(self._interval):
            self._adapt()
            self._count_time("optimizer", health.before, optimizer)

    def after_update(self, optimizer: Optimizer) -> None:
        """``optimizer.step()`` has returned."""
        if get_ident() != self._thread:
            return
        health = self._health.get(id(optimizer))
        if health is not None and health.begun:
            self._count_time("optimizer", lambda: self._send_measured(optimizer, health.after(optimizer)))
        if self._batches.passes:
            self._end_batches(optimizer)
        self._values.poll()
        self._stepped = True

    def _send_measured(self, optimizer: Optimizer, measured: Measured) -> None:
        layer = type(optimizer).__name__
        by_key: dict[Key, torch.Tensor] = {}
        for kind, (parameters, values) in measured.items():
            shape = (id(optimizer), len(parameters), id(parameters[0]))
            if self._shapes.get((kind, layer)) != shape:
                if not all(id(one) in self._names for one in parameters):
                    self._names = {id(one): name for name, one in self._parameters()}
                names = [self._names.get(id(one), f"tensor {index}") for index, one in enumerate(parameters)]
                self._shapes[kind, layer] = shape
                self._writer.declare(kind, layer, names, again=True)
            by_key[kind, layer] = values
        self._send(by_key)

    # ------------------------------------------------------------------------------------------------- missed events

    def unread(self, optimizer: Optimizer) -> int:
        """Return how many of the next updates are not read.

        They are expected to go like the last one. Their events need not be passed on: the methods below count them
        later.
        """
        health, batches = self._health.get(id(optimizer)), self._batches
        routes = self._routes and self._updates < _ROUTER_FIRST and self._every == _EVERY
        if (
            get_ident() != self._thread
            or health is None
            or health.begun
            or routes
            or not self._stepped
            or self._calls
            or self._handles
            or batches.passes
            or batches.listens
            or self._noisy_updates < _PASSES
            or self._values.are_pending
        ):
            return 0
        self._unread_health = health
        since = max(self._updates - min(self._whole_at, self._noise_at), health.since)
        return self._interval - 1 - since

    def missed_updates(self, updates: int) -> None:
        """So many updates were made."""
        self._updates += updates
        self._noisy_updates += updates
        self._unread_health.count(updates)

    def missed_call(self, model: nn.Module | None) -> None:
        """A model was called."""
        self._updates += self._stepped
        self._stepped = False
        self._batches.called(None)
        if model is not None:
            self._calls.append(model)

    def missed_return(self) -> None:
        """The model has returned."""
        self._calls.clear()

    def missed_backward(self) -> None:
        """A backward pass has begun."""
        self._batches.begins(tuple, False)

    def missed_begin_of_update(self) -> None:
        """An optimizer is in the middle of a step."""
        self._unread_health.count(1)

    # -------------------------------------------------------------------------------------------------------- writing

    def _send(self, by_key: Mapping[Key, torch.Tensor]) -> None:
        """Write values when they have arrived from their device."""
        if not by_key:
            return
        keys, step = list(by_key), max(self._step(), 0)
        self._seen.update(kind for kind, _ in keys)
        sizes = [by_key[key].numel() for key in keys]
        by_device: dict[torch.device, list[int]] = {}
        for index, key in enumerate(keys):
            by_device.setdefault(by_key[key].device, []).append(index)
        for indices in by_device.values():
            flat = torch.cat([by_key[keys[index]].detach().reshape(-1).float() for index in indices])
            self._values.read(self._judge([keys[i] for i in indices], [sizes[i] for i in indices], step), flat)

    def _judge(self, keys: list[Key], sizes: list[int], step: int) -> Callable[[Any], None]:
        def judge(flat: Any) -> None:
            parts = np.split(flat, np.cumsum(sizes)[:-1])
            self._writer.write(step, {key: part.tolist() for key, part in zip(keys, parts, strict=True)})
            largest = [part for (kind, _), part in zip(keys, parts, strict=True) if kind == "attention_max"]
            if any(bool((part > _LARGE).any()) for part in largest):
                self._closer_until = self._updates + 2 * _EVERY

        return judge

    def close(self) -> None:
        """The training has ended: write what has not arrived yet."""
        self._end_reading()
        self._batches.listens_no_more()
        self._values.poll(wait=True)


def _is_capturing() -> bool:
    """Whether operations are recorded for a CUDA graph, which would repeat them."""
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())

"""Copy tensors of PyTorch from any device; of sharded tensors, this worker's part."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.config.capture_plan import TENSORS
from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.capture.capture import ACTIVATIONS
from smdwidgets.hooks.capture.in_place import LARGE
from smdwidgets.hooks.capture.lazy_norm import norm_of_array
from smdwidgets.hooks.capture.plan import Plan
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.core.guard import Guard
from smdwidgets.hooks.core.tensors import TensorCapture
from smdwidgets.hooks.torch.copying import array_of, copy_from_torch, name_of_dtype
from smdwidgets.hooks.torch.device import DeviceCopies, Sample, sample_of
from smdwidgets.hooks.torch.optimizers import gradient_norm
from smdwidgets.hooks.torch.reduce import can_reduce, reduce
from smdwidgets.hooks.torch.registered import NormBy, RegisteredModels, Updated
from smdwidgets.hooks.torch.shards import LocalShard, ShardFinder
from smdwidgets.hooks.writing.write_queue import WriteQueue

__all__ = ["GRADIENTS", "NUMBERS", "WEIGHTS", "NamedGradient", "TorchCapture"]

WEIGHTS, GRADIENTS, _ = TENSORS
#: Types of losses whose value a Python number holds.
NUMBERS = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16"}
#: Gradients are copied to compute their norm if they have so many elements at most, on average and in all.
_SMALL, _MOST_GATHERED = 1024, 1 << 22
#: The norm of so many elements takes no longer than the rest of a step.
_FEW = 1 << 16
#: A parameter's name, the parameter, and its gradient or this worker's part of it.
NamedGradient = tuple[str, torch.Tensor, torch.Tensor | LocalShard | None]


class TorchCapture(TensorCapture):
    """Copies tensors from their devices."""

    def __init__(self, plan: Plan, queue: WriteQueue, guard: Guard) -> None:
        super().__init__(plan, queue, guard)
        self.shards = ShardFinder()
        #: What workers that save no whole tensors have of inputs and outputs, by what the first worker saves.
        self._judged: dict[SaveSpec, SaveSpec | None] = {}
        self.devices = DeviceCopies()
        #: The tensors whose statistics their device computes, with the sample of a parameter.
        self._samples: dict[str, Sample | None] = {}

    def copy(self, name: str, value: Any) -> TensorCopy:
        """Copy a tensor from its device directly into the write buffer."""
        if isinstance(value, TensorCopy):
            return value
        if isinstance(value, LocalShard):
            shard: LocalShard | None = value
        elif isinstance(value, torch.Tensor):
            shard = self.shards.find(name, value)
        else:
            return super().copy(name, value)
        staging = self._queue.staging
        if shard is None:
            return copy_from_torch(name, value, staging, self.devices)
        copy = copy_from_torch(name, shard.local, staging, self.devices)
        copy.shard = shard.place.position
        if shard.place.position is None:
            self._guard.report_failure(
                "shard without position",
                f"tensor {shown(name)} is sharded, and its position in the whole tensor is unknown: the shard of each worker "
                'that saves is saved (include_workers="all": of every worker); read it with value(step, worker=...)',
            )
        return copy

    def copy_number(self, name: str, value: Any) -> TensorCopy:
        """Copy a loss. A number needs no room in the memory of the copies."""
        if type(value) is torch.Tensor and value.ndim == 0 and not self.devices.has(value):
            dtype = NUMBERS.get(value.dtype)
            if dtype is not None:
                return TensorCopy(np.array(value.item(), dtype), dtype, ())
        return self.copy(name, value)

    def copy_for(self, spec: SaveSpec, name: str, value: Any) -> TensorCopy:
        """Copy a tensor, or its reductions.

        Reductions of a tensor on an accelerator are enough if nothing else is needed.
        """
        if not isinstance(value, torch.Tensor) or self.shards.find(name, value):
            return self.copy(name, value)
        if not self.devices.has(value):
            return super().copy_for(spec, name, value)
        if spec.statistics and value.nbytes >= LARGE:
            is_kept = self._queue.keeps(name, value.nbytes)
            if name in self._samples or not is_kept:
                whole = is_kept or self.saves_elements(spec, value.nbytes)
                return self._described(name, value, spec.kind == WEIGHTS, whole)
        more = spec.raw or spec.scalar or spec.statistics or spec.planned or spec.histogram is not None
        if more or self._queue.is_observed or not (spec.reductions and can_reduce(value, spec.reductions)):
            return self.copy(name, value)
        reduced = reduce(value, spec.reductions)
        copy = copy_from_torch(name, reduced, self._queue.staging, self.devices)
        copy.reductions, copy.dtype = spec.reductions, name_of_dtype(value)
        return copy

    def in_memory(self, name: str, value: Any) -> tuple[NDArray[Any], str] | None:
        """Return a tensor on the CPU as an array, and the name of its type."""
        return array_of(value.detach())

    def _described(self, name: str, value: torch.Tensor, is_parameter: bool, whole: bool) -> TensorCopy:
        """Return a copy with statistics by the device, and with the elements if ``whole``."""
        sample = self._samples.get(name)
        if name not in self._samples or (sample is not None and not sample.fits(value)):
            sample = self._samples[name] = sample_of(value) if is_parameter else None
        described = self.devices.statistics(value, sample, self._queue.step)
        if described is None:
            del self._samples[name]
            return self.copy(name, value)
        numbers, combine = described
        if not whole:
            copy = copy_from_torch(name, numbers, self._queue.staging, self.devices)
            copy.shape, copy.dtype, copy.is_whole = tuple(value.shape), name_of_dtype(value), False
            copy.statistics = functools.partial(combine, copy.array)
            return copy
        copy = self.copy(name, value)
        memory = self.devices.host_memory(numbers.nbytes).view(np.float64)
        waits = copy.pending, self.devices.copy(numbers, torch.from_numpy(memory))

        def wait() -> None:
            for each in waits:
                if each is not None:
                    each()

        copy.pending, copy.statistics = wait, functools.partial(combine, memory)
        return copy

    def capture(self, name: str, value: Any, wants_norm: bool = False) -> TensorCopy | None:
        """Capture a tensor, or the tensors that a flat parameter contains."""
        contents = list(self.shards.contents(name, value))
        copies = [
            super(TorchCapture, self).capture(part, content, wants_norm and len(contents) == 1)
            for part, content in contents
            if self.saves(part, content)
        ]
        return copies[0] if len(copies) == len(contents) == 1 else None

    def saves(self, name: str, value: object) -> bool:
        """Whether this worker saves a tensor, or judges its statistics.

        A worker that saves only shards, or nothing, leaves other tensors to the first worker. Numbers of the training,
        inputs and outputs differ from worker to worker.
        """
        if not (self.only_shards or self.is_witness):
            return True
        spec = self.spec(name)
        if spec is None or self.is_number(name) or spec.kind == ACTIVATIONS:
            return True
        if self.is_witness:
            return False
        shard = self.shards.find(name, value) if isinstance(value, torch.Tensor) else value
        return isinstance(shard, LocalShard) and not (shard.place.replica or shard.place.position is None)

    def spec(self, name: str) -> SaveSpec | None:
        """Return what this worker saves of a tensor at this step, or None.

        Only the first worker saves values of inputs and outputs.
        """
        spec = super().spec(name)
        if spec is None or spec.kind != ACTIVATIONS or not (self.only_shards or self.is_witness):
            return spec
        if spec not in self._judged:
            self._judged[spec] = SaveSpec(raw=False, statistics=True, kind=spec.kind) if spec.statistics else None
        return self._judged[spec]

    def norm(self, gradients: Sequence[NamedGradient]) -> object:
        """Return the l2 norm of gradients, or this worker's part; None if unknown."""
        if any(self.shards.has(name, parameter) for name, parameter, _ in gradients):
            return self.shards.norm(gradients)
        return gradient_norm([gradient for _, _, gradient in gradients if isinstance(gradient, torch.Tensor)])

    def norm_of_few(self, updated: Updated, parameters: list[torch.Tensor]) -> float | None:
        """Return the norm at once if the gradients are small.

        None: they are not, or :meth:`norm_of_parameters` has not looked at them. To queue a copy takes longer.
        """
        if updated.norm_by is not NormBy.GATHERING:
            return None
        if updated.elements is None:
            updated.elements = sum(one.numel() for one in parameters)
        return _core.norm_of_gradients(parameters, torch.Tensor, _FEW) if updated.elements <= _FEW else None

    def norm_of_parameters(self, updated: Updated, parameters: Sequence[torch.Tensor]) -> object:
        """Return the l2 norm of gradients that are not captured at this step.

        Many small gradients are copied to one place, and the writer's thread computes the norm: operators of PyTorch
        would take longer for each than copying it.
        """
        with torch.no_grad():
            if updated.norm_by is None:
                updated.norm_by = self._norm_by(updated.names, parameters)
            if updated.norm_by is NormBy.SHARDS:
                return self.norm([(name, one, one.grad) for name, one in zip(updated.names, parameters, strict=True)])
            gradients = [gradient for one in parameters if (gradient := one.grad) is not None]
            if updated.norm_by is NormBy.GATHERING and gradients and not self.devices.has(gradients[0]):
                try:
                    together = torch._C._nn.flatten_dense_tensors(gradients)
                    if together.dtype is torch.float32:
                        return norm_of_array(together.numpy())
                except (RuntimeError, TypeError, AttributeError):  # sparse gradients, or on other devices
                    pass
                updated.norm_by = NormBy.OPERATORS
            return gradient_norm(gradients)

    def _norm_by(self, names: Sequence[str], parameters: Sequence[torch.Tensor]) -> NormBy:
        if any(self.shards.has(name, one) for name, one in zip(names, parameters, strict=True)):
            return NormBy.SHARDS
        are_plain = all(type(one) is nn.Parameter and one.is_cpu and one.dtype is torch.float32 for one in parameters)
        is_small = sum(one.numel() for one in parameters) <= min(_SMALL * len(parameters), _MOST_GATHERED)
        return NormBy.GATHERING if are_plain and is_small else NormBy.OPERATORS

    def find_shards(self, models: RegisteredModels) -> list[str]:
        """Find sharded parameters; return the names of their shards and gradients."""
        parameters = list(models.parameters())
        self.shards.scan(models.all_modules(), parameters)
        return [
            f"{prefix}{part}"
            for name, parameter in parameters
            if self.shards.has(name, parameter)
            for part in self.shards.names(name)
            for prefix in ("", "gradient/")
        ]

    def numbers(self, name: str, value: Any) -> NDArray[Any]:
        """Return the values of a small tensor now; one on a device is waited for."""
        return super().numbers(name, value.detach().float().cpu().numpy() if isinstance(value, torch.Tensor) else value)

    def plain(self, value: Any) -> Any:
        """Return an object that NumPy can convert."""
        return np.empty(0) if isinstance(value, torch.Tensor) else value

"""The copying layer of the PyTorch hook: tensors of any device, and shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from smdwidgets._text import shown
from smdwidgets.hooks.arrays import TensorCopy
from smdwidgets.hooks.save_spec import SaveSpec
from smdwidgets.hooks.torch_copy import copy_from_torch
from smdwidgets.hooks.torch_device import DeviceCopies
from smdwidgets.hooks.torch_optimizers import gradient_norm
from smdwidgets.hooks.torch_reduce import can_reduce, reduce
from smdwidgets.hooks.torch_shards import LocalShard, ShardFinder
from smdwidgets.hooks.torch_training import ModelHook

__all__ = ["CopyingHook"]


class CopyingHook(ModelHook):
    """Copies tensors from their devices; of sharded ones, this worker's part."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._shards = ShardFinder()
        self._devices = DeviceCopies()
        self._shards_sought = False
        super().__init__(*args, **options)

    @classmethod
    def _worker(cls) -> tuple[str, int]:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return f"worker_{torch.distributed.get_rank()}", torch.distributed.get_world_size()
        return super()._worker()

    def _copy(self, name: str, value: object) -> TensorCopy:
        """Copy a tensor from its device directly into the write buffer."""
        if isinstance(value, TensorCopy):
            return value
        if isinstance(value, LocalShard):
            shard: LocalShard | None = value
        elif isinstance(value, torch.Tensor):
            shard = self._shards.find(name, value)
        else:
            return super()._copy(name, value)
        if shard is None:
            return copy_from_torch(name, value, self._write_queue.staging, self._devices)
        copy = copy_from_torch(name, shard.local, self._write_queue.staging, self._devices)
        copy.shard = shard.place.position
        if shard.place.position is None:
            self._report_failure(
                "shard without position",
                f"tensor {shown(name)} is sharded, and its position in the whole tensor is unknown: the shard of each worker "
                'that saves is saved (include_workers="all": of every worker); read it with value(step, worker=...)',
            )
        return copy

    def _copy_for(self, spec: SaveSpec, name: str, value: object) -> TensorCopy:
        """Copy a tensor, or its reductions.

        Of a tensor on an accelerator, reductions are enough if nothing else of it is needed.
        """
        more = spec.raw or spec.scalar or spec.statistics or spec.planned or spec.histogram is not None
        if more or not isinstance(value, torch.Tensor) or self._write_queue.is_observed:
            return self._copy(name, value)
        on_device = self._devices.has(value) and not self._shards.find(name, value)
        if not (on_device and spec.reductions and can_reduce(value, spec.reductions)):
            return self._copy(name, value)
        reduced = reduce(value, spec.reductions)
        copy = copy_from_torch(name, reduced, self._write_queue.staging, self._devices)
        copy.reductions, copy.dtype = spec.reductions, str(value.dtype).removeprefix("torch.")
        return copy

    def _capture(self, name: str, value: Any, keep: bool = False) -> TensorCopy | None:
        contents = list(self._shards.contents(name, value))
        copies = [
            super(CopyingHook, self)._capture(one, content, keep and len(contents) == 1)
            for one, content in contents
            if self._is_mine(one, content)
        ]
        return copies[0] if len(copies) == len(contents) == 1 else None

    def _shard(self, name: str, value: torch.Tensor) -> LocalShard | None:
        return self._shards.find(name, value)

    def _norm(self, gradients: Sequence[tuple[str, torch.Tensor, torch.Tensor | LocalShard | None]]) -> object:
        if any(self._shards.has(name, parameter) for name, parameter, _ in gradients):
            return self._shards.norm(gradients)
        return gradient_norm([one for _, _, one in gradients if isinstance(one, torch.Tensor)])

    def _is_mine(self, name: str, value: object) -> bool:
        """Whether this worker saves a tensor.

        A worker that saves only shards leaves other tensors to the first worker.
        """
        if not self._only_shards:
            return True
        shard = self._shards.find(name, value) if isinstance(value, torch.Tensor) else value
        return isinstance(shard, LocalShard) and not (shard.place.replica or shard.place.position is None)

    def _seek_shards(self) -> None:
        """Find sharded parameters before the first step.

        With ``include_workers="one"``, every worker saves its shards.
        """
        self._shards_sought = True
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return
        parameters = list(self._models.parameters())
        self._shards.scan(self._models.all_modules(), parameters)
        wanted = [
            f"{prefix}{part}"
            for name, one in parameters
            if self._shards.has(name, one)
            for part in self._shards.names(name)
            for prefix in ("", "gradient/")
        ]
        if self.include_workers == "one" and wanted:
            if not self._plan.prepared:
                self._prepare()
            if self._plan.wants_any(wanted):
                ranks = self._shards.writers(parameters)
                if torch.distributed.get_rank() in ranks | {0}:
                    self._save_shards(len(ranks | {0}))

    def _plain(self, value: object) -> object:
        return np.empty(0) if isinstance(value, torch.Tensor) else value

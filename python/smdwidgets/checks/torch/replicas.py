"""Digests of sampled weights, by which readers of the run compare workers."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["ReplicaDigests"]

_TENSORS, _ELEMENTS = 4, 64


class ReplicaDigests:
    """Writes digests at the updates that are looked at. Workers do not communicate.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def after_update(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        distributed = torch.distributed
        if not (self._context.due and distributed.is_available() and distributed.is_initialized()):
            return
        if distributed.get_world_size() < 2 or not self._context.log.runs("replicas_differ"):
            return
        parameters = [one for group in optimizer.param_groups for one in group["params"] if is_plain(one)]
        chosen = parameters[:: max(1, len(parameters) // _TENSORS)][:_TENSORS]
        if not chosen or len({one.device for one in chosen}) > 1:
            return
        context, step = self._context, self._context.step
        names = [context.name_of(one) for one in chosen]
        shapes = [str(tuple(one.shape)) for one in chosen]
        sizes = np.cumsum([len(sampled(one, _ELEMENTS)) for one in chosen])[:-1]
        wrappers = {type(one).__name__ for one in context.wrappers()}
        is_replicated = "DistributedDataParallel" in wrappers
        if "FullyShardedDataParallel" in wrappers:
            context.log.off(("replicas_differ",), "the weights are sharded")
            return

        def judge(values: Any) -> None:
            digests = [zlib.crc32(part.tobytes()) for part in np.split(values, sizes)]
            columns = {
                name: [shape, digest, is_replicated] for name, shape, digest in zip(names, shapes, digests, strict=True)
            }
            context.log.digest(step, columns)

        context.values.read(judge, torch.cat([sampled(one, _ELEMENTS).float() for one in chosen]))

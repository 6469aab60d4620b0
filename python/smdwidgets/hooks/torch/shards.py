"""Find where a worker's part of a sharded tensor lies in the whole tensor.

Nothing here starts a collective: no operator is applied to a DTensor, and meshes are read from local state. Positions
are those of docs/format.md. What PyTorch does not state is not guessed: such a tensor is saved without a position.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import nn

from smdwidgets.hooks.torch.names import plain_name
from smdwidgets.hooks.torch.optimizers import gradient_norm

__all__ = ["LocalShard", "Place", "ShardFinder", "is_sharded"]


@dataclass(frozen=True)
class Place:
    """Where a worker's part of a sharded tensor lies.

    Attributes:
        position: as JSON; None if it is not known.
        replica: 0 for the first copy of the part.
        size: number of elements of the whole tensor.
        is_reduced: whether the elements are those of the whole tensor, not terms of a sum.
        lowest: the lowest rank of the mesh. Meshes without the first rank of the others have copies: that of a
            parameter which FSDP shards and tensor parallelism does not know.
    """

    position: str | None
    replica: int = 0
    size: int = 0
    is_reduced: bool = True
    lowest: int = 0


@dataclass(frozen=True)
class LocalShard:
    """This worker's part of a sharded tensor: a plain tensor."""

    local: torch.Tensor
    place: Place

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the part."""
        return tuple(self.local.shape)


def is_sharded(value: object) -> bool:
    """Return whether a tensor is a DTensor."""
    return getattr(value, "_local_tensor", None) is not None


@dataclass(frozen=True)
class FlatPart:
    """This worker's part of a parameter in a flat parameter: a range of its elements."""

    name: str
    place: Place
    start: int
    stop: int


@dataclass(frozen=True)
class Flat:
    """This worker's part of a flat parameter of FSDP1, and what it contains."""

    numel: int
    parts: tuple[FlatPart, ...]


class ShardFinder:
    """Finds the shards of DTensors and of the parameters of FSDP1."""

    def __init__(self) -> None:
        #: Places by DTensor specification, which repeats from step to step.
        self._known: dict[Any, Place] = {}
        #: Places and numbers of local elements of parameters that FSDP1 has flattened, by name.
        self._flat: dict[str, tuple[Place, int]] = {}
        #: Contents of the flat parameters of FSDP1, where the original ones do not exist (``use_orig_params=False``),
        #: by name.
        self._contents: dict[str, Flat] = {}

    def find(self, name: str, value: torch.Tensor) -> LocalShard | None:
        """Return the shard of a tensor, or None if it is not sharded.

        Args:
            name: name of the tensor: that of a parameter, or ``gradient/<parameter>``, or
                ``optimizer/Adam/<parameter>/exp_avg``.
            value: the tensor.
        """
        if is_sharded(value):
            return self._of_dtensor(value)
        flat = next((self._flat[part] for part in name.split("/") if part in self._flat), None) if self._flat else None
        # In a forward pass the parameter is whole.
        return LocalShard(value, flat[0]) if flat is not None and tuple(value.shape) == (flat[1],) else None

    def names(self, name: str) -> list[str]:
        """Return the names of the parameters in a parameter.

        It is one, except in a flat parameter.
        """
        contents = self._contents.get(name)
        return [name] if contents is None else [one.name for one in contents.parts]

    def contents(self, name: str, value: Any) -> list[tuple[str, Any]]:
        """Return the tensors in a tensor, with their names.

        They are shards in a flat tensor, else the tensor itself.

        Args:
            name: name of the tensor, as in :meth:`find`.
            value: the tensor.
        """
        flat = next((part for part in name.split("/") if part in self._contents), None) if self._contents else None
        if flat is None:
            return [(name, value)]
        contents = self._contents[flat]
        # In a forward pass the parameter is whole. A counter of steps has no elements for each parameter.
        if tuple(getattr(value, "shape", ())) != (contents.numel,):
            return []
        return [
            (name.replace(flat, one.name), LocalShard(value[one.start : one.stop], one.place)) for one in contents.parts
        ]

    def _of_dtensor(self, value: Any) -> LocalShard:
        local = value._local_tensor
        try:
            known = self._known.get(value._spec)
            if known is None:
                known = self._known[value._spec] = _position(value, tuple(local.shape))
        except Exception:  # private parts of PyTorch may differ between versions
            known = Place(None)
        return LocalShard(local, known)

    def norm(
        self, gradients: Iterable[tuple[str, torch.Tensor, torch.Tensor | LocalShard | None]]
    ) -> LocalShard | None:
        """Return this worker's part of the l2 norm of gradients.

        It is that of the elements of which this worker has the first copy. The whole norm is the root of the sum of the
        squares of all parts: the hook starts no collective. None if the worker has no element, or the norm is not the
        sum of its parts.

        Args:
            gradients: names of parameters, the parameters and their gradients.
        """
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        found: list[tuple[torch.Tensor, bool, Place | None]] = []
        dtype = torch.float32  # of all parts: that of a worker without gradients, too
        for name, parameter, gradient in gradients:
            if parameter.dtype is torch.float64:
                dtype = torch.float64
            for content, value in self.contents(name, parameter if gradient is None else gradient):
                shard = value if isinstance(value, LocalShard) else self.find(content, value)
                if shard is None:
                    found.append((value, gradient is not None, None))
                elif shard.place.position is None or not shard.place.is_reduced:
                    return None
                else:
                    found.append((shard.local, gradient is not None, shard.place))
        first = min(place.lowest for _, _, place in found if place is not None)
        elements = of = 0
        mine: list[torch.Tensor] = []
        for local, has_gradient, place in found:
            of += local.numel() if place is None else place.size
            # Every worker has all of a tensor that is not sharded; the first one counts it.
            if rank == first if place is None else place.replica == 0 and place.lowest == first:
                elements += local.numel()
                if has_gradient and local.numel():
                    mine.append(local)
        norm = gradient_norm(mine) if mine else torch.zeros(())
        if norm is None or not elements:
            return None
        part = {"op": "l2", "part": rank, "parts": world, "elements": elements, "of": of}
        record = {"global_shape": [], "offsets": [], "sizes": [], "replica": 0, "partial": part}
        return LocalShard(norm.to(dtype), Place(json.dumps(record), size=1))

    def scan(self, modules: Iterable[nn.Module], parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Find the parameters that FSDP1 has flattened.

        Args:
            modules: all modules, with their wrappers.
            parameters: the parameters with their names.
        """
        self._flat.clear()
        self._contents.clear()
        if not _may_be_flattened():
            return
        names = {id(one): name for name, one in parameters}
        for module in modules:
            flat = getattr(getattr(module, "_handle", None), "flat_param", None)
            if flat is not None:
                try:
                    self._add_flat(module, flat, names)
                except Exception:  # as above
                    for one in (flat, *(getattr(flat, "_params", None) or ())):
                        if id(one) in names:
                            self._flat[names[id(one)]] = Place(None), one.numel()

    def _add_flat(self, module: Any, flat: Any, names: Mapping[int, str]) -> None:
        """Add the parameters in a flat parameter, which may replace them."""
        parts = list(_flat_parts(module, flat))
        if flat._params is not None:
            for parameter, part in zip(flat._params, parts, strict=True):
                if id(parameter) in names:
                    self._flat[names[id(parameter)]] = part.place, part.stop - part.start
        elif id(flat) in names:
            prefix = names[id(flat)].removesuffix("_flat_param")
            self._contents[names[id(flat)]] = Flat(
                flat._sharded_size.numel(),
                tuple(replace(part, name=prefix + plain_name(part.name)) for part in parts),
            )

    def clear(self) -> None:
        """Forget all tensors."""
        self._known.clear()
        self._flat.clear()
        self._contents.clear()

    def has(self, name: str, parameter: torch.Tensor) -> bool:
        """Return whether a parameter is sharded."""
        return is_sharded(parameter) or name in self._flat or name in self._contents

    def writers(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> set[int]:
        """Return the ranks that hold the first copy of a shard of any of these parameters.

        The result is empty if none is sharded.
        """
        ranks: set[int] = set()
        seen: set[Any] = set()
        for name, parameter in parameters:
            spec = getattr(parameter, "_spec", None) if is_sharded(parameter) else None
            if spec is not None:
                key = (spec.mesh, tuple(type(placement) for placement in spec.placements))
                if key not in seen:
                    seen.add(key)
                    ranks.update(_first_copies(spec))
            elif name in self._flat or name in self._contents:
                ranks.update(range(torch.distributed.get_world_size()))
        return ranks


def _may_be_flattened() -> bool:
    return "torch.distributed.fsdp" in sys.modules and torch.distributed.is_initialized()


def _flat_parts(module: Any, flat: Any) -> Iterator[FlatPart]:
    """Yield this worker's parts of the parameters in a flat parameter."""
    replicas = getattr(module, "_inter_node_pg", None) if module._handle.uses_sharded_strategy else module.process_group
    replica = 0 if replicas is None else torch.distributed.get_rank(replicas)
    for name, info, shape in zip(flat._fqns, flat._shard_param_infos, flat._shapes, strict=True):
        start = stop = at = 0
        if info.in_shard:
            start, stop, at = info.intra_param_start_idx, info.intra_param_end_idx + 1, info.offset_in_shard
        record = {"global_shape": list(shape), "flat": [start, stop], "replica": replica}
        yield FlatPart(name, Place(json.dumps(record), replica, prod(shape)), at, at + stop - start)


def _first_copies(spec: Any) -> Iterator[int]:
    """Yield the ranks that have coordinate 0 along all replicated dimensions."""
    ranks = spec.mesh.mesh
    for dimension, placement in reversed(list(enumerate(spec.placements))):
        if placement.is_replicate():
            ranks = ranks.select(dimension, 0)
    yield from (int(rank) for rank in ranks.reshape(-1).tolist())


def _position(value: Any, local_shape: tuple[int, ...]) -> Place:
    """Return the place of a DTensor's local tensor."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = value.device_mesh, value.placements
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return Place(None)
    replica = _index(mesh, coordinate, [at for at, one in enumerate(placements) if one.is_replicate()])
    shape, offsets = compute_local_shape_and_global_offset(value.shape, mesh, placements)
    if tuple(shape) != local_shape or not _is_contiguous(mesh, placements):
        return Place(None, replica)
    record: dict[str, Any] = {
        "global_shape": list(value.shape),
        "offsets": [int(offset) for offset in offsets],
        "sizes": list(shape),
        "replica": replica,
    }
    partial = [at for at, one in enumerate(placements) if one.is_partial()]
    if partial:
        operations = {str(getattr(placements[at], "reduce_op", placements[at])) for at in partial}
        record["partial"] = {
            "op": operations.pop() if len(operations) == 1 else "mixed",
            "part": _index(mesh, coordinate, partial),
            "parts": prod(mesh.size(at) for at in partial),
        }
    names = mesh.mesh_dim_names or [str(at) for at in range(mesh.ndim)]
    record["mesh"] = [[name, mesh.size(at)] for at, name in enumerate(names)]
    record["at"] = list(coordinate)
    record["placements"] = [str(placement) for placement in placements]
    return Place(json.dumps(record), replica, prod(value.shape), not partial, int(mesh.mesh.min()))


def _index(mesh: Any, coordinate: list[int], dimensions: list[int]) -> int:
    """Return the number of a coordinate among all along some dimensions of the mesh."""
    index = 0
    for at in dimensions:
        index = index * mesh.size(at) + coordinate[at]
    return index


def _is_contiguous(mesh: Any, placements: Any) -> bool:
    """Return whether each shard is one range in every dimension.

    A dimension that is sharded from right to left (FSDP of a tensor-parallel weight) has ``split_factor`` equal to the
    number of shards to its right. Any other order interleaves.
    """
    for at, placement in enumerate(placements):
        factor = getattr(placement, "split_factor", None)
        if factor is not None:
            later = (
                mesh.size(i) for i in range(at + 1, mesh.ndim) if getattr(placements[i], "dim", None) == placement.dim
            )
            if factor != prod(later):
                return False
    return True

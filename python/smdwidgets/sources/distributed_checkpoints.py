"""Distributed checkpoints of PyTorch: each is a directory and a step.

The file ``.metadata`` is a pickle with dtype and shape of each tensor, and with the regions that the processes wrote.
Each region is an archive of ``torch.save`` at a place of a file such as ``__0_0.distcp``. These archives are opened
when a value is needed.
"""

from __future__ import annotations

import math
import re
from bisect import insort
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from smdwidgets._text import listed, shown, visible
from smdwidgets.exceptions import CorruptDataError, DataError, RunIOError, UnsupportedDataError
from smdwidgets.sources.archive import Archive
from smdwidgets.sources.checkpoints import place_of, with_steps
from smdwidgets.sources.source import Refusal, Region, Source, StoredTensor, Verified
from smdwidgets.sources.tensor_pickle import (
    Opaque,
    PickledTensor,
    Storage,
    dtype_of,
    itemsize_of,
    read_pickle,
    tensors_of,
)
from smdwidgets.sources.torch_checkpoints import (
    LARGEST_PICKLE,
    STEPS,
    described_parts,
    located,
    optimizer_tensors,
    weights_of,
)
from smdwidgets.sources.tree import Tree, Version
from smdwidgets.sources.whole_files import WholeFiles

_METADATA: Final = ".metadata"
_SHARD: Final = ".distcp"
#: Largest pickle of one region, which describes one tensor.
_LARGEST_REGION_PICKLE: Final = 1 << 20
#: Names under which trainings save the state of optimizers.
_OPTIMIZER: Final = re.compile(r"optim(izers?)?(_states?(_dict)?)?(_\d+)?|opt")
#: States of optimizers that some trainings name before the parameter.
_STATE_FIRST: Final = re.compile(
    r"(exp_avg|exp_avg_sq|max_exp_avg_sq|momentum_buffer|fp32_param|master_param|step)\.(.+)"
)
#: One of several optimizers of Megatron-LM.
_CHAINED: Final = re.compile(r"chained(_\d+)\.(.+)")
#: Directories of one checkpoint for the model and its optimizers, as Accelerate writes them.
_PARTS: Final = re.compile(r"(pytorch_model_fsdp|optimizer)(_\d+)?/")


class DistributedCheckpoints:
    """The format of ``torch.distributed.checkpoint``."""

    name = "torch distributed checkpoint"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the metadata of each checkpoint of a run, and the files with its regions."""
        if tree.is_file:
            return {}
        keys = [key for key in tree.keys if _split(key)[1] == _METADATA]
        tree.read_heads(keys)
        keys = [key for key in keys if _is_metadata(tree.head(key, 256))]
        folders = {_split(key)[0]: place_of(key)[0] for key in keys}
        files_of: defaultdict[str, list[str]] = defaultdict(list)
        for key in keys:
            files_of[place_of(key)[0]].append(key)
        for key in tree.keys if keys else ():
            if key.endswith(_SHARD) and (run := folders.get(_split(key)[0])) is not None:
                files_of[run].append(key)
        return files_of

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the checkpoints of one run."""
        return DistributedCheckpointSource(tree, run, files)

    def why_not(self, tree: Tree, key: str) -> Refusal | None:
        """Return why a file of a checkpoint does not open by itself."""
        folder, name = _split(key)
        if name == _METADATA:
            if _is_metadata(tree.head(key, 256)):
                return Refusal("the index of a distributed checkpoint; open its directory")
            return Refusal("not the index of a distributed checkpoint")
        if not name.endswith(_SHARD):
            return None
        if tree.is_file:
            return Refusal("a part of a distributed checkpoint; open its directory")
        if tree.has(f"{folder}{_METADATA}"):
            return Refusal(f"the index {_METADATA} beside it is damaged", True)
        return Refusal(
            f"a part of a distributed checkpoint without its index {_METADATA}, which is written last: the checkpoint is incomplete",
            True,
        )


def _split(key: str) -> tuple[str, str]:
    """Return the directory of a file, with a slash, and its name.

    >>> _split("step-5/.metadata"), _split(".metadata")
    (('step-5/', '.metadata'), ('', '.metadata'))
    """
    folder, slash, name = key.rpartition("/")
    return folder + slash, name


def _is_metadata(head: bytes) -> bool:
    """Return whether a file begins as the pickle of metadata, of any package."""
    return head[:1] == b"\x80" and b"Metadata" in head


class Checkpoint(NamedTuple):
    """What the metadata of a checkpoint say."""

    #: At step 0.
    tensors: list[StoredTensor]
    step: int | None
    #: Names of what is not read, with the reasons.
    left_out: dict[str, str]
    #: Where the last region of each file ends.
    ends: dict[str, int]


def read_metadata(tree: Tree, key: str) -> Checkpoint:
    """Return the tensors of a checkpoint: of its weights, and of its optimizers.

    Every size is checked, against the files if they exist. Raises :class:`~smdwidgets.exceptions.DataError`, with the
    path and the reason.
    """
    path, size = tree.path(key), tree.size(key) or 0
    if size > LARGEST_PICKLE:
        raise UnsupportedDataError(f"{path}: metadata of {size:,} bytes exceed the limit of {LARGEST_PICKLE:,}")
    try:
        root = read_pickle(tree.read_exactly(key, 0, size), _key_of)
    except UnsupportedDataError as error:
        raise CorruptDataError(f"{path}: {error}") from None
    about, places = (_part(root, name) for name in ("state_dict_metadata", "storage_data"))
    if not isinstance(about, dict) or not isinstance(places, dict):
        raise CorruptDataError(f"{path}: not the index of a distributed checkpoint: {visible(_kind(root), 200)}")
    reader = _Reader(tree, key, places)
    tensors: dict[str, StoredTensor] = {}
    left_out: dict[str, str] = {}
    for name, one in about.items():
        if isinstance(name, str) and _kind(one).endswith(".TensorStorageMetadata"):
            try:
                tensors[name] = reader.tensor(name, one)
            except UnsupportedDataError as error:
                left_out[name] = str(error)
            except CorruptDataError as error:
                raise CorruptDataError(f"{path}: tensor {shown(name)}: {error}") from None
    paths = _part(root, "planner_data")
    named = _names(tensors, paths if isinstance(paths, dict) else {})
    below = _PARTS.sub("", place_of(key)[2])
    return Checkpoint(
        [tensors[own]._replace(name=visible(below + name, 1000)) for name, own in named.items()],
        reader.step(about),
        left_out,
        reader.ends,
    )


def _kind(content: Any) -> str:
    return content.kind if isinstance(content, Opaque) else type(content).__name__


def _part(content: Any, name: str) -> Any:
    return content.state.get(name) if isinstance(content, Opaque) else None


def _key_of(index: Opaque) -> Hashable:
    """Return the name and the first element of a region for its object in the pickle."""
    name, begin = index.state.get("fqn"), index.state.get("offset")
    if not isinstance(name, str) or not (begin is None or _are_sizes(begin)):
        return None
    return name, begin


def _are_sizes(sizes: Any) -> bool:
    return isinstance(sizes, tuple) and len(sizes) <= 64 and all(type(one) is int and 0 <= one < 2**62 for one in sizes)


class _Reader:
    """Checks and converts the entries of metadata."""

    def __init__(self, tree: Tree, key: str, places: Mapping[Any, Any]) -> None:
        self._tree = tree
        self._folder = _split(key)[0]
        self._places = places
        #: Where the last region of each file ends.
        self.ends: dict[str, int] = {}

    def tensor(self, name: str, about: Any) -> StoredTensor:
        """Return a tensor. The message of the error has no path."""
        properties, shape, chunks = (_part(about, part) for part in ("properties", "size", "chunks"))
        element = properties.values[0] if isinstance(properties, Opaque) and properties.values else None
        dtype = dtype_of(element)
        if dtype is None:
            raise UnsupportedDataError(f"dtype {visible(getattr(element, 'name', element), 100)}")
        if not _are_sizes(shape) or not isinstance(chunks, list) or not chunks:
            raise CorruptDataError("invalid shape or regions")
        regions = tuple(self._region(name, one, shape, itemsize_of(dtype), len(chunks)) for one in chunks)
        _check_cover(shape, regions)
        sizes = [_size(self._tree, key) for key in {region.key for region in regions}]
        taken = sum(region.length for region in regions)
        if None not in sizes and taken > (there := sum(size or 0 for size in sizes)):
            raise CorruptDataError(f"its records have {taken:,} bytes, but the files have {there:,}")
        length = math.prod(shape) * itemsize_of(dtype)
        return StoredTensor(name, 0, dtype, shape, regions[0].key, regions[0].offset, length, regions=regions)

    def _region(self, name: str, chunk: Any, whole: tuple[int, ...], itemsize: int, count: int) -> Region:
        begin, shape = (_part(chunk, part) for part in ("offsets", "sizes"))
        if not _are_sizes(begin) or not _are_sizes(shape) or not len(begin) == len(shape) == len(whole):
            raise CorruptDataError("a region has an invalid shape")
        if any(first + extent > end for first, extent, end in zip(begin, shape, whole, strict=True)):
            raise CorruptDataError(f"its region {shape} at {begin} exceeds its shape {whole}")
        region = self._place(name, begin, shape) or (self._place(name, None, shape, begin) if count == 1 else None)
        if region is None:
            raise CorruptDataError(f"its region at {begin} has no place in a file")
        if math.prod(shape) * itemsize > region.length:
            raise CorruptDataError(f"its region {shape} at {begin} exceeds the {region.length:,} bytes of its record")
        self.ends[region.key] = max(self.ends.get(region.key, 0), region.offset + region.length)
        return region

    def _place(
        self, name: str, index: tuple[int, ...] | None, shape: tuple[int, ...], begin: tuple[int, ...] = ()
    ) -> Region | None:
        """Return the region whose place has an index; None if there is none."""
        about = self._places.get((name, index))
        if about is None:
            return None
        file, offset, length = (_part(about, part) for part in ("relative_path", "offset", "length"))
        if not isinstance(file, str) or not _are_sizes((offset, length)):
            raise CorruptDataError("invalid place of a region")
        if not all(part.strip(".") for part in file.split("/")) or set("\\\0") & set(file):
            raise CorruptDataError(f"its file {shown(file, 200)} is not below the directory of the checkpoint")
        if _part(about, "transform_descriptors"):
            raise UnsupportedDataError(f"records transformed by {visible(_part(about, 'transform_descriptors'), 100)}")
        return Region(index or begin, shape, self._folder + file, offset, length)

    def step(self, about: Mapping[Any, Any]) -> int | None:
        """Return the step of the training, if it was saved as a number."""
        for name in STEPS:
            if not _kind(about.get(name)).endswith(".BytesStorageMetadata"):
                continue
            try:
                region = self._place(name, None, ())
                value = None if region is None else _pickle_of(_archive_of(self._tree, region))
            except (DataError, RunIOError):
                continue
            if type(value) is int and 0 <= value < 2**62:
                return value
        return None


def _check_cover(shape: tuple[int, ...], regions: Sequence[Region]) -> None:
    """Check that regions within a shape have each element once."""
    count = sum(math.prod(region.shape) for region in regions)
    if count != math.prod(shape):
        raise CorruptDataError(f"its regions have {count:,} of {math.prod(shape):,} elements")
    filled = [region for region in regions if 0 not in region.shape]
    if len(filled) < 2:
        return
    # Regions that overlap do so in each dimension: neighbours in the most divided one are compared.
    axis = max(range(len(shape)), key=lambda axis: len({region.begin[axis] for region in filled}))
    active: list[tuple[int, int]] = []
    filled.sort(key=lambda region: region.begin[axis])
    for at, region in enumerate(filled):
        while active and active[0][0] <= region.begin[axis]:
            active.pop(0)
        for _, other in active:
            if all(map(_overlap, zip(*filled[other][:2], strict=True), zip(*region[:2], strict=True))):
                raise CorruptDataError(f"its regions at {filled[other].begin} and {region.begin} overlap")
        insort(active, (region.begin[axis] + region.shape[axis], at))


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Return whether two ranges of begin and length have a common element.

    >>> _overlap((0, 2), (1, 2)), _overlap((0, 2), (2, 2))
    (True, False)
    """
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1]


def _names(tensors: Mapping[str, StoredTensor], paths: Mapping[Any, Any]) -> dict[str, str]:
    """Return the own name of each tensor by the name that hooks give to it.

    The containers that were saved are built again from the path of each tensor.

    >>> weight = StoredTensor("", 0, "float32", (1,), "", 0, 4)
    >>> paths = ("app", "model", "fc.bias"), ("app", "optim", "state", "fc.bias", "exp_avg")
    >>> saved = {".".join(path): path for path in paths}
    >>> list(_names(dict.fromkeys(saved, weight), saved))
    ['fc.bias', 'optimizer/0/fc.bias/exp_avg']
    >>> list(_names({"fc.bias": weight, "optimizer.state.fc.bias.exp_avg": weight}, {}))
    ['fc.bias', 'optimizer/0/fc.bias/exp_avg']
    """
    root: dict[Any, Any] = {}
    for own, tensor in tensors.items():
        path = paths.get(own)
        leaf = PickledTensor(Storage(tensor.dtype, own), 0, tensor.shape, tensor.shape)
        _put(root, _path(own, path if isinstance(path, tuple) and path else (own,)), leaf)
    while len(root) == 1 and not weights_of(root)[0]:
        # The training saved one object that holds all others.
        [[name, part]] = root.items()
        if not isinstance(part, dict) or _OPTIMIZER.fullmatch(str(name)):
            break
        root = part
    states = {name: root.pop(name) for name in list(root) if _OPTIMIZER.fullmatch(str(name))}
    weights = tensors_of(weights_of(root)[1]).tensors
    tensors_by_name = weights | optimizer_tensors({"optimizers": list(states.values())}, list(weights))
    names = {name: tensor.storage.key for name, tensor in tensors_by_name.items()}
    # Of optimizers with another layout, the names of the checkpoint.
    others = {tensor.storage.key for tensor in tensors_of(states).tensors.values()} - {*names.values()}
    return names | {own: own for own in tensors if own in others}


def _path(own: str, path: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the path of a tensor, with the parameter of a state as one part.

    >>> _path("optimizer.state.a.b.exp_avg", ("optimizer", "state.a.b.exp_avg"))
    ('optimizer', 'state', 'a.b', 'exp_avg')
    >>> _path("optimizer.state.exp_avg.a.b", ("optimizer.state.exp_avg.a.b",))
    ('optimizer', 'state', 'a.b', 'exp_avg')
    """
    if len(path) > 2:
        return path
    chained = _CHAINED.fullmatch(own)
    number, own = chained.groups() if chained else ("", own)
    head, _, rest = own.partition(".")
    if _OPTIMIZER.fullmatch(head) is None or not rest.startswith("state."):
        return path
    rest = rest.removeprefix("state.")
    if match := _STATE_FIRST.fullmatch(rest):
        return head + number, "state", match[2], match[1]
    parameter, _, state = rest.rpartition(".")
    return head + number, "state", parameter, state


def _put(root: dict[Any, Any], path: tuple[Any, ...], leaf: PickledTensor) -> None:
    """Put a tensor into nested dictionaries."""
    for part in path[:-1]:
        below = root.setdefault(part if isinstance(part, int) else str(part), {})
        if not isinstance(below, dict):
            return
        root = below
    root.setdefault(path[-1] if isinstance(path[-1], int) else str(path[-1]), leaf)


def _size(tree: Tree, key: str) -> int | None:
    """Return the size of a file in the listing, which has no links to other places."""
    return tree.size(key) if tree.has(key) else None


def _archive_of(tree: Tree, region: Region) -> Archive:
    """Open the archive of a region.

    Raises :class:`~smdwidgets.exceptions.DataError` if the file is missing or too short.
    """
    path, size = tree.path(region.key), _size(tree, region.key)
    if size is None:
        raise CorruptDataError(f"{path}: this file of the distributed checkpoint is missing")
    if region.offset + region.length > size:
        raise CorruptDataError(
            f"{path}, byte {region.offset}: truncated file: a record of {region.length:,} bytes exceeds the file of {size:,} bytes"
        )
    return Archive(tree, region.key, part=(region.offset, region.length))


def _pickle_of(archive: Archive) -> Any:
    if archive.has("byteorder") and archive.read("byteorder", 16) != b"little":
        raise UnsupportedDataError(f"{archive.path}: the byte order is not little-endian")
    try:
        return read_pickle(archive.read("data.pkl", _LARGEST_REGION_PICKLE))
    except UnsupportedDataError as error:
        message = str(error)
        raise CorruptDataError(message if archive.path in message else f"{archive.path}: {message}") from None


class DistributedCheckpointSource(WholeFiles):
    """The distributed checkpoints of one run."""

    def __init__(self, tree: Tree, run: str, files: Sequence[str]) -> None:
        keys = [key for key in files if _split(key)[1] == _METADATA]
        super().__init__(tree, run or Path(tree.root).name, keys)
        self._checkpoints: dict[str, Checkpoint] = {}
        #: Versions of the files with regions.
        self._shards: dict[str, dict[str, Version | None]] = {}
        #: The places of elements by file and offset of the region.
        self._places: dict[tuple[str, int], StoredTensor] = {}

    def refresh(self) -> bool:
        """Read the metadata of checkpoints of which a file changed."""
        for key, shards in self._shards.items():
            if any(self._tree.version(shard) != version for shard, version in shards.items()):
                self._versions.pop(key, None)
        return super().refresh()

    def _read(self, key: str, version: Version) -> None:
        checkpoint = read_metadata(self._tree, key)
        self._checkpoints[key] = checkpoint._replace(
            tensors=[one._replace(wall_time=version[1] / 1e9) for one in checkpoint.tensors]
        )
        self._shards[key] = {shard: self._tree.version(shard) for shard in checkpoint.ends}
        self._places = {place: one for place, one in self._places.items() if place[0] not in checkpoint.ends}
        if faults := [*self._missing(checkpoint), *self._truncated(checkpoint)]:
            raise CorruptDataError(f"{self._tree.path(key)}: {'; '.join(faults)}")

    def _missing(self, checkpoint: Checkpoint) -> Iterator[str]:
        missing = [key for key in checkpoint.ends if _size(self._tree, key) is None]
        if missing:
            yield (
                f"{len(missing):,} of {len(checkpoint.ends):,} files are missing ({_files(missing)}), with parts of "
                f"{_parts(checkpoint, missing)}"
            )

    def _truncated(self, checkpoint: Checkpoint) -> Iterator[str]:
        short = {
            key: size
            for key, end in checkpoint.ends.items()
            if (size := _size(self._tree, key)) is not None and size < end
        }
        for key, size in list(short.items())[:1]:
            more = f"; so are {len(short) - 1:,} more files" if len(short) > 1 else ""
            yield f"{_files([key])} is truncated: {size:,} of {checkpoint.ends[key]:,} bytes{more}"

    def tensors(self) -> Sequence[StoredTensor]:
        """Return the tensors at the step in their path, else at that in their checkpoint."""
        steps, without = with_steps(list(self._checkpoints), Path(self._tree.root).name)
        for key in list(steps):
            if place_of(key)[1] is None and (own := self._checkpoints[key].step) is not None:
                steps[key] = own
        steps |= {key: step for key in without if (step := self._checkpoints[key].step) is not None}
        return [
            tensor._replace(step=step)
            for key, step in sorted(steps.items())
            for tensor in self._checkpoints[key].tensors
        ]

    def locate(self, tensor: StoredTensor, region: Region) -> StoredTensor:
        """Return the location of the elements of a tensor's region."""
        place = self._places.get((region.key, region.offset))
        if place is not None:
            return place
        archive = _archive_of(self._tree, region)
        content = _pickle_of(archive)
        where = f"{archive.path}, byte {region.offset}: region of tensor {shown(tensor.name)}"
        if not isinstance(content, PickledTensor):
            raise CorruptDataError(f"{where}: not a tensor, but {visible(_kind(content), 200)}")
        if (content.storage.dtype, content.shape) != (tensor.dtype, region.shape):
            raise CorruptDataError(
                f"{where}: {content.storage.dtype} of shape {content.shape}, but the metadata say {tensor.dtype} of shape {region.shape}"
            )
        place = located(archive, region.key, tensor.name, content)
        self._places[region.key, region.offset] = place
        return place

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return what was left out of checkpoints."""
        return [
            (key, f"{self._tree.path(key)}: left out: {described_parts(one.left_out)}")
            for key, one in self._checkpoints.items()
            if one.left_out
        ]

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age([*self._files, *(shard for shards in self._shards.values() for shard in shards)])

    def verify(self) -> Verified:
        """Compare the checksums of all records, and shapes with the metadata."""
        checked, faults = 0, []
        for checkpoint in self._checkpoints.values():
            for tensor in checkpoint.tensors:
                for region in tensor.regions:
                    try:
                        archive = _archive_of(self._tree, region)
                        damage = list(archive.faults())
                        faults += [(region.key, fault) for fault in damage]
                        checked += len(archive.names()) if archive.has_checksums else 0
                        if not damage:
                            self.locate(tensor, region)
                    except (DataError, RunIOError) as error:
                        faults.append((region.key, str(error)))
        return Verified(checked, faults)


def _files(keys: Sequence[str]) -> str:
    return listed([shown(_split(key)[1]) for key in keys], 3)


def _parts(checkpoint: Checkpoint, missing: Collection[str]) -> str:
    files = set(missing)
    names = [one.name for one in checkpoint.tensors if any(region.key in files for region in one.regions)]
    return f"{len(names):,} of {len(checkpoint.tensors):,} tensors"

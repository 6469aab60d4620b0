"""Checkpoints that ``torch.save`` wrote, each a step. Nothing is unpickled."""

from __future__ import annotations

import math
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from smdwidgets._text import shown, visible
from smdwidgets.exceptions import CorruptDataError, DataError, RunIOError, UnsupportedDataError
from smdwidgets.sources.checkpoints import is_of_weights, place_of, with_steps
from smdwidgets.sources.source import Source, StoredTensor
from smdwidgets.sources.tensor_pickle import PickledTensor, read_pickle, tensors_of
from smdwidgets.sources.tree import Tree

_SUFFIXES: Final = (".pt", ".pth", ".ckpt", ".bin")
_ZIP: Final = b"PK\x03\x04"
#: The first bytes of the format before PyTorch 1.6: a pickle of its magic number.
_LEGACY: Final = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
#: Largest pickle: names and shapes of tensors, not their values.
_LARGEST_PICKLE: Final = 64 << 20
#: Most records of an archive.
_MOST_RECORDS: Final = 1_000_000
_LOCAL_HEADER: Final = 30
#: Names under which trainings save the weights, beside optimizers and settings.
_WEIGHTS: Final = ("state_dict", "model_state_dict", "model", "module", "net", "weights")
_STEPS: Final = ("global_step", "step", "iteration", "iter", "epoch")
_ITEMSIZE: Final = {"bool": 1, "bfloat16": 2, "complex64": 8, "complex128": 16}


class TorchCheckpoints:
    """The format of PyTorch's checkpoints."""

    name = "torch checkpoint"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the checkpoints of each run."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.named(*_SUFFIXES):
            head = tree.head(key, 256)
            if is_of_weights(key) and (_is_archive(head) or head.startswith(_LEGACY)):
                found[place_of(key)[0]].append(key)
        return found

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the checkpoints of one run."""
        return TorchCheckpointSource(tree, run, files)


def _is_archive(head: bytes) -> bool:
    """Return whether a file begins as an archive of ``torch.save``."""
    size = int.from_bytes(head[26:28], "little")
    name = head[_LOCAL_HEADER : _LOCAL_HEADER + size]
    return head.startswith(_ZIP) and name.endswith(
        (b"/data.pkl", b"/.format_version", b"/byteorder", b"/.data/version")
    )


class Archive:
    """The records of a checkpoint, by their place in the file.

    Raises :class:`~smdwidgets.exceptions.DataError`, with the path, for other archives.
    """

    def __init__(self, tree: Tree, key: str) -> None:
        self._tree = tree
        self._key = key
        self.path = tree.path(key)
        try:
            with zipfile.ZipFile(self.path) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise CorruptDataError(f"{self.path}: damaged or incomplete archive: {error}") from None
        if len(entries) > _MOST_RECORDS:
            raise CorruptDataError(f"{self.path}: {len(entries):,} records exceed the limit of {_MOST_RECORDS:,}")
        self._entries = {entry.filename.partition("/")[2]: entry for entry in entries}

    def place(self, name: str) -> tuple[int, int]:
        """Return offset and size of a record."""
        entry = self._entries.get(name)
        if entry is None:
            raise CorruptDataError(f"{self.path}: record {shown(name)} is missing")
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise UnsupportedDataError(f"{self.path}: record {shown(name)} is compressed")
        begin = max(entry.header_offset, 0)
        header = self._tree.read_exactly(self._key, begin, _LOCAL_HEADER)
        if begin != entry.header_offset or not header.startswith(_ZIP):
            raise CorruptDataError(f"{self.path}, byte {entry.header_offset}: record {shown(name)} has no header")
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        offset = entry.header_offset + _LOCAL_HEADER + lengths
        if offset + entry.file_size > (self._tree.size(self._key) or 0):
            raise CorruptDataError(f"{self.path}, byte {offset}: record {shown(name)} exceeds the file")
        return offset, entry.file_size

    def read(self, name: str, largest: int) -> bytes:
        """Return a record."""
        offset, size = self.place(name)
        if size > largest:
            raise UnsupportedDataError(
                f"{self.path}: record {shown(name)} of {size:,} bytes exceeds the limit of {largest:,}"
            )
        return self._tree.read_exactly(self._key, offset, size)

    def has(self, name: str) -> bool:
        """Return whether there is a record of this name."""
        return name in self._entries


def read_checkpoint(tree: Tree, key: str) -> tuple[list[StoredTensor], int | None]:
    """Return the tensors of a checkpoint, at step 0, and its step, if it has one.

    Raises :class:`~smdwidgets.exceptions.DataError`, with the path and the reason, for a checkpoint that holds anything
    that weights do not need.
    """
    if tree.head(key, len(_LEGACY)).startswith(_LEGACY):
        raise UnsupportedDataError(
            f"{tree.path(key)}: the format of PyTorch before 1.6; load it with torch.load(path, weights_only=True) and save it again"
        )
    archive = Archive(tree, key)
    if archive.has("byteorder") and archive.read("byteorder", 16) != b"little":
        raise UnsupportedDataError(f"{archive.path}: the byte order is not little-endian")
    try:
        root = read_pickle(archive.read("data.pkl", _LARGEST_PICKLE))
        tensors = tensors_of(_weights_of(root))
    except UnsupportedDataError as error:
        message = str(error)
        raise UnsupportedDataError(message if archive.path in message else f"{archive.path}: {message}") from None
    found = [_located(archive, key, name, tensor) for name, tensor in tensors.items()]
    return found, _step_of(root)


def _weights_of(root: Any) -> Any:
    """Return the part of a checkpoint with the weights; all of it if none is named so."""
    if isinstance(root, dict):
        for name in _WEIGHTS:
            part = root.get(name)
            if isinstance(part, dict) and part:
                return part
    return root


def _step_of(root: Any) -> int | None:
    if isinstance(root, dict):
        for name in _STEPS:
            if type(root.get(name)) is int and 0 <= root[name] < 2**62:
                return int(root[name])
    return None


def _located(archive: Archive, key: str, name: str, tensor: PickledTensor) -> StoredTensor:
    """Return the place of a tensor in the file; check that it is within its record."""
    dtype = tensor.storage.dtype
    digits = "".join(character for character in dtype.partition("_")[0] if character.isdigit())
    itemsize = _ITEMSIZE.get(dtype) or int(digits) // 8
    offset, size = archive.place(f"data/{tensor.storage.key}")
    count = math.prod(tensor.shape)
    last = (
        sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True)) if count else -1
    )
    length = (last + 1) * itemsize
    if tensor.offset * itemsize + length > size:
        raise CorruptDataError(
            f"{archive.path}, byte {offset}: tensor {shown(name)} exceeds its record of {size:,} bytes"
        )
    if count * itemsize > max(size, 1 << 20):
        raise UnsupportedDataError(
            f"{archive.path}: tensor {shown(name)} repeats its elements: {count:,} of {size:,} bytes"
        )
    contiguous, stride = True, 1
    for extent, own in zip(tensor.shape[::-1], tensor.strides[::-1], strict=True):
        contiguous &= own == stride or extent == 1
        stride *= extent
    strides = None if contiguous or not count else tensor.strides
    begin = offset + tensor.offset * itemsize
    return StoredTensor(visible(name, 1000), 0, dtype, tensor.shape, key, begin, length, strides=strides)


class TorchCheckpointSource(Source):
    """The checkpoints of one run."""

    def __init__(self, tree: Tree, run: str, files: Sequence[str]) -> None:
        self.name = run or Path(tree.root).name
        self._tree = tree
        self._keys = list(files)
        self._versions: dict[str, object] = {}
        self._read: dict[str, tuple[list[StoredTensor], int | None]] = {}
        self._problems: dict[str, str] = {}
        self._refused: dict[str, str] = {}

    def refresh(self) -> bool:
        """Read the checkpoints that changed."""
        changed = False
        for key in self._keys:
            version = self._tree.version(key)
            if version is None or version == self._versions.get(key):
                continue
            self._versions[key] = version
            self._problems.pop(key, None)
            self._refused.pop(key, None)
            changed = True
            try:
                tensors, step = read_checkpoint(self._tree, key)
            except UnsupportedDataError as error:
                self._refused[key] = str(error)
                continue
            except (DataError, RunIOError) as error:
                self._problems[key] = str(error)
                continue
            self._read[key] = [one._replace(wall_time=version[1] / 1e9) for one in tensors], step
        return changed

    def tensors(self) -> Sequence[StoredTensor]:
        """Return the tensors at the step in their path, else at that in their file."""
        named, without = with_steps([key for key in self._keys if key in self._read], Path(self._tree.root).name)
        steps = {key: step for key in without if (step := self._read[key][1]) is not None} | named
        for key, step in named.items():
            if place_of(key)[1] is None:
                steps[key] = self._read[key][1] or step
        return [tensor._replace(step=step) for key, step in sorted(steps.items()) for tensor in self._read[key][0]]

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age(self._keys)

    def problems(self) -> Sequence[tuple[str, str]]:
        """Return the checkpoints that are damaged or incomplete."""
        return list(self._problems.items())

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return the checkpoints that were refused, and why."""
        return list(self._refused.items())

"""Archives of NumPy arrays (``numpy.savez``), each a step. Nothing is unpickled.

Many programs keep data sets in such archives. One is a checkpoint if its path has a step, as in ``step_500.npz``, or
if it is the file that was opened. Archives of ``smdwidgets export`` say which tensor and step an array is.
"""

from __future__ import annotations

import io
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from smdwidgets._text import listed, shown, visible
from smdwidgets.exceptions import CorruptDataError, DataError, UnsupportedDataError
from smdwidgets.sources.archive import LOCAL_HEADER, ZIP, Archive
from smdwidgets.sources.checkpoints import is_of_weights, place_of, with_steps
from smdwidgets.sources.source import Refusal, Source, StoredTensor, Verified
from smdwidgets.sources.tree import Tree, Version
from smdwidgets.sources.whole_files import WholeFiles

_SUFFIX: Final = ".npz"
_MAGIC: Final = b"\x93NUMPY"
#: Most bytes of an array's header, as in NumPy.
_LARGEST_HEADER: Final = 10_000
#: The list of arrays in an archive of `smdwidgets export`, and its most bytes.
_INDEX: Final = "index.jsonl"
_LARGEST_INDEX: Final = 64 << 20


class NumpyArchives:
    """The format of archives of NumPy."""

    name = "numpy archive"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the archives of each run."""
        archives: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.named(_SUFFIX):
            run, step, _ = place_of(key)
            if _is_archive(tree.head(key, 256)) and is_of_weights(key) and (step is not None or tree.is_file):
                archives[run].append(key)
        return archives

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the archives of one run."""
        return NumpyArchiveSource(tree, run, files)

    def why_not(self, tree: Tree, key: str) -> Refusal | None:
        """Return what is wrong with a file whose name ends in ``.npz``."""
        if not key.endswith(_SUFFIX):
            return None
        if not _is_archive(tree.head(key, 256)):
            return Refusal(f"not an archive of NumPy: it begins with {tree.head(key, 8)[:8]!r}")
        return Refusal("arrays without a step, maybe a data set; a checkpoint is named as step_500.npz")


def _is_archive(head: bytes) -> bool:
    """Return whether a file begins as an archive of NumPy or of `smdwidgets export`."""
    size = int.from_bytes(head[26:28], "little")
    name = head[LOCAL_HEADER : LOCAL_HEADER + size]
    return head.startswith(ZIP) and (name.endswith(b".npy") or len(name) < size or name == _INDEX.encode())


class _Arrays(NamedTuple):
    """What was read of an archive."""

    tensors: list[StoredTensor]
    #: Whether it says the steps of its arrays.
    has_steps: bool
    #: Names of what was not read, with the reasons.
    left_out: dict[str, str]


def read_arrays(tree: Tree, key: str) -> _Arrays:
    """Return the arrays of an archive.

    Raises :class:`~smdwidgets.exceptions.DataError`, with the path and the reason, if it is damaged.
    """
    archive = Archive(tree, key, inside=False)
    labels = _labels(archive)
    tensors, left_out = [], {}
    for member in archive.names():
        name = member.removesuffix(".npy")
        if name == member:
            continue
        own, step = labels.get(name, (name, 0))
        try:
            tensors.append(_located(tree, archive, key, member, own)._replace(step=step))
        except CorruptDataError:
            raise
        except UnsupportedDataError as error:
            left_out[own] = str(error).removeprefix(f"{archive.path}: ")
    return _Arrays(tensors, bool(labels), left_out)


def _labels(archive: Archive) -> dict[str, tuple[str, int]]:
    """Return tensor and step of each array of `smdwidgets export`."""
    if not archive.has(_INDEX):
        return {}
    labels = {}
    try:
        for line in archive.read(_INDEX, _LARGEST_INDEX).splitlines():
            one = json.loads(line)
            labels[str(one["member"]).removesuffix(".npy")] = str(one["tensor"]), int(one["step"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptDataError(f"{archive.path}: damaged {_INDEX}: {error}") from None
    return labels


def _located(tree: Tree, archive: Archive, key: str, member: str, name: str) -> StoredTensor:
    offset, size = archive.place(member)
    head = tree.read(key, offset, min(size, _LARGEST_HEADER + 16))
    where = f"{archive.path}, byte {offset}: array {shown(name)}"
    if not head.startswith(_MAGIC):
        raise CorruptDataError(f"{where}: not in NumPy's format")
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream, max_header_size=_LARGEST_HEADER)
    except (ValueError, TypeError, SyntaxError, RecursionError, OverflowError) as error:
        raise CorruptDataError(f"{where}: invalid header: {visible(error, 200)}") from None
    if dtype.hasobject:
        raise UnsupportedDataError(f"{archive.path}: objects, which are not unpickled")
    if dtype.kind not in "biufc" or not dtype.isnative:
        raise UnsupportedDataError(f"{archive.path}: dtype {visible(dtype, 100)}")
    if min(shape, default=0) < 0:
        raise CorruptDataError(f"{where}: invalid shape {shape}")
    length = math.prod(shape) * dtype.itemsize
    if stream.tell() + length > size:
        raise CorruptDataError(f"{where} of {length:,} bytes exceeds its record of {size:,} bytes")
    strides = None
    if fortran and len(shape) > 1 and length:
        strides = tuple(math.prod(shape[:at]) for at in range(len(shape)))
    return StoredTensor(visible(name, 1000), 0, dtype.name, shape, key, offset + stream.tell(), length, strides=strides)


class NumpyArchiveSource(WholeFiles):
    """The archives of one run."""

    def __init__(self, tree: Tree, run: str, files: Sequence[str]) -> None:
        super().__init__(tree, run or Path(tree.root).name, files)
        self._arrays: dict[str, _Arrays] = {}

    def _read(self, key: str, version: Version) -> None:
        arrays = read_arrays(self._tree, key)
        below = place_of(key)[2]
        tensors = [one._replace(name=below + one.name, wall_time=version[1] / 1e9) for one in arrays.tensors]
        self._arrays[key] = arrays._replace(tensors=tensors)

    def tensors(self) -> Sequence[StoredTensor]:
        """Return the arrays at the step in their path, else at that in their archive."""
        own = [key for key, arrays in self._arrays.items() if arrays.has_steps]
        steps, _ = with_steps([key for key in self._arrays if key not in own], Path(self._tree.root).name)
        placed = [one for key in own for one in self._arrays[key].tensors]
        return placed + [
            one._replace(step=step) for key, step in sorted(steps.items()) for one in self._arrays[key].tensors
        ]

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return what was left out of archives."""
        return [
            (key, f"{self._tree.path(key)}: left out: {listed([f'{n} ({why})' for n, why in one.left_out.items()])}")
            for key, one in self._arrays.items()
            if one.left_out
        ]

    def verify(self) -> Verified:
        """Compare the checksums of all records."""
        checked, faults = 0, []
        for key in self._files:
            try:
                archive = Archive(self._tree, key, inside=False)
                faults += [(key, fault) for fault in archive.faults()]
            except DataError:
                continue  # one of `problems`
            checked += len(archive.names()) if archive.has_checksums else 0
        return Verified(checked, faults)

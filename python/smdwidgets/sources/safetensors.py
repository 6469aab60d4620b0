"""Checkpoints in the safetensors format, each a step.

Headers are read; values only when they are needed.

The format: 8 bytes with the size of the header, the header in JSON, then the tensors.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard

from smdwidgets._text import shown
from smdwidgets.exceptions import CorruptDataError, DataError, RunIOError
from smdwidgets.sources.checkpoints import is_of_weights, place_of, with_steps
from smdwidgets.sources.source import Refusal, Source, StoredTensor
from smdwidgets.sources.tree import Tree, Version
from smdwidgets.sources.whole_files import WholeFiles

#: Largest header, as in the library.
LARGEST_HEADER: Final = 100_000_000
#: NumPy dtype and size in bytes of each element type.
DTYPES: Final = {
    "BOOL": ("bool", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 1),
    "I16": ("int16", 2),
    "U16": ("uint16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I32": ("int32", 4),
    "U32": ("uint32", 4),
    "F32": ("float32", 4),
    "F64": ("float64", 8),
    "I64": ("int64", 8),
    "U64": ("uint64", 8),
    "C64": ("complex64", 8),
}
_INDEX: Final = ".safetensors.index.json"


class HeaderEntry(NamedTuple):
    """A tensor in a header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    #: Offset in the file.
    offset: int
    length: int


class Safetensors:
    """The format of safetensors checkpoints."""

    name = "safetensors"

    def find(self, tree: Tree) -> Mapping[str, Sequence[str]]:
        """Return the checkpoint files of each run, with the indexes of sharded ones."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for key in tree.named(".safetensors"):
            if is_of_weights(key) and _is_safetensors(tree.head(key, 9)):
                found[place_of(key)[0]].append(key)
        for key in tree.named(".json"):
            if key.endswith(_INDEX) and place_of(key)[0] in found:
                found[place_of(key)[0]].append(key)
        return found

    def open(self, tree: Tree, run: str, files: Sequence[str]) -> Source:
        """Return the source of the checkpoints of one run."""
        return CheckpointSource(tree, run, files)

    def why_not(self, tree: Tree, key: str) -> Refusal | None:
        """Return what is wrong with a file whose name ends in ``.safetensors``."""
        if not key.endswith(".safetensors") or not is_of_weights(key):
            return None
        if not (tree.head(key, 64).isascii() and tree.head(key, 64).strip()):
            try:
                read_header(tree, key)
            except (DataError, RunIOError) as error:
                return Refusal(str(error).removeprefix(tree.path(key)).lstrip(",: "), True)
        return None


def _is_safetensors(head: bytes) -> bool:
    size = int.from_bytes(head[:8], "little")
    return len(head) == 9 and 2 <= size <= LARGEST_HEADER and head[8:9] == b"{"


def read_header(tree: Tree, key: str) -> list[HeaderEntry]:
    """Return the tensors of a file, by their offset.

    Every claim of the header is checked against the file. Raises :class:`~smdwidgets.exceptions.DataError` with file
    and offset.
    """
    path = tree.path(key)

    def fault(what: str, at: int = 8) -> CorruptDataError:
        return CorruptDataError(f"{path}, byte {at}: {what}")

    total = tree.size(key) or 0
    size = int.from_bytes(tree.read_exactly(key, 0, 8), "little")
    if size > LARGEST_HEADER:
        raise fault(f"header of {size:,} bytes exceeds the limit of {LARGEST_HEADER:,}", 0)
    if size > total - 8:
        raise fault(f"header of {size:,} bytes exceeds the file of {total:,} bytes; it may be incomplete", 0)
    return parse_header(tree.read_exactly(key, 8, size), total, fault)


def parse_header(content: bytes, total: int, fault: Callable[[str], Exception]) -> list[HeaderEntry]:
    """Return the tensors of a header, by their offset in a file of ``total`` bytes.

    ``fault`` returns the exception to raise for what is wrong.
    """
    try:
        header = json.loads(content, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise fault(f"invalid header: {error}") from None
    if not isinstance(header, dict):
        raise fault("invalid header: not a JSON object")
    header.pop("__metadata__", None)
    begin = 8 + len(content)
    found = []
    for name, about in header.items():
        entry = _entry(name, about, begin)
        if isinstance(entry, str):
            raise fault(f"tensor {shown(name)}: {entry}")
        if entry.offset + entry.length > total:
            raise fault(
                f"tensor {shown(name)} ends at byte {entry.offset + entry.length:,} of a file of {total:,} bytes; it may be "
                "incomplete"
            )
        found.append(entry)
    found.sort(key=lambda entry: (entry.offset, entry.length))
    for before, after in itertools.pairwise(found):
        if before.offset + before.length > after.offset:
            raise fault(f"tensors {shown(before.name)} and {shown(after.name)} overlap at byte {after.offset:,}")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate name")
    return found


def _entry(name: str, about: Any, begin: int) -> HeaderEntry | str:
    """Return a tensor of the header, or why it is invalid."""
    if not isinstance(about, dict):
        return "the entry must be an object"
    dtype, shape, offsets = about.get("dtype"), about.get("shape"), about.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        return f"unsupported dtype {shown(dtype)}"
    if not _are_sizes(shape):
        return f"invalid shape {shown(shape)}"
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return f"invalid data_offsets {shown(offsets)}"
    numpy_name, itemsize = DTYPES[dtype]
    expected = math.prod(shape) * itemsize
    if offsets[1] - offsets[0] != expected:
        return (
            f"data_offsets {offsets} hold {offsets[1] - offsets[0]:,} bytes, but dtype and shape need {shown(expected)}"
        )
    return HeaderEntry(name, numpy_name, tuple(shape), begin + offsets[0], expected)


def _are_sizes(given: Any) -> TypeGuard[list[int]]:
    return (
        isinstance(given, list) and len(given) <= 32 and all(type(size) is int and 0 <= size < 2**63 for size in given)
    )


class CheckpointSource(WholeFiles):
    """The safetensors files of one run."""

    def __init__(self, tree: Tree, run: str, files: Sequence[str]) -> None:
        self._keys = [key for key in files if not key.endswith(_INDEX)]
        #: A copy of the last checkpoint, as a training saves it at its end, has no step in its path.
        self._steps, self._without = with_steps(self._keys, Path(tree.root).name)
        super().__init__(tree, run or Path(tree.root).name, list(self._steps))
        self._indexes = [key for key in files if key.endswith(_INDEX)]
        self._tensors: dict[str, list[StoredTensor]] = {}

    def refresh(self) -> bool:
        """Read the headers of files that changed."""
        changed = super().refresh()
        return self._check_shards() or changed

    def _read(self, key: str, version: Version) -> None:
        below = place_of(key)[2]
        self._tensors[key] = [
            StoredTensor(
                below + one.name, self._steps[key], one.dtype, one.shape, key, one.offset, one.length, version[1] / 1e9
            )
            for one in read_header(self._tree, key)
        ]

    def _check_shards(self) -> bool:
        """Note the shards that an index names and that do not exist."""
        before = len(self._problems)
        for index in self._indexes:
            self._problems.pop(index, None)
            try:
                size = min(self._tree.size(index) or 0, LARGEST_HEADER)
                names = json.loads(self._tree.read(index, 0, size))["weight_map"]
                files = sorted({str(file) for file in names.values()})
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, RunIOError) as error:
                self._problems[index] = f"{self._tree.path(index)}: invalid index: {error}"
                continue
            folder = index.rpartition("/")[0]
            keys = [f"{folder}/{file}" if folder else file for file in files]
            if missing := [key for key in keys if key not in self._steps and key not in self._without]:
                self._problems[index] = (
                    f"{self._tree.path(index)}: {len(missing)} missing shards, such as {shown(missing[0])}"
                )
        return len(self._problems) != before

    def tensors(self) -> Sequence[StoredTensor]:
        """Return the tensors of all checkpoints, each once for a step."""
        found: dict[tuple[int, str], StoredTensor] = {}
        for tensors in self._tensors.values():
            for tensor in tensors:
                found.setdefault((tensor.step, tensor.name), tensor)
        return list(found.values())

    def age(self) -> float | None:
        """Return the seconds since the last write."""
        return self._tree.age(self._keys)

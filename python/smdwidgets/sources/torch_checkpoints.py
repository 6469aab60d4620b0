"""Checkpoints that ``torch.save`` wrote, each a step. Nothing is unpickled."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from smdwidgets._text import listed, shown, visible
from smdwidgets.exceptions import CorruptDataError, DataError, UnsupportedDataError
from smdwidgets.sources.archive import LOCAL_HEADER, ZIP, Archive
from smdwidgets.sources.checkpoints import is_of_weights, place_of, with_steps
from smdwidgets.sources.source import Refusal, Source, StoredTensor, Verified
from smdwidgets.sources.tensor_pickle import Opaque, PickledTensor, itemsize_of, read_pickle, tensors_of
from smdwidgets.sources.tree import Tree, Version
from smdwidgets.sources.whole_files import WholeFiles

_SUFFIXES: Final = (".pt", ".pth", ".ckpt", ".bin")
#: The first bytes of the format before PyTorch 1.6: a pickle of its magic number.
_LEGACY: Final = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
#: Largest pickle: names and shapes of tensors, not their values.
LARGEST_PICKLE: Final = 64 << 20
#: Names under which trainings save the weights, beside optimizers and settings.
_WEIGHTS: Final = ("state_dict", "model_state_dict", "model", "module", "net", "weights")
#: Names under which they save the state of optimizers, or a list of them.
_OPTIMIZERS: Final = ("optimizer_state_dict", "optimizer", "optimizers", "optimizer_states", "optim", "opt")
#: Last parts of the names of buffers, which no optimizer changes.
_BUFFERS: Final = frozenset(["running_mean", "running_var", "num_batches_tracked"])
STEPS: Final = ("global_step", "step", "iteration", "iter", "epoch")


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

    def why_not(self, tree: Tree, key: str) -> Refusal | None:
        """Return what is wrong with a file whose name ends as that of a checkpoint."""
        if not key.lower().endswith(_SUFFIXES):
            return None
        head = tree.head(key, 256)
        if _is_archive(head) or head.startswith(_LEGACY):
            return (
                Refusal("the state of a training beside its weights, by its name") if not is_of_weights(key) else None
            )
        if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
            return Refusal("a pickle, which could execute anything and is not loaded; torch.save writes an archive")
        if head.startswith(ZIP):
            return Refusal("a ZIP archive that torch.save did not write")
        return (
            Refusal(f"not an archive of torch.save: it begins with {head[:8]!r}", True)
            if head.startswith(b"PK")
            else None
        )


def _is_archive(head: bytes) -> bool:
    """Return whether a file begins as an archive of ``torch.save``."""
    size = int.from_bytes(head[26:28], "little")
    name = head[LOCAL_HEADER : LOCAL_HEADER + size]
    return head.startswith(ZIP) and name.endswith((b"/data.pkl", b"/.format_version", b"/byteorder", b"/.data/version"))


class Checkpoint(NamedTuple):
    """What was read of a checkpoint."""

    #: At step 0.
    tensors: list[StoredTensor]
    step: int | None
    #: Names of what was not read, with the reasons.
    left_out: dict[str, str]


def read_checkpoint(tree: Tree, key: str) -> Checkpoint:
    """Return the tensors of a checkpoint: of its weights, and of its optimizers.

    Raises :class:`~smdwidgets.exceptions.DataError`, with the path and the reason, for a checkpoint without a tensor
    that can be read.
    """
    if tree.head(key, len(_LEGACY)).startswith(_LEGACY):
        raise UnsupportedDataError(
            f"{tree.path(key)}: the format of PyTorch before 1.6; load it with torch.load(path, weights_only=True) and save it again"
        )
    archive = Archive(tree, key)
    if archive.has("byteorder") and archive.read("byteorder", 16) != b"little":
        raise UnsupportedDataError(f"{archive.path}: the byte order is not little-endian")
    try:
        root = read_pickle(archive.read("data.pkl", LARGEST_PICKLE))
        name, part = weights_of(root)
        content = tensors_of(part)
        states = optimizer_tensors(root, list(content.tensors)) if name else {}
    except UnsupportedDataError as error:
        message = str(error)
        raise UnsupportedDataError(message if archive.path in message else f"{archive.path}: {message}") from None
    left_out = dict(content.left_out)
    if name and isinstance(root, dict):
        left_out |= {
            str(name): value.kind for name, value in root.items() if isinstance(value, Opaque) and value is not part
        }
    return _located_all(archive, key, {**content.tensors, **states}, _step_of(root), left_out)


def _located_all(
    archive: Archive, key: str, tensors: Mapping[str, PickledTensor], step: int | None, left_out: dict[str, str]
) -> Checkpoint:
    found, damage = [], None
    for name, tensor in tensors.items():
        try:
            found.append(located(archive, key, name, tensor))
        except CorruptDataError:
            raise
        except UnsupportedDataError as error:
            damage = damage or error
            left_out[name] = str(error).removeprefix(f"{archive.path}: ")
    if damage is not None and not found:
        raise damage
    if left_out and not found:
        raise UnsupportedDataError(f"{archive.path}: no tensor that can be read; left out: {described_parts(left_out)}")
    return Checkpoint(found, step, left_out)


def described_parts(left_out: Mapping[str, str]) -> str:
    """Return what was left out in one line.

    >>> described_parts({"args": "argparse.Namespace", "": "os.system"})
    'args (argparse.Namespace), os.system'
    """
    return listed(
        [
            f"{visible(name, 200)} ({visible(kind, 400)})" if name else visible(kind, 400)
            for name, kind in left_out.items()
        ]
    )


def weights_of(root: Any) -> tuple[str, Any]:
    """Return the name and the part with the weights; ``""`` and all without one."""
    if isinstance(root, dict):
        for name in _WEIGHTS:
            part = root.get(name)
            if (isinstance(part, dict) and part) or (isinstance(part, Opaque) and part.is_module):
                return name, part
    return "", root


def optimizer_tensors(root: Any, weights: Sequence[str]) -> dict[str, PickledTensor]:
    """Return the state of the optimizers in a checkpoint, named as by hooks.

    An optimizer has a number in place of a name, and so have its parameters. These get the names of the weights
    without buffers, if there are as many.

    >>> from smdwidgets.sources.tensor_pickle import Storage
    >>> second_moment = PickledTensor(Storage("float32", "0"), 0, (2,), (1,))
    >>> state = {"state": {0: {"exp_avg_sq": second_moment}}, "param_groups": [{"params": [0]}]}
    >>> list(optimizer_tensors({"optimizer": state}, ["fc.weight"]))
    ['optimizer/0/fc.weight/exp_avg_sq']
    """
    parts = [root.get(name) for name in _OPTIMIZERS] if isinstance(root, dict) else []
    several: list[Any] = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    states = [one for one in several if isinstance(one, dict) and isinstance(one.get("state"), dict)]
    parameters = [name for name in weights if name.rpartition(".")[2] not in _BUFFERS]
    tensors: dict[str, PickledTensor] = {}
    for at, optimizer in enumerate(states):
        groups = optimizer.get("param_groups")
        groups = [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else []
        numbers = [one for group in groups for one in _listed(group.get("params"))]
        names = [one for group in groups for one in _listed(group.get("param_names"))] or parameters
        named = dict(zip(numbers, names, strict=True)) if len(names) == len(numbers) else {}
        for number, state in optimizer["state"].items():
            for name, tensor in tensors_of(state).tensors.items():
                tensors[f"optimizer/{at}/{named.get(number, number)}/{name}"] = tensor
    return tensors


def _listed(given: Any) -> list[Any]:
    return [one for one in given if isinstance(one, int | str)] if isinstance(given, list) else []


def _step_of(root: Any) -> int | None:
    if isinstance(root, dict):
        for name in STEPS:
            if type(root.get(name)) is int and 0 <= root[name] < 2**62:
                return int(root[name])
    return None


def located(archive: Archive, key: str, name: str, tensor: PickledTensor) -> StoredTensor:
    """Return the place of a tensor in the file; check that it is within its record."""
    dtype = tensor.storage.dtype
    itemsize = itemsize_of(dtype)
    record = f"data/{tensor.storage.key}"
    offset, size = archive.place(record)
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
    checksum = archive.checksum(record) if (begin, length) == (offset, size) else None
    return StoredTensor(
        visible(name, 1000), 0, dtype, tensor.shape, key, begin, length, strides=strides, checksum=checksum
    )


class TorchCheckpointSource(WholeFiles):
    """The checkpoints of one run."""

    def __init__(self, tree: Tree, run: str, files: Sequence[str]) -> None:
        super().__init__(tree, run or Path(tree.root).name, files)
        self._checkpoints: dict[str, Checkpoint] = {}
        self._refused: dict[str, str] = {}

    def _read(self, key: str, version: Version) -> None:
        self._refused.pop(key, None)
        try:
            checkpoint = read_checkpoint(self._tree, key)
        except UnsupportedDataError as error:
            self._refused[key] = str(error)
            return
        self._checkpoints[key] = checkpoint._replace(
            tensors=[one._replace(wall_time=version[1] / 1e9) for one in checkpoint.tensors]
        )

    def tensors(self) -> Sequence[StoredTensor]:
        """Return the tensors at the step in their path, else at that in their file."""
        named, without = with_steps(
            [key for key in self._files if key in self._checkpoints], Path(self._tree.root).name
        )
        steps = {key: step for key in without if (step := self._checkpoints[key].step) is not None} | named
        for key, step in named.items():
            if place_of(key)[1] is None:
                steps[key] = self._checkpoints[key].step or step
        return [
            tensor._replace(step=step)
            for key, step in sorted(steps.items())
            for tensor in self._checkpoints[key].tensors
        ]

    def unsupported(self) -> Sequence[tuple[str, str]]:
        """Return the checkpoints that were refused, and what was left out of others."""
        notes: dict[str, list[str]] = {}
        for key, one in self._checkpoints.items():
            if one.left_out and key not in self._refused:
                notes.setdefault(described_parts(one.left_out), []).append(key)
        return [
            *self._refused.items(),
            *((keys[0], f"{self._tree.path(keys[0])}: left out: {what}{_also(keys)}") for what, keys in notes.items()),
        ]

    def verify(self) -> Verified:
        """Compare the checksums of all records."""
        checked, faults = 0, []
        for key in self._files:
            try:
                archive = Archive(self._tree, key)
                faults += [(key, fault) for fault in archive.faults()]
            except DataError:
                continue  # one of `problems`
            checked += len(archive.names()) if archive.has_checksums else 0
        return Verified(checked, faults)


def _also(keys: Sequence[str]) -> str:
    return f"; the same in {len(keys) - 1:,} more checkpoints" if len(keys) > 1 else ""

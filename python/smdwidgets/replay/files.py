"""The files of a recording, which are read without PyTorch.

`replay.json` says what was recorded; it is written last, and replaced when more follows. It names its tensor files,
which have the safetensors format. Nothing is unpickled, imported or called by a name from a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets._atomic import replace_file, replacing
from smdwidgets._text import shown
from smdwidgets.exceptions import CorruptDataError, RunFileMissing
from smdwidgets.replay.tree import decode
from smdwidgets.sources.safetensors import HeaderEntry, parse_header
from smdwidgets.storage.protocol import Range, Storage, beginning

__all__ = ["RECORDING", "RecordedBatch", "RecordedStep", "Recording", "Stored", "write_recording", "write_tensors"]

RECORDING: Final = "replay.json"
"""The file that says what was recorded."""
#: Bytes that are read at most of that file, of the header of a tensor file, and of a tensor.
_LARGEST, _LARGEST_HEADER, _LARGEST_TENSOR = 64 << 20, 16 << 20, 1 << 34
_MOST_STEPS, _MOST_BATCHES, _MOST_ROWS = 10_000, 100_000, 1_000_000
_BFLOAT16_BITS: Final = 16


class Stored(NamedTuple):
    """The content of a tensor.

    Its element type in a safetensors header, shape and bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def write_tensors(path: Path, tensors: Mapping[str, Stored]) -> int:
    """Write a tensor file that appears whole or not at all, and return its size."""
    header: dict[str, Any] = {}
    offset = 0
    for name, one in tensors.items():
        end = offset + one.data.nbytes
        header[name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for one in tensors.values():
            file.write(one.data)
    return 8 + len(text) + offset


def write_recording(folder: Path, content: Mapping[str, Any]) -> None:
    """Write or replace the file that says what was recorded."""
    replace_file(folder / RECORDING, json.dumps(content, allow_nan=False))


@dataclass(frozen=True)
class RecordedBatch:
    """One delivery of a data loader.

    Attributes:
        kind: ``"batch"``; or ``"end"`` where the loader had no more.
        rows: what the rows are: indices of the data set, pairs of (worker, running number) of an iterable one, or the
            values of a column of ids; None: it is not known.
        batch: the batch as JSON; None: it was not kept.
        rng: the random states after it as JSON; None: they were not kept.
        loader: number of the loader's iterator.
        position: how many batches the iterator had given before.
        fingerprint: a checksum of a sample of its elements.
    """

    kind: str
    rows: tuple[Any, ...] | None
    batch: Any = None
    rng: Any = None
    loader: int = 0
    position: int = 0
    fingerprint: int | None = None


@dataclass(frozen=True)
class RecordedStep:
    """One step of a recording.

    Attributes:
        step: its global step.
        first: the first of the deliveries that it read.
        end: the first delivery that it did not read.
        batches: the deliveries that its forward passes received.
        losses: the roots of its backward passes.
        updates: its optimizers in the order of their updates.
        digest: a checksum of the weights after it; None: there is none.
        forwards: the random states at its forward passes, as JSON.
        by_order: whether its batches are known by the order of events only.
    """

    step: int
    first: int
    end: int
    batches: tuple[int, ...]
    losses: tuple[float, ...]
    updates: tuple[str, ...]
    digest: int | None
    forwards: tuple[Any, ...]
    by_order: bool = False


@dataclass
class Recording:
    """What was recorded around an incident.

    Attributes:
        keyframe: the step that begins with the recorded state; None: there is no state.
        why_not: why the steps cannot be executed again; empty if they can.
        recorded: the steps, in order.
        deliveries: what the data loaders gave, in order.
        light: everything of the state but tensors, as JSON.
        checks: checksums of weights and buffers at the beginning of steps.
        about: versions, threads, the program and its loop.
        lost: what could not be recorded.
    """

    folder: str
    keyframe: int | None = None
    why_not: str = ""
    recorded: tuple[RecordedStep, ...] = ()
    deliveries: tuple[RecordedBatch, ...] = ()
    light: Any = None
    checks: Mapping[int, int] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    _storage: Storage | None = None
    _files: Mapping[str, int] = field(default_factory=dict)
    _places: dict[str, tuple[str, HeaderEntry]] | None = None

    @classmethod
    def open(cls, storage: Storage, folder: str) -> Recording | None:
        """Return the recording in a folder; None if there is none.

        Raises:
            CorruptDataError: the file is damaged; the message has its name.
        """
        key = f"{folder}/{RECORDING}"
        try:
            content = beginning(storage, key, _LARGEST + 1)
        except FileNotFoundError:
            return None
        try:
            if len(content) > _LARGEST:
                raise ValueError(f"it has more than {_LARGEST:,} bytes")
            return cls._parse(json.loads(content), storage, folder)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            reason = "it has too many values in each other" if isinstance(error, RecursionError) else error
            raise CorruptDataError(f"{key}: not a recording: {reason}") from None

    @classmethod
    def _parse(cls, content: Any, storage: Storage, folder: str) -> Recording:
        if not isinstance(content, dict) or content.get("version") != 1:
            raise ValueError("it is no recording of version 1")
        steps, deliveries = content["steps"], content["deliveries"]
        if len(steps) > _MOST_STEPS or len(deliveries) > _MOST_BATCHES:
            raise ValueError("it has too many steps")
        files = {str(name): int(size) for name, size in content["files"].items()}
        if any("/" in name or "\\" in name or name.startswith(".") for name in files):
            raise ValueError("a tensor file lies in another folder")
        keyframe = content["keyframe"]
        recorded = tuple(
            RecordedStep(
                _number(one["step"]),
                _number(one["first"]),
                _number(one["end"]),
                tuple(_number(each, len(deliveries)) for each in one["batches"]),
                tuple(float(each) for each in one["losses"]),
                tuple(str(each) for each in one["updates"]),
                None if one["digest"] is None else _number(one["digest"]),
                tuple(one["forwards"]),
                bool(one["by_order"]),
            )
            for one in steps
        )
        if [one.step for one in recorded] != sorted({one.step for one in recorded}):
            raise ValueError("its steps are not in order")
        return cls(
            folder,
            None if keyframe is None else _number(keyframe),
            str(content["why_not"] or ""),
            recorded,
            tuple(
                RecordedBatch(
                    str(one["kind"]),
                    None if one["rows"] is None else _rows(one["rows"]),
                    one["batch"],
                    one["rng"],
                    _number(one["loader"]),
                    _number(one["position"]),
                    one["fingerprint"],
                )
                for one in deliveries
            ),
            content["light"],
            {int(step): _number(crc) for step, crc in content["checks"].items()},
            dict(content["about"]),
            tuple(str(one) for one in content["lost"]),
            storage,
            files,
        )

    # -------------------------------------------------------------------------------------------------------- reading

    @property
    def steps(self) -> range:
        """The global steps that were recorded, as far as they can be executed again."""
        steps = [one.step for one in self.recorded if self.keyframe is not None and one.step >= self.keyframe]
        return range(steps[0], steps[-1] + 1) if steps and not self.why_not else range(0)

    @property
    def expected(self) -> int:
        """The number of training steps that can be executed again."""
        return sum(one.step in self.steps for one in self.recorded)

    def step(self, step: int) -> RecordedStep:
        """Return what was recorded of a step.

        Raises:
            LookupError: it was not recorded.
        """
        for one in self.recorded:
            if one.step == step:
                return one
        span = f"steps {self.recorded[0].step} to {self.recorded[-1].step}" if self.recorded else "no step"
        raise LookupError(f"step {step} was not recorded; the recording has {span}")

    def row_ids(self, step: int) -> list[Any] | None:
        """Return the rows of the batches of a step; None if they are not known."""
        batches = [self.deliveries[one] for one in self.step(step).batches]
        if not batches or any(one.rows is None for one in batches):
            return None
        return [row for one in batches for row in one.rows or ()]

    def batch(self, step: int) -> Any:
        """Return the batch of a step, with arrays in place of tensors.

        A list if it had several.

        Raises:
            LookupError: the step or its batch was not recorded.
            CorruptDataError: a file is damaged.
        """
        one = self.step(step)
        kept = [self.deliveries[each].batch for each in one.batches]
        if not kept or any(each is None for each in kept):
            why = "no data loader gave it" if not kept else "only its rows were kept; pass replay=True to the hook"
            raise LookupError(f"the batch of step {step} was not recorded: {why}")
        batches = [self.value(each) for each in kept]
        return batches[0] if len(batches) == 1 else batches

    def value(self, content: Any) -> Any:
        """Return a nested value, with arrays in place of tensors."""
        try:
            return decode(content, self.array)
        except (ValueError, RecursionError) as error:
            raise CorruptDataError(f"{self.folder}/{RECORDING}: {error}") from None

    @property
    def names(self) -> list[str]:
        """The names of all tensors."""
        return list(self._where())

    def array(self, name: str) -> NDArray[Any]:
        """Return a tensor as an array; bfloat16 as float32."""
        dtype, array = self.stored(name)
        if dtype == "bfloat16":
            return (array.astype(np.uint32) << _BFLOAT16_BITS).view(np.float32)
        return array.astype(np.float16) if dtype.startswith("float8") else array

    def stored(self, name: str) -> tuple[str, NDArray[Any]]:
        """Return the element type of a tensor and its content.

        Bfloat16 and float8 as unsigned integers.
        """
        if (place := self._where().get(name)) is None:
            raise CorruptDataError(f"{self.folder}: the tensor {shown(name)} is in no file")
        key, entry = place
        if entry.length > _LARGEST_TENSOR:
            raise CorruptDataError(f"{key}, byte {entry.offset}: a tensor of {entry.length:,} bytes")
        [content] = self._read(key, entry.offset, entry.length)
        dtype = {"bfloat16": "uint16"}.get(entry.dtype, "uint8" if entry.dtype.startswith("float8") else entry.dtype)
        return entry.dtype, np.frombuffer(content, dtype).reshape(entry.shape).copy()

    def _where(self) -> dict[str, tuple[str, HeaderEntry]]:
        if self._places is None:
            places = {}
            for name, size in self._files.items():
                key = f"{self.folder}/{name}"
                places.update({entry.name: (key, entry) for entry in self._entries(key, size)})
            self._places = places
        return self._places

    def _entries(self, key: str, total: int) -> Iterable[HeaderEntry]:
        def fault(what: str) -> CorruptDataError:
            return CorruptDataError(f"{key}, byte 8: {what}")

        [head] = self._read(key, 0, 8)
        size = int.from_bytes(head, "little")
        if size > min(_LARGEST_HEADER, total - 8):
            raise CorruptDataError(f"{key}, byte 0: a header of {size:,} bytes in a file of {total:,} bytes")
        [content] = self._read(key, 8, size)
        return parse_header(content, total, fault)

    def _read(self, key: str, offset: int, length: int) -> list[bytes]:
        assert self._storage is not None
        try:
            [content] = self._storage.read_ranges([Range(key, offset, length)])
        except RunFileMissing:
            raise CorruptDataError(f"{key}: the file is missing") from None
        if len(content) != length:
            raise CorruptDataError(
                f"{key}, byte {offset}: the file ends after {len(content):,} of {length:,} bytes; it may be incomplete"
            )
        return [bytes(content)]


def _number(value: Any, below: int = 2**63) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(f"{shown(value)} is no number of a step or batch")
    return value


def _rows(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) > _MOST_ROWS:
        raise ValueError("rows are no list")
    return tuple(tuple(one) if isinstance(one, list) else one for one in value)

"""Write a snapshot into the folder of an incident. Runs on the writer's thread."""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from smdwidgets._text import json_number, shown
from smdwidgets.replay.files import RECORDING, Stored, write_recording, write_tensors
from smdwidgets.replay.torch.loop import Loop, NoLoop, loop_of
from smdwidgets.replay.torch.recording import Delivery, Frame, ReplayRecorder, Snapshot, StepRecord
from smdwidgets.replay.torch.state import State, checksum
from smdwidgets.replay.tree import encode, mapped

__all__ = ["NUMPY", "IncidentRecording", "Reference"]

#: Element types of safetensors headers.
_DTYPES: Final = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
_NUMPY_DTYPES: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float16": "F16", "float32": "F32", "float64": "F64", "complex64": "C64",
}  # fmt: skip
#: Ending of the names of arrays of NumPy.
NUMPY: Final = ":np"
_MOST_ROWS: Final = 100_000


class Reference:
    """Stands for a tensor of a recording in a batch; it is a leaf."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


@dataclass
class _Tensors:
    """The tensors of one file, under names."""

    prefix: str
    stored: dict[str, Stored] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    #: The name of each stored object by its id.
    names: dict[int, str] = field(default_factory=dict)

    def keep(self, value: Any) -> str | None:
        """Store a tensor or array under the next name, and return it; None: it is none."""
        if not isinstance(value, torch.Tensor | np.ndarray):
            return None
        stored = _stored(value)
        if stored is None:
            self.lost.add(f"{self.prefix}: {type(value).__name__} of {value.dtype}")
            return None
        name = f"{self.prefix}/{len(self.stored)}{NUMPY if isinstance(value, np.ndarray) else ''}"
        self.stored[name] = stored
        self.names[id(value)] = name
        return name

    def skeleton(self, value: Any) -> Any:
        """Return nested values with references in place of stored objects."""
        return mapped(value, lambda leaf: Reference(self.names[id(leaf)]) if id(leaf) in self.names else leaf)


def _stored(value: torch.Tensor | np.ndarray) -> Stored | None:
    if isinstance(value, np.ndarray):
        dtype = _NUMPY_DTYPES.get(value.dtype.name)
        if dtype is None or not value.dtype.isnative:
            return None
        return Stored(dtype, value.shape, np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    dtype = _DTYPES.get(value.dtype)
    if dtype is None or value.layout is not torch.strided or type(value).__name__ == "DTensor":
        return None
    flat = value.detach().cpu().resolve_conj().contiguous().reshape(-1)
    return Stored(dtype, tuple(value.shape), memoryview(flat.view(torch.uint8).numpy()))


class IncidentRecording:
    """The recording of one incident, in the folder of its record.

    Args:
        recorder: records the training.
        folder: the folder.
        step: the step of the incident.
        allows: whether so many bytes may be written.
    """

    def __init__(self, recorder: ReplayRecorder, folder: Path, step: int, allows: Callable[[int], bool]) -> None:
        self._recorder, self.folder, self._allows = recorder, folder, allows
        self.step = step
        self._files: dict[str, int] = {}
        self._deliveries: list[dict[str, Any]] = []
        self._first = 0
        self._next = 0
        self._lost: set[str] = set()
        self.snapshot = recorder.snapshot(step)
        self.loop: Loop | None = None
        self.why_no_loop = ""
        self._light: Any = None
        #: The batches as the loaders gave them, with references in place of tensors, by number.
        self.skeletons: dict[int, Any] = {}
        self.why_not = self.snapshot.why_not
        #: Checksums of the weights at the beginning of later keyframes, by step.
        self._checks: dict[int, int] = {}

    # -------------------------------------------------------------------------------------------------------- writing

    def begin(self) -> list[str]:
        """Write what is known now.

        Return the names of the files, the last one completes them.
        """
        snapshot = self.snapshot
        frame = snapshot.frame if not self.why_not else None
        tensors: dict[str, Stored] = {}
        if frame is not None:
            self._find_loop(frame)
            tensors, self._light = self._state(frame)
            if not self._allows(_size(tensors)):
                self.why_not, self._light, tensors = "the share of the disk for incidents is used up", None, {}
        if snapshot.deliveries:
            self._first = self._next = snapshot.deliveries[0].number
        tensors.update(self._add(snapshot.deliveries))
        files = self._write("state", tensors, snapshot)
        self._give_back()
        return files

    def _give_back(self) -> None:
        """Forget the copies that were written.

        The training that was recorded keeps this recording alive.
        """
        snapshot, frame = self.snapshot, self.snapshot.frame
        if frame is not None:
            frame = replace(frame, state=State(objects=frame.state.objects))
        deliveries = tuple(replace(one, batch=None, rng=None, nbytes=0) for one in snapshot.deliveries)
        self.snapshot = replace(snapshot, frame=frame, later=(), deliveries=deliveries)

    def extend(self) -> list[str]:
        """Write what has followed; return the names of the files."""
        later = self._recorder.snapshot(self.step, after=self._next)
        steps = list(self.snapshot.steps)
        for one in later.steps:
            if one.number == steps[-1].number + 1:  # what follows steps that were given up cannot be reached
                steps.append(one)
        self.snapshot = replace(
            self.snapshot, later=later.later, steps=tuple(steps), deliveries=(), why_not=self.why_not
        )
        files = self._write("after", self._add(later.deliveries), self.snapshot)
        self._give_back()
        return files

    def _state(self, frame: Frame) -> tuple[dict[str, Stored], Any]:
        tensors = {}
        for name, one in frame.state.tensors.items():
            stored = _stored(one)
            if stored is None:
                self.why_not = f"the tensor {shown(name)} has an unusual type: {one.dtype}"
                return {}, None
            tensors[name] = stored
        light = _Tensors("light")
        content = encode(frame.state.light, light.keep)
        self._lost |= light.lost
        tensors.update(light.stored)
        return tensors, {
            "state": content,
            "gradients": None if frame.gradients is None else list(frame.gradients),
            "by_delivery": frame.by_delivery,
            "position": frame.position,
        }

    def _add(self, deliveries: tuple[Delivery, ...]) -> dict[str, Stored]:
        """Add deliveries in order; return their tensors."""
        tensors: dict[str, Stored] = {}
        for one in deliveries:
            if one.number < self._next:
                continue
            while self._next < one.number:  # it was given up meanwhile
                self._deliveries.append(_delivery(Delivery(self._next, "batch"), None, None))
                self._next += 1
            self._next += 1
            batch = _Tensors(f"batch/{one.number}")
            rng = _Tensors(f"rng/{one.number}")
            content = states = None
            if one.has_batch:
                content, states = encode(one.batch, batch.keep), encode(one.rng, rng.keep)
                stored = {**batch.stored, **rng.stored}
                if self._allows(_size(tensors) + _size(stored)):
                    tensors.update(stored)
                    self.skeletons[one.number - self._first] = batch.skeleton(one.batch)
                else:
                    content = states = None
            self._lost |= batch.lost
            self._deliveries.append(_delivery(one, content, states))
        return tensors

    def _write(self, name: str, tensors: dict[str, Stored], snapshot: Snapshot) -> list[str]:
        steps, forwards = [], _Tensors("forward")
        written = self._first, self._next
        for one in snapshot.steps:
            if one.step > self.step and not self._is_whole(one):
                break
            if one.first >= written[0]:
                forwards.prefix = f"{name}-forward/{one.step}"
                steps.append(self._step(one, forwards))
        tensors.update(forwards.stored)
        file = f"{name}.safetensors"
        if tensors:
            self._files[file] = write_tensors(self.folder / file, tensors)
        frame = snapshot.frame
        for later in snapshot.later if not self.why_not else ():
            crc = checksum(_weights(later)) if later.step not in self._checks else None
            if crc is not None:
                self._checks[later.step] = crc
        write_recording(
            self.folder,
            {
                "version": 1,
                "keyframe": frame.step if frame is not None and not self.why_not else None,
                "why_not": self.why_not or None,
                "files": self._files,
                "steps": steps,
                "deliveries": self._deliveries,
                "light": self._light,
                "checks": {str(step): crc for step, crc in sorted(self._checks.items())},
                "about": self._about(),
                "lost": sorted(self._lost)[:100],
            },
        )
        return [file, RECORDING] if tensors else [RECORDING]

    def _is_whole(self, one: StepRecord) -> bool:
        """Whether a step has ended, and its batches were kept if they are needed."""
        read = self._deliveries[max(one.first - self._first, 0) : max(one.end - self._first, 0)]
        return one.is_complete and (
            bool(self.why_not) or all(each["kind"] != "batch" or each["rng"] is not None for each in read)
        )

    def _step(self, one: StepRecord, forwards: _Tensors) -> dict[str, Any]:
        losses = [float(each) for each in tuple(one.losses)]
        end = self._next if one.end < 0 else min(one.end, self._next)
        return {
            "step": one.step,
            "first": one.first - self._first,
            "end": end - self._first,
            "batches": [each - self._first for each in tuple(one.batches) if self._first <= each < self._next],
            "losses": list(map(json_number, losses)),
            "updates": list(one.updates),
            "digest": one.digest,
            "forwards": [encode(each, forwards.keep) for each in tuple(one.forwards)],
            "by_order": one.by_order,
        }

    def _find_loop(self, frame: Frame) -> None:
        try:
            self.loop = loop_of(frame.began, frame.ended)
        except NoLoop as error:
            self.why_no_loop = str(error)

    def _about(self) -> dict[str, Any]:
        loop, models = self.loop, self.snapshot.world.registered
        return {
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "cpu": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "dtype": str(torch.get_default_dtype()),
            "devices": sorted({str(one.device) for model in models for one in model.parameters()}),
            "workers": self._recorder.workers,
            "models": [type(one).__name__ for one in models],
            "directory": Path.cwd().name,
            "source": None
            if loop is None
            else {"file": loop.filename, "line": loop.line, "sha256": loop.sha256, "text": loop.source},
            "why_no_loop": self.why_no_loop,
        }

    # -------------------------------------------------------------------------------------------------------- reading

    def summary(self, nbytes: int) -> dict[str, Any]:
        """Return what the record of the incident says."""
        snapshot = self.snapshot
        steps = [one.step for one in snapshot.steps]
        return {
            "keyframe": None if self.why_not or snapshot.frame is None else snapshot.frame.step,
            "steps": [steps[0], steps[-1]] if steps else [],
            "bytes": nbytes,
            "why_not": self.why_not or None,
        }

    @property
    def rows(self) -> tuple[Any, ...]:
        """The rows of the batches of the incident's step, as far as they are known."""
        return rows_at(self.snapshot, self.step)


def rows_at(snapshot: Snapshot, step: int) -> tuple[Any, ...]:
    """Return the rows of the batches of a step, or nothing."""
    numbers = {one.number: one for one in snapshot.deliveries}
    record = next((one for one in snapshot.steps if one.step == step), None)
    if record is None:
        return ()
    batches = [numbers.get(each) for each in record.batches]
    if not batches or any(one is None or one.rows is None for one in batches):
        return ()
    return tuple(row for one in batches if one is not None for row in one.rows or ())


def _weights(frame: Frame) -> list[torch.Tensor]:
    """Return parameters and buffers of the registered models in a keyframe."""
    return [one for name, one in frame.state.tensors.items() if name[0] == "m" and name.split("/", 2)[1] in ("p", "b")]


def _size(tensors: Mapping[str, Stored]) -> int:
    return sum(one.data.nbytes for one in tensors.values())


def _delivery(one: Delivery, batch: Any, rng: Any) -> dict[str, Any]:
    rows = None if one.rows is None or len(one.rows) > _MOST_ROWS else [
        list(each) if isinstance(each, tuple) else each for each in one.rows
    ]  # fmt: skip
    return {
        "kind": one.kind,
        "rows": rows,
        "batch": batch,
        "rng": rng,
        "loader": max(one.loader, 0),
        "position": one.position,
        "fingerprint": _fingerprint(one),
    }


def _fingerprint(one: Delivery) -> int | None:
    leaves = _Tensors("batch")
    if not one.has_batch:
        return None
    encode(one.batch, leaves.keep)
    crc = 0
    for stored in leaves.stored.values():
        step = max(1, stored.data.nbytes // 4096)
        crc = zlib.crc32(bytes(stored.data[::step]), crc)
    return crc

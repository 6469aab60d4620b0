"""Recordings as a hook writes them, recording_json without PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from smdwidgets.incident import INCIDENTS_PREFIX, Incident, Trigger
from smdwidgets.replay.files import Stored, write_recording, write_tensors

FOLDER = f"{INCIDENTS_PREFIX}/worker_0/1_2_3"


def stored(array: np.ndarray, dtype: str) -> Stored:
    return Stored(dtype, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def content(**changes: Any) -> dict[str, Any]:
    """Return the JSON of two steps, the second of two batches."""
    rng = {"torch": {"$tensor": "rng/0/0"}}

    def delivery(rows: list[Any] | None, batch: Any) -> dict[str, Any]:
        return {"kind": "batch", "rows": rows, "batch": batch, "rng": rng, "loader": 0, "position": 0, "fingerprint": 1}

    def step(number: int, batches: list[int]) -> dict[str, Any]:
        return {
            "step": number,
            "first": batches[0],
            "end": batches[-1] + 1,
            "batches": batches,
            "losses": [0.5],
            "updates": ["o0"],
            "digest": 7,
            "forwards": [],
            "by_order": False,
        }

    recording_json: dict[str, Any] = {
        "version": 1,
        "keyframe": 36,
        "why_not": None,
        "files": {"state.safetensors": 0},
        "steps": [step(36, [0]), step(37, [1, 2])],
        "deliveries": [
            delivery([4, 8], {"$tuple": [{"$tensor": "batch/0/0"}, {"$tensor": "batch/0/1"}]}),
            delivery([302, 88], {"x": {"$tensor": "batch/1/0"}, "name": "second"}),
            delivery(None, None),
        ],
        "light": {"state": {}, "gradients": None, "by_delivery": True, "position": 0},
        "checks": {},
        "about": {"threads": 1},
        "lost": [],
    }
    return {**recording_json, **changes}


def write(run: Path, **changes: Any) -> Path:
    """Write a run with one incident; return the folder of its recording."""
    folder = run / FOLDER
    tensors = {
        "batch/0/0": stored(np.arange(4, dtype=np.float32).reshape(2, 2), "F32"),
        "batch/0/1": stored(np.array([0x3F80, 0x4000], np.uint16), "BF16"),
        "batch/1/0": stored(np.array([5, 6], np.int64), "I64"),
        "rng/0/0": stored(np.zeros(8, np.uint8), "U8"),
    }
    size = write_tensors(folder / "state.safetensors", tensors)
    recording_json = content(**changes)
    if recording_json["files"] == {"state.safetensors": 0}:
        recording_json["files"] = {"state.safetensors": size}
    write_recording(folder, recording_json)
    summary = {"keyframe": 36, "steps": [36, 37], "bytes": size, "why_not": None}
    incident = Incident(
        "worker_0", 37, ("NaN in 'x'",), Trigger("x", "nan", 1.0), (36, 37), 45, rows=(302, 88), recorded=summary
    )
    folder.with_suffix(".json").write_bytes(incident.to_json())
    return folder

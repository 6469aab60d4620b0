"""Runs written by an attacker."""

from __future__ import annotations

import csv
import json
import os
import struct
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from faults.hostile.names import ALL, SMALL, file_name
from python.logs.logs import field, varint
from smdwidgets import _core


def index_key(step: int, worker: str = "worker_0") -> str:
    """Return the path of an index file."""
    return f"index/{step // 1000:09d}/{step:012d}_{worker}.json"


def event_key(step: int, worker: str = "worker_0") -> str:
    """Return the path of an event file."""
    return f"events/{step:012d}/{step:012d}_{worker}.tfevents"


def save(root: Path, step: int, values: Mapping[str, Any], worker: str = "worker_0", mode: int = 1) -> None:
    """Write one step with the package's writer."""
    with _core.StepWriter(str(root), step, worker, mode, step) as writer:
        for name, value in values.items():
            writer.tensor(name, value)


def collections(
    root: Path, given: Mapping[str, Mapping[str, Any]] | str, workers: int = 1, worker: str = "worker_0"
) -> None:
    """Write a collection file with these collections, or with this text."""
    path = root / "collections" / "000000000" / f"{worker}_collections.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(given, str):
        path.write_text(given, encoding="utf-8")
        return
    full = {
        name: {"name": name, "include_regex": [], "tensor_names": [], "save_histogram": True, **about}
        for name, about in given.items()
    }
    path.write_text(json.dumps({"collections": full, "_meta": {"num_workers": workers}}), encoding="utf-8")


def end(root: Path) -> Path:
    """Write the end marker."""
    mark = root / "training_job_end.ts"
    mark.touch()
    then = time.time() - 60  # old enough that no trial waits for late files
    os.utime(mark, (then, then))
    return root


def plain(root: Path, steps: int = 3) -> Path:
    """Write a valid run: a weight and a loss."""
    collections(root, {"default": {}, "losses": {"tensor_names": ["loss"]}, "weights": {"tensor_names": ["w"]}})
    for step in range(steps):
        save(root, step, {"w": np.arange(6, dtype=np.float32) * step, "loss": np.float32(1 / (step + 1))})
    return end(root)


def hostile(root: Path, names: Mapping[str, str] = ALL, steps: int = 2) -> Path:
    """Write every hostile text as tensor, string value, collection and worker."""
    texts = list(names.values())
    collections(
        root,
        {
            "default": {},
            "losses": {"tensor_names": texts},
            **{text: {"tensor_names": [text], "include_regex": []} for text in texts},
        },
    )
    for step in range(steps):
        values: dict[str, Any] = {text: np.float32(step + at) for at, text in enumerate(texts)}
        values["texts"] = (
            np.array(texts, dtype=object).astype(str) if len(texts) < 3 else np.array([t[:3000] for t in texts])
        )
        for at, text in enumerate(texts[:5]):
            values[f"w/{at}/{text}"] = np.arange(12, dtype=np.float32).reshape(3, 4) * step
        save(root, step, values)
        # The file name of a worker contains the worker's name.
        for text in list(SMALL.values())[:: max(1, len(SMALL) // 8)]:
            try:
                save(root, step, {"of a worker": np.float32(step)}, worker=file_name(text))
            except (ValueError, OSError):
                continue
    return end(root)


def scalar_event(tag: str, step: int, value: float) -> bytes:
    """Return a TensorBoard record with any step."""
    summary = field(1, field(1, tag.encode("utf-8", "surrogatepass")) + b"\x15" + struct.pack("<f", value))
    return _core.write_record(
        b"\x09" + struct.pack("<d", 100.0 + step % 1000) + varint(2 << 3) + varint(step) + field(5, summary)
    )


def log(root: Path, tags: Mapping[str, str] = ALL, steps: tuple[int, ...] = (0, 1)) -> Path:
    """Write a TensorBoard log with hostile tags."""
    root.mkdir(parents=True, exist_ok=True)
    records = [_core.version_record(1.0)]
    records += [scalar_event(tag, step, at + step % 7) for step in steps for at, tag in enumerate(tags.values())]
    (root / "events.out.tfevents.1700000000.host").write_bytes(b"".join(records))
    return root


def files(root: Path, names: Mapping[str, str] = ALL) -> Path:
    """Write files of other formats with hostile names.

    These are tables, states, checkpoints and an experiment.
    """
    weights = {"w": np.ones(4, np.float32).tobytes()}
    weights |= {name: weights["w"] for name in names.values() if name.isprintable()}
    for step in (1, 2):
        checkpoint = root / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        offsets = {name: [16 * at, 16 * at + 16] for at, name in enumerate(weights)}
        header = {name: {"dtype": "F32", "shape": [4], "data_offsets": both} for name, both in offsets.items()}
        text = json.dumps(header).encode()
        (checkpoint / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(weights.values()))
        rows = [{"step": 1, **dict.fromkeys(names.values(), 0.5)}]
        (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": rows}))
        with zipfile.ZipFile(root / f"step_{step}.pt", "w") as archive:
            # Calls os.system when it is unpickled.
            archive.writestr("a/data.pkl", b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00exit\x85R.")
    with (root / "metrics.csv").open("w", encoding="utf-8", errors="replace", newline="") as table:
        csv.writer(table).writerows([["step", *names.values()], *([step, *[0.5] * len(names)] for step in (1, 2))])
    (root / "args.yaml").write_text('lr: !!python/object/apply:os.system ["exit"]\n')
    (root / "log.jsonl").write_text(
        "".join(json.dumps({"step": step, **dict.fromkeys(names.values(), 1)}) + "\n" for step in (1, 2))
    )
    return root

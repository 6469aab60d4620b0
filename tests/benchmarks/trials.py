"""The runs that benchmarks read, written once to .cache/bench.

The values depend only on the scale.

A: 200,000 small records (2,000 tensors of 64 float32, 100 steps)
B: 4 GB in 1,000 records (50 tensors of 1,000,000 float32, 20 steps); by default a quarter of the steps
C: 160,000 records of 8 workers (100 tensors of 256 float32, 200 steps)
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smdwidgets._core import StepWriter, masked_crc

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "bench"


@dataclass(frozen=True)
class Shape:
    """The size of a run."""

    steps: int
    tensors: int
    elements: int
    workers: int = 1

    @property
    def records(self) -> int:
        """The number of tensors."""
        return self.steps * self.tensors * self.workers

    def names(self) -> list[str]:
        """The names of the tensors."""
        return [f"layer{i // 4}.{('weight', 'bias', 'grad_weight', 'grad_bias')[i % 4]}" for i in range(self.tensors)]


def shapes(scale: float) -> dict[str, Shape]:
    """Return the three runs; `scale` is the share of B's steps that are written."""
    return {
        "A": Shape(steps=100, tensors=2000, elements=64),
        "B": Shape(steps=max(1, round(20 * scale)), tensors=50, elements=1_000_000),
        "C": Shape(steps=200, tensors=100, elements=256, workers=8),
    }


def write(root: Path, shape: Shape) -> None:
    """Write an ended run."""
    random = np.random.default_rng(7)
    names = shape.names()
    workers = [f"worker_{rank}" for rank in range(shape.workers)]
    for step in range(shape.steps):
        for worker in workers:
            values = random.standard_normal((shape.tensors, shape.elements), dtype=np.float32)
            with StepWriter(root, step=step, worker=worker, mode=1) as writer:
                for name, value in zip(names, values, strict=True):
                    writer.tensor(name, value)
    _as_smdebug_leaves_them(root)
    content = {
        "collections": {
            "default": {
                "name": "default",
                "include_regex": [],
                "tensor_names": names,
                "reduction_config": None,
                "save_config": None,
                "save_histogram": True,
            }
        },
        "_meta": {"num_workers": shape.workers},
    }
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True)
    for worker in workers:
        (folder / f"{worker}_collections.json").write_text(json.dumps(content))
    (root / "training_job_end.ts").touch()


def _as_smdebug_leaves_them(root: Path) -> None:
    """Remove the checksums from index files, which only our writer adds.

    Both sides then read the same bytes.
    """
    for file in (root / "index").rglob("*.json"):
        index = json.loads(file.read_bytes())
        for entry in index["tensor_payload"]:
            del entry["crc32c"]
        file.write_text(json.dumps(index))


def with_true_checksums(source: Path, target: Path) -> None:
    """Copy a run's event files with true checksums of payloads in the footers."""
    for file in sorted((source / "events").rglob("*.tfevents")):
        data = bytearray(file.read_bytes())
        view = memoryview(data)
        at = 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            end = at + 12 + length
            struct.pack_into("<I", data, end, masked_crc(view[at + 12 : end]))
            at = end + 4
        copy = target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    shutil.copytree(source / "index", target / "index")
    shutil.copytree(source / "collections", target / "collections")
    (target / "training_job_end.ts").touch()


def ensure(scale: float, names: Collection[str] = ("A", "B", "C", "B_crc")) -> dict[str, Path]:
    """Return paths of the runs A, B, C, and B with true checksums; write missing ones.

    The latter is "B_crc".
    """
    found = {}
    for name, shape in shapes(scale).items():
        found[name] = FOLDER / f"{name}_{shape.steps}x{shape.tensors}x{shape.elements}x{shape.workers}_plain"
    found["B_crc"] = found["B"].with_name(found["B"].name + "_crc")
    for name, path in found.items():
        if path.is_dir() or name not in names:
            continue
        print(f"==> writing {path.name}", flush=True)
        partial = path.with_name(path.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        if name == "B_crc":
            with_true_checksums(found["B"], partial)
        else:
            write(partial, shapes(scale)[name])
        partial.rename(path)
    return found

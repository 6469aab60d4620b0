"""Small runs for sweeps by several processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smdwidgets import _core

DTYPES = (np.float32, np.float64, np.float16, np.int32, np.uint8, np.bool_, np.complex64)


def write_step(root: Path, step: int, worker: str, tensors: dict[str, np.ndarray]) -> None:
    with _core.StepWriter(root, step, worker, 1 + step % 2, step // 2) as writer:
        for name, value in tensors.items():
            writer.tensor(name, value)


def finish(root: Path, workers: int = 1, *, ended: bool = True) -> Path:
    folder = root / "collections" / "000000000"
    folder.mkdir(parents=True, exist_ok=True)
    for worker in range(workers):
        content = f'{{"collections": {{}}, "_meta": {{"num_workers": {workers}}}}}'
        (folder / f"worker_{worker}_collections.json").write_text(content)
    if ended:
        (root / "training_job_end.ts").touch()
    return root


def write_run(root: Path, steps: int = 30, size: int = 3000, *, ended: bool = True) -> Path:
    """A run of one worker: several dtypes, two schedules, NaN, a text."""
    rng = np.random.default_rng(0)
    for step in range(steps):
        tensors = {f"t{at}": rng.normal(scale=9, size=size).astype(dtype) for at, dtype in enumerate(DTYPES[:2])}
        tensors["nan"] = np.where(rng.random(50) < 0.1, np.nan, 1.0).astype(np.float32)
        tensors["text"] = np.array(["a", "b"])
        if step % 7 == 0:
            tensors |= {f"rare{at}": rng.normal(scale=9, size=20).astype(dtype) for at, dtype in enumerate(DTYPES)}
        write_step(root, step, "worker_0", tensors)
    return finish(root, ended=ended)


def write_workers(root: Path, steps: int = 30) -> Path:
    """A run of three workers that save different tensors at different steps."""
    rng = np.random.default_rng(1)
    for step in range(steps):
        for worker in range(3):
            tensors = {"shared": rng.normal(size=500).astype(np.float32)}
            if (step + worker) % 3 == 0:
                tensors["turns"] = rng.normal(size=200)
            if worker == 2 and step % 11 == 0:
                tensors["last"] = rng.normal(size=10)
            write_step(root, step, f"worker_{worker}", tensors)
    return finish(root, 3)


def damage(root: Path, step: int) -> None:
    """Change a byte in the first value of a step."""
    [file] = root.glob(f"events/*/{step:012d}_worker_0.tfevents")
    content = bytearray(file.read_bytes())
    content[len(content) // 4] ^= 1
    file.write_bytes(content)

"""Read a run twice: with Trial, and with smdebug 1.0.34.

smdebug has a separate environment.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".venv-peers" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

_SMDEBUG = """
import logging, sys
logging.disable(logging.CRITICAL)
import numpy as np
from smdebug.trials import create_trial
trial = create_trial(sys.argv[1])
found = {}
for name in trial.tensor_names():
    tensor = trial.tensor(name)
    for step in tensor.steps():
        for worker in tensor.workers(step):
            try:
                found[f"{step}|{worker}|{name}"] = np.asarray(tensor.value(step, worker=worker))
            except KeyError:  # bfloat16 and others that it writes, or not even that, but can't read
                pass
found["modes"] = np.array([f"{step} {trial.mode(step).name} {trial.mode_step(step)}" for step in trial.steps()])
np.savez(sys.argv[2], **{str(i): value for i, value in enumerate(found.values())}, names=np.array(list(found)))
"""


def by_smdebug(run: Path, scratch: Path) -> dict[str, Any]:
    """Every value of a run, by ``step|worker|name``, and the modes of its steps."""
    target = scratch / f"{run.name}.npz"
    command = [str(PEERS), "-c", _SMDEBUG, str(run), str(target)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    with np.load(target, allow_pickle=False) as found:
        return {str(name): found[str(i)] for i, name in enumerate(found["names"])}


def by_us(run: Path) -> dict[str, Any]:
    """The same from this package."""
    from smdwidgets import create_trial

    trial = create_trial(str(run))
    found: dict[str, Any] = {}
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        for step in tensor.steps():
            for worker in tensor.workers(step):
                found[f"{step}|{worker}|{name}"] = np.asarray(tensor.value(step, worker=worker))
    found["modes"] = np.array([f"{step} {trial.mode(step).name} {trial.mode_step(step)}" for step in trial.steps()])
    return found


def check(run: Path, expected: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Both readers find these values, bit for bit.

    Returns what this package's reader found.
    """
    ours, theirs = by_us(run), by_smdebug(run, scratch)
    for key, value in expected.items():
        value = np.asarray(value)
        for found in (ours, theirs):
            assert key in found, f"{key} is not among {sorted(found)}"
            assert found[key].shape == value.shape, key
            assert found[key].dtype == value.dtype, key
            assert found[key].tobytes() == value.tobytes(), key
    # smdebug reads int8 as uint8; everything else that it reads is what we read.
    for key, value in theirs.items():
        assert key in ours, key
        assert ours[key].tobytes() == value.tobytes(), key
    return ours


def tensorboard(directory: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, int]]:
    """Scalars (step, value) and numbers of histograms, as TensorBoard loads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loader = EventAccumulator(str(directory), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    loader.Reload()
    tags = loader.Tags()
    scalars = {tag: [(event.step, event.value) for event in loader.Scalars(tag)] for tag in tags["scalars"]}
    histograms = {tag: len(loader.Histograms(tag)) for tag in tags["histograms"]}
    return scalars, histograms

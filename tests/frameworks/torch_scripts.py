"""Training scripts that note values themselves: the run must have the same bits.

A script begins with :data:`BEGIN` and passes values to ``note``, ``note_gradients`` and ``note_weights``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from endings.running import run_script
from smdwidgets import create_trial

BEGIN = """
import sys
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
import smdwidgets.pytorch as smd

torch.manual_seed(0)
torch.set_num_threads(1)
EVERY = smd.SaveConfig(save_interval=1)
seen = {}

def note(step, **values):
    for name, value in values.items():
        seen[f"{step}|{name}"] = torch.as_tensor(value).detach().clone().numpy()

def note_gradients(step, model, scale=1.0):
    root = type(model).__name__
    for name, p in model.named_parameters():
        if p.grad is not None:
            seen[f"{step}|gradient/{root}_{name}"] = (p.grad / scale).detach().clone().numpy()

def note_weights(step, model):
    root = type(model).__name__
    for name, p in model.named_parameters():
        seen[f"{step}|{root}_{name}"] = p.detach().clone().numpy()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(4, 6), nn.Dropout(0.1), nn.Linear(6, 3)
    def forward(self, x):
        return self.head(self.drop(torch.relu(self.body(x))))

def batch():
    return torch.randn(5, 4), torch.randint(0, 3, (5,))
"""

END = """
np.savez("seen.npz", **{str(i): value for i, value in enumerate(seen.values())}, names=np.array(list(seen)))
"""


def trainings(tmp_path) -> Iterator[Callable[..., Any]]:
    """Yield a function that runs a script with the arguments ``run`` and others.

    It checks the noted values, and returns the trial and the script's output.
    """
    trials = []

    def call(script, *arguments, values=True):
        run = tmp_path / "run"
        done = run_script(BEGIN + script + END, tmp_path, run, *arguments)
        assert done.returncode == 0, done.stderr
        assert "recording failed" not in done.stderr, done.stderr
        trial = create_trial(run)
        trials.append(trial)
        assert trial.problems() == []
        if values:
            with np.load(tmp_path / "seen.npz") as file:
                names = [str(name) for name in file["names"]]
                noted = {name: file[str(i)] for i, name in enumerate(names)}
            assert noted
            for key, value in noted.items():
                step, _, name = key.partition("|")
                found = trial.tensor(name).value(int(step))
                assert found.reshape(value.shape).tobytes() == value.tobytes(), (key, found, value)
        return trial, done

    yield call
    for trial in trials:
        trial.close()

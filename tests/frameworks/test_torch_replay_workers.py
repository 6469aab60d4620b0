"""The workers of a training execute their steps again together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smdwidgets import create_trial

SCRIPT = """
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        shares = x / x.sum(1, keepdim=True)
        return self.head(self.drop(torch.relu(self.norm(self.first(shares)))))


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
x, y = torch.rand(640, 6) + 0.1, torch.randint(0, 3, (640,))
if sys.argv[1] != "dump":
    x[463] = 0
data = TensorDataset(x, y)
sampler = DistributedSampler(data, shuffle=False)
model = DistributedDataParallel(Net())
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
torch.manual_seed(100 + rank)
if sys.argv[1] != "run":
    import smdwidgets.pytorch as smd

    hook = smd.record(model, "run", replay=True)
for number, (rows, labels) in enumerate(DataLoader(data, 8, sampler=sampler)):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(rows), labels)
    loss.backward()
    dist.all_reduce(loss.detach().clone())
    optimizer.step()
    if sys.argv[1] == "dump":
        if number == 25 and rank == 1:
            hook.dump("a test")
        hook.flush()
        dist.barrier()
dist.destroy_process_group()
"""


def start(folder, *words):
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    return subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        cwd=folder,
        env=environment,
    )


def launch(kind):
    return ("--nproc-per-node=2", "--standalone", "train.py", kind)


# Both workers see gradients that are not finite. With "dump", only the second one has an incident; the first follows.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["zeros", "dump", "run"])
def test_all_workers_execute_their_steps_again_and_the_first_wrong_one_is_named(kind, tmp_path):
    recorded = (
        ("smdwidgets", "run", "--replay", "--out", "run", "torchrun") if kind == "run" else ("torch.distributed.run",)
    )
    done = start(tmp_path, *recorded, *launch(kind))
    assert done.returncode == 0, done.stderr
    with create_trial(tmp_path / "run") as trial:
        incident = trial.incidents()[0]
        assert incident.replay.workers == 2
        assert incident.replay.why_not == ""
        assert "must execute the steps together" in incident.replay.why_not_here
    files = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    question = () if kind == "dump" else ("--explain",)
    again = start(tmp_path, "smdwidgets", "replay", "run", *question, "--json", "--", "torchrun", *launch(kind))
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout)
    for worker in ("worker_0", "worker_1"):
        steps = result["workers"][worker]["steps"]
        assert all(one["equal"] for one in steps), result["workers"][worker]["text"]
        assert len(steps) >= 4
    losses = [[one["losses"] for one in result["workers"][worker]["steps"]] for worker in ("worker_0", "worker_1")]
    assert losses[0] != losses[1]
    if kind != "dump":
        assert result["worker"] == "worker_1"
        assert (result["explanation"]["operator"], result["explanation"]["dataset_rows"]) == ("aten.div", [463])
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == files
    if kind == "zeros":
        alone = start(tmp_path, "smdwidgets", "replay", "run", "--", "python", "train.py", kind)
        assert alone.returncode == 2
        assert "the command started no worker" in alone.stderr
        tried = start(tmp_path, "smdwidgets", "replay", "run", "--rows", "--", "torchrun", *launch(kind))
        assert tried.returncode == 2
        assert "this one had 2" in tried.stderr

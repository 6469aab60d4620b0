"""Every worker of a training has losses, norms and incidents."""

from __future__ import annotations

import json

import numpy as np
import pytest

from endings.running import run_script
from smdwidgets import create_trial

SCRIPT = """
import json, os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
import smdwidgets.pytorch as smd

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 15), nn.Linear(15, 1)
        self.scale = nn.Parameter(torch.ones(1))
    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x))) * self.scale

def work(rank, folder, stack, workers):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Net()
    if stack == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        for part in (model.fc1, model.fc2, model):
            fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    hook = smd.record(model, f"{folder}/run", include_workers=workers, overwrite=True)
    losses = []
    for step in range(12):
        generator = torch.Generator().manual_seed(10 * step + rank)
        x, y = torch.randn(16, 8, generator=generator), torch.randn(16, 1, generator=generator)
        if rank == 1 and step == 5:
            x[3, 2] = float("nan")
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    hook.close()
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(losses, file)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.start_processes(work, sys.argv[1:4], nprocs=2, start_method="fork")
"""


@pytest.mark.parametrize("workers", ["one", "all"])
@pytest.mark.parametrize("stack", ["ddp", "fsdp2"])
def test_worker_with_the_bad_batch_is_named(tmp_path, stack, workers):
    done = run_script(SCRIPT, tmp_path, tmp_path, stack, workers)
    assert done.returncode == 0, done.stderr
    own = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    with create_trial(tmp_path / "run") as trial:
        assert trial.steps() == list(range(12))
        assert trial.problems() == []
        incident = trial.incidents()[0]
        assert (incident.step, incident.worker, incident.rank, incident.trigger.tensor) == (
            5,
            "worker_1",
            1,
            "Net_input_0",
        )
        assert str(incident).startswith("step 5: NaN in 'Net_input_0' of worker_1")
        for rank in range(2):
            worker = f"worker_{rank}"
            table = trial.statistics("loss_output_0", columns=["mean"], worker=worker)
            np.testing.assert_array_equal(table["mean"], np.array(own[rank], "float32"))
            norms = trial.statistics("optimizer/AdamW/gradient_norm", columns=["mean"], worker=worker)
            assert len(norms["step"]) == 12
        values = [np.ravel(trial.tensor("loss_output_0").value(step))[0] for step in range(12)]
        np.testing.assert_array_equal(values, np.array(own[0], "float32"))
        if workers == "one" and stack == "ddp":
            assert trial.workers() == ["worker_0"]
        else:
            assert np.ravel(trial.tensor("loss_output_0").value(3, worker="worker_1")) == [np.float32(own[1][3])]

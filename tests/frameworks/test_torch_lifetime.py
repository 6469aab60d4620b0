"""Test copies, pickles and memory of a PyTorch hook and its model.

Also TorchScript and DataLoader workers.
"""

from __future__ import annotations

import copy
import gc
import logging
import signal
import weakref

import pytest
import torch
from torch import nn

from endings.running import run_script
from smdwidgets import create_trial
from smdwidgets.pytorch import Hook, SaveConfig

EVERY = SaveConfig(save_interval=1)


class Net(nn.Module):
    def __init__(self, hook=None):
        super().__init__()
        self.first, self.relu, self.last = nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1)
        self.hook = hook

    def forward(self, x):
        return self.last(self.relu(self.first(x)))


def steps_of(run):
    with create_trial(run) as trial:
        return trial.steps()


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def test_open_hook_does_not_keep_its_model(run):
    hook = Hook(run, save_all=True, save_config=EVERY)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    hook.register_module(model)
    model(torch.ones(2, 4)).sum().backward()
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    hook.close()
    assert steps_of(run) == [0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_scripted_copy_is_not_recorded_and_the_model_is(run, caplog):
    with Hook(run, save_all=True, save_config=EVERY) as hook:
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        seen = []
        hook.register_module(model)
        model(torch.ones(2, 4)).sum().backward()
        with caplog.at_level(logging.WARNING):
            scripted = torch.jit.script(model)
        assert "the scripted Sequential is not recorded" in caplog.text
        assert torch.equal(scripted(torch.ones(2, 4)), model(torch.ones(2, 4)))
        model.register_forward_hook(lambda *_: seen.append(1))
        model(torch.ones(2, 4)).sum().backward()
        assert seen == [1]
    assert steps_of(run) == [0, 1]  # passes that share a backward pass share a step
    with create_trial(run) as trial:
        assert {"0_output_0", "0_output_1"} <= set(trial.tensor_names(step=1))


def test_traced_copy_is_not_recorded_and_the_model_is(run):
    with Hook(run, save_all=True, save_config=EVERY) as hook:
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
        hook.register_module(model)
        model(torch.ones(2, 4)).sum().backward()
        traced = torch.jit.trace(
            model, torch.ones(2, 4), check_trace=False
        )  # the check is a forward pass like any other
        traced(torch.ones(2, 4))
        model(torch.ones(2, 4)).sum().backward()
    assert steps_of(run) == [0, 1]


def test_copies_of_a_model_that_holds_its_hook(run, tmp_path):
    hook = Hook(run, save_all=True, save_config=EVERY)
    model = Net(hook)
    hook.register_module(model)
    average = copy.deepcopy(model)
    assert average.hook is hook
    average(torch.ones(2, 4))  # no step: a copy is not the model that is trained
    model(torch.ones(2, 4)).sum().backward()
    torch.save(model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    loaded(torch.ones(2, 4))
    loaded.hook.save_scalar("loss", 1.0)
    assert "inactive" in repr(loaded.hook)
    hook.close()
    assert steps_of(run) == [0]


def test_workers_of_a_data_loader_write_nothing_and_end(run, tmp_path):
    done = run_script(
        """
import sys, torch
import smdwidgets.pytorch as smd

class Data(torch.utils.data.Dataset):
    def __init__(self, hook):
        self.hook = hook
    def __len__(self):
        return 8
    def __getitem__(self, i):
        self.hook.save_scalar("index", i)
        return torch.ones(4)

if __name__ == "__main__":
    hook = smd.Hook(sys.argv[1], save_all=True, save_config=smd.SaveConfig(save_interval=1))
    model = torch.nn.Linear(4, 1)
    hook.register_module(model)
    for context in ("fork", "spawn"):
        for batch in torch.utils.data.DataLoader(Data(hook), 4, num_workers=2, multiprocessing_context=context):
            model(batch).sum().backward()
""",
        tmp_path,
        run,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    with create_trial(run) as trial:
        assert trial.steps() == [0, 1, 2, 3]
        assert not trial.tensor_names(regex="index")
        assert str(trial.run_end()) == "completed"


def test_complete_step_is_on_disk_before_the_next_begins(run, tmp_path):
    """A process killed during validation has saved the training step before it."""
    done = run_script(
        """
import os, signal, sys, time, torch
import smdwidgets.pytorch as smd
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
hook = smd.Hook(sys.argv[1], include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
hook.save_scalar("early", 1.0)
index = os.path.join(sys.argv[1], "index/000000000/000000000000_worker_0.json")
deadline = time.monotonic() + 60
while not os.path.exists(index) and time.monotonic() < deadline:
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
""",
        tmp_path,
        run,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with create_trial(run) as trial:
        assert {"Linear_weight", "gradient/Linear_weight", "gradient/Linear_bias", "scalar/early"} <= {
            *trial.tensor_names(step=0)
        }
        assert trial.run_end() is None

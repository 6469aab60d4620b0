"""Test hooks on sharded models.

The training is that without a hook, and the run has the whole tensors, bit for bit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from endings.running import PEERS, Smdebug, run_script
from smdwidgets import create_trial
from smdwidgets.exceptions import IncompleteShardsError

TRAINING = Path(__file__).with_name("sharded_training.py")
TRAININGS = {
    2: [
        "plain:all",
        "ddp:all",
        "fsdp1:all",
        "fsdp1:one",
        "fsdp1_flat:all",
        "fsdp1_flat:one",
        "fsdp2:all",
        "fsdp2:one",
        "fsdp2_later:all",
        "fsdp2_fused:all",
        "tensor_parallel:all",
        "fsdp2:raising",
    ],
    4: [
        "fsdp2:all",
        "hybrid:all",
        "hybrid:one",
        "fsdp1_hybrid:one",
        "fsdp2_tensor_parallel:all",
        "fsdp2_tensor_parallel:one",
    ],
}
EVERY = [(world, training) for world, trainings in TRAININGS.items() for training in trainings]
#: Workers that write a run if include_workers is "one": those with the first copy of a shard.
FIRST_COPIES = {"fsdp1": 2, "fsdp1_flat": 2, "fsdp2": 2, "hybrid": 2, "fsdp1_hybrid": 4, "fsdp2_tensor_parallel": 4}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function that returns the folder of a training.

    All trainings of a world run in the same processes.
    """
    folders: dict[int, Path] = {}

    def of(world, training):
        if world not in folders:
            folders[world] = tmp_path_factory.mktemp(f"world_{world}")
            command = [sys.executable, TRAINING, str(world), folders[world], *TRAININGS[world]]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
            (folders[world] / "stderr").write_text(done.stderr)
            assert done.returncode == 0, done.stderr
        return folders[world] / training.replace(":", "_")

    return of


@pytest.mark.parametrize(("world", "training"), EVERY)
def test_losses_and_collectives_are_those_without_the_hook(trained, world, training):
    for rank in range(world):
        bare, hooked = json.loads((trained(world, training) / f"rank_{rank}.json").read_text())
        assert len(set(bare[0])) == 3
        assert hooked == bare
        assert bool(bare[1]) == ("plain" not in training)


@pytest.mark.parametrize(("world", "training"), [one for one in EVERY if "raising" not in one[1]])
def test_every_tensor_is_whole(trained, world, training):
    folder = trained(world, training)
    reference = np.load(folder / "reference.npz")
    with create_trial(folder / "run") as trial:
        assert trial.steps() == [0, 1, 2]
        stack, workers = training.split(":")
        assert len(trial.workers()) == (world if workers == "all" else FIRST_COPIES[stack])
        for key in reference:
            step, name = key.split("/", 1)
            expected = reference[key]
            value = trial.tensor(name).value(int(step))
            assert (value.dtype, value.shape) == (expected.dtype, expected.shape), key
            if "gradient_norm" in name:  # computed by parts, in another order
                np.testing.assert_allclose(value, expected, rtol=3e-7)
            else:
                assert value.tobytes() == expected.tobytes(), key
        table = trial.reductions("Net_body.weight", reductions=["max"])
        assert table["max"].tolist() == [reference[f"{step}/Net_body.weight"].max() for step in range(3)]


@pytest.mark.parametrize(
    ("world", "training"), [one for one in EVERY if one[1].endswith(":all") and "fused" not in one[1]]
)
def test_names_are_those_of_one_process(trained, world, training):
    with create_trial(trained(2, "plain:all") / "run") as trial:
        expected = trial.tensor_names()
    assert "body_output_0" in expected
    assert "optimizer/SGD/gradient_norm" in expected
    if training.startswith("fsdp2_tensor_parallel"):  # which is not clipped
        expected.remove("optimizer/SGD/gradient_norm_before_clipping")
    with create_trial(trained(world, training) / "run") as trial:
        assert trial.tensor_names() == expected


def test_shards_are_stored_once_with_their_positions(trained):
    with create_trial(trained(4, "fsdp2_tensor_parallel:one") / "run") as trial:
        weight = trial.tensor("Net_body.weight")
        assert [weight.value(0, worker=f"worker_{rank}").shape for rank in range(4)] == [(3, 4), (3, 4), (2, 4), (2, 4)]
        shards = trial.values("Net_body.weight", worker="*")["value"]
        assert sum(shard.size for shard in shards) == 3 * 10 * 4


def test_one_failing_hook_leaves_the_other_shards(trained):
    folder = trained(2, "fsdp2:raising")
    with create_trial(folder / "run") as trial:
        weight = trial.tensor("Net_body.weight")
        with pytest.raises(IncompleteShardsError, match=r"\[5:10, 0:4\] missing; no shard of worker_1"):
            weight.value(1)
        # One warning, for the first tensor; the run contains it.
        assert [(worker, text) for worker, text in trial.notes() if "not saved" in text] == [
            ("worker_1", "tensor not saved: Net_scale: Net_scale")
        ]
        assert (folder.parent / "stderr").read_text().count("tensor not saved") == 1
        reference = np.load(folder / "reference.npz")["1/Net_body.weight"]
        np.testing.assert_array_equal(weight.value(1, worker="worker_0"), reference[:5])
        # Half of the rows, and the parameter of one element.
        norm, coverage = (
            trial.tensor("optimizer/SGD/gradient_norm"),
            (5 * 4 + 5 + 2 * 10 + 2 + 1) / (10 * 4 + 10 + 3 * 10 + 3 + 1),
        )
        with pytest.raises(IncompleteShardsError):
            norm.value(1)
        assert norm.coverage(1) == pytest.approx(coverage)
        table = trial.reductions(
            ["optimizer/SGD/gradient_norm", "Net_body.weight"], 1, reductions=["max"], coverage=True
        )
        assert dict(zip(table["name"], table["coverage"], strict=True)) == {
            "Net_body.weight": 0.5,
            "optimizer/SGD/gradient_norm": pytest.approx(coverage),
        }


WITHOUT_POSITIONS = """
import sys
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
import smdwidgets.pytorch as smd
from smdwidgets.hooks.torch import shards as torch_shards

def missing(*_):
    raise AttributeError("another release of PyTorch")
torch_shards._flat_parts = missing
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[1] + "_store", rank=0, world_size=1)
model = FSDP(torch.nn.Linear(4, 2), device_id=torch.device("cpu"), use_orig_params=sys.argv[2] == "original")
with smd.Hook(sys.argv[1], save_all=True, save_config=smd.SaveConfig(save_interval=1)) as hook:
    hook.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("parameters", ["original", "flat"])
def test_shards_without_positions_are_one_warning(tmp_path, parameters):
    done = run_script(WITHOUT_POSITIONS, tmp_path, tmp_path / "run", parameters)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("its position in the whole tensor is unknown") == 1
    with create_trial(tmp_path / "run") as trial:
        assert sum("position in the whole tensor is unknown" in text for _, text in trial.notes()) == 1
        assert trial.steps() == [0, 1]
        assert "optimizer/SGD/gradient_norm" not in trial.tensor_names()


@pytest.mark.skipif(not PEERS.exists(), reason="smdebug is not installed")
def test_smdebug_ignores_the_positions(trained):
    run = trained(2, "fsdp2:all") / "run"
    smdebug = Smdebug()
    try:
        found = smdebug.read(run)
    finally:
        smdebug.close()
    assert found["steps"] == [0, 1, 2]
    with create_trial(run) as trial:
        tensor = trial.tensor(found["name"])
        assert np.ravel(tensor.value(2, worker="worker_0")).tolist() == found["last"]

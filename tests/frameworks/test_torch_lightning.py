"""The callback for the Trainer of Lightning, in whole scripts."""

from __future__ import annotations

import json

import pytest

from endings.running import run_script
from frameworks.trainer_scripts import diagnosed, run
from smdwidgets import create_trial, modes

SCRIPT = """
import json, logging, sys, warnings
import torch
from torch import nn
import torch.nn.functional as F
import LIBRARY
from LIBRARY import LightningModule, Trainer, seed_everything
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

seed_everything(0, verbose=False)
torch.set_num_threads(1)

class Module(LightningModule):
    def __init__(self, calls_itself=False):
        super().__init__()
        self.calls_itself = calls_itself
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.seen = []
    def forward(self, x):
        return self.head(self.body(x).relu())
    def loss(self, x, y):
        return F.cross_entropy(self(x) if self.calls_itself else self.head(self.body(x).relu()), y)
    def training_step(self, batch, number):
        loss = self.loss(*batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log("lr", self.optimizers().param_groups[0]["lr"])
        self.seen.append(loss.item())
        return loss
    def validation_step(self, batch, number):
        self.log("val_loss", self.loss(*batch))
    def test_step(self, batch, number):
        self.log("test_loss", self.loss(*batch))
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)

x, y = torch.randn(24, 4), torch.randint(0, 3, (24,))
batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
def trainer(callbacks, **more):
    return Trainer(**{**dict(max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks), **more})
"""

TRAIN = """
calls = sys.argv[2] == "itself"
module, callbacks = Module(calls), []
if sys.argv[1] != "none":
    from smdwidgets.lightning import Callback
    callbacks.append(Callback(sys.argv[1]))
one = trainer(callbacks)
one.fit(module, batches, batches)
print("out:", json.dumps([module.seen, [p.detach().double().sum().item() for p in module.parameters()]]))
print("out:", json.dumps({name: value.item() for name, value in one.callback_metrics.items()}))
if callbacks:
    from smdwidgets import create_trial
    trial = create_trial(sys.argv[1])
    print("out:", trial.run_end(), len(trial.steps()))
"""


@pytest.mark.parametrize(
    ("library", "calls"),
    [("lightning.pytorch", "itself"), ("lightning.pytorch", "parts"), ("pytorch_lightning", "parts")],
)
def test_the_run_has_the_logs_at_their_steps_and_the_training_is_the_same(tmp_path, library, calls):
    script = (SCRIPT + TRAIN).replace("LIBRARY", library)
    losses, last, complete = run(script, tmp_path, "run", calls)
    # The sanity check, twelve updates, and two validations of six batches.
    assert complete == "completed 15"
    assert run(script, tmp_path, "none", calls) == [losses, last]
    trial = create_trial(tmp_path / "run")
    assert [trial.mode(step).name for step in trial.steps()] == [
        "EVAL", *(["TRAIN"] * 6), "EVAL", *(["TRAIN"] * 6), "EVAL",
    ]  # fmt: skip

    def saved(name, mode):
        tensor = trial.tensor(name)
        return {step: tensor.value(step, mode=mode).item() for step in tensor.steps(mode=mode)}

    seen, last = json.loads(losses)[0], json.loads(last)
    assert list(saved("scalar/train_loss_step", modes.TRAIN).values()) == pytest.approx(seen, rel=1e-6)
    assert saved("loss_output_0", modes.TRAIN) == saved("scalar/train_loss_step", modes.TRAIN)
    # The mean of an epoch is at its last update, although a validation comes before the mean.
    means = saved("scalar/train_loss_epoch", modes.TRAIN)
    assert list(means) == [5, 11]
    assert means[11] == pytest.approx(last["train_loss_epoch"])
    assert list(saved("scalar/val_loss", modes.EVAL)) == [0, 1, 2]
    assert saved("scalar/val_loss", modes.EVAL)[2] == pytest.approx(last["val_loss"])
    for name in ("scalar/val_loss", "scalar/train_loss_epoch"):
        assert set(saved(name, modes.TRAIN)) & set(saved(name, modes.EVAL)) == set()
    assert saved("scalar/lr", modes.TRAIN) == dict.fromkeys(range(12), pytest.approx(0.01))
    assert trial.tensor("optimizer/Adam/gradient_norm").steps(mode=modes.TRAIN) == list(range(12))
    assert "body_output_0" in trial.tensor_names(collection="activations")
    for collection in ("weights", "gradients", "losses"):
        assert trial.tensor_names(collection=collection), collection
    assert trial.notes() == []
    kinds = diagnosed(trial)
    assert kinds["scalar/train_loss_step", "TRAIN"] == ("loss", "training")
    assert kinds["scalar/val_loss", "EVAL"] == ("loss", "validation")
    assert kinds["scalar/lr", "TRAIN"][0] == "learning rate"


RESUMED = """
from LIBRARY.callbacks import ModelCheckpoint
from smdwidgets.lightning import Callback
again = sys.argv[2] == "again"
module = Module()
kept = ModelCheckpoint("kept", every_n_train_steps=3, save_top_k=-1, filename="{step}")
one = trainer([Callback(sys.argv[1], resume=True), kept], enable_checkpointing=True, num_sanity_val_steps=0,
    accumulate_grad_batches=2)
one.fit(module, batches, batches, **(dict(ckpt_path="kept/step=3.ckpt") if again else {}))
"""


def test_a_training_from_a_checkpoint_continues_the_run_at_its_step(tmp_path):
    script = (SCRIPT + RESUMED).replace("LIBRARY", "lightning.pytorch")
    run(script, tmp_path, "run", "first")
    with create_trial(tmp_path / "run") as trial:
        steps = trial.steps()
        before = [trial.tensor("loss_output_mean").value(step, mode=modes.TRAIN).item() for step in range(6)]
    run(script, tmp_path, "run", "again")
    trial = create_trial(tmp_path / "run")
    assert trial.steps() == steps == list(range(8))
    assert trial.steps(mode=modes.TRAIN) == list(range(6))
    assert [trial.tensor("loss_output_mean").value(step, mode=modes.TRAIN).item() for step in range(6)] == before


DISTRIBUTED = """
from smdwidgets.lightning import Callback
trainer([Callback(sys.argv[1], include_workers="all")], devices=2, strategy="ddp").fit(Module(), batches, batches)
"""


def test_workers_of_a_distributed_training(tmp_path):
    run((SCRIPT + DISTRIBUTED).replace("LIBRARY", "lightning.pytorch"), tmp_path, "run")
    trial = create_trial(tmp_path / "run")
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.steps(mode=modes.TRAIN) == list(range(6))
    values = [
        trial.tensor("gradient/Module_head.weight").value(0, mode=modes.TRAIN, worker=name) for name in trial.workers()
    ]
    assert (values[0] == values[1]).all()
    assert trial.tensor("scalar/val_loss").steps(mode=modes.EVAL) == [0, 1, 2]


FAULTS = """
import smdwidgets.pytorch as smd
from smdwidgets.lightning import Callback
from smdwidgets.stop import request_stop

class Stop(LIBRARY.Callback):
    def on_train_batch_start(self, trainer, module, batch, number):
        if trainer.global_step == 3:
            request_stop("run", by="a test")

def broken(*args, **kwargs):
    raise ValueError("broken on purpose")

one = trainer([Callback("run"), Stop()], min_epochs=0, max_epochs=5000)  # looks at the file ten times a second
module = Module()
one.fit(module, batches)
one.test(module, batches, verbose=False)
print("out:", one.global_step)
smd.Hook.save_scalar = smd.Hook.register_module = broken
two = trainer([Callback("broken")])
two.fit(Module(), batches)
print("out:", two.global_step)
try:
    trainer([Callback("run")]).fit(Module(), batches)
except Exception as error:
    print("out:", type(error).__name__)
"""


def test_a_requested_stop_ends_the_loop_and_a_failure_does_not(tmp_path):
    done = run_script((SCRIPT + FAULTS).replace("LIBRARY", "lightning.pytorch"), tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("out:")]
    stopped = int(said[0].removeprefix("out: "))
    assert 4 <= stopped < 30_000
    assert said[1:] == ["out: 12", "out: SMDebugRuntimeError"]
    assert done.stderr.count("broken on purpose") == 2
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == list(range(stopped))
    assert trial.tensor("scalar/test_loss").steps(mode=modes.EVAL) == [0]

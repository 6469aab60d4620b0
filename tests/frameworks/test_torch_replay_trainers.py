"""Scripts of trainers are run again by `smdwidgets replay`, bit for bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from endings.running import run_script
from frameworks.trainer_scripts import run_workers
from smdwidgets import create_trial

#: Each script trains this model on rows of which one is not finite.
MODEL = """
import os, sys
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)

class Rows(Dataset):
    def __init__(self):
        self.x, self.y = torch.randn(320, 8), torch.randint(0, 3, (320,))
        self.x[300, 2] = float("nan")
    def __len__(self):
        return 320
    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3))
    def forward(self, x, labels):
        logits = self.body(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}
"""

TRAINERS = {
    "transformers": """
from transformers import Trainer, TrainingArguments
from smdwidgets.transformers import Callback
arguments = TrainingArguments("checkpoints", per_device_train_batch_size=8, num_train_epochs=1, report_to=[],
    gradient_accumulation_steps=2, save_strategy="no", disable_tqdm=True, use_cpu=True, learning_rate=0.01)
Trainer(Net(), arguments, train_dataset=Rows(), callbacks=[Callback("run", replay=True)]).train()
""",
    "lightning": """
import lightning
from smdwidgets.lightning import Callback
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()
    def training_step(self, batch, index):
        return self.net(**batch)["loss"]
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-2)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9), "interval": "step"}]
trainer = lightning.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, accelerator="cpu", gradient_clip_val=1.0, callbacks=[Callback("run", replay=True)])
trainer.fit(Module(), DataLoader(Rows(), 8, shuffle=True))
""",
    "accelerate": """
from accelerate import Accelerator
import smdwidgets.pytorch as smd
accelerator = Accelerator(cpu=True)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Rows(), 8, shuffle=True))
hook = smd.record(model, "run", overwrite=True, replay=True)
for batch in loader:
    loss = model(**batch)["loss"]
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
hook.close()
""",
    "plain": """
import smdwidgets.pytorch as smd
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
hook = smd.record(model, "run", overwrite=True, replay=True)
batches = iter(DataLoader(Rows(), 8, shuffle=True))
for step in range(40):
    optimizer.zero_grad()
    model(**next(batches))["loss"].backward()
    optimizer.step()
hook.close()
""",
}


def replay(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "smdwidgets", "replay", str(folder / "run"), *command]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=folder, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_training_is_run_again_bit_for_bit(trainer: str, tmp_path: Path) -> None:
    done = run_script(MODEL + TRAINERS[trainer], tmp_path)
    assert done.returncode == 0, done.stderr
    with create_trial(tmp_path / "run") as trial:
        incident = trial.incidents()[0]
        assert 300 in (incident.row_ids() or ())
        assert incident.replay.why_not == ""
        expected = incident.replay.expected
    again = replay(tmp_path, "--json", "--", "python", "train.py")
    assert again.returncode == 0, again.stdout + again.stderr
    result: dict[str, Any] = json.loads(again.stdout)
    assert result["text"] == f"bit-equal, {expected} of {expected} steps"
    assert expected >= 4


DISTRIBUTED = """
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
import smdwidgets.pytorch as smd
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
hook = smd.record(model, "run", replay=True)
rows = Rows()
for batch in DataLoader(rows, 8, sampler=DistributedSampler(rows)):
    optimizer.zero_grad()
    model(**batch)["loss"].backward()
    optimizer.step()
hook.close()
torch.distributed.destroy_process_group()
"""


def test_workers_of_a_training_are_run_again_together_only(tmp_path: Path) -> None:
    run_workers(MODEL + DISTRIBUTED, tmp_path, 2)
    with create_trial(tmp_path / "run") as trial:
        incident = trial.incidents()[0]
        assert 300 in (incident.row_ids() or ())
        assert incident.replay.why_not == ""
        assert "over 2 workers" in incident.replay.why_not_here
    shown = replay(tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "300" in shown.stdout
    again = replay(tmp_path, "--", "python", "train.py")
    assert again.returncode == 2
    assert "torchrun --nproc-per-node 2 train.py" in again.stderr

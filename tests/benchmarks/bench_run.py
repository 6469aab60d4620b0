"""Measure what `smdwidgets run` adds to six unchanged training scripts.

Usage: `python tests/benchmarks/bench_run.py [--pairs N] [--environments DIR]`, after `make test-frameworks`, which
creates the environments .venv-torch and .venv-xgboost. It writes the section in RESULTS.md.

Each script runs as a whole process without and with the launcher, alternately, with its default options. The figure is
the least wall time of each: other processes only ever add to it. The scripts print bits of their results, which must be
the same.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import table, write_section

ROOT = Path(__file__).resolve().parents[2]
TITLE = "Cost of recording an unchanged script"
TARGET = 1.03

NET = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
data = torch.randn(4096, 256)
labels = torch.randint(0, 10, (4096,))
def end(model):
    print(sum(parameter.detach().double().sum().item() for parameter in model.parameters()).hex())
"""
LOOP = """
optimizer = torch.optim.Adam(net.parameters())
for step in range(STEPS):
    at = step % 4 * 1024
    optimizer.zero_grad()
    loss = F.cross_entropy(model(data[at:at + 1024]), labels[at:at + 1024])
    loss.backward()
    optimizer.step()
end(net)
"""
SCRIPTS = {
    "plain loop, functional loss": ("torch", NET + "model = net\n" + LOOP),
    "torch.compile": ("torch", NET + "model = torch.compile(net)\n" + LOOP),
    "Lightning, no forward": (
        "torch",
        NET
        + """
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
    def training_step(self, batch, number):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, labels), batch_size=1024)
module = Module()
lightning.Trainer(max_epochs=STEPS // 4, accelerator="cpu", logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False).fit(module, loader)
end(module)
""",
    ),
    "Transformers, accumulation and evaluation": (
        "torch",
        NET
        + """
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
class Data(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size
    def __len__(self):
        return self.size
    def __getitem__(self, i):
        return {"input_ids": torch.arange(i, i + 64) % 1000, "attention_mask": torch.ones(64, dtype=torch.int64), "labels": i % 3}
model = BertForSequenceClassification(BertConfig(vocab_size=1000, hidden_size=256, num_hidden_layers=2, num_attention_heads=4,
                                                 intermediate_size=1024, num_labels=3))
updates = STEPS // 8
arguments = TrainingArguments("checkpoints", per_device_train_batch_size=16, max_steps=updates, gradient_accumulation_steps=2,
    logging_steps=5, eval_steps=updates // 2, eval_strategy="steps", save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
    per_device_eval_batch_size=16)
trainer = Trainer(model, arguments, train_dataset=Data(2048), eval_dataset=Data(64))
trainer.log = lambda logs, *rest: None
trainer.train()
end(model)
""",
    ),
    "Keras on torch": (
        "torch",
        NET
        + """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
keras.utils.set_random_seed(0)
layers = keras.layers
model = keras.Sequential([layers.Input((256,)), layers.Dense(1024, "relu"), layers.Dense(1024, "relu"), layers.Dense(10)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(data.numpy(), labels.numpy(), batch_size=1024, epochs=STEPS // 4, verbose=0)
end(model)
""",
    ),
    "XGBClassifier": (
        "xgboost",
        """
import numpy as np
import xgboost
rng = np.random.default_rng(0)
x = rng.normal(size=(40_000, 40))
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
model = xgboost.XGBClassifier(n_estimators=STEPS, max_depth=8)
model.fit(x, y, eval_set=[(x[:2000], y[:2000])], verbose=False)
print(model.predict_proba(x)[:, 0].sum().item().hex())
""",
    ),
}


def timed(command: list[str], folder: Path) -> tuple[float, float, str]:
    """Run a command; return its wall time, its CPU time, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    # One thread: with more, those that wait for a core on a busy machine are measured.
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stderr)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def measure(python: Path, script: str, pairs: int) -> list[tuple[float, float]]:
    """Return the least wall and CPU times of a script without and with the launcher."""
    taken: list[list[tuple[float, float]]] = [[], []]
    printed = set()
    for _ in range(pairs):
        for recorded in (0, 1):
            folder = Path(tempfile.mkdtemp())
            (folder / "train.py").write_text(script)
            launcher = ["-m", "smdwidgets", "run"] if recorded else []
            try:
                wall, cpu, out = timed([str(python), *launcher, "train.py"], folder)
                if recorded and not (folder / "runs/train/training_job_end.ts").exists():
                    sys.exit("the training was not recorded")
            finally:
                shutil.rmtree(folder)
            taken[recorded].append((wall, cpu))
            printed.add(out)
    if len(printed) != 1:
        sys.exit("the launcher has changed the training")
    return [(min(wall for wall, _ in each), min(cpu for _, cpu in each)) for each in taken]


def main() -> None:
    """Measure, print and write the section."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400, help="updates of the plain loop; others in proportion")
    parser.add_argument("--environments", type=Path, default=ROOT)
    parser.add_argument("--only", default="", help="part of the name of the scripts to measure; writes no section")
    arguments = parser.parse_args()
    rows = []
    for name, (environment, script) in SCRIPTS.items():
        if arguments.only not in name:
            continue
        python = arguments.environments / f".venv-{environment}" / "bin" / "python"
        (wall, cpu), (recorded, cpu_recorded) = measure(python, f"STEPS = {arguments.steps}\n{script}", arguments.pairs)
        ratio = recorded / wall
        met = "yes" if ratio <= TARGET else "**no**"
        rows.append(
            [name, f"{wall:.1f} s", f"{recorded:.1f} s", f"{ratio:.2f}x", f"{cpu_recorded / cpu:.2f}x", "<= 1.03x", met]
        )
        print(" | ".join(rows[-1]), flush=True)
    body = (
        f"`python tests/benchmarks/bench_run.py`. Whole processes with their imports, without and with `smdwidgets run`: the least of "
        f"{arguments.pairs}; load average {os.getloadavg()[0]:.1f}.\n\n"
        + table(("script", "without", "with", "wall time", "CPU time of all threads", "target", "met"), rows)
    )
    if not arguments.only:
        write_section(TITLE, body)


if __name__ == "__main__":
    main()

"""Whole scripts are run again by `smdwidgets replay`, and trainers by `run_again`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from endings.running import run_script
from smdwidgets import create_trial

SCRIPT = """
import random
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import smdwidgets.pytorch as smd

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
kind = sys.argv[2]
x, y = torch.randn(320, 8), torch.randint(0, 3, (320,))
x[300, 2] = float("nan")
loader = DataLoader(TensorDataset(x, y), 8, shuffle=True)
if kind == "gan":
    x = x.nan_to_num()
    loader = DataLoader(TensorDataset(x, y), 8, shuffle=True)
    one, two = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    first, second = torch.optim.Adam(one.parameters(), 1e-3), torch.optim.SGD(two.parameters(), 1e-2)
    hook = smd.record(two, sys.argv[1], second, first, overwrite=True, replay="auto")
    hook.register_module(one)
    for number, (rows, _) in enumerate(loader):
        fake = one(torch.randn(len(rows), 4))
        second.zero_grad()
        (F.softplus(-two(rows)).mean() + F.softplus(two(fake.detach())).mean()).backward()
        second.step()
        first.zero_grad()
        F.softplus(-two(fake)).mean().backward()
        first.step()
        if number == 30:
            hook.dump("a test")
else:
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)
    hook = smd.record(model, sys.argv[1], overwrite=True, replay="auto")
    if kind == "changed":
        offset = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    for epoch in range(2):
        model.train()
        for step, (rows, labels) in enumerate(loader):
            if kind == "accumulation":
                (F.cross_entropy(model(rows), labels) / 2).backward()
                if step % 2 == 0:
                    continue
            else:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(rows + random.random() * 0.1), labels)
                (loss + offset * 0.1 if kind == "changed" else loss).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if kind == "accumulation":
                optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for rows, labels in loader:
                model(rows)
print("trained")
"""


def replay(folder, *arguments):
    command = [sys.executable, "-m", "smdwidgets", "replay", str(folder / "run"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, cwd=folder, env=os.environ)


@pytest.mark.parametrize("kind", ["plain"])
def test_script_is_run_again_bit_for_bit_and_writes_nothing(kind, tmp_path):
    done = run_script(SCRIPT, tmp_path, tmp_path / "run", kind)
    assert done.returncode == 0, done.stderr
    files = sorted(path for path in (tmp_path / "run").rglob("*") if path.is_file())
    contents = [path.read_bytes() for path in files]
    again = replay(tmp_path, "--json", "--", "python", "train.py", tmp_path / "run", kind)
    assert again.returncode == 0, again.stderr
    result = json.loads(again.stdout)
    assert all(one["equal"] for one in result["steps"])
    assert result["text"] == f"bit-equal, {len(result['steps'])} of {len(result['steps'])} steps"
    assert len(result["steps"]) >= 4
    assert sorted(path for path in (tmp_path / "run").rglob("*") if path.is_file()) == files
    assert [path.read_bytes() for path in files] == contents


def test_rows_are_shown_without_a_command_and_a_change_is_noticed(tmp_path):
    done = run_script(SCRIPT, tmp_path, tmp_path / "run", "changed")
    assert done.returncode == 0, done.stderr
    with create_trial(tmp_path / "run") as trial:
        incident = trial.incidents()[0]
        rows = incident.row_ids()
    assert 300 in rows
    shown = replay(tmp_path)
    assert shown.returncode == 0, shown.stderr
    line = next(line for line in shown.stdout.splitlines() if line.startswith("> "))
    assert line.split()[1] == str(incident.step)
    assert ", ".join(map(str, rows)) in line
    assert "train.py:" in shown.stdout
    changed = replay(tmp_path, "--", "python", "train.py", tmp_path / "run", "changed", "1")
    assert changed.returncode == 1, changed.stderr
    first = changed.stdout.splitlines()[0]
    assert "differs (the loss is " in first
    assert "differs from step" in changed.stdout.splitlines()[-1]


def test_a_script_that_trains_something_else_is_an_error(tmp_path):
    done = run_script(SCRIPT, tmp_path, tmp_path / "run", "plain")
    assert done.returncode == 0, done.stderr
    other = tmp_path / "other.py"
    other.write_text("import torch\nm = torch.nn.Linear(2, 2)\nm(torch.ones(1, 2)).sum().backward()\n")
    answer = replay(tmp_path, "--", "other.py")
    assert answer.returncode == 2
    assert "no model with the parameters of the recording was trained" in answer.stderr
    other.write_text("raise ValueError('no data')\n")
    answer = replay(tmp_path, "--", "other.py")
    assert answer.returncode == 2
    assert "the script failed: ValueError: no data" in answer.stderr
    answer = replay(tmp_path, "--incident", "99")
    assert answer.returncode == 2
    assert "--incident must be a number from 1 to" in answer.stderr


DIVIDES = """
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import smdwidgets.pytorch as smd

class Shares(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        total = x.sum(1, keepdim=True)
        return self.head(x / total)

torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.rand(320, 6), torch.randint(0, 3, (320,))
if sys.argv[1] == "zeros":
    x[213] = 0
model = Shares()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
hook = smd.record(model, "run", overwrite=True, replay=True)
for number, (rows, labels) in enumerate(DataLoader(TensorDataset(x, y), 16, shuffle=True)):
    optimizer.zero_grad()
    F.cross_entropy(model(rows), labels).backward()
    optimizer.step()
    if sys.argv[1] == "error" and number == 15:
        F.cross_entropy(model(rows), labels + 3)
hook.close()
"""


@pytest.mark.parametrize("fault", ["zeros", "error"])
def test_script_that_is_run_again_names_operator_line_and_row(fault, tmp_path):
    done = run_script(DIVIDES, tmp_path, fault)
    assert (done.returncode == 0) == (fault == "zeros"), done.stderr
    again = replay(tmp_path, "--explain", "--json", "--", "python", "train.py", fault)
    assert again.returncode == 0, again.stdout + again.stderr
    explained = json.loads(again.stdout)["explanation"]
    lines = DIVIDES.splitlines()
    if fault == "zeros":
        assert (explained["kind"], explained["operator"], explained["value"]) == ("operator", "aten.div", "NaN")
        assert explained["module"] == "Shares"
        assert explained["dataset_rows"] == [213]
        assert explained["user"]["line"] == 1 + lines.index("        return self.head(x / total)")
        assert explained["verified"].startswith("bit-equal, ")
    else:
        assert (explained["kind"], explained["value"]) == ("error", "IndexError")
        assert explained["user"]["line"] == 1 + lines.index("        F.cross_entropy(model(rows), labels + 3)")
    shown = replay(tmp_path, "--explain", "--", "python", "train.py", fault)
    assert "train.py:" in shown.stdout
    assert shown.stdout.splitlines()[0] == explained["text"].splitlines()[0]


def test_changes_and_rows_are_tried_on_the_command_line(tmp_path):
    done = run_script(DIVIDES, tmp_path, "zeros")
    assert done.returncode == 0, done.stderr
    for option in (("--explain",), ("--what-if", "clip=1"), ("--rows",)):
        answer = replay(tmp_path, *option)
        assert answer.returncode == 2
        assert "add the command that trained" in answer.stderr
    answer = replay(tmp_path, "--what-if", "speed=1")
    assert answer.returncode == 2
    assert "invalid change 'speed=1'" in answer.stderr
    with create_trial(tmp_path / "run") as trial:
        row = trial.incidents()[0].row_ids().index(213)
    changes = ("--what-if", f"drop_rows={row}", "--what-if", "clip=1;lr=0.1x")
    answer = replay(tmp_path, *changes, "--rows", "--json", "--", "python", "train.py", "zeros")
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert [one["heals"] for one in result["what_if"]] == [True, False]
    assert [one["change"] for one in result["what_if"]] == [f"without row {row}", "learning rate 0.1x, clip 1"]
    assert result["ranking"]["claims"] == [f"row {row} is not finite"]
    assert result["ranking"]["rows"][0]["identity"] == 213
    assert len(result["ranking"]["rows"]) == 16
    answer = replay(tmp_path, "--what-if", "all", "--", "python", "train.py", "zeros")
    assert answer.returncode == 0, answer.stderr
    assert "clip 1 from step" in answer.stdout
    assert "stays" in answer.stdout
    answer = replay(tmp_path, "--what-if", "drop_rows=99", "--", "python", "train.py", "zeros")
    assert answer.returncode == 0, answer.stderr
    assert "invalid drop_rows [99]" in answer.stdout


def test_names_of_the_loop_that_hold_the_batch_keep_the_recorded_one(tmp_path):
    # The keyframe is later than the first step, when the names of the loop refer to the batch before.
    done = run_script(DIVIDES.replace("x[213]", "x[319]").replace(", 16, shuffle=True", ", 8"), tmp_path, "zeros")
    assert done.returncode == 0, done.stderr
    with create_trial(tmp_path / "run") as trial:
        assert trial.incidents()[0].replay.steps[0] > 0
    again = replay(tmp_path, "--json", "--", "python", "train.py", "zeros")
    assert again.returncode == 0, again.stdout + again.stderr

"""The first operator that differs between two trainings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from endings.running import run_script
from frameworks.plain_execution import PlainExecution
from smdwidgets import create_trial
from smdwidgets.cli import main
from smdwidgets.replay.fingerprints import Fingerprints
from smdwidgets.replay.operators import Executed, first_operator

AT, STEPS = 6, 8

Change = dict[str, Any]


class Net(nn.Module):
    """A network with parts that a change replaces from step `AT` on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm, self.drop = nn.Linear(6, 16), nn.LayerNorm(16), nn.Dropout(0.1)
        self.mix = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
        self.batch_norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 3)
        self.change: Change = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x) * self.change.get("scale", 1.0)  # LINE scale
        x = self.drop(self.norm(x))  # LINE dropout
        x = self.change.get("activation", F.relu)(x)  # LINE activation
        x = self.batch_norm(self.mix(x))  # LINE mix
        if "sorted" in self.change:
            x = x.sort(1).values  # LINE sorted
        if "rounded" in self.change:
            x = x.half().float()  # LINE rounded
        return self.head(x.clamp(max=self.change.get("clamp", 9.0)))  # LINE clamp


def _execution(change: Change) -> PlainExecution:
    torch.manual_seed(1)
    x, y = torch.randn(STEPS, 8, 6), torch.randint(0, 3, (STEPS, 8))
    if "row" in change:
        x[AT, change["row"]] *= 2
    if "label" in change:
        y[AT, change["label"]] = (y[AT, change["label"]] + 1) % 3
    model = Net()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, 1e-2, foreach=change.get("foreach", False))
    torch.manual_seed(2)

    def step(batch: Any) -> torch.Tensor:
        number, rows, labels = batch
        now = change if number >= AT else {}
        model.change = now
        model.norm.eps = now.get("norm_eps", 1e-5)
        model.drop.p = now.get("dropout", 0.1)
        model.batch_norm.momentum = now.get("momentum", 0.1)
        model.mix[1] = now.get("layer", nn.ReLU)()
        if "noise" in now:
            torch.rand(())
        if "zero_grad" not in now:
            optimizer.zero_grad()
        with torch.autocast("cpu", enabled="autocast" in now):
            out = model(rows)
        loss = F.cross_entropy(out.float(), labels, label_smoothing=now.get("smoothing", 0.0))  # LINE smoothing
        if "penalty" in now:
            loss = loss + 0.01 * sum(one.square().sum() for one in parameters)  # LINE penalty
        loss.backward()
        if "clip" in now:
            nn.utils.clip_grad_norm_(parameters, now["clip"])  # LINE clip
        optimizer.param_groups[0].update(
            {key: now[key] for key in ("lr", "eps", "weight_decay", "betas") if key in now}
        )
        optimizer.step()  # LINE step
        return loss.detach()

    batches = [(number, x[number], y[number]) for number in range(STEPS)]
    return PlainExecution(step, batches, [model], [optimizer], stops=False)


def _executed(change: Change) -> Executed:
    prints = Fingerprints(AT)
    _execution(change).run([prints], last=AT)
    executed = prints.executed()
    assert executed is not None
    return executed


def _line(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# LINE {mark}"))


@pytest.fixture(scope="module")
def usual() -> Executed:
    return _executed({})


#: A change, what differs, the operator or given value, and the mark of the line.
CASES: dict[str, tuple[Change, str, str, str]] = {
    "scale": ({"scale": 1.01}, "numbers", "aten.mul", "scale"),
    "activation": ({"activation": F.gelu}, "operator", "aten.relu", "activation"),
    "leaky activation": ({"activation": F.leaky_relu}, "operator", "aten.relu", "activation"),
    "layer": ({"layer": nn.SiLU}, "operator", "aten.relu", "mix"),
    "dropout": ({"dropout": 0.3}, "", "", "dropout"),
    "noise": ({"noise": True}, "", "", ""),
    "norm_eps": ({"norm_eps": 1e-3}, "numbers", "aten.native_layer_norm", "dropout"),
    "momentum": ({"momentum": 0.5}, "numbers", "aten.native_batch_norm", "mix"),
    "sorted": ({"sorted": True}, "operator", "aten.clamp", ""),
    "rounded": ({"rounded": True}, "operator", "aten.clamp", ""),
    "clamp": ({"clamp": 0.5}, "numbers", "aten.clamp", "clamp"),
    "autocast": ({"autocast": True}, "operator", "", ""),
    "row": ({"row": 3}, "given", "batch[1]", ""),
    "label": ({"label": 5}, "given", "batch[2]", ""),
    "smoothing": ({"smoothing": 0.1}, "operator", "", ""),
    "penalty": ({"penalty": True}, "operator", "", ""),
    "zero_grad": ({"zero_grad": False}, "operator", "", ""),
    "clip": ({"clip": 0.01}, "operator", "", ""),
    "lr": ({"lr": 2e-2}, "numbers", "aten.mul_", "step"),
    "eps": ({"eps": 1e-2}, "numbers", "aten.add_", "step"),
    "weight_decay": ({"weight_decay": 0.1}, "numbers", "aten.mul_", "step"),
    "betas": ({"betas": (0.8, 0.999)}, "numbers", "aten.lerp_", "step"),
}


@pytest.mark.parametrize("name", CASES)
def test_first_operator_is_named(name: str, usual: Executed) -> None:
    change, what, operator, mark = CASES[name]
    difference = first_operator(usual, _executed(change))
    assert difference.what == what or (not what and difference.what in ("values", "numbers", "operator")), str(
        difference
    )
    assert difference.a is not None
    assert operator in ("", difference.a.name), str(difference)
    if mark:
        assert difference.a.user is not None
        assert difference.a.user.line == _line(mark), str(difference)
    json.dumps(difference.to_json(), allow_nan=False)


@pytest.mark.parametrize("change", [{}, {"foreach": True}], ids=["one by one", "lists"])
def test_the_same_training_has_no_difference(change: Change) -> None:
    difference = first_operator(_executed(change), _executed(change))
    assert difference.what == "nothing", str(difference)
    assert difference.equal > 30


SCRIPT = """
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import smdwidgets.pytorch as smd

torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.randn(160, 8), torch.randint(0, 3, (160,))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(8, 16), nn.Linear(16, 3)
        self.slope = float(sys.argv[2])

    def forward(self, x):
        return self.head(F.leaky_relu(self.first(x), self.slope))  # CAUSE


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
hook = smd.record(model, sys.argv[1], overwrite=True, replay=True)
for number, (rows, labels) in enumerate(DataLoader(TensorDataset(x, y), 8)):
    optimizer.zero_grad()
    F.cross_entropy(model(rows), labels).backward()
    optimizer.step()
    if number == 5:
        hook.dump("a test")
"""


def test_scripts_are_run_again_and_the_operator_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, slope in (("a", "0.01"), ("b", "0.2")):
        done = run_script(SCRIPT, tmp_path, tmp_path / name, slope)
        assert done.returncode == 0, done.stderr
    commands = [
        f"{sys.executable} {tmp_path}/train.py {tmp_path}/{name} {slope}"
        for name, slope in (("a", "0.01"), ("b", "0.2"))
    ]
    code = main(["bisect", *(str(tmp_path / name) for name in "ab"), "--run-a", commands[0], "--run-b", commands[1]])
    text, errors = capsys.readouterr()
    assert code == 1, errors
    assert "first difference at step 0: " in text
    line = next(
        number for number, one in enumerate((tmp_path / "train.py").read_text().splitlines(), 1) if "# CAUSE" in one
    )
    assert "executed again, step 0:" in text
    assert "aten.leaky_relu is called with other numbers (forward): its defaults and (0.2)" in text, text
    assert f"train.py:{line}: return self.head" in text
    assert "in module 'Net'" in text
    assert "bit-equal" in text
    assert main(["bisect", *(str(tmp_path / name) for name in "ab"), "--run-a", commands[0]]) == 2
    assert "--run-a and --run-b belong together" in capsys.readouterr().err
    with create_trial(tmp_path / "a") as a, create_trial(tmp_path / "b") as b:
        assert b.incidents()
        divergence = a.bisect(b, commands=(None, None))
        assert divergence.operator is None
        assert "this process did not train" in divergence.no_operator
        assert "first operator not known: " in str(divergence)

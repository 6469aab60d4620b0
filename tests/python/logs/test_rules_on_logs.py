"""Rules, commands and reports on logs of SummaryWriter."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from python.logs.logs import log, scalars, writer
from smdwidgets import create_trial
from smdwidgets.cli import main
from smdwidgets.exceptions import NoMoreData
from smdwidgets.rules.builtin import LossNotDecreasing, LossSpike, Overfit, Overtraining, StalledTrainingRule
from smdwidgets.rules.rule import Rule

RNG = np.random.default_rng(7)
STEPS = 120


def falling(step: int) -> float:
    return 2.0 * math.exp(-step / 60) + 0.2


def write(path: Path, **curves: Callable[[int], float]) -> Path:
    """A log written with SummaryWriter; double underscores in names stand for slashes."""
    with writer(path) as out:
        for step in range(STEPS):
            for name, curve in curves.items():
                out.add_scalar(name.replace("__", "/"), curve(step), step)
    return path


def fired(path: Path, rule: type[Rule], **parameters: object) -> list[int]:
    """Return the steps at which a rule fires on a whole log."""
    with create_trial(path, live=False) as trial:
        judge = rule(trial, **parameters)
        steps = []
        for step in trial.steps():
            try:
                if judge.evaluate(step):
                    steps.append(step)
            except NoMoreData:
                break
        return steps


def test_loss_that_stops_decreasing(tmp_path: Path) -> None:
    stuck = write(tmp_path / "stuck", train__loss=lambda step: falling(min(step, 60)))
    steps = fired(stuck, LossNotDecreasing, num_steps=10)
    assert steps
    assert min(steps) > 60
    assert not fired(write(tmp_path / "well", train__loss=falling), LossNotDecreasing, num_steps=10)


def test_spike_in_a_loss_selected_by_regex(tmp_path: Path) -> None:
    run = write(
        tmp_path,
        generator__objective=lambda step: 40.0 if step == 77 else falling(step),
        critic__objective=falling,
    )
    assert fired(run, LossSpike, collection_names="", tensor_regex="generator/.*") == [77]
    assert fired(run, LossSpike, collection_names="", tensor_regex="critic/.*") == []


@pytest.mark.parametrize(
    ("training", "validation"),
    [("train__loss", "val__loss"), ("train_loss", "val_loss"), ("Loss__train", "Loss__test"), ("loss", "val_loss")],
)
def test_validation_loss_that_diverges_from_the_training_loss(tmp_path: Path, training: str, validation: str) -> None:
    over = {training: falling, validation: lambda step: falling(step) * (1 + max(0, step - 50) / 50)}
    steps = fired(write(tmp_path / "over", **over), Overfit, patience=3, ratio_threshold=0.2)
    assert steps
    assert 60 < min(steps) < 70
    well = {training: falling, validation: lambda step: falling(step) * 1.05}
    assert not fired(write(tmp_path / "well", **well), Overfit, patience=3, ratio_threshold=0.2)


def test_validation_loss_once_per_epoch(tmp_path: Path) -> None:
    """As logged by Lightning: validation once per epoch, at other steps than training."""
    for name, gap in (("over", 1.5), ("well", 1.02)):
        with writer(tmp_path / name) as out:
            for step in range(STEPS):
                if step % 10 == 9:
                    out.add_scalar("val_loss", falling(step) * (gap if step > 60 else 1.0), step)
                elif step % 3 == 0:
                    out.add_scalar("train_loss", falling(step), step)
    assert min(fired(tmp_path / "over", Overfit, ratio_threshold=0.2)) == 69
    assert not fired(tmp_path / "well", Overfit, ratio_threshold=0.2)


def test_curves_of_add_scalars_and_keras_directories(tmp_path: Path) -> None:
    with writer(tmp_path / "torch") as out:
        for step in range(STEPS):
            out.add_scalars("loss", {"train": falling(step), "val": falling(step) * (1 + step / 100)}, step)
    assert fired(tmp_path / "torch", Overfit, ratio_threshold=0.5)
    for mode, factor in (("train", 1.0), ("validation", 2.0)):
        log(tmp_path / "keras" / mode, scalars({"epoch_loss": [factor * falling(step) for step in range(20)]}))
    assert fired(tmp_path / "keras", Overfit, ratio_threshold=0.5)


def test_training_that_should_have_ended(tmp_path: Path) -> None:
    done = write(tmp_path / "done", train__loss=lambda step: falling(min(step, 40)))
    steps = fired(done, Overtraining, patience_train=20)
    assert steps
    assert 55 <= min(steps) <= 65
    assert not fired(write(tmp_path / "well", train__loss=lambda step: 10 - step / 20), Overtraining, patience_train=20)


def test_writer_that_has_stalled(tmp_path: Path) -> None:
    run = write(tmp_path, loss=falling)
    with create_trial(run, live=True) as trial:
        rule = StalledTrainingRule(trial, threshold=30)
        last = trial.steps()[-1]
        assert not rule.while_waiting(last, 5.0)
        assert rule.while_waiting(last, 31.0)
        assert "no new step for 31 s" in str(rule.findings[0])


def test_commands_on_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write(tmp_path / "run", train__loss=lambda step: falling(min(step, 40)), lr=lambda step: 0.1)
    assert main(["inspect", str(run), "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["collections"]["losses"] == 1
    assert {tensor["name"] for tensor in output["tensors"]} == {"train/loss", "lr"}
    assert output["steps"]["last"] == STEPS - 1
    assert main(["check", str(run), "--rules", "LossNotDecreasing", "--param", "LossNotDecreasing.num_steps=10"]) == 1
    assert "train/loss" in capsys.readouterr().out
    page = tmp_path / "report.html"
    assert main(["report", str(run), "--output", str(page)]) == 0
    assert "smdw-page" in page.read_text("utf-8")
    assert main(["show", str(run), "train/loss"]) == 0
    assert main(["verify", str(run)]) == 0
    file = next(run.iterdir())
    damaged = bytearray(file.read_bytes())
    damaged[200] ^= 1
    file.write_bytes(damaged)
    capsys.readouterr()
    assert main(["verify", str(run)]) == 1
    assert "reading resumed at byte" in capsys.readouterr().out

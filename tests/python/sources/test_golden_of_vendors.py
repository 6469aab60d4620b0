"""Small runs written by the libraries of W&B, trackio, Neptune, Polars and DuckDB."""

from __future__ import annotations

import math

import pytest

import smdwidgets

LOSSES = dict(zip(range(0, 60, 10), [2.5, 1.75, 1.25, 1.0, 0.875, 0.75], strict=True))
VAL_LOSSES = {20: 1.5, 50: 1.125}


def values(trial, name):
    return {step: value.item() for step, value in trial.tensor(name).values().items()}


def test_wandb(source_runs):
    trial = smdwidgets.create_trial(source_runs / "wandb")
    assert set(trial.tensor_names()) == {"train/loss", "val_loss", "part.deep.x", "spread", "hist"}
    assert values(trial, "train/loss") == LOSSES
    assert values(trial, "val_loss") == VAL_LOSSES
    assert values(trial, "part.deep.x") == {step: -loss for step, loss in LOSSES.items()}
    assert math.isnan(values(trial, "spread")[50])
    times = trial.scalars("train/loss")["wall_time"].tolist()
    assert times == sorted(times)
    assert 1.79e9 < times[0] < 1.8e9
    assert trial.hparams() == {
        "lr": 0.125,
        "model/width": 4,
        "wandb.name": "first",
        "wandb.group": "group",
        "wandb.project": "golden",
        "wandb.tags": "a, b",
    }
    assert trial.identity() == {"name": "first", "group": "group"}
    assert trial.loaded_all_steps
    assert trial.problems() == []
    assert trial.tensor("hist").steps() == [20, 50]
    buckets = trial.tensor("hist").value(50)
    assert buckets.shape == (64, 3)
    assert buckets[:, 2].sum() == 3
    assert (buckets[0].tolist(), buckets[-1].tolist()) == ([1, 1.015625, 1], [1.984375, 2, 2])


def test_wandb_with_histograms_system_and_summary(source_runs):
    trial = smdwidgets.create_trial(source_runs / "wandb_overfit")
    names = set(trial.tensor_names())
    assert {"loss", "val_loss", "epoch", "gradients", "layer.weights", "layer.norm"} <= names
    assert {"best_epoch", "val_loss.min", "system.memory_percent", "system.proc.cpu.threads"} <= names
    assert trial.tensor("layer.weights").value(40).tolist() == [[0, 0.5, 3], [0.5, 2, 1]]
    counts = {step: value[:, 2].sum() for step, value in trial.tensor("gradients").values().items()}
    assert counts == {0: 1000, 20: 1000, 40: 1000}
    losses = values(trial, "val_loss")
    assert values(trial, "best_epoch") == {59: min(losses, key=losses.__getitem__)}
    assert values(trial, "val_loss.min") == {59: min(losses.values())}
    settings = trial.hparams()
    assert (settings["wandb.notes"], settings["wandb.job_type"]) == ("a note", "train")
    assert trial.problems() == []


def test_trackio(source_runs):
    trials = smdwidgets.create_trials(source_runs / "trackio")
    assert list(trials) == ["golden.db/first", "golden.db/second"]
    assert values(trials["golden.db/first"], "train/loss") == LOSSES
    assert values(trials["golden.db/second"], "train/loss") == {step: loss + 1 for step, loss in LOSSES.items()}
    assert values(trials["golden.db/first"], "val_loss") == VAL_LOSSES
    assert math.isnan(values(trials["golden.db/first"], "spread")[50])
    assert trials["golden.db/first"].hparams() == {"lr": 0.125, "model/width": 4}


def test_neptune(source_runs):
    pytest.importorskip("pyarrow")
    [trial] = smdwidgets.create_trials(source_runs / "neptune").values()
    assert values(trial, "metrics/train/loss") == LOSSES
    assert values(trial, "metrics/val/loss") == VAL_LOSSES
    assert math.isnan(values(trial, "metrics/spread")[50])
    settings = trial.hparams()
    assert (settings["params/lr"], settings["params/width"], settings["sys/tags"]) == (0.125, 4, "a, b")
    assert trial.identity() == {"name": "first"}


@pytest.mark.parametrize("name", ["polars", "duckdb"])
def test_parquet(source_runs, name):
    pytest.importorskip("pyarrow")
    trial = smdwidgets.create_trial(source_runs / "parquet" / name)
    assert sorted(trial.tensor_names()) == ["train/loss", "val_loss"]
    assert values(trial, "train/loss") == LOSSES
    assert values(trial, "val_loss") == VAL_LOSSES

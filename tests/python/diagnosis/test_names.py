"""Series that are no losses, and partners of validation losses."""

from __future__ import annotations

import numpy as np
import pytest

import smdwidgets
from python.diagnosis import curves
from smdwidgets.cli import main

STEPS = np.arange(4000)
LOSS = 2.5 * np.exp(-STEPS / 1500) + 0.3 + np.random.default_rng(0).normal(0, 0.03, 4000)
NO_LOSSES = {
    "loss_scale": 65536 * 2.0 ** np.minimum(STEPS // 500, 7),
    "train/loss_scale": np.where(STEPS % 500 < 250, 65536.0, 131072.0),
    "grad_scaler/scale": 65536 * 2.0 ** np.minimum(STEPS // 1000, 16),
    "lr_scale": np.minimum(1.0, STEPS / 100),
    "loss_weight": np.minimum(1, STEPS / 2000),
    "error_count": np.cumsum(np.random.default_rng(1).random(4000) < 0.01).astype(float),
    "n_loss_tokens": 512.0 * STEPS,
    "cost_usd": STEPS * 0.002,
    "gpu_cost": STEPS * 0.01 + 0.5,
    "loss_fn_time": 0.01 + STEPS * 1e-5,
}


@pytest.mark.parametrize("name", NO_LOSSES)
def test_series_beside_a_healthy_loss_give_no_finding(name):
    result = smdwidgets.diagnose({"loss": (STEPS, LOSS), name: (STEPS, NO_LOSSES[name])})
    assert result.findings == ()


def test_the_gradient_of_a_parameter_is_no_loss_scale():
    gradient = -0.9 * np.exp(-STEPS / 400)
    for name in ("gradient/model_log_scale", "gradient/loss_scale"):
        for values in (gradient, -gradient):
            assert not smdwidgets.diagnose({"loss": (STEPS, LOSS), name: (STEPS, values)}).findings


def test_log_of_mixed_precision_is_healthy(tmp_path):
    rows = zip(STEPS, LOSS, NO_LOSSES["loss_scale"], strict=True)
    lines = ["step,train_loss,loss_scale,lr", *(f"{step},{loss},{scale},0.001" for step, loss, scale in rows)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n", "utf-8")
    assert main(["diagnose", str(tmp_path / "log.csv")]) == 0


@pytest.mark.parametrize("others", [["train_runtime"], []])
def test_a_summary_is_no_partner_of_a_validation_loss(others):
    steps = curves.steps()
    log = {
        "loss": (steps, curves.falling()),
        "eval_loss": (steps, curves.rising_after(0.4, height=1.5)),
        "train_loss": (steps[-1:], [0.5]),
        **{name: (steps[-1:], [100.0]) for name in others},
    }
    [finding] = smdwidgets.diagnose(log).findings
    assert (finding.kind, tuple(finding.names)) == ("overfit", ("eval_loss", "loss"))


@pytest.mark.parametrize("validation", ["dev_loss", "holdout/loss", "valLoss", "loss/test", "validation_loss"])
def test_overfitting_is_found_with_any_word_for_held_out_data(validation):
    steps = curves.steps()
    log = {"loss": (steps, curves.falling()), validation: (steps, curves.rising_after(0.4, height=1.5))}
    assert [finding.kind for finding in smdwidgets.diagnose(log).findings] == ["overfit"]


@pytest.mark.parametrize("name", ["rewards/rejected", "rewards/chosen", "eval_rewards/rejected"])
def test_falling_rewards_of_preference_training_are_healthy(name):
    steps = curves.steps()
    log = {"loss": (steps, curves.falling()), name: (steps, 1 - curves.reward())}
    assert smdwidgets.diagnose(log).findings == ()

"""Precision-recall curves of logs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from python.logs.logs import event, log, tensor, value
from smdwidgets import create_trial
from smdwidgets.exceptions import CorruptDataError, SMDebugValueError, TensorUnavailableForStep
from smdwidgets.trials import TensorBoardTrial


def test_a_curve_is_that_of_the_predictions(log_runs: Path) -> None:
    labels = np.arange(200) % 2
    with create_trial(log_runs / "trained") as trial:
        assert isinstance(trial, TensorBoardTrial)
        for step in trial.tensor("pr").steps():
            scores = np.where(labels == 1, 0.3 + step / 100, 0.25) + np.linspace(0, 0.2, 200)
            table = trial.pr_curve("pr", step)
            assert table["threshold"].tolist() == pytest.approx(np.linspace(0, 1, 11))
            for i, threshold in enumerate(np.arange(11)):
                positive = np.floor(scores * 10) >= threshold
                found = positive[labels == 1].sum()
                assert table["true_positives"][i] == found
                assert table["false_positives"][i] == positive.sum() - found
                assert table["recall"][i] == pytest.approx(found / 100)
                expected = found / positive.sum() if positive.any() else np.nan
                assert table["precision"][i] == pytest.approx(expected, nan_ok=True)
        assert list(table)[:3] == ["threshold", "precision", "recall"]


def test_other_tensors_and_steps_are_refused(log_runs: Path, tmp_path: Path) -> None:
    with create_trial(log_runs / "trained") as trial:
        assert isinstance(trial, TensorBoardTrial)
        with pytest.raises(SMDebugValueError, match="cannot read 'train_loss' as a precision-recall curve"):
            trial.pr_curve("train_loss", 0)
        with pytest.raises(TensorUnavailableForStep):
            trial.pr_curve("pr", 10)
    content = value("pr", tensor(np.zeros((5, 3), np.float32), 1), plugin="pr_curves")
    log(tmp_path, event(content))
    with create_trial(tmp_path) as trial:
        assert isinstance(trial, TensorBoardTrial)
        with pytest.raises(CorruptDataError, match=r"must have the shape \(6, thresholds\), got \(5, 3\)"):
            trial.pr_curve("pr", 0)

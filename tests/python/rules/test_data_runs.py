"""Rules on inputs and outputs of models, several workers, trees and stalled runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python.rules.data_trainings import boost, classify, data_parallel, embed
from python.rules.test_trainings import first_firing
from smdwidgets import create_trial
from smdwidgets.exceptions import NoMoreData
from smdwidgets.numpy import Hook
from smdwidgets.rules import Call, RuleRunner, StalledTrainingRule, invoke_rule
from smdwidgets.rules.report import XgboostReport
from smdwidgets.stop import stop_requested


def test_class_imbalance(tmp_path: Path) -> None:
    classify(tmp_path / "sick", rare=0.03)
    assert first_firing("ClassImbalance", tmp_path / "sick") == 5  # 500 labels
    classify(tmp_path / "healthy")
    assert first_firing("ClassImbalance", tmp_path / "healthy") is None


def test_confusion(tmp_path: Path) -> None:
    classify(tmp_path / "sick", swapped=7)
    assert first_firing("Confusion", tmp_path / "sick") == 7
    classify(tmp_path / "healthy")
    assert first_firing("Confusion", tmp_path / "healthy", category_no="3") is None


def test_check_input_images(tmp_path: Path) -> None:
    classify(tmp_path / "sick", mean=0.5)
    assert first_firing("CheckInputImages", tmp_path / "sick", threshold_mean=0.45) == 4
    classify(tmp_path / "healthy")
    assert first_firing("CheckInputImages", tmp_path / "healthy", threshold_mean=0.45) is None


def test_nlp_sequence_ratio(tmp_path: Path) -> None:
    embed(tmp_path / "sick", padded_from=5)
    embed(tmp_path / "healthy")
    assert first_firing("NLPSequenceRatio", tmp_path / "sick") == 5
    assert first_firing("NLPSequenceRatio", tmp_path / "healthy") is None


def test_worker_divergence(tmp_path: Path) -> None:
    data_parallel(tmp_path / "sick", lost_at=6)
    assert first_firing("WorkerDivergence", tmp_path / "sick") == 7
    data_parallel(tmp_path / "healthy", lost_at=99)
    assert first_firing("WorkerDivergence", tmp_path / "healthy") is None


def test_result_is_independent_of_the_write_order(tmp_path: Path) -> None:
    verdicts = []
    for name, order in (("a", [0, 1, 2]), ("b", [2, 0, 1])):
        data_parallel(tmp_path / name, lost_at=6, order=order)
        rules = [
            "WorkerDivergence",
            "LossNotDecreasing",
            "WeightUpdateRatio",
            "GradientNormSpike",
            "ExplodingTensor",
            "LossSpike",
        ]
        runner = RuleRunner(create_trial(tmp_path / name), rules).start()
        assert runner.wait(60)
        verdicts.append({each.name: each.outcomes for each in runner})
    assert verdicts[0] == verdicts[1]


def test_trees_and_features(tmp_path: Path) -> None:
    boost(tmp_path / "sick", depth_from=4, heavy_from=6)
    boost(tmp_path / "healthy")
    assert first_firing("TreeDepth", tmp_path / "sick") == 4
    assert first_firing("TreeDepth", tmp_path / "healthy") is None
    assert first_firing("FeatureImportanceOverweight", tmp_path / "sick") == 6
    assert first_firing("FeatureImportanceOverweight", tmp_path / "healthy") is None


SECTIONS = {
    "binary": ["labels", "Loss", "importance", "Confusion", "Precision", "Accuracy", "ROC", "Hyper"],
    "multi": ["labels", "Loss", "importance", "Confusion", "Precision", "Accuracy", "Hyper"],
    "regression": ["labels", "Loss", "importance", "residuals", "error by label", "Hyper"],
}


@pytest.mark.parametrize("task", SECTIONS)
def test_xgboost_report(tmp_path: Path, task: str, run_python: Callable[[str], str]) -> None:
    boost(tmp_path / "run", task=task)
    trial = create_trial(tmp_path / "run")
    report = XgboostReport(trial)
    assert report.task == {"multi": "multiclass"}.get(task, task)
    titles = [section.title for section in report.sections()]
    assert len(titles) == len(SECTIONS[task])
    assert all(part in title for part, title in zip(SECTIONS[task], titles, strict=True))
    assert not any("Not shown" in remark for section in report.sections() for remark in section.remarks)
    runner = RuleRunner(trial, ["CreateXgboostReport"]).start()
    assert runner.wait(60)
    assert runner.status == {"CreateXgboostReport": "NoIssuesFound"}
    folder = tmp_path / "run" / "rule-output" / "CreateXgboostReport"
    page = (folder / "xgboost_report.html").read_text()
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "<script" not in page
    assert "style=" not in page
    assert "http" not in page.replace('http-equiv="', "").replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "f&lt;0&gt;" in page
    assert "f<0>" not in page
    notebook = json.loads((folder / "xgboost_report.ipynb").read_text())
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    assert "ran" in run_python(code + "\nprint('ran')")
    assert sorted(path.name for path in folder.iterdir()) == ["xgboost_report.html", "xgboost_report.ipynb"]


def test_report_of_a_run_without_its_data(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        hook.save_tensor("a", np.ones(3))
        hook.step()
    report = XgboostReport(create_trial(tmp_path / "run"))
    assert all("Not shown" in section.remarks[0] for section in report.sections())
    assert report.html()


# ----------------------------------------------------------------------------------------------------- stalled runs


def running(path: Path, steps: int = 3) -> Hook:
    hook = Hook(path)
    for step in range(steps):
        hook.save_tensor("loss", 1.0 / (step + 1), "losses")
        hook.step()
    return hook


def test_stalled_training(tmp_path: Path) -> None:
    hook = running(tmp_path / "run")
    heard: list[tuple[Any, ...]] = []
    trial = create_trial(tmp_path / "run", wait=30)
    trial.wait_for_steps([2], timeout=30)
    rule = StalledTrainingRule(trial, threshold="0.3")
    rule.actions = type(rule.actions)(Call(lambda *args: heard.append(args)))
    runner = RuleRunner(trial, [rule]).start()
    for event in runner.events(timeout=30):
        if event.kind == "fired":
            assert event.step == 2
            assert "no new step for" in event.message
            break
    hook.save_tensor("loss", 0.1, "losses")
    hook.step()
    hook.close()
    assert runner.wait(30)
    assert runner["StalledTrainingRule"].first_firing is not None
    assert runner.status == {"StalledTrainingRule": "IssuesFound"}
    assert [args[:2] for args in heard] == [("StalledTrainingRule", 2)]


def test_ended_run_is_not_stalled(tmp_path: Path) -> None:
    running(tmp_path / "run").close()
    rule = StalledTrainingRule(create_trial(tmp_path / "run"), threshold=0)
    with pytest.raises(NoMoreData):
        invoke_rule(rule, raise_eval_cond=True)
    assert not rule.findings


def test_stalled_training_rule_stops_the_training(tmp_path: Path) -> None:
    hook = running(tmp_path / "run")
    trial = create_trial(tmp_path / "run", wait=30)
    trial.wait_for_steps([2], timeout=30)
    time.sleep(0.05)
    runner = RuleRunner(trial, follow=False)
    runner.add("StalledTrainingRule", threshold="0.01", stop_training_on_fire="True")
    runner.start()
    assert runner.wait(30)
    request = stop_requested(tmp_path / "run")
    assert request is not None
    assert request.by == "StalledTrainingRule"
    hook.close()

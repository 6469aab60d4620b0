"""Rules on what goes in and comes out of a model, on runs of several workers, of trees, and on silence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from python.rules.test_trainings import first_firing
from smdwidgets import create_trial
from smdwidgets._core import StepWriter
from smdwidgets.numpy import Hook
from smdwidgets.rules import Call, RuleRunner, StalledTrainingRule, invoke_rule
from smdwidgets.rules.report import XgboostReport
from smdwidgets.stop import stop_requested


def classify(
    path: Path, *, mean: float = 0.0, rare: float = 1 / 3, swapped: int | None = None, steps: int = 12
) -> None:
    """Softmax regression on small images of three classes; `rare` is the share of class 2, `swapped` the step from which class 1 is
    labelled 2 and the other way round, as a data set that was joined wrongly would."""
    random = np.random.default_rng(1)
    prototypes = random.normal(size=(3, 48))
    weight = np.zeros((48, 3))
    shares = np.array([(1 - rare) / 2, (1 - rare) / 2, rare])
    with Hook(path) as hook:
        for step in range(steps):
            labels = random.choice(3, size=100, p=shares)
            pixels = prototypes[labels] + 0.1 * random.normal(size=(100, 48))
            images = (pixels - pixels.mean()).reshape(100, 3, 4, 4) + mean
            if swapped is not None and step >= swapped:
                labels = np.array([0, 2, 1])[labels]
            scores = np.exp(pixels @ weight)
            scores /= scores.sum(axis=1, keepdims=True)
            if step:  # before the first update all predictions are equal
                hook.save_tensor("labels", labels, "labels")
                hook.save_tensor("predictions", scores, "predictions")
            hook.save_tensor("Net_input_0", images, "inputs")
            hook.step()
            weight += 2.0 * pixels.T @ (np.eye(3)[labels] - scores) / 100


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
    for name, padded_from in (("sick", 5), ("healthy", 99)):
        random = np.random.default_rng(0)
        table = random.normal(size=(50, 4))
        with Hook(tmp_path / name) as hook:
            for step in range(10):
                tokens = random.integers(1, 50, size=(8, 20))
                tokens[:, 7 if step >= padded_from else 12 :] = 0
                table[tokens.reshape(-1)] *= 0.99
                hook.save_tensor("model.embedding_input_0", tokens, "inputs")
                hook.step()
    assert first_firing("NLPSequenceRatio", tmp_path / "sick") == 5
    assert first_firing("NLPSequenceRatio", tmp_path / "healthy") is None


def data_parallel(path: Path, *, lost_at: int, workers: int = 3, order: list[int] | None = None) -> None:
    """Data-parallel least squares: gradients are averaged over workers, but from `lost_at` on worker 1 only uses its own."""
    (path / "collections" / "000000000").mkdir(parents=True)
    collection = {
        "include_regex": [], "reduction_config": None, "save_config": None, "save_histogram": True,
    }  # fmt: skip
    for worker in range(workers):
        told = {
            "collections": {
                name: {**collection, "name": name, "tensor_names": [tensor]}
                for name, tensor in (("weights", "w"), ("gradients", "gradient/w"), ("losses", "loss"))
            },
            "_meta": {"num_workers": workers},
        }
        target = path / "collections" / "000000000" / f"worker_{worker}_collections.json"
        target.write_text(json.dumps(told))
    random = np.random.default_rng(2)
    truth = random.normal(size=5)
    weights = [np.zeros(5) for _ in range(workers)]
    for step in range(12):
        batches = [random.normal(size=(32, 5)) for _ in range(workers)]
        errors = [x @ w - x @ truth for x, w in zip(batches, weights, strict=True)]
        slopes = [2 * x.T @ error / 32 for x, error in zip(batches, errors, strict=True)]
        mean = np.mean(slopes, axis=0)
        for worker in order or range(workers):
            writer = StepWriter(str(path), step, f"worker_{worker}", 4, step)
            writer.tensor("w", weights[worker])
            writer.tensor("gradient/w", slopes[worker])
            writer.tensor("loss", np.float64((errors[worker] ** 2).mean()))
            writer.finish()
        weights = [w - 0.1 * (slopes[k] if step >= lost_at and k == 1 else mean) for k, w in enumerate(weights)]
    (path / "training_job_end.ts").write_text("")


def test_worker_divergence(tmp_path: Path) -> None:
    data_parallel(tmp_path / "sick", lost_at=6)
    assert first_firing("WorkerDivergence", tmp_path / "sick") == 7
    data_parallel(tmp_path / "healthy", lost_at=99)
    assert first_firing("WorkerDivergence", tmp_path / "healthy") is None


def test_the_order_of_writing_changes_no_verdict(tmp_path: Path) -> None:
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


def boost(path: Path, *, depth_from: int = 99, heavy_from: int = 99, task: str = "binary") -> None:
    """What a boosting's hook saves: metrics that fall, importances, labels, predictions that get better, and trees."""
    random = np.random.default_rng(3)
    labels = {
        "binary": random.integers(0, 2, 80),
        "multi": random.integers(0, 3, 90),
        "regression": random.normal(size=80),
    }[task]
    with Hook(path) as hook:
        for step in range(10):
            if step == 0:
                hook.save_tensor("hyperparameters/max_depth", np.array(4), "hyperparameters")
            hook.save_tensor("train-rmse", np.float64(1.0 / (step + 1)), "metrics")
            hook.save_tensor("validation-rmse", np.float64(1.2 / (step + 1) + 0.1), "metrics")
            for feature in range(6):
                weight = 100.0 if feature == 0 and step >= heavy_from else 5.0 + feature
                for kind in ("weight", "gain", "cover"):
                    hook.save_tensor(
                        f"feature_importance/{kind}/f<{feature}>", np.float64(weight), "feature_importance"
                    )
            noise = 1.0 / (step + 1)
            if task == "binary":
                predictions = np.clip(labels * (1 - noise) + random.random(80) * noise, 0, 1)
            elif task == "multi":
                predictions = np.eye(3)[labels] * (1 - noise) + random.random((90, 3)) * noise
            else:
                predictions = labels + noise * random.normal(size=80)
            hook.save_tensor("labels", labels, "labels")
            hook.save_tensor("predictions", predictions, "predictions")
            depth = 6 if step >= depth_from else 3
            hook.save_tensor("trees/Node", np.arange(2 ** (depth + 1) - 1), "trees")
            hook.step()


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


def test_report_of_a_run_that_holds_none_of_it(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        hook.save_tensor("a", np.ones(3))
        hook.step()
    report = XgboostReport(create_trial(tmp_path / "run"))
    assert all("Not shown" in section.remarks[0] for section in report.sections())
    assert report.html()


# ---------------------------------------------------------------------------------------------------------- silence


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
    rule.actions = type(rule.actions)(Call(lambda *told: heard.append(told)))
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
    assert [told[:2] for told in heard] == [("StalledTrainingRule", 2)]


def test_a_run_that_ended_is_not_stalled(tmp_path: Path) -> None:
    running(tmp_path / "run").close()
    rule = StalledTrainingRule(create_trial(tmp_path / "run"), threshold=0)
    invoke_rule(rule, raise_eval_cond=True)
    assert not rule.findings


def test_stalled_training_is_stopped(tmp_path: Path) -> None:
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

"""Rules on real boostings: a fault planted in each, and a healthy one.

Each saved by our hook and by smdebug's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import xgboost

sys.path.insert(0, str(Path(__file__).parent))
from ruling import LIBRARIES, Trainings, both, hooks_of, on_both

from smdwidgets import create_trial
from smdwidgets.rules.report import XgboostReport


@pytest.fixture(scope="module", autouse=True)
def a_distribution_called_xgboost(tmp_path_factory):
    """smdebug asks the packaging system for the version of "xgboost".

    The one without a GPU's libraries is called "xgboost-cpu".
    """
    folder = tmp_path_factory.mktemp("packages")
    distribution = folder / f"xgboost-{xgboost.__version__}.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text(f"Metadata-Version: 2.1\nName: xgboost\nVersion: {xgboost.__version__}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def boost(path, library, *, rounds=12, noise=0.1, leak=False, task="binary:logistic", **parameters):
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 6))
    score = x[:, 0] + x[:, 1] - x[:, 2] + x[:, 3] * x[:, 4] + noise * random.normal(size=400)
    y = {"binary:logistic": score > 0, "reg:squarederror": score, "multi:softprob": np.digitize(score, [-1, 1])}[task]
    if leak:
        x[:, 5] = score + 0.1 * random.normal(size=400)
    train, validation = (
        xgboost.DMatrix(x[part], np.asarray(y[part], float)) for part in (slice(0, 250), slice(250, None))
    )
    reported = {"objective": task, "seed": 0, "nthread": 1, "max_depth": 3, **parameters}
    if task.startswith("multi"):
        reported["num_class"] = 3
    smd = hooks_of(library, "xgboost")
    hook = smd.Hook(
        out_dir=str(path),
        save_all=True,
        save_config=smd.SaveConfig(save_interval=1),
        hyperparameters=reported,
        train_data=train,
        validation_data=validation,
    )
    xgboost.train(
        reported,
        train,
        rounds,
        evals=[(train, "train"), (validation, "validation")],
        callbacks=[hook],
        verbose_eval=False,
    )
    hook.close()
    return path


@pytest.fixture(scope="module")
def boosted(tmp_path_factory):
    """A boosting by its faults, saved by a library's hook, done once."""
    trainings = Trainings(tmp_path_factory.mktemp)
    return lambda **faults: trainings(boost, faults)


def test_tree_depth(boosted):
    assert on_both(boosted(max_depth=9, min_child_weight=0), "TreeDepth") == both(0)
    # It takes some rounds until a tree is as deep as it may be.
    growing = boosted(max_depth=6, min_child_weight=12, rounds=15)
    frames = create_trial(growing("smdwidgets"))

    def deepest(step):
        at = lambda column: frames.tensor(f"trees/{column}").value(step).tolist()  # noqa: E731
        depth = dict.fromkeys([each for each in at("ID") if each.endswith("-0")], 0)
        for node, yes, no in zip(at("ID"), at("Yes"), at("No"), strict=True):
            depth |= dict.fromkeys((yes, no), depth[node] + 1)
        return max(depth[node] for node in at("ID"))

    depths = [deepest(step) for step in frames.steps()]
    deeper = next(step for step, depth in enumerate(depths) if depth > depths[0])
    assert on_both(growing, "TreeDepth", depth=depths[0]) == both(deeper)
    assert on_both(boosted(max_depth=4), "TreeDepth") == both(None)


def test_a_feature_that_leaks_the_label(boosted):
    leaking = boosted(leak=True, max_depth=2)
    trial = create_trial(leaking("smdwidgets"))

    def share(step):
        names = trial.tensor_names(step=step, regex="feature_importance/gain")
        gains = [trial.tensor(name).value(step).item() for name in names]
        return max(gains) / sum(gains) if len(gains) > 1 else 0.0

    expected = next(step for step in trial.steps() if share(step) > 0.5)
    reported = {"nfeatures": 1, "threshold": 0.5, "tensor_regex": "feature_importance/gain"}
    assert on_both(leaking, "FeatureImportanceOverweight", **reported) == both(expected)
    assert on_both(boosted(max_depth=5), "FeatureImportanceOverweight", nfeatures="1") == both(None)


def test_overfit(boosted):
    overfitting = boosted(noise=3.0, max_depth=8, rounds=20)
    trial = create_trial(overfitting("smdwidgets"))
    training, validation = trial.tensor("train-logloss"), trial.tensor("validation-logloss")
    expected = next(
        step
        for step in trial.steps()
        if (float(validation.value(step).item()) - training.value(step).item()) / training.value(step).item() > 0.1
    )
    assert on_both(overfitting, "Overfit") == both(expected)
    assert on_both(boosted(max_depth=1, eta=0.1), "Overfit") == both(None)


def test_overtraining(boosted):
    overtrained = boosted(noise=3.0, max_depth=8, rounds=60)
    trial = create_trial(overtrained("smdwidgets"))
    best, since = dict.fromkeys(("train-logloss", "validation-logloss"), np.inf), {}
    expected = None
    for step in trial.steps():
        for name, lowest in best.items():
            loss = trial.tensor(name).value(step).item()
            better = loss <= lowest - 0.01
            best[name], since[name] = (loss, 0) if better else (lowest, since.get(name, 0) + 1)
        if expected is None and since["train-logloss"] >= 5 and since["validation-logloss"] >= 10:
            expected = step
    assert expected
    assert on_both(overtrained, "Overtraining") == both(expected)
    assert on_both(boosted(max_depth=1, eta=0.1), "Overtraining") == both(None)


def test_loss_not_decreasing(boosted):
    assert on_both(boosted(eta=0.0, rounds=15), "LossNotDecreasing") == both(10)
    assert on_both(boosted(rounds=15), "LossNotDecreasing") == both(None)


def test_confusion(boosted):
    # Of labels that are mostly noise nothing can be learnt.
    assert on_both(boosted(noise=9.0), "Confusion") == both(0)
    learning = boosted(rounds=40, max_depth=5, noise=0.0)
    trial = create_trial(learning("smdwidgets"))

    def worst(step):
        labels, said = (trial.tensor(name).value(step) for name in ("labels", "predictions"))
        return min((labels[said.round() == each] == each).mean() for each in (0, 1))

    rates = [worst(step) for step in trial.steps()]
    for floor in (min(rates) - 0.01, rates[0] + 0.01):
        reported = {"min_diag": floor, "max_off_diag": 1 - floor}
        below = next((step for step, rate in enumerate(rates) if rate < floor), None)
        assert on_both(learning, "Confusion", **reported) == both(below)


def test_class_imbalance(boosted):
    def reported(limit):
        return {"samples": 150, "threshold_imbalance": limit, "threshold_misprediction": 1, "argmax": "False"}

    labels = create_trial(boosted()("smdwidgets")).tensor("labels").value(0)
    ratio = max(labels.mean(), 1 - labels.mean()) / min(labels.mean(), 1 - labels.mean())
    assert on_both(boosted(), "ClassImbalance", **reported(ratio * 0.99)) == both(0)
    assert on_both(boosted(), "ClassImbalance", **reported(ratio * 1.01)) == both(None)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("task", "kind"),
    [("binary:logistic", "binary"), ("multi:softprob", "multiclass"), ("reg:squarederror", "regression")],
)
def test_report(tmp_path, boosted, library, task, kind):
    report = XgboostReport(create_trial(boosted(task=task)(library)))
    assert report.task == kind
    assert not [remark for section in report.sections() for remark in section.remarks if "Not shown" in remark]
    assert report.to_html(tmp_path / "report.html").stat().st_size > 10_000

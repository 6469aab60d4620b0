"""What no rule may stumble over: runs that hold nothing, or nothing but NaN, or what a rule does not expect under such a name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from python.rules.memory_trial import MemoryTrial
from smdwidgets import modes
from smdwidgets.rules import BUILTIN, RuleRunner
from smdwidgets.rules.builtin import SelectingRule

#: Names that every rule finds something under.
NAMES = [
    "gradient/fc.weight", "fc.weight", "loss_output_0", "train-rmse", "validation-rmse", "relu0_input_0", "relu0_output_0",
    "tanh0_input_0", "labels", "predictions", "Net_input_0", "embedding0_input_0", "feature_importance/weight/f0",
    "feature_importance/weight/f1", "feature_importance/weight/f2", "feature_importance/weight/f3", "trees/ID", "trees/Yes",
    "trees/No", "trees/Node", "learning_rate",
]  # fmt: skip
COLLECTIONS = {
    "gradients": ["^gradient"],
    "weights": ["^fc"],
    "losses": ["loss", "rmse"],
    "trees": ["^trees"],
    "labels": ["^labels"],
    "predictions": ["^predictions"],
    "metrics": ["rmse"],
}


def run_of(value: Any, steps: int = 25, workers: int = 2) -> MemoryTrial:
    trial = MemoryTrial(**COLLECTIONS)
    for step in range(steps):
        mode = modes.EVAL if step % 5 == 4 else modes.TRAIN
        for name in NAMES:
            for worker in range(workers):
                trial.put(step, name, value, f"worker_{worker}", mode)
    return trial


def judged(trial: MemoryTrial) -> RuleRunner:
    """Every rule on a run; none may raise."""
    runner = RuleRunner(trial)
    for name, rule in BUILTIN.items():
        told: dict[str, Any] = {}
        if name == "SimilarAcrossRuns":
            told["other_trials"] = [trial]
        elif name == "CreateXgboostReport":
            continue  # has tests of its own on such runs
        elif issubclass(rule, SelectingRule) and rule.needs_selector:
            told["tensor_regex"] = "."
        if name == "TensorVariance":
            told |= {"min_threshold": 0, "max_threshold": 1e9}
        runner.add(name, **told)
    assert runner.start().wait(60)
    assert {each.name: each.message for each in runner if each.errors} == {}
    return runner


def fired(runner: RuleRunner) -> set[str]:
    return {each.name for each in runner if each.fired}


def test_nan_everywhere() -> None:
    # Who looks for NaN fires; no limit is above or below NaN. A unit whose inputs are NaN is not between its limits.
    looking = {"ExplodingTensor", "LossSpike", "LearningRateSchedule", "GradientNormSpike"}
    for value in (np.full((20, 4), np.nan), np.float32(np.nan)):
        found = fired(judged(run_of(value)))
        assert "ExplodingTensor" in found
        assert found <= looking | {
            "SaturatedActivation",
            "LossNotDecreasing",
            "Overtraining",
            "PoorWeightInitialization",
        }
    # Of single numbers losses are made: they are lost.
    assert looking <= found


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0, 2)])
def test_tensors_without_elements(shape: tuple[int, ...]) -> None:
    runner = judged(run_of(np.empty(shape)))
    # Nothing is the same as nothing.
    assert fired(runner) <= {"UnchangedTensor"}


@pytest.mark.parametrize(
    "value",
    [
        np.array(["some", "text"]),
        np.array("text"),
        np.array([1 + 2j, 3j]),
        np.array([True, False]),
        np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max]),
        np.array([np.finfo(np.float64).max] * 40).reshape(20, 2),
        np.array([-np.inf, np.inf]),
        np.zeros((1, 1, 1, 1, 1, 1, 1)),
        {"std": 1.0},
    ],
    ids=["text", "one text", "complex", "bool", "int64", "largest", "infinite", "7-d", "a reduction that tells little"],
)
def test_what_nobody_expects_under_these_names(value: Any) -> None:
    judged(run_of(value))


def test_runs_that_hold_nothing() -> None:
    for trial in (MemoryTrial(), MemoryTrial(**{name: [] for name in COLLECTIONS}), run_of(1.0, steps=0)):
        runner = judged(trial)
        assert not fired(runner)
        assert {each.judged for each in runner} == {0}


def test_collections_and_tensors_that_are_missing_are_told() -> None:
    trial = MemoryTrial(gradients=[])
    trial.put(0, "a", np.ones(3))
    runner = judged(trial)
    told = {each.name: each.message for each in runner}
    assert told["VanishingGradient"] == "judged no step: no tensor of collection 'gradients' at this step"
    assert told["FeatureImportanceOverweight"].startswith("judged no step: no tensor of names matching ")
    assert "judged no step" in told["LossNotDecreasing"]
